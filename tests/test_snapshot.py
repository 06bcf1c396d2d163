"""Snapshots as bytes: everything a strategy may put into one comes back, and nothing else goes in."""

import numpy as np
import pytest
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.transforms.operator import Operator
from slackwater.transforms.snapshot import dumps, loads


def same(x, y):
    if isinstance(x, np.ndarray):
        return isinstance(y, np.ndarray) and x.dtype == y.dtype and x.shape == y.shape and (x == y).all()
    if isinstance(x, dict):
        return isinstance(y, dict) and x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if isinstance(x, list):
        return isinstance(y, list) and len(x) == len(y) and all(map(same, x, y))
    return type(x) is type(y) and x == y


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": None, "b": True, "c": 2**70, "d": -1.5, "e": "ä\n", "f": b"\x00\xff", "g": float("inf")},
        {
            "array": np.arange(6).reshape(2, 3),
            "bits": np.array([True, False]),
            "empty": np.empty((0, 4), np.uint64),
        },
        {"nested": {"deep": [1, [2.0, "x", {"y": np.array([1.5])}], []]}},
        {"words": np.array(["a", "bc"]), "bytes": np.array([b"x"])},
    ],
)
def test_values_come_back(value):
    assert same(loads(dumps(value)), value)


def test_numpy_numbers_become_plain_and_tuples_become_lists():
    assert loads(dumps({"n": np.int64(3), "f": np.float32(0.5), "t": (1, 2)})) == {
        "n": 3,
        "f": 0.5,
        "t": [1, 2],
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_other_values_are_refused_by_type(value):
    with pytest.raises(
        TypeError, match=f"a snapshot cannot hold {type(value).__name__}; use arrays, numbers, text"
    ):
        dumps({"x": value})


@pytest.mark.parametrize("array", [np.array([object()]), np.zeros(1, [("a", "i8")])])
def test_arrays_of_other_things_are_refused(array):
    with pytest.raises(TypeError, match=r"a snapshot cannot hold an array of .+; use numbers or texts"):
        dumps({"x": array})


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"SLKW0\n" + bytes(20)])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="these bytes are no snapshot of Slackwater, or one of another version"):
        loads(data)


def test_a_snapshot_is_the_same_however_the_rows_came():
    arrivals = numbered((k % 2, {"ts": k - 3 * (k % 5 == 0), "k": k % 3, "v": 0}) for k in range(80))
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", disorder={"strategy": "fixed", "slack": "2ms"})
    whole, pieces = Operator(plan), Operator(plan)
    whole.push(chunk_of(plan, arrivals))
    for k in range(0, 80, 7):
        pieces.push(chunk_of(plan, arrivals[k : k + 7], k))
    first, second = whole.snapshot(), pieces.snapshot()
    assert {k: dumps({k: first[k]}) for k in first if k != "accounting"} == {
        k: dumps({k: second[k]}) for k in second if k != "accounting"
    }


def test_a_snapshot_grows_with_what_is_held_not_with_what_was_seen():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", disorder={"strategy": "fixed", "slack": "2ms"})
    operator = Operator(plan)
    sizes = []
    for start in range(0, 4000, 500):
        rows = numbered((k % 2, {"ts": k, "k": k % 3, "v": 0}) for k in range(start, start + 500))
        operator.push(chunk_of(plan, rows, start))
        sizes.append(len(dumps(operator.snapshot())))
    assert max(sizes) < 1.1 * min(sizes)
