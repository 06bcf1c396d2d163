"""Shedding on real and on auction data (SAJ 5.2.5 has weather data): figures beside those of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.bench.shedding.runs import Pair, run
from slackwater.pipelines.generate import DATASETS
from slackwater.transforms.errors import SlackwaterError

SHARES = (0.05, 0.1, 0.25, 0.5)
"""Memories, as shares of what the whole windows take."""
MINUTE = 60_000


def section(rows: int = 6_000, seed: int = 7) -> list[Row]:
    """Run every strategy on departures to the same destination within a day, and on auctions and their bids."""
    flights = _pair("flights", rows, ("ewr", "jfk"), ("dest", "dest"), 24 * 60 * MINUTE, seed)
    short = {"punctuations": "none", "rate": 1.0, "length": 10 * MINUTE}
    nexmark = _pair("nexmark", rows, ("auctions", "bids"), ("id", "auction"), 10 * MINUTE, seed, **short)
    named = {"flights, EWR and JFK, 24 h": flights, "nexmark, auctions and bids, 10 m": nexmark}
    return [row for name, pair in named.items() if pair is not None for row in _rows(name, pair)]


def _pair(
    dataset: str,
    rows: int,
    names: tuple[str, str],
    keys: tuple[str, str],
    window: int,
    seed: int = 7,
    **knobs: Any,
) -> Any:
    """Return two streams of a data set in order of event time, or None where it is not installed."""
    known = DATASETS[dataset]
    try:
        streams = known.make(rows, seed, known.parse(knobs)).streams
    except ValueError:
        return None
    ts, values = [], []
    for name, key in zip(names, keys, strict=True):
        order = np.argsort(streams[name]["ts"], kind="stable")
        ts.append(streams[name]["ts"][order])
        values.append(streams[name][key][order])
    start = max(int(own[0]) for own in ts)
    return Pair((ts[0], ts[1]), (values[0], values[1]), window, "both", start + 2 * window)


def _rows(name: str, pair: Pair) -> Iterator[Row]:
    whole = run(pair, {"strategy": "none"})
    if not whole.results:
        raise SlackwaterError(f"{name}: no results after two windows; more rows are needed")
    for share in SHARES:
        memory = 2 * max(1, round(share * whole.most / 2))
        fixed, variable = pair.best(memory), pair.best(memory, "variable")
        figures: dict[str, float | str] = {"OPT of EXACT": fixed.kept / fixed.exact}
        figures["OPTV"] = variable.kept / fixed.exact
        found = {}
        for label, strategy, allocation in (
            ("RAND", "random", "fixed"),
            ("RANDV", "random", "variable"),
            ("PROB", "prob", "fixed"),
            ("PROBV", "prob", "variable"),
            ("LIFEV", "life", "variable"),
        ):
            ran = run(pair, {"strategy": strategy, "memory": memory, "allocation": allocation})
            found[label] = figures[label] = ran.results / fixed.exact
        yield Row(
            f"{name}: {share:g} of the windows, {memory:,} tuples",
            figures,
            "nothing above the optimum, PROBV at least RANDV",
            max(found["RAND"], found["PROB"]) * fixed.exact <= fixed.kept
            and max(found.values()) * fixed.exact <= variable.kept
            and found["PROBV"] >= found["RANDV"],
        )
