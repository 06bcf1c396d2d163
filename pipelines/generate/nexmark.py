"""An auction site in the shape of Nexmark and of PWJoin's example: persons, their auctions, and bids on them.

Events come evenly over time and in turn: of 50, one is a person who registers, three are auctions that open, and
46 are bids. Sellers and bidders are persons who have registered. An auction is open for 12 hours; a bid goes to
one of the auctions that are open at its time. Popularity is Zipf-distributed over them: each auction draws a
rank, and has bids in proportion to that rank's weight for as long as it is open. None is open before the first,
so the first auctions have more bids than others.

When an auction's time is over, a row with ``kind = 'closed'`` says in ``bids`` that no later bid is on it: bids
are earlier than it in event time, each of them. Its bidder and price are 0.

Nexmark's two kinds of disorder: the events of a group arrive in random order, in the places of that group; and
some events arrive late, by up to a bound. The query is PWJoin's, bids within 12 hours of the opening. No bid is
older than its auction, so a window on the bids makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from slackwater.pipelines.generate.arrivals import in_arrival_order
from slackwater.pipelines.generate.sampling import shuffled_in_groups
from slackwater.pipelines.generate.spec import Columns, Dataset, Int64s, Knob, Marks, Query, Sample
from slackwater.pipelines.generate.syn import LONGEST, START
from slackwater.pipelines.generate.truth import count_equal

HALF_A_DAY = 12 * 3_600_000
MOST_HELD = 10**7
"""Most events that may be on their way at once."""
WEIGHT = 2**30
"""Weight of the most popular auctions."""

FIRST_NAMES = ("Ada", "Bo", "Chen", "Dora", "Emil", "Fatou", "Gita", "Hugo", "Ines", "Jon", "Kaya", "Lena")
LAST_NAMES = ("Abara", "Brook", "Costa", "Diaz", "Ek", "Frost", "Gold", "Hart", "Ito", "Jansen", "Kaur", "Lund")
CITIES = (
    *(("Boise", "ID"), ("Eugene", "OR"), ("Fresno", "CA"), ("Laramie", "WY"), ("Mesa", "AZ"), ("Portland", "OR")),
    *(("Salem", "OR"), ("Seattle", "WA"), ("Spokane", "WA"), ("Tucson", "AZ")),
)
CATEGORIES = 5


def _make(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Generate the three streams until ``bids`` has the rows asked for, closing rows among them.

    More events are made than wanted, by those that may arrive in between; so fewer rows are a prefix. What
    concerns an event is drawn by its number, each matter from a random source of its own.
    """
    _check(knobs)
    turn = np.repeat(
        ("person", "auction", "bid"), [knobs[f"{kind}_share"] for kind in ("person", "auction", "bid")]
    )
    group, step = knobs["group"], 1000 / knobs["rate"]
    held = math.ceil((_longest_delay(knobs) + 2) / step) + group + 2
    events = math.ceil((-(-rows // knobs["bid_share"]) * len(turn) + held) / group) * group
    people, openings, offers, choices, late, shuffle = np.random.default_rng(seed).spawn(6)
    clock = START + np.floor(np.arange(events) * step).astype(np.int64)
    arrived = np.empty(events, np.int64)
    arrived[shuffled_in_groups(shuffle, events, group)] = clock
    arrived += _delays(late, events, knobs)
    which = np.resize(turn, events)
    person, auction, bid = (np.flatnonzero(which == kind) for kind in ("person", "auction", "bid"))
    registered = np.cumsum(which == "person")
    persons: Columns = {
        "ts": clock[person],
        "id": np.arange(1, len(person) + 1),
        **_persons(people, len(person)),
        "arrived": arrived[person],
    }
    auctions: Columns = {
        "ts": clock[auction],
        "id": np.arange(1, len(auction) + 1),
        **_auctions(openings, registered[auction], knobs),
        "arrived": arrived[auction],
    }
    picked = _picked(choices, clock[bid], np.searchsorted(auction, bid), auctions, knobs)
    bids: Columns = {
        "ts": clock[bid],
        "kind": np.full(len(bid), "bid", "<U6"),
        "auction": picked + 1,
        **_offers(offers, registered[bid]),
        "arrived": arrived[bid],
    }
    if knobs["punctuations"] != "none":
        closed = _closings(late, int(clock[-1]), auctions, bids, knobs)
        bids = {name: np.concatenate([values, closed[name]]) for name, values in bids.items()}
    streams = in_arrival_order({"auctions": auctions, "bids": bids, "persons": persons}, rows)
    query = Query(
        "auctions.id = bids.auction",
        knobs["window"],
        punctuations=() if knobs["punctuations"] == "none" else (Marks("bids", "kind = 'closed'", "auction"),),
        promises={"unique": ("auctions.id", "persons.id")},
    )
    real = streams["bids"]["kind"] == "bid"
    members: list[Columns] = [
        {"ts": streams["auctions"]["ts"], "key": streams["auctions"]["id"]},
        {"ts": streams["bids"]["ts"][real], "key": streams["bids"]["auction"][real]},
    ]
    return Sample(streams, query, count_equal("nexmark", members, "key", query.window, query.closed))


def _check(knobs: Mapping[str, Any]) -> None:
    turn = (knobs["person_share"] + knobs["auction_share"] + knobs["bid_share"]) * 1000 / knobs["rate"]
    if _shortest(knobs) < turn + 1:
        raise ValueError(
            f"nexmark.length: auctions of {_shortest(knobs)} ms may leave bids without an open one; at this rate "
            f"and with these shares at least {math.ceil(turn + 1)} ms are needed. Raise length or rate, or lower "
            "length_spread."
        )
    if _longest_delay(knobs) * knobs["rate"] / 1000 > MOST_HELD:
        raise ValueError(
            f"nexmark.max_delay: {knobs['max_delay']} ms at a rate of {knobs['rate']:g} are more than "
            f"{MOST_HELD:,} events on their way at once. Lower the one or the other."
        )


def _shortest(knobs: Mapping[str, Any]) -> int:
    return round(knobs["length"] * (1 - knobs["length_spread"]))


def _longest_delay(knobs: Mapping[str, Any]) -> int:
    return int(knobs["max_delay"]) if knobs["delayed"] > 0 else 0


def _delays(rng: Generator, events: int, knobs: Mapping[str, Any]) -> Int64s:
    """Return by how many ms each event is late."""
    chance, size = rng.spawn(2)
    if _longest_delay(knobs) == 0:
        return np.zeros(events, np.int64)
    delays = size.integers(1, knobs["max_delay"], events, endpoint=True)
    return np.where(chance.random(events) < knobs["delayed"], delays, 0)


def _persons(rng: Generator, count: int) -> Columns:
    names, places = rng.spawn(2)
    full = np.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
    place = places.integers(len(CITIES), size=count)
    city, state = np.array(CITIES).T
    return {"name": full[names.integers(len(full), size=count)], "city": city[place], "state": state[place]}


def _auctions(rng: Generator, registered: Int64s, knobs: Mapping[str, Any]) -> Columns:
    """Return the columns of auctions that are drawn; prices are in cents, with a uniform logarithm."""
    sellers, kinds, lengths, reserves = rng.spawn(4)
    count = len(registered)
    longest = 2 * knobs["length"] - _shortest(knobs)
    return {
        "seller": sellers.integers(1, registered, endpoint=True),
        "category": kinds.integers(1, CATEGORIES, count, endpoint=True),
        "length": lengths.integers(_shortest(knobs), longest, count, endpoint=True),
        "reserve": _prices(reserves, count),
    }


def _offers(rng: Generator, registered: Int64s) -> Columns:
    bidders, prices = rng.spawn(2)
    return {
        "bidder": bidders.integers(1, registered, endpoint=True),
        "price": _prices(prices, len(registered)),
    }


def _prices(rng: Generator, count: int) -> Int64s:
    return np.floor(100 * 1000 ** rng.random(count)).astype(np.int64)


def _picked(
    rng: Generator, ts: Int64s, opened_before: Int64s, auctions: Columns, knobs: Mapping[str, Any]
) -> Int64s:
    """Return the auction of each bid, counted from 0.

    An auction's rank is uniform from 1 to the number that is open at once. So about one open auction has each
    rank, and Zipf's weights of the ranks are those of the auctions.
    """
    from slackwater.pipelines.generate.open_auctions import pick_auctions

    ranks, draws = rng.spawn(2)
    turn = (knobs["person_share"] + knobs["auction_share"] + knobs["bid_share"]) / knobs["rate"]
    open_at_once = max(1, round(knobs["auction_share"] / turn * knobs["length"] / 1000))
    rank = ranks.integers(1, open_at_once, len(auctions["ts"]), endpoint=True)
    weight = np.maximum(1, np.floor(WEIGHT * rank.astype(np.float64) ** -knobs["skew"])).astype(np.int64)
    end = auctions["ts"] + auctions["length"]
    by_end = np.argsort(end, kind="stable")
    return pick_auctions(ts, opened_before, end, by_end, weight, draws.random(len(ts)))


def _closings(rng: Generator, until: int, auctions: Columns, bids: Columns, knobs: Mapping[str, Any]) -> Columns:
    """Return a closing row for every auction that ends by ``until``, when all its bids have been made."""
    end = auctions["ts"] + auctions["length"]
    over = np.flatnonzero(end <= until)
    if knobs["punctuations"] == "arrival":
        last = end.copy()
        np.maximum.at(last, bids["auction"] - 1, bids["arrived"])
    else:
        last = end + _delays(rng.spawn(1)[0], len(end), knobs)
    nobody = np.zeros(len(over), np.int64)
    kind = np.full(len(over), "closed")
    return {
        **{"ts": end[over], "kind": kind, "auction": over + 1, "bidder": nobody, "price": nobody},
        "arrived": last[over],
    }


NEXMARK = Dataset(
    "nexmark",
    "Auctions and bids with closing punctuations, joined within 12 hours; --rows counts bids (Nexmark, PWJoin).",
    ("auctions", "bids", "persons"),
    500_000,
    (
        Knob("rate", "float", 5.0, "Events of all streams per second.", minimum=0.001, maximum=10**9),
        Knob("person_share", "int", 1, "Persons in each turn of events.", minimum=1, maximum=10**6),
        Knob("auction_share", "int", 3, "Auctions in each turn of events.", minimum=1, maximum=10**6),
        Knob("bid_share", "int", 46, "Bids in each turn of events.", minimum=1, maximum=10**6),
        Knob(
            "length",
            "int",
            HALF_A_DAY,
            "Time in ms that an auction is open, 12 hours; shorten it, and window, for quick runs.",
            minimum=1,
            maximum=LONGEST,
        ),
        Knob(
            "length_spread",
            "float",
            0.0,
            "Lengths are uniform from length less this share of it to length plus it.",
            maximum=1,
        ),
        Knob("skew", "float", 1.0, "Zipf skew of the bids over the open auctions; 0 is uniform.", maximum=5),
        Knob("delayed", "float", 0.1, "Share of rows that are late, as in Nexmark.", maximum=1),
        Knob(
            "max_delay",
            "int",
            60_000,
            "Longest delay in ms; delays are uniform from 1 ms to this. Nexmark's is 3 s.",
            maximum=LONGEST,
        ),
        Knob(
            "group",
            "int",
            1,
            "Consecutive events that arrive in random order among themselves.",
            minimum=1,
            maximum=10**6,
        ),
        Knob(
            "punctuations",
            "choice",
            "event",
            "Closing rows in bids: late like other rows (event), after the auction's last bid in order of "
            "arrival too (arrival), or none.",
            choices=("event", "arrival", "none"),
        ),
        Knob("window", "int", HALF_A_DAY, "Window in ms of the query.", minimum=1, maximum=LONGEST),
    ),
    _make,
)
