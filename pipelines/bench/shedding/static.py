"""SAJ's experiments with stored relations (5.1, Figs. 4 to 6): ADG against the optimum, OPTDP, in a kernel."""

from __future__ import annotations

import time

import numpy as np

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.generate.sampling import zipf_ranks
from slackwater.transforms.operators.choose_values.static_join import ValueCounts, adg, optdp

SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)


def section(
    tuples: int = 50_000,
    values: int = 1_000,
    retain: int = 5_000,
    skews: tuple[float, ...] = SKEWS,
    seed: int = 7,
) -> list[Row]:
    """Compare results and CPU time at every skew."""
    rows = []
    optdp(ValueCounts.of_values([1, 2], [1, 1]), retain=2)
    for skew in skews:
        relations = drawn(tuples, values, skew, seed)
        best, slow = _timed(lambda given=relations: optdp(given, retain=retain).results, 1)
        greedy, fast = _timed(lambda given=relations: adg(given, retain=retain).results, 20)
        case = f"Figs. 4 to 6: {tuples:,} tuples each, {values:,} values, skew {skew:g}, {retain:,} retained"
        rows.append(Row(case, {"ADG": greedy / best}, "ADG at least 0.995 of OPTDP", greedy >= 0.995 * best))
        figures = {"OPTDP ms": 1e3 * slow, "ADG ms": 1e3 * fast, "times": slow / fast}
        rows.append(Row(case, figures, "ADG at least 100 times as fast", slow >= 100 * fast, timed=True))
    return rows


def drawn(tuples: int, values: int, skew: float, seed: int) -> ValueCounts:
    """Draw two relations, each with an order of values of its own."""
    sources = np.random.default_rng(seed).spawn(2)
    return ValueCounts.of_values(
        *(source.permutation(values)[zipf_ranks(source, tuples, values, skew)] for source in sources)
    )


def _timed(call, times: int) -> tuple[int, float]:  # type: ignore[no-untyped-def]
    """Return what a call gives, and the CPU seconds that one of several takes."""
    started = time.process_time()
    for _ in range(times):
        given = call()
    return given, max(1e-9, (time.process_time() - started) / times)
