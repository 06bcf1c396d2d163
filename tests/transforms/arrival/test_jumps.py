"""Jumps that rows do not follow: found wherever chunks are cut, and at the distance that they have."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import SCHEMA, plan_of

from slackwater.plugins.registry.options import Duration
from slackwater.transforms.arrival.jumps import Jumps, limit_below, rounded

MINUTE = 60_000
PLAN = plan_of(SCHEMA, window="200ms", where="a.k = b.k")


def progress_of(ts):
    return np.maximum.accumulate(np.asarray(ts, np.int64))


def found(ts, cuts=(), restart=False):
    """What is found of times of the second input, in milliseconds."""
    jumps = Jumps(PLAN)
    progress = progress_of(ts)
    for start, stop in zip([0, *cuts], [*cuts, len(ts)], strict=True):
        if stop > start:
            part = np.asarray(ts, np.int64)[start:stop]
            # Rows of another input lie between them.
            delay = np.repeat(progress[start:stop] - part, 2)
            jumps.follow(1, part, delay, 2 * np.arange(part.size))
        if restart:
            jumps = Jumps(PLAN, jumps.snapshot())
    return {i: int(distance) // 10**6 for i, distance in jumps.distances().items()}


def literal(ts):
    """Read one row after the other, as the docstring of Jumps says it."""
    smallest, top, below, asked = None, None, None, []

    def judged():
        behind = [t for t in asked if t < top - below]
        near = len(asked) - len(behind)
        if (
            len(behind) < 3
            or 2 * len(behind) < len(asked)
            or near >= 16
            or (near >= 2 and 4 * near >= len(asked))
        ):
            return smallest
        return min(top - max(behind), smallest or top)

    for k, t in enumerate(ts):
        before = max(ts[:k], default=None)
        if before is None or t - before >= MINUTE:
            if asked:
                smallest = judged()
            top, below, asked = t, MINUTE // 2 if before is None else (t - before) // 2, []
        elif len(asked) < 64:
            asked.append(t)
    smallest = judged() if asked else smallest
    return {} if smallest is None else {1: smallest}


TIMES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 40, 10_000]), st.sampled_from([0, 0, 0, 0, 0, 0, 61_000, 3_600_000, -90_000])
    ),
    min_size=1,
    max_size=300,
).map(
    lambda steps: [
        10**9 + int(n) + more for n, (_, more) in zip(np.cumsum([s for s, _ in steps]), steps, strict=True)
    ]
)


@given(TIMES, st.lists(st.integers(0, 300), max_size=5), st.booleans())
def test_what_is_found_is_the_literal_reading_wherever_chunks_are_cut(ts, cuts, restart):
    expected = literal(ts)
    assert found(ts) == expected
    assert found(ts, sorted(min(cut, len(ts)) for cut in cuts), restart) == expected


def test_the_literal_reading_finds_a_lone_jump_and_no_gap():
    steady = [10**9 + 10 * k for k in range(200)]
    assert literal(steady) == {}
    assert literal([*steady[:100], steady[100] + 3_600_000, *steady[101:]]) == {
        1: 3_600_000 + 10 * 100 - 10 * 164
    }
    gap = [t + 3_600_000 * (k >= 100) for k, t in enumerate(steady)]
    assert literal(gap) == {}
    assert literal([t + 7_200_000 * (k == 0) for k, t in enumerate(steady)]) != {}


@pytest.mark.parametrize(
    ("length", "told", "half"),
    [
        ("1h", "1h", "30m"),
        ("3599s", "1h", "30m"),
        ("40d", "40d", "20d"),
        ("61s", "61s", "31s"),
        ("36h", "36h", "18h"),
    ],
)
def test_lengths_are_told_in_whole_units(length, told, half):
    assert str(rounded(Duration.parse(length))) == told
    assert str(limit_below(Duration.parse(length))) == half


def zoned_plan(first, second, **settings):
    schemas = [pa.schema([("ts", type_), ("at", type_), ("k", pa.int64())]) for type_ in (first, second)]
    return plan_of(schemas, window="1s", where="a.k = b.k", **settings)


@pytest.mark.parametrize("type_", [pa.timestamp("ms"), pa.date32(), pa.dictionary(pa.int8(), pa.timestamp("s"))])
def test_times_without_a_zone_beside_ones_with_one_are_read_as_utc_and_named(type_):
    from slackwater.transforms.operators.join import Operator

    zoned = pa.timestamp("us", "Europe/Berlin")
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    told = (
        f"column 'ts' of input 'b' ({plain}) has no time zone and is read as UTC, beside column 'ts' of input "
        "'a' (timestamp[us, tz=Europe/Berlin]); if it is in local time, store it in UTC"
    )
    assert Operator(zoned_plan(zoned, type_)).warnings == [f"time: {told}"]
    both = Operator(zoned_plan(zoned, type_, arrival="at")).warnings
    assert both == [f"time: {told}", f"arrival: {told.replace(chr(39) + 'ts', chr(39) + 'at')}"]
    assert not Operator(zoned_plan(zoned, zoned)).warnings
    assert not Operator(zoned_plan(type_, type_, arrival="at")).warnings
