"""Join conditions as SQL and as Python, and random streams with every kind of disorder to try them on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from running import NAMES, Arrival, numbered

EFFORT = int(os.environ.get("SLACKWATER_TEST_EFFORT", "1"))
"""Multiplies the examples of the property tests."""


class Spec(NamedTuple):
    """A condition over ``m`` inputs with columns k and v: its text, and what it means."""

    m: int
    sql: str | None
    test: Callable[[dict[int, dict[str, Any]]], Any]


def eq(*values: Any) -> bool:
    """All equal, and none null."""
    return None not in values and len(set(values)) == 1


def known(test: Callable[..., bool], *values: Any) -> bool:
    """A test that is not true where a value is null."""
    return None not in values and test(*values)


def star(m: int) -> Spec:
    sql = " AND ".join(f"a.k = {name}.k" for name in NAMES[1:m])
    return Spec(m, sql, lambda r: eq(*(r[i]["k"] for i in range(m))))


def chain(m: int) -> Spec:
    """Each link on another column than the one before: no single key, no sharding."""
    links = [(i, "kv"[i % 2]) for i in range(m - 1)]
    sql = " AND ".join(f"{NAMES[i]}.{c} = {NAMES[i + 1]}.{c}" for i, c in links)
    return Spec(m, sql, lambda r: all(eq(r[i][c], r[i + 1][c]) for i, c in links))


def clique(m: int) -> Spec:
    pairs = [(i, j) for i in range(m) for j in range(i)]
    sql = " AND ".join(f"{NAMES[i]}.k = {NAMES[j]}.k" for i, j in pairs)
    return Spec(m, sql, lambda r: all(eq(r[i]["k"], r[j]["k"]) for i, j in pairs))


def two_armed_star(m: int) -> Spec:
    """The middle has a key of its own with every other input: k with the odd ones, v with the even ones."""
    arms = [(i, "vk"[i % 2]) for i in range(1, m)]
    sql = " AND ".join(f"a.{c} = {NAMES[i]}.{c}" for i, c in arms)
    return Spec(m, sql, lambda r: all(eq(r[0][c], r[i][c]) for i, c in arms))


TWO_WAY = [
    star(2),
    Spec(2, None, lambda r: True),
    Spec(2, "TRUE", lambda r: True),
    Spec(2, "1 = 2", lambda r: False),
    Spec(2, "a.k = b.v", lambda r: eq(r[0]["k"], r[1]["v"])),
    Spec(2, "a.k = b.k AND a.v = b.v", lambda r: eq(r[0]["k"], r[1]["k"]) and eq(r[0]["v"], r[1]["v"])),
    Spec(2, "a.k = b.k AND a.v = b.k", lambda r: eq(r[0]["k"], r[1]["k"], r[0]["v"])),
    Spec(
        2,
        "a.k = b.k AND a.v < b.v",
        lambda r: eq(r[0]["k"], r[1]["k"]) and known(lambda x, y: x < y, r[0]["v"], r[1]["v"]),
    ),
    Spec(2, "abs(a.v - b.v) <= 1", lambda r: known(lambda x, y: abs(x - y) <= 1, r[0]["v"], r[1]["v"])),
    Spec(2, "a.k = b.k OR a.v = b.v", lambda r: eq(r[0]["k"], r[1]["k"]) or eq(r[0]["v"], r[1]["v"])),
    Spec(2, "NOT a.k = b.k", lambda r: known(lambda x, y: x != y, r[0]["k"], r[1]["k"])),
    Spec(2, "a.k IS NULL AND b.v > 0", lambda r: r[0]["k"] is None and known(lambda v: v > 0, r[1]["v"])),
    Spec(
        2,
        "b.v IN (0, 2) AND a.k = b.k AND a.v BETWEEN 0 AND 1",
        lambda r: r[1]["v"] in (0, 2) and eq(r[0]["k"], r[1]["k"]) and r[0]["v"] in (0, 1),
    ),
]
THREE_WAY = [
    star(3),
    chain(3),
    clique(3),
    two_armed_star(3),
    Spec(3, "a.k = b.k", lambda r: eq(r[0]["k"], r[1]["k"])),
    Spec(3, "a.v = 1 AND c.k = b.k", lambda r: r[0]["v"] == 1 and eq(r[1]["k"], r[2]["k"])),
    Spec(
        3,
        "a.v + b.v = c.v",
        lambda r: known(lambda x, y, z: x + y == z, r[0]["v"], r[1]["v"], r[2]["v"]),
    ),
    Spec(
        3,
        "a.k = b.k AND greatest(b.v, c.v) < 2 AND c.k <> a.k",
        lambda r: (
            eq(r[0]["k"], r[1]["k"])
            and known(lambda x, y: x != y, r[0]["k"], r[2]["k"])
            and any(r[i]["v"] is not None for i in (1, 2))
            and max(r[i]["v"] for i in (1, 2) if r[i]["v"] is not None) < 2
        ),
    ),
    Spec(3, None, lambda r: True),
]
FOUR_WAY = [
    star(4),
    chain(4),
    clique(4),
    two_armed_star(4),
    Spec(
        4,
        "a.k = b.k AND c.k = d.k AND a.v <= d.v",
        lambda r: (
            eq(r[0]["k"], r[1]["k"])
            and eq(r[2]["k"], r[3]["k"])
            and known(lambda x, y: x <= y, r[0]["v"], r[3]["v"])
        ),
    ),
    Spec(
        4,
        "d.k = a.v AND b.k = d.v AND c.v > b.v",
        lambda r: (
            eq(r[3]["k"], r[0]["v"])
            and eq(r[1]["k"], r[3]["v"])
            and known(lambda x, y: x > y, r[2]["v"], r[1]["v"])
        ),
    ),
]
WIDE = [shape(m) for m in (5, 6, 7, 8) for shape in (star, chain, two_armed_star)]

SLACKS = st.sampled_from(["none", 0, 1, 4, 50, "max"])


@st.composite
def streams(draw: st.DrawFn, m: int, size: int, least: int = 0) -> list[Arrival]:
    """Rows in arrival order: a common clock, skewed per input, each row delayed on its own; many ties."""
    skew = draw(st.lists(st.integers(-6, 6), min_size=m, max_size=m))
    value = st.sampled_from([0, 1, 2, 0, 1, 2, 0, 1, None])
    delay = st.sampled_from([0, 0, 0, 1, 2, 5, 9, 30])
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, m - 1), st.integers(0, 2), delay, value, value),
            min_size=least,
            max_size=size,
        )
    )
    arrivals, clock = [], 0
    for which, step, late, k, v in rows:
        clock += step
        arrivals.append((which, {"ts": clock + skew[which] - late, "k": k, "v": v}))
    return numbered(arrivals)


def windows(m: int) -> st.SearchStrategy[list[int]]:
    return st.one_of(
        st.integers(1, 12).map(lambda w: [w] * m),
        st.lists(st.integers(1, 12), min_size=m, max_size=m),
    )


def cuts(size: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, size), max_size=4)
