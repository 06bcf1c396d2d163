"""Load shedding: what is kept within a memory, what it costs, and whether the memory is kept to."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "shedding",
        "results kept within a memory, beside the offline optimum, and what shedding costs",
        takes="4 minutes, with --quick 2",
        function="shedding.papers:run",
        rows=rows(None, "rows of a stream; by default each section has its own number"),
        seed=None,
        options=(
            option("--only", choices=("figures", "real", "static", "throughput"), help="run one section only"),
        ),
    ),
    Benchmark(
        "shedding_memory",
        "resident growth of a join that is held to a number of bytes, over that number",
        takes="5 minutes",
        function="shedding.memory:run",
        rows=rows(480_000, "rows over both inputs, in chunks of 20,000"),
        options=(option("--memory", default="64MB", help="what the join may hold"),),
        quick={"rows": 40_000, "memory": "4MB"},
    ),
)
