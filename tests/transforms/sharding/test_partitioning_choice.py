"""Which scheme is chosen and why, what it says of itself, and what is refused."""

import pyarrow as pa
import pytest
from running import plan_of

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.sharding.bands import bands
from slackwater.transforms.sharding.one_bucket import sides

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("y", pa.int64()), ("t", pa.timestamp("ms"))]
)


def plan_for(where, m=2, **more):
    return plan_of(SCHEMA, m, **{"where": where, "window": "5s", "shards": 4, **more})


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("abs(a.x - b.x) <= 5", [("a.x", "b.x", -5, 5)]),
        ("abs(b.x - a.y + 1) < 5", [("a.y", "b.x", -4, 6)]),
        ("5 >= abs(a.x - b.x)", [("a.x", "b.x", -5, 5)]),
        ("a.x BETWEEN b.x - 1 AND b.x + 2", [("a.x", "b.x", -1, 2)]),
        ("a.x + 1 > b.x AND a.x - 3 * 2 <= b.x", [("a.x", "b.x", -1, 6)]),
        ("abs(a.x - b.x) < 5 AND abs(a.x - b.x) < 3", [("a.x", "b.x", -3, 3)]),
        (
            "(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) <= 9",
            [("a.x", "b.x", -3, 3), ("a.y", "b.y", -3, 3)],
        ),
        ("sqrt((a.x - b.x) * (a.x - b.x) + 2) <= 3", [("a.x", "b.x", -3, 3)]),
        ("abs(a.x) - abs(b.x) < 5", []),
        ("abs(a.x - b.x) < a.y", []),
        ("abs(a.x + b.x) < 5", []),
        ("abs(a.x - 2 * b.x) < 5", []),
        ("a.x - b.x < 5", []),
        ("NOT abs(a.x - b.x) < 5", []),
        ("abs(a.x - b.x) < 5 OR a.y = 1", []),
        ("greatest(abs(a.x - b.x), abs(a.y - b.y)) < 5", []),
        ("abs(a.x - b.x) - abs(a.y - b.y) < 5", []),
        ("abs(a.x - a.y) < 5", []),
        ("abs(a.x - b.x) < -1", []),
    ],
)
def test_bands_are_what_follows_from_a_condition(where, found):
    got = [(str(b.left), str(b.right), b.low, b.high) for b in bands(plan_for(where).condition)]
    assert [columns for *columns, _, _ in got] == [columns for *columns, _, _ in found]
    for (*_, low, high), (*_, least, most) in zip(got, found, strict=True):
        assert low <= least and high >= most
        assert (low, high) == pytest.approx((least, most), abs=1e-9)


@pytest.mark.parametrize(
    ("where", "m", "more", "said"),
    [
        (
            "a.k = b.k",
            2,
            {},
            ["split: by key a.k = b.k, which all inputs share", "shards per row: a 1, b 1"],
        ),
        (
            "a.k = b.k",
            2,
            {"hot_keys": {"input": "b", "values": ["x", "y"], "split": 3}},
            [
                "split: by key a.k = b.k, which all inputs share",
                "hot keys: rows of b with 'x', 'y' are spread over 3 shards by arrival, those of a with one of "
                "these values are copied to each",
                "shards per row: a 1, 3 for hot keys, b 1",
            ],
        ),
        (
            "abs(a.x - b.x) <= 5 AND a.k <> b.k",
            2,
            {},
            [
                "split: by cells of 10 of a.x; other rows go to all cells they can reach",
                "because: the condition keeps a.x - b.x from -5 to 5",
                "shards per row: a 1, b 2",
            ],
        ),
        (
            "sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)) <= 3",
            2,
            {},
            [
                "split: by cells of 12 of a.x x 12 of a.y; other rows go to all cells they can reach",
                "because: the condition keeps a.x - b.x from -3 to 3, and a.y - b.y from -3 to 3",
                "shards per row: a 1, b 2.25",
            ],
        ),
        (
            "abs(a.x - b.x) <= 5",
            3,
            {},
            [
                "split: by cells of 10 of a.x; other rows go to all cells they can reach; rows of c go to every "
                "shard",
                "because: the condition keeps a.x - b.x from -5 to 5",
                "shards per row: a 1, b 2, c 4",
            ],
        ),
        (
            "b.k = c.k AND a.x < b.x",
            3,
            {},
            [
                "split: by key b.k = c.k; rows of a go to every shard",
                "because: no key is shared by all inputs, and this way a shard has the fewest rows to compare",
                "shards per row: a 4, b 1, c 1",
            ],
        ),
        (
            "a.t <= b.t AND b.t <= a.t",
            2,
            {"shards": 7},
            [
                "split: one bucket: 3 of a x 2 of b, rows are placed by arrival; 1 of 7 shards stay empty",
                "because: the condition has no key and no band of numbers by which rows could go to fewer shards",
                "shards per row: a 2, b 3",
            ],
        ),
        (None, 2, {"shards": 1}, ["split: one shard has all rows", "shards per row: a 1, b 1"]),
    ],
)
def test_a_plan_explains_how_it_is_split_and_why(where, m, more, said):
    plan = plan_for(where, m, disorder={"strategy": "fixed", "slack": "2s"}, **more)
    names = "abc"[:m]
    assert plan.explain().split("\n") == [
        f"inputs: {', '.join(names)}",
        f"window: {', '.join(f'{name} 5s' for name in names)}",
        f"shards: {more.get('shards', 4)}",
        *said,
        "disorder: fixed (slack 2s)",
        "join: mswj",
        "shedding: none",
    ]


def test_the_sides_of_the_box_leave_a_shard_few_rows():
    assert [sides(n, 2) for n in (1, 2, 4, 6, 7, 11, 16)] == [
        (1, 1), (2, 1), (2, 2), (3, 2), (3, 2), (3, 3), (4, 4)
    ]  # fmt: skip
    assert sides(30, 3) == (3, 3, 3)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            {"where": "a.x < b.x", "hot_keys": {"input": "a", "values": [1]}},
            "hot_keys: needs a key that all inputs share, and the condition has none; leave it out",
        ),
        (
            {"hot_keys": {"input": "c", "values": ["x"]}},
            "hot_keys.input: 'c' is no input that is joined; these are a, b",
        ),
        (
            {"hot_keys": {"input": "a", "values": [1]}},
            "hot_keys.values: must be values of a.k, which is string, got 1",
        ),
        (
            {"hot_keys": {"input": "a", "values": ["x"], "split": 5}},
            "hot_keys.split: must be at most the number of shards, 4, got 5",
        ),
        (
            {"hot_keys": {"input": "a", "values": ["x"]}, "unique": "a.k"},
            "unique: speaks of rows that must be in one shard, and some are copied to several of 4; leave out "
            "hot_keys, or unique",
        ),
        (
            {"where": "a.x < b.x", "archive": "/tmp/some"},
            "archive: speaks of rows that must be in one shard, and some are copied to several of 4; leave out "
            "shards: 4, or archive",
        ),
        (
            {
                "where": "abs(a.x - b.x) < 5",
                "punctuations": {"input": "a", "when": "y = 1", "key": "x"},
                "join": {"strategy": "pwjoin"},
            },
            "punctuations: speaks of rows that must be in one shard",
        ),
        ({"window": "40 rows"}, "shards: a window of rows counts the rows of all keys; use shards: 1"),
    ],
)
def test_what_cannot_be_split_is_refused(more, fault):
    with pytest.raises(ConfigError) as error:
        plan_for(**{"where": "a.k = b.k", **more})
    assert str(error.value).startswith(fault)
