"""The join on Spark Structured Streaming."""

from slackwater.pipelines.bench.benchmark import Benchmark, Option, count, option

BENCHMARKS = (
    Benchmark(
        "spark",
        "the join on Structured Streaming against Spark's own, the bytes of its state, and recall by shards",
        takes="1 hour",
        function="spark.comparison:run",
        rows=Option(
            ("--rows",),
            {"type": count, "nargs": "+", "default": [1_000_000, 5_000_000], "help": "over both streams"},
        ),
        seed=7,
        options=(
            option("--batch-rows", default=200_000, help="rows of a micro-batch"),
            option("--repeat", default=2, help="runs; the best one counts for both sides"),
            option("--state-rows", default=600_000, help="rows for the bytes of the state"),
            option("--state-batch-rows", default=20_000, help="rows of a micro-batch there"),
            option("--data", nargs="+", default=["syn3", "flights"], help="data sets for the recall"),
            option("--data-rows", type=int, help="rows per stream there; by default the data set's own number"),
            option("--data-batch-rows", default=40_000, help="rows of a micro-batch there"),
            option("--recall", type=float, nargs="+", default=[0.9, 0.99], help="recalls asked for"),
            option("--shards", type=int, nargs="+", default=[1, 4, 16], help="shards that share the work"),
            option("--only", choices=["throughput", "state", "recall"], help="one part of the benchmark"),
        ),
        quick={
            "rows": [4_000],
            "batch_rows": 2_000,
            "repeat": 1,
            "state_rows": 4_000,
            "state_batch_rows": 1_000,
            "data": ["syn3"],
            "data_rows": 2_000,
            "data_batch_rows": 3_000,
            "recall": [0.9],
            "shards": [1, 2],
        },
        needs=("pyspark",),
    ),
)
