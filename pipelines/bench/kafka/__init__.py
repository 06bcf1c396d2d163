"""A live join of Kafka topics."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "kafka",
        "recall and waiting time of a live join of two Kafka topics on Spark, one partition silent for a while",
        takes="5 minutes",
        function="kafka.live:run",
        rows=rows(1_000_000, "messages over both topics", "--messages"),
        seed=7,
        options=(
            option("--seconds", type=float, default=180.0, help="time over which they are sent"),
            option("--silence", type=float, default=60.0, help="seconds of silence in the middle"),
            option("--silent", choices=("partition", "input"), default="partition", help="what is silent"),
            option("--recall", type=float, default=0.95, help="recall asked for"),
        ),
        quick={"rows": 12_000, "seconds": 20.0, "silence": 8.0},
        needs=("pyspark", "confluent_kafka", "duckdb"),
    ),
)
