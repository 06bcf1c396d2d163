"""Snapshots as bytes: everything a strategy may put into one comes back, and nothing else goes in."""

import numpy as np
import pytest
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.pipelines.bench.fuzz import snapshots as fuzz_snapshots
from slackwater.transforms.errors import StateError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.state.snapshot import dumps, loads, seal


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


ANEW = "go on from an intact copy, or start anew without it"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"SLKW4\n"])
def test_other_bytes_are_refused(data):
    fault = f"the stored state is damaged: it does not begin as Slackwater writes it; {ANEW}"
    with pytest.raises(StateError, match=fault):
        loads(data)


def test_bytes_of_another_version_are_refused():
    fault = (
        r"the stored state was written by another version of Slackwater \(layout 3, this one reads 4\); finish"
    )
    with pytest.raises(StateError, match=fault):
        loads(b"SLKW3\n" + bytes(20))


def test_every_flipped_bit_and_every_cut_is_refused():
    data = dumps({"a": np.arange(5), "b": [b"xyz", None], "c": "ä"})
    assert loads(data)
    for at in range(len(data)):
        with pytest.raises(StateError, match=r"the stored state (is damaged|was written by another version)"):
            loads(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(StateError, match=r"is damaged: it (has \d+ of \d+ bytes|does not begin as)"):
            loads(data[:at])
    with pytest.raises(StateError, match=f"the stored state is damaged: its checksum does not match; {ANEW}"):
        loads(data[:-1] + b"?")
    with pytest.raises(StateError, match=r"the stored state is none that Slackwater has written \(.+\); go on"):
        loads(seal(b"not what dumps writes"))


def test_a_snapshot_whose_parts_do_not_go_together_is_refused():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", disorder={"strategy": "fixed", "slack": "2ms"})
    operator = Operator(plan)
    operator.push(chunk_of(plan, numbered((k % 2, {"ts": k, "k": k % 3, "v": 0}) for k in range(20))))
    state = loads(dumps(operator.snapshot()))
    rows = state["rows"][0]
    for wrong in (
        {**rows, "ts": rows["ts"][1:]},
        {**rows, "seq": rows["seq"][::-1]},
        {**rows, "cells": rows["cells"].astype(np.int32)},
    ):
        with pytest.raises(
            StateError, match=f"the stored state has rows that are not those of this input; {ANEW}"
        ):
            open_operator(plan, {**state, "rows": [wrong, state["rows"][1]]})
    far = {**state["buffer"], "code": [code + (1 << 40) for code in state["buffer"]["code"]]}
    with pytest.raises(StateError, match=f"the stored state refers to rows that it does not have; {ANEW}"):
        open_operator(plan, {**state, "buffer": far})
    with pytest.raises(
        StateError, match=r"the stored state does not fit what reads it \(KeyError: .+\); go on from"
    ):
        open_operator(plan, {**state, "buffer": {"ts": []}})


def test_state_of_other_strategies_is_refused():
    settings = {"window": "9ms", "where": "a.k = b.k"}
    plan, other = (
        plan_of(SCHEMA, **settings, disorder=disorder)
        for disorder in ({"strategy": "fixed", "slack": "2ms"}, {"strategy": "max"})
    )
    operator = Operator(plan)
    operator.push(chunk_of(plan, numbered((k % 2, {"ts": k, "k": k % 3, "v": 0}) for k in range(20))))
    state = loads(dumps(operator.snapshot()))
    assert open_operator(plan, state).nbytes
    strategies = "the strategies fixed, mswj, none, and this one has max, mswj, none"
    with pytest.raises(StateError, match=f"the stored state is of a shard with {strategies}; {ANEW}"):
        open_operator(other, state)


@pytest.mark.parametrize(("name", "other"), [("mswj", "reorder"), ("shed", "mswj"), ("aggregate", "mswj")])
def test_an_entry_of_an_operator_with_other_inputs_is_refused(name, other):
    journal, *_ = (s for s in fuzz_snapshots.subjects([name]) if "journal" in s.name)
    foreign, *_ = (s for s in fuzz_snapshots.subjects([other]) if "journal" in s.name)
    for entry in ("entry 1", "entry 8"):
        parts = {**journal.parts, entry: foreign.parts[entry]}
        with pytest.raises(
            StateError,
            match=rf"an entry of the stored state does not fit what reads it \(ValueError: .+\); {ANEW}",
        ):
            journal.go_on(parts)


def test_damaged_state_is_refused_or_does_no_harm():
    """A part of ``slackwater bench fuzz_snapshots``."""
    found = fuzz_snapshots.fuzz(600, 11, ("mswj", "prob", "aggregate"))
    assert found.keys() == {"refused", "same"} and found["refused"] > 400, found


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


def test_a_spilled_file_that_has_changed_is_refused():
    plan = fuzz_snapshots.plan_of("xjoin")
    for at in (3, 15, 40, -20):
        operator = Operator(plan)
        operator.push(fuzz_snapshots.arrivals(plan, 0, fuzz_snapshots.ROWS))
        files = sorted(operator.join.disk._directory.path.glob("*.arrows"))
        assert files
        for file in files:
            data = bytearray(file.read_bytes())
            data[at] ^= 4
            file.write_bytes(data)
        with pytest.raises(StateError, match=r"the spilled part \d-\d+ (is damaged|was written by another)"):
            operator.finish()
        operator.close()
