"""The embedded runner: how fast it is, what memory it takes, and what an archive for reconciliation costs."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "local",
        "the embedded runner against a per-tuple Python join, with the share of each part",
        takes="2 minutes",
        function="local.throughput:run",
        rows=rows(4_000_000, "rows over both streams"),
        options=(
            option("--reference-rows", default=200_000, help="rows that the reference joins"),
            option("--repeat", default=3, help="runs; the best one counts for both sides"),
        ),
        quick={"rows": 100_000, "reference_rows": 20_000, "repeat": 1},
    ),
    Benchmark(
        "memory",
        "peak memory of a join on the embedded runner as its input grows tenfold",
        takes="1 minute",
        function="local.memory:run",
        rows=rows(20_000_000, "rows over both streams of the larger join"),
        quick={"rows": 200_000},
    ),
    Benchmark(
        "reconcile",
        "produced and reconciled results against DuckDB's exact join, and what an archive costs",
        takes="5 minutes",
        function="local.reconcile:run",
        rows=rows(2_000_000, "rows over both streams"),
        options=(option("--runner", choices=("local", "spark"), default="local", help="where to reconcile"),),
        quick={"rows": 20_000},
        needs=("duckdb",),
    ),
)
