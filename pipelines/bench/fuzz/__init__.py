"""Random and damaged input: nothing may crash, hang or differ silently."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "fuzz",
        "random joins of all Arrow types and file formats against DuckDB, none of which may differ silently",
        takes="1 minute for 1,000 cases",
        function="fuzz.joins:run",
        rows=rows(60, "rows per input, at most"),
        options=(
            option("--cases", default=1000, help="joins to try"),
            option("--first", default=0, help="number of the first one"),
            option("--runner", choices=("local", "beam", "spark"), default="local", help="where the joins run"),
            option("--only", type=int, metavar="NUMBER", help="one case, with its template"),
            option("--keep-going", default=20, metavar="N", help="findings after which to stop"),
        ),
        quick={"cases": 20, "rows": 20},
        needs=("duckdb",),
    ),
    Benchmark(
        "fuzz_templates",
        "mutated templates: each is checked, or refused with a clear error, in time",
        takes="20 minutes",
        function="fuzz.templates:run",
        rows=rows(100_000, "templates to try", "--cases"),
        options=(
            option("--keep", metavar="DIR", help="folder for the templates that did not end as they should"),
        ),
        quick={"rows": 200},
    ),
    Benchmark(
        "fuzz_snapshots",
        "damaged snapshots and journals: each is refused, or does no harm",
        takes="2 minutes",
        function="fuzz.snapshots:run",
        rows=rows(20_000, "states to damage", "--cases"),
        quick={"rows": 200},
    ),
)
