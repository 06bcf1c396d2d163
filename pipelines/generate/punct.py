"""The punctuated streams of PWJoin's experiments, by the names that the paper gives them.

``punct-asc-100-40``: a punctuation ends every segment of about 100 rows (Poisson) and says that its value is
over, values in ascending order (``desc``: descending, ``random``: any order); about 40 % of the segment's rows
(Poisson) have that value, the last one always. ``cluster-asc-100``: all of them do. ``uniform`` is the stream
without punctuations, values uniform over all. The time from row to row is Poisson-distributed with a mean
of 10 ms, rows come in order, and a punctuation comes 1 ms after the row before it.

The paper leaves open which values the other rows of a segment have, but that they are not over. They are
uniform over all those values here, or over the ``ahead`` that are over next. Of values there are 15,000, as on
the paper's stream without punctuations. Each stream is drawn by itself, so that the two slowly drift apart in
which value is next.

Rows with ``kind = 'closed'`` are the punctuations. An irrelevant one names a value that no row has, in place of
the one that is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from slackwater.pipelines.generate.arrivals import in_arrival_order
from slackwater.pipelines.generate.spec import Columns, Dataset, Int64s, Knob, Marks, Query, Sample
from slackwater.pipelines.generate.syn import LONGEST, START
from slackwater.pipelines.generate.truth import count_equal

STREAMS = ("a", "b")


def _make(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Generate streams ``a`` and ``b`` until one of them has the rows asked for, punctuations among them."""
    sources = np.random.default_rng(seed).spawn(len(STREAMS))
    made = {name: _stream(name, source, rows, knobs) for name, source in zip(STREAMS, sources, strict=True)}
    streams = in_arrival_order(made, rows)
    marked = [name for name in STREAMS if _is_marked(name, knobs)]
    clustered = [name for name in STREAMS if knobs[name].startswith("cluster")]
    promises = {
        "clustered": tuple(f"{name}.value" for name in clustered if not knobs["irrelevant"]),
        "ordered": tuple(
            f"{name}.value" for name in clustered if "asc" in knobs[name] and not knobs["irrelevant"]
        ),
    }
    query = Query(
        "a.value = b.value",
        knobs["window"],
        punctuations=tuple(Marks(name, "kind = 'closed'", "value") for name in marked),
        promises={promise: columns for promise, columns in promises.items() if columns},
    )
    members: list[Columns] = [
        {name: columns[name][columns["kind"] == "row"] for name in ("ts", "value")}
        for columns in streams.values()
    ]
    return Sample(streams, query, count_equal("punct", members, "value", query.window, query.closed))


def _is_marked(name: str, knobs: Mapping[str, Any]) -> bool:
    return knobs[name] != "uniform" and knobs["punctuations"] in (name, "both")


def _stream(name: str, rng: Generator, rows: int, knobs: Mapping[str, Any]) -> Columns:
    """Return at least the rows asked for, with ``arrived`` in ms.

    Everything is drawn row by row or segment by segment, each matter from a random source of its own; so fewer
    rows are a prefix.
    """
    values, gaps = rng.spawn(2)
    if knobs[name] == "uniform":
        value = values.integers(knobs["values"], size=rows)
        ends = np.zeros(rows, np.bool_)
    else:
        value, ends = _segments(name, values, rows, knobs)
    gap = np.ones(len(ends), np.int64)
    gap[~ends] = gaps.poisson(knobs["gap"], np.count_nonzero(~ends))
    ts = START + np.cumsum(gap)
    columns: Columns = {"ts": ts, "kind": np.where(ends, "closed", "row"), "value": value, "arrived": ts}
    if _is_marked(name, knobs):
        return columns
    return {column: cells[~ends] for column, cells in columns.items()}


def _segments(name: str, rng: Generator, rows: int, knobs: Mapping[str, Any]) -> tuple[Int64s, Any]:
    """Return the values of whole segments, and which rows are the punctuations at their ends."""
    pattern, order, size, *match = knobs[name].split("-")
    lengths, shares, places, others, shuffle, chance = rng.spawn(6)
    domain = knobs["values"]
    length = np.maximum(1, lengths.poisson(int(size), domain))
    sums = np.cumsum(length + _is_marked(name, knobs))
    segments = int(np.searchsorted(sums, rows)) + 1
    if segments > domain:
        raise ValueError(
            f"punct.values: all {domain} values of stream {name} are over after {sums[-1]} rows. "
            "Raise values or the size of segments, or ask for fewer rows."
        )
    length = length[:segments]
    share = (
        np.minimum(100, shares.poisson(int(match[0]), segments)) if pattern == "punct" else np.full(segments, 100)
    )
    matching = np.maximum(1, np.round(length * share / 100)).astype(np.int64)
    by_turn = {
        "asc": np.arange(domain),
        "desc": np.arange(domain)[::-1],
        "random": shuffle.permutation(domain) if order == "random" else np.empty(0, np.int64),
    }[order]

    segment = np.repeat(np.arange(segments), length)
    first = np.repeat(np.cumsum(length) - length, length)
    place = np.arange(len(segment)) - first
    last = place == length[segment] - 1
    # The last row matches; of the others, those with the smallest draws.
    draw = np.where(last, -1.0, places.random(len(segment)))
    rank = np.empty(len(segment), np.int64)
    rank[np.lexsort((draw, segment))] = place
    until = domain if knobs["ahead"] is None else np.minimum(domain, segment + 1 + knobs["ahead"])
    turn = segment + 1 + np.floor(others.random(len(segment)) * (until - segment - 1)).astype(np.int64)
    turn = np.where((rank < matching[segment]) | (turn >= domain), segment, turn)

    over = by_turn[:segments]
    named = np.where(chance.random(segments) < knobs["irrelevant"], domain + np.arange(segments), over)
    at = np.cumsum(length)
    return np.insert(by_turn[turn], at, named), np.insert(np.zeros(len(turn), np.bool_), at, True)


def _pattern(name: str) -> Knob:
    order, size = "(asc|desc|random)", "[1-9][0-9]{0,5}"
    return Knob(
        name,
        "text",
        "punct-asc-100-40",
        f"Pattern of stream {name}: order of the values in punctuations, rows per segment, matching rows in %.",
        form=f"uniform|cluster-{order}-{size}|punct-{order}-{size}-(100|[0-9]{{1,2}})",
        words="punct-ORDER-SIZE-MATCH, cluster-ORDER-SIZE or uniform, with ORDER asc, desc or random, "
        "SIZE 1 to 999999 and MATCH 0 to 100",
    )


PUNCT = Dataset(
    "punct",
    "Two streams whose values come to an end, joined on equality within 5 s (punct-asc-100-40 of PWJoin).",
    STREAMS,
    60_000,
    (
        *(_pattern(name) for name in STREAMS),
        Knob("gap", "float", 10.0, "Mean time in ms from row to row of a stream.", maximum=10**9, positive=True),
        Knob("values", "int", 15_000, "Number of values; they run from 0.", minimum=1, maximum=10**7),
        Knob(
            "ahead",
            "int",
            None,
            "Rows that do not match their segment have one of so many values that are over next; "
            "none: any that is not over.",
            minimum=1,
            maximum=10**7,
        ),
        Knob(
            "punctuations",
            "choice",
            "both",
            "Streams that have their punctuations; others lack these rows, and are the same else.",
            choices=("both", *STREAMS, "none"),
        ),
        Knob("irrelevant", "float", 0.0, "Share of punctuations that name a value no row has.", maximum=1),
        Knob(
            "window", "int", 5_000, "Window in ms of the query; the paper's are 1, 5 and 15 s.", maximum=LONGEST
        ),
    ),
    _make,
)
