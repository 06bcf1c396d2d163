"""MJoin's running example: news, and records of who reads them, until a punctuation says that nobody does.

A piece of news has a serial number of its own; its description is a row of ``news``. Readers see the 10 latest,
so records of 10 pieces come mixed in ``accesses``. When the next piece pushes one out, a row with
``kind = 'closed'`` says that no later record is about it; its address is ``*``. With ``clustered`` arrival the
records of one piece come in a row, as if readers saw the latest only.

Descriptions come in the order of their numbers, or in random order among neighbours (the paper's two patterns);
then a record may come before the description it is about. Rows come in order of their event times, and what is
random is the order of the numbers: sorting rows by time changes nothing. The paper gives no times; here a piece
comes every second on average.

The join has no window. The window that is stated spans all rows, and results are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from slackwater.pipelines.generate.arrivals import in_arrival_order
from slackwater.pipelines.generate.sampling import shuffled_in_groups
from slackwater.pipelines.generate.spec import Columns, Dataset, Int64s, Knob, Marks, Query, Sample
from slackwater.pipelines.generate.syn import LONGEST, START
from slackwater.pipelines.generate.truth import count_equal

KEYWORDS = (
    "banking",
    "climate",
    "elections",
    "energy",
    "football",
    "health",
    "housing",
    "music",
    "space",
    "trade",
)
WHAT = ("Experts disagree on", "New figures for", "Quiet week for", "Readers write about", "What is next for")


def _make(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Generate ``news`` and ``accesses`` until one has the rows asked for, or all items are done.

    Everything is drawn item by item, each matter from a random source of its own, and more items are made than
    wanted, by those that come in between; so fewer rows are a prefix.
    """
    counts, gaps, texts, shuffle, times, readers = np.random.default_rng(seed).spawn(6)
    marked, clustered = knobs["punctuations"] == "marked", knobs["arrival"] == "clustered"
    latest = 1 if clustered else knobs["latest"]
    # An item has a record at least, so as many items as rows are enough.
    count = 1 + counts.poisson(knobs["per_item"] - 1, rows + latest)
    items = int(np.searchsorted(np.cumsum(count + marked), rows)) + 1 + latest
    group = knobs["shuffled"] if knobs["order"] == "random" else 1
    described = -(-items // group) * group
    if knobs["items"] is not None:
        items, described = min(items, knobs["items"]), min(described, knobs["items"])
    posted = START + np.cumsum(_gaps(gaps, described + latest, knobs["every"]))
    news: Columns = {
        "ts": posted[:described],
        "sno": shuffled_in_groups(shuffle, described, group) + 1,
        **_texts(texts, described),
        "arrived": posted[:described],
    }
    until = posted[latest : latest + items]
    accesses = _accesses(times, readers, posted[:items], until, count[:items], knobs["readers"])
    if marked:
        closed: Columns = {
            "ts": until,
            "kind": np.full(items, "closed"),
            "sno": np.arange(1, items + 1),
            "ipaddr": np.full(items, "*"),
            "arrived": until,
        }
        accesses = {name: np.concatenate([cells, closed[name]]) for name, cells in accesses.items()}
    streams = in_arrival_order({"news": news, "accesses": accesses}, rows)
    window = _span(streams) if knobs["window"] is None else knobs["window"]
    ordered = ("news.sno",) if knobs["order"] == "ordered" else ()
    promises = {
        "unique": ("news.sno",),
        "clustered": ("accesses.sno",) if clustered else (),
        "ordered": (*ordered, "accesses.sno") if clustered else ordered,
    }
    query = Query(
        "news.sno = accesses.sno",
        window,
        whole=knobs["window"] is None,
        punctuations=(Marks("accesses", "kind = 'closed'", "sno"),) if marked else (),
        promises={promise: columns for promise, columns in promises.items() if columns},
    )
    real = streams["accesses"]["kind"] == "record"
    members: list[Columns] = [
        {name: streams["news"][name] for name in ("ts", "sno")},
        {name: streams["accesses"][name][real] for name in ("ts", "sno")},
    ]
    return Sample(streams, query, count_equal("news", members, "sno", query.window, query.closed))


def _gaps(rng: Generator, count: int, mean: int) -> Int64s:
    """Return the time before each item; 2 ms at least, so that there is a time between two items."""
    return np.maximum(2, np.round(rng.exponential(mean, count))).astype(np.int64)


def _texts(rng: Generator, count: int) -> Columns:
    what, keyword = rng.spawn(2)
    about = keyword.integers(len(KEYWORDS), size=count)
    titles = np.array([[f"{begin} {word}" for word in KEYWORDS] for begin in WHAT])
    return {"title": titles[what.integers(len(WHAT), size=count), about], "keyword": np.array(KEYWORDS)[about]}


def _accesses(
    times: Generator, readers: Generator, posted: Int64s, until: Int64s, count: Int64s, addresses: int
) -> Columns:
    """Return the records item by item, each between the item's own time and that of the one pushing it out."""
    item = np.repeat(np.arange(len(count)), count)
    ts = times.integers(posted[item] + 1, until[item])
    octets = readers.integers(1, 255, (addresses, 4))
    known = np.array([".".join(map(str, address)) for address in octets.tolist()])
    return {
        "ts": ts,
        "kind": np.full(len(item), "record"),
        "sno": item + 1,
        "ipaddr": known[readers.integers(addresses, size=len(item))],
        "arrived": ts,
    }


def _span(streams: Mapping[str, Columns]) -> int:
    """Return a window in whole seconds that no two rows are too far apart for."""
    ts = np.concatenate([columns["ts"] for columns in streams.values()])
    return (int(ts.max() - ts.min()) // 1000 + 1) * 1000


NEWS = Dataset(
    "news",
    "News and who reads them, one to many, joined on number without a window; --rows counts accesses (MJoin).",
    ("news", "accesses"),
    100_000,
    (
        Knob("items", "int", None, "Pieces of news; none: as many as the rows need.", minimum=1, maximum=10**8),
        Knob(
            "per_item",
            "float",
            20.0,
            "Mean number of records of an item (1 + Poisson).",
            minimum=1,
            maximum=10**6,
        ),
        Knob(
            "arrival",
            "choice",
            "mixed",
            "Whether records of the latest items come mixed, or those of one item in a row.",
            choices=("mixed", "clustered"),
        ),
        Knob("latest", "int", 10, "Items that are read at a time, when mixed.", minimum=1, maximum=10**5),
        Knob(
            "order",
            "choice",
            "ordered",
            "Whether descriptions come in the order of their numbers, or in random order.",
            choices=("ordered", "random"),
        ),
        Knob(
            "shuffled",
            "int",
            100,
            "Neighbours among which descriptions in random order are shuffled.",
            minimum=1,
            maximum=10**6,
        ),
        Knob(
            "punctuations",
            "choice",
            "marked",
            "Whether accesses has a closing row for each item, or none.",
            choices=("marked", "none"),
        ),
        Knob("every", "int", 1_000, "Mean time in ms from item to item.", minimum=1, maximum=10**9),
        Knob("readers", "int", 1_000, "Number of addresses that read.", minimum=1, maximum=10**6),
        Knob(
            "window", "int", None, "Window in ms of the query; none: all rows join.", minimum=1, maximum=LONGEST
        ),
    ),
    _make,
)
