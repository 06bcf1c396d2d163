"""The synthetic streams of QDDH: Zipf-distributed delays, and join selectivity that changes over time.

Every stream has a row each 10 ms for 30 minutes. A row's clock is the stream's time as it is generated; its
timestamp is that clock, or earlier by a delay of up to 20 s, drawn from a Zipf distribution. Attributes are
Zipf-distributed over 1 to 100 with a skew of 1.0 at first, which changes to anything in [0, 5] every
1 to 10 minutes, for each attribute by itself. The streams run in step.

The paper leaves the unit of the delay ranks open: here they are multiples of 100 ms from 0 on, which meets
its baseline numbers. Its delay skews for four streams name stream 1 twice; the 4.0 is read as stream 4's.
The most frequent value is 1 on every stream, so high skews meet: single rows may complete 250,000 results.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from slackwater.pipelines.generate.sampling import varying_zipf_ranks, zipf_ranks
from slackwater.pipelines.generate.spec import Columns, Dataset, Int64s, Knob, Query, Sample
from slackwater.pipelines.generate.truth import count_equal, count_star

START = 1_577_836_800_000  # 2020-01-01 00:00 UTC
HALF_AN_HOUR = 180_000
DAY = 86_400_000
MOST_RANKS = 10_000_000
LONGEST = 10**12  # ms, some 31 years; keeps sums of times inside 64 bits


def _knobs(delay_skews: tuple[float, ...], window: int) -> tuple[Knob, ...]:
    return (
        Knob(
            "start",
            "int",
            START,
            "Time in ms at which every stream starts, one step before its first row.",
            maximum=10 * LONGEST,
        ),
        Knob(
            "step",
            "float",
            10.0,
            "Time in ms from row to row of a stream; 0.1 means 10,000 rows/s.",
            maximum=DAY,
            positive=True,
        ),
        Knob("max_delay", "int", 20_000, "Longest delay in ms.", maximum=LONGEST),
        Knob(
            "delay_unit",
            "int",
            100,
            "Delay in ms between two ranks of the Zipf distribution.",
            minimum=1,
            maximum=LONGEST,
        ),
        Knob(
            "delay_skews",
            "floats",
            delay_skews,
            "Zipf skew of the delays of each stream; higher is less.",
            maximum=20,
        ),
        Knob(
            "delayed",
            "float",
            None,
            "Share of rows with a uniform delay of 1 ms to max_delay, others having "
            "none; replaces the Zipf delays.",
            maximum=1,
        ),
        Knob("domain", "int", 100, "Number of values of an attribute.", minimum=1, maximum=MOST_RANKS),
        Knob("value_skew", "float", 1.0, "Zipf skew of the attributes until it first changes.", maximum=20),
        Knob("value_skew_max", "float", 5.0, "A change draws a skew between 0 and this.", maximum=20),
        Knob(
            "change_min",
            "int",
            60_000,
            "Shortest time in ms between two changes of an attribute's skew.",
            minimum=1,
            maximum=LONGEST,
        ),
        Knob(
            "change_max",
            "int",
            600_000,
            "Longest time in ms between two changes of an attribute's skew.",
            minimum=1,
            maximum=LONGEST,
        ),
        Knob(
            "keys",
            "int",
            None,
            "Draw attributes uniformly from 1 to this; replaces the Zipf values. "
            "Two streams give about window / step / keys results per row.",
            minimum=1,
            maximum=10**8,
        ),
        Knob("window", "int", window, "Window in ms of the query whose results are counted.", maximum=LONGEST),
    )


def _make(
    name: str, attributes: tuple[tuple[str, ...], ...], rows: int, seed: int, knobs: Mapping[str, Any]
) -> Sample:
    """Generate streams ``s1`` to ``sm`` with the attributes given for each.

    Row k of stream i (from 0) is arrival number ``k * m + i``. The first row's clock is ``start + step``.
    Each stream's delays, and each attribute's values and skews, have a random source of their own.
    """
    if knobs["change_min"] > knobs["change_max"]:
        raise ValueError(
            f"{name}.change_min: {knobs['change_min']} is above change_max, {knobs['change_max']}. "
            "Lower the one or raise the other."
        )
    if knobs["delayed"] is None and knobs["max_delay"] // knobs["delay_unit"] >= MOST_RANKS:
        raise ValueError(
            f"{name}.delay_unit: {knobs['delay_unit']} cuts max_delay, {knobs['max_delay']}, into more than "
            f"{MOST_RANKS:,} ranks. Raise the one or lower the other."
        )
    sources = np.random.default_rng(seed).spawn(len(attributes))
    clock = np.floor(np.arange(1, rows + 1) * float(knobs["step"])).astype(np.int64)
    streams: dict[str, Columns] = {}
    for number, (columns, source) in enumerate(zip(attributes, sources, strict=True)):
        delays, *values = source.spawn(1 + len(columns))
        streams[f"s{number + 1}"] = {
            "ts": knobs["start"] + clock - _delays(delays, rows, knobs["delay_skews"][number], knobs),
            **{column: _values(value, clock, knobs) for column, value in zip(columns, values, strict=True)},
            "arrived": np.arange(rows, dtype=np.int64) * len(attributes) + number,
        }
    members = list(streams.values())
    window = knobs["window"]
    if len(attributes[0]) == 1:
        where = " AND ".join(f"s{i}.a1 = s{i + 1}.a1" for i in range(1, len(attributes)))
        truth = count_equal(name, members, "a1", window, "both")
    else:
        where = " AND ".join(f"s1.{a} = s{i}.{a}" for i, a in enumerate(attributes[0], 2))
        truth = count_star(name, members, attributes[0], window)
    return Sample(streams, Query(where, window), truth)


def _delays(rng: np.random.Generator, rows: int, skew: float, knobs: Mapping[str, Any]) -> Int64s:
    chance, size = rng.spawn(2)
    if knobs["delayed"] is None or knobs["max_delay"] == 0:
        ranks = knobs["max_delay"] // knobs["delay_unit"] + 1
        return zipf_ranks(chance, rows, ranks, skew) * knobs["delay_unit"]
    late = chance.random(rows) < knobs["delayed"]
    return np.where(late, size.integers(1, knobs["max_delay"], rows, endpoint=True), 0)


def _values(rng: np.random.Generator, clock: Int64s, knobs: Mapping[str, Any]) -> Int64s:
    draws, changes = rng.spawn(2)
    if knobs["keys"] is not None:
        return draws.integers(1, knobs["keys"], len(clock), endpoint=True)
    interval = (knobs["change_min"], knobs["change_max"])
    ranks = varying_zipf_ranks(
        draws,
        changes,
        clock,
        ranks=knobs["domain"],
        skew=knobs["value_skew"],
        max_skew=knobs["value_skew_max"],
        interval=interval,
    )
    return ranks + 1


def _dataset(
    name: str, purpose: str, attributes: tuple[tuple[str, ...], ...], knobs: tuple[Knob, ...]
) -> Dataset:
    streams = tuple(f"s{number}" for number in range(1, len(attributes) + 1))
    return Dataset(name, purpose, streams, HALF_AN_HOUR, knobs, partial(_make, name, attributes))


SYN2 = _dataset(
    "syn2",
    "Two streams joined on equal a1 within 5 s: syn3 without its third stream, for benchmarks too.",
    (("a1",), ("a1",)),
    _knobs((2.0, 3.0), 5_000),
)
SYN3 = _dataset(
    "syn3",
    "Three streams joined on equal a1 within 5 s (D3syn of QDDH).",
    (("a1",), ("a1",), ("a1",)),
    _knobs((2.0, 3.0, 3.0), 5_000),
)
SYN4 = _dataset(
    "syn4",
    "A centre joined with three streams on a1, a2 and a3 within 3 s (D4syn of QDDH).",
    (("a1", "a2", "a3"), ("a1",), ("a2",), ("a3",)),
    _knobs((3.0, 3.0, 3.0, 4.0), 3_000),
)
