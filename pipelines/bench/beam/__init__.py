"""The join on Beam: FnApiRunner, and Beam's Spark runner."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "beam",
        "SlidingWindowJoin on FnApiRunner against a stateful DoFn that joins element by element",
        takes="3 minutes",
        function="beam.comparison:run",
        rows=rows(1_000_000, "rows over both inputs"),
        options=(
            option("--reference-rows", default=100_000, help="rows that the DoFn joins"),
            option("--rounds", default=3, help="turns; the best one counts for each"),
        ),
        quick={"rows": 40_000, "reference_rows": 20_000, "rounds": 1},
        seed=0,
        needs=("apache_beam",),
    ),
    Benchmark(
        "beam_memory",
        "memory and speed of a large join on Beam's Spark runner",
        takes="1 minute",
        function="beam.memory:run",
        rows=rows(5_000_000, "rows over both inputs"),
        options=(option("--shards", default=16, help="shards of the join"),),
        quick={"rows": 40_000, "shards": 2},
        seed=0,
        needs=("apache_beam", "psutil"),
    ),
)
