"""The list of benchmarks, from the package of each concept."""

from __future__ import annotations

from typing import Final

from slackwater.pipelines.bench import (
    beam,
    disorder,
    fuzz,
    joins,
    kafka,
    kills,
    local,
    operators,
    shedding,
    spark,
)
from slackwater.pipelines.bench.benchmark import Benchmark
from slackwater.pipelines.bench.report import Report
from slackwater.transforms.errors import SlackwaterError

BENCHMARKS: Final[dict[str, Benchmark]] = {
    benchmark.name: benchmark
    for package in (local, operators, joins, disorder, shedding, beam, spark, kafka, kills, fuzz)
    for benchmark in package.BENCHMARKS
}


def run_bench(name: str, *arguments: str) -> None:
    """Run the benchmark ``name``; ``arguments`` are its options, ``--rows N`` for one."""
    if name not in BENCHMARKS:
        known = "; ".join(f"{known}: {benchmark.purpose}" for known, benchmark in BENCHMARKS.items())
        raise SlackwaterError(f"no benchmark named {name!r}; known are {known}")
    benchmark = BENCHMARKS[name]
    options = benchmark.parse(arguments)
    benchmark.load()(options, Report(name, options.out))
