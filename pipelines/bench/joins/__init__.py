"""Join strategies: the experiments of their papers."""

from slackwater.pipelines.bench.benchmark import Benchmark, option, rows

BENCHMARKS = (
    Benchmark(
        "joins",
        "state, output and punctuations of join strategies in the experiments of their papers",
        takes="2 minutes",
        function="joins.papers:run",
        rows=rows(None, "rows per stream; by default each experiment has its own number"),
        seed=None,
        options=(option("--only", choices=("pwjoin", "mjoin", "xjoin"), help="run one section only"),),
    ),
)
