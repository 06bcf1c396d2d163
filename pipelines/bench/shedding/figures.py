"""SAJ's experiments with window joins (5.2, Figs. 7 to 19), OPT-offline being the ceiling.

Strategies estimate frequencies as they go (``estimate: exact``), where the paper gives them those of the whole
stream, and their memory includes the tuple that waits for the other stream, where the paper has cells apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.bench.shedding.runs import Pair, Ran, run

MEMORIES = (0.1, 0.25, 0.5, 1.0, 1.5)
SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
MODERATE = 1.0
"""Skew from which on it is moderate to high."""
NEAR = 0.96
"""Share of the ceiling without foresight that ``prob`` must have: it has to learn first."""
FEW = 1_000
"""With fewer results, chance decides which are kept."""
SEED = 7
STREAMS = 4
"""Streams that results are summed over where chance would decide otherwise."""


def section(
    rows: int = 5_600, windows: tuple[int, ...] = (400, 800), skews: tuple[float, ...] = SKEWS, seed: int = SEED
) -> list[Row]:
    """Return one row for every line of a figure that can be decided, or is worth seeing."""
    made = [row for window in windows for row in by_memory(rows, window, seed)]
    window = windows[0]
    made += uniform(rows, window, seed)
    for correlation in ("uncorrelated", "correlated", "anti"):
        made += by_skew(rows, window, correlation, skews, seed)
    made += allocations(rows, window, seed)
    made += domains(rows, window, seed)
    return made


def shed(pair: Pair, strategy: str, memory: int, allocation: str = "fixed") -> Ran:
    """Run a strategy; no more may be held than it was given."""
    learnt = {} if strategy == "random" else {"estimate": "exact"}
    ran = run(pair, {"strategy": strategy, "memory": memory, "allocation": allocation, **learnt})
    if ran.most > memory:
        raise AssertionError(f"{strategy} held {ran.most} tuples, {memory} were allowed")
    return ran


def by_memory(rows: int, window: int, seed: int = SEED) -> Iterator[Row]:
    """Figs. 7 and 8: results by memory."""
    pair = Pair.zipf(rows, window, seed)
    memories = [_even(share * window) for share in MEMORIES]
    best = [pair.best(memory) for memory in memories]
    found = {s: [shed(pair, s, m).results for m in memories] for s in ("random", "life", "prob")}
    case = f"Figs. 7, 8: Zipf(1), w = {window}, M = {_list(MEMORIES)} w"
    of_best = {s: np.array(results) / [b.kept for b in best] for s, results in found.items()}
    figures: dict[str, float | str] = {"EXACT": int(best[0].exact)}
    figures["OPT"] = _list([b.kept / b.exact for b in best]) + " of it"
    yield Row(
        case,
        figures | {s: _list(shares) + " of OPT" for s, shares in of_best.items()},
        "prob far ahead of life and random, nothing above OPT",
        bool(
            (of_best["prob"] > of_best["life"]).all()
            and (of_best["prob"] > of_best["random"]).all()
            and max(map(np.max, of_best.values())) <= 1
        ),
    )
    fit = _linearity(memories, found["random"])
    yield Row(case, {"R²": fit}, "random linear in memory (R² at least 0.98)", fit >= 0.98)


def uniform(rows: int, window: int, seed: int = SEED) -> Iterator[Row]:
    """Fig. 9: without skew there is nothing to choose by. Of several streams, as small memories find little."""
    pairs = [Pair.zipf(rows, window, seed + n, skew_r=0.0, skew_s=0.0) for n in range(STREAMS)]
    apart = []
    for share in MEMORIES:
        memory = _even(share * window)
        found = [sum(shed(pair, s, memory).results for pair in pairs) for s in ("random", "life", "prob")]
        apart.append(max(found) / min(found) - 1)
    yield Row(
        f"Fig. 9: uniform, w = {window}, M = {_list(MEMORIES)} w",
        {"best over worst less 1": _list(apart)},
        "no difference between strategies (at most 0.05)",
        max(apart) <= 0.05,
    )


def by_skew(
    rows: int, window: int, correlation: str, skews: tuple[float, ...], seed: int = SEED
) -> Iterator[Row]:
    """Figs. 10 and 11: results by skew at M = w, and the same anti-correlated.

    Beside OPT there is what no strategy without foresight exceeds on average (``offline.online_ceiling``): of
    ``prob``, shares are asked for where that allows them.
    """
    found = []
    for skew in skews:
        pair = Pair.zipf(rows, window, seed, skew_r=skew, skew_s=skew, correlation=correlation)
        best = pair.best(window)
        ran = [shed(pair, strategy, window).results / best.exact for strategy in ("random", "prob")]
        found.append((*ran, pair.ceiling(window), best.kept / best.exact, best.exact))
    random, prob, ceiling, opt, exact = np.array(found).T
    case = f"Figs. 10, 11: {correlation}, M = w = {window}, skew {_list(skews)}"
    many = exact >= FEW
    skewed = many & (np.array(skews) >= MODERATE)
    for whole, unit, least in ((opt, "OPT", 0.96), (1.0, "EXACT", 0.9)):
        possible = skewed & (ceiling / whole >= least)
        figures: dict[str, float | str] = {"prob": f"{_list(prob / whole)} of {unit}"}
        figures["ceiling without foresight"] = _list(ceiling / whole)
        figures |= {"random": _list(random / whole)} if unit == "OPT" else {"OPT": _list(opt)}
        yield Row(
            case,
            figures,
            f"prob at least {least:g} of {unit} from skew {MODERATE:g} on, where the ceiling is",
            bool((prob / whole >= least)[possible].all()) if possible.any() else None,
        )
    yield Row(
        case,
        {"prob": _list(prob / ceiling) + " of the ceiling"},
        f"prob at least {NEAR:g} of what is possible without foresight",
        bool((prob >= NEAR * ceiling)[many].all()) if many.any() else None,
    )


def allocations(rows: int, window: int, seed: int = SEED) -> Iterator[Row]:
    """Figs. 13 to 16: one memory for both streams, or a half for each."""
    cases = (("the same skew, 1", 1.0, 1.0), ("skew 1 and 0", 1.0, 0.0), ("skew 2 and 0", 2.0, 0.0))
    for name, skew_r, skew_s in cases:
        pair = Pair.zipf(rows, window, seed, skew_r=skew_r, skew_s=skew_s)
        gains: dict[str, list[float]] = {"random": [], "prob": [], "OPT": []}
        shares = []
        for memory in (_even(share * window) for share in MEMORIES):
            for strategy in ("random", "prob"):
                fixed, variable = (shed(pair, strategy, memory, kind) for kind in ("fixed", "variable"))
                gains[strategy].append(variable.results / fixed.results - 1)
            shares.append(variable.share)
            gains["OPT"].append(pair.best(memory, "variable").kept / pair.best(memory).kept - 1)
        same = skew_r == skew_s
        best, share = max(gains["prob"]), shares[MEMORIES.index(1.0)]
        yield Row(
            f"Figs. 13 to 16: r and s with {name}, w = {window}, M = {_list(MEMORIES)} w",
            {f"variable to fixed, {s}": _list(g, "+.3f") for s, g in gains.items()}
            | {"share of r with prob": _list(shares)},
            "variable as fixed (within 0.05), memory about halved at M = w"
            if same
            else "variable better (by 0.02 or more at some M), and more memory to r at M = w",
            bool(max(map(abs, gains["prob"])) <= 0.05 and abs(share - 0.5) <= 0.1)
            if same
            else bool(best >= 0.02 and min(gains["prob"]) >= -0.01 and share > 0.6),
        )


def domains(rows: int, window: int, seed: int = SEED) -> Iterator[Row]:
    """Figs. 17 to 19: the larger the domain, the closer OPT is to EXACT and the further prob from OPT."""
    prob, ceiling = {}, {}
    for domain in (10, 50, 200):
        pair = Pair.zipf(rows, window, seed, domain=domain)
        best = [pair.best(_even(share * window)) for share in MEMORIES]
        found = [shed(pair, "prob", _even(share * window)).results for share in MEMORIES]
        prob[domain] = [n / b.kept for n, b in zip(found, best, strict=True)]
        ceiling[domain] = [b.kept / b.exact for b in best]
        yield Row(
            f"Figs. 17 to 19: domain {domain}, Zipf(1), w = {window}, M = {_list(MEMORIES)} w",
            {"prob": _list(prob[domain]) + " of OPT", "OPT": _list(ceiling[domain]) + " of EXACT"},
        )
    at = MEMORIES.index(0.5)
    yield Row(
        "Figs. 17 to 19: domains 10, 50, 200 at M = 0.5 w; 200 at M = w",
        {
            "prob": _list([p[at] for p in prob.values()]) + " of OPT",
            "OPT": _list([c[at] for c in ceiling.values()]) + " of EXACT",
            "OPT of 200 at w": ceiling[200][MEMORIES.index(1.0)],
        },
        "prob falls, OPT rises; with 200 values OPT is EXACT at M = w (within 0.01)",
        bool(
            prob[10][at] > prob[50][at] > prob[200][at]
            and ceiling[10][at] < ceiling[50][at] < ceiling[200][at]
            and ceiling[200][MEMORIES.index(1.0)] >= 0.99
        ),
    )


def _even(memory: float) -> int:
    return 2 * round(memory / 2)


def _linearity(memories: list[int], results: list[int]) -> float:
    """Return R² of a straight line."""
    return float(np.corrcoef(memories, results)[0, 1] ** 2)


def _list(values: Any, form: str = ".3g") -> str:
    return " ".join(format(float(value), form) for value in values)
