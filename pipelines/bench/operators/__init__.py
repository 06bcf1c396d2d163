"""Operators other than the join, each alone in its process and without files."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "aggregate",
        "throughput of SlidingWindowAggregate against two per-tuple readings in Python",
        takes="1 minute",
        function="operators.aggregate:run",
        rows=rows(1_000_000, "rows that the operator takes; the readings in Python take a quarter"),
        options=(option("--rounds", default=5, help="turns; the best one counts for each"),),
        quick={"rows": 20_000, "rounds": 1},
    ),
    Benchmark(
        "group_close",
        "throughput of GroupClose against group-bys of DuckDB and NumPy at the end",
        takes="1 minute",
        function="operators.group_close:run",
        rows=rows(2_000_000, "rows to group"),
        options=(option("--rounds", default=5, help="turns; the best one counts for each"),),
        quick={"rows": 50_000, "rounds": 1},
        needs=("duckdb",),
    ),
)
