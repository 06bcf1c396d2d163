"""Rows wait until no input can bring an earlier one: the order in which they are taken is that of arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import SCHEMA, plan_of

from slackwater.transforms.engine.frontier import ENDED, NOTHING_YET, Reach, WaitingRows
from slackwater.transforms.rows import size
from slackwater.transforms.settings.plan import ARRIVAL

PLAN = plan_of(SCHEMA, 3, window="1s")
TEXT = pa.schema([("ts", pa.int64()), ("t", pa.string())])


def batch(ids: Sequence[int]) -> pa.RecordBatch:
    columns = {name: np.zeros(len(ids), np.int64) for name in ("ts", "k", "v")}
    return pa.RecordBatch.from_pydict({"id": np.array(ids, np.int64), **columns}, SCHEMA)


def taken(waiting: WaitingRows, reach: Reach, most: int = 3) -> list[tuple[int, int, int]]:
    """Number, input and id of the rows that may be taken, in order."""
    found = []
    for chunk in waiting.take(reach).steps(most):
        assert 0 < chunk.input.size <= most
        ids = [iter(rows.column("id").to_pylist()) for rows in chunk.batches]
        found += [
            (int(number), int(which), next(ids[which]))
            for number, which in zip(chunk.arrival, chunk.input, strict=True)
        ]
    return found


numbers = st.lists(st.integers(0, 12), max_size=12)


@given(st.tuples(numbers, numbers, numbers), st.randoms(use_true_random=False), st.integers(1, 5))
def test_rows_come_in_order_of_arrival_however_inputs_are_read(inputs, random, most) -> None:
    """No row is taken before all inputs have passed it; ties go in input order, then in that of their input."""
    arrivals = [sorted(of) for of in inputs]
    expected = sorted((number, which, k) for which, of in enumerate(arrivals) for k, number in enumerate(of))
    waiting, frontier, read, found = WaitingRows(PLAN), [NOTHING_YET] * 3, [0, 0, 0], []
    while min(frontier) < ENDED:
        which = random.choice([i for i in range(3) if frontier[i] < ENDED])
        part = arrivals[which][read[which] : read[which] + random.randint(1, 4)]
        if part:
            waiting.add(which, np.array(part), batch(range(read[which], read[which] + len(part))))
            frontier[which] = part[-1]
        else:
            frontier[which] = ENDED
        read[which] += len(part)
        found += taken(waiting, Reach.of(frontier), most)
        outstanding = min((number, i) for i, number in enumerate(frontier))
        assert all((number, i) <= outstanding for number, i, _ in found)
        left = [row for row in expected if row[:2] <= outstanding and row[2] < read[row[1]]]
        assert found == left, "all that may be taken is taken"
    assert found == expected and len(waiting) == 0


def test_rows_of_an_input_in_any_order_are_sorted() -> None:
    waiting = WaitingRows(PLAN)
    waiting.add(0, np.array([5, 2, 5, 1]), batch([0, 1, 2, 3]))
    waiting.add(0, np.array([2, 0]), batch([4, 5]))
    waiting.add(1, np.array([2]), batch([0]))
    assert taken(waiting, Reach(2, 0)) == [(0, 0, 5), (1, 0, 3), (2, 0, 1), (2, 0, 4)]
    assert len(waiting) == 3
    assert taken(waiting, Reach(2, 1)) == [(2, 1, 0)]
    assert taken(waiting, Reach(ENDED, 0)) == [(5, 0, 0), (5, 0, 2)]


def test_rows_that_wait_go_through_a_snapshot() -> None:
    waiting = WaitingRows(PLAN)
    waiting.add(0, np.array([5, 2]), batch([0, 1]))
    waiting.add(0, np.array([7]), batch([2]))
    waiting.add(2, np.array([3]), batch([0]))
    blobs = waiting.snapshot()
    assert blobs[1] == b"" and waiting.nbytes > 0
    again = WaitingRows(PLAN, blobs)
    assert len(again) == 4
    assert taken(again, Reach(ENDED, 0)) == [(2, 0, 1), (3, 2, 0), (5, 0, 0), (7, 0, 2)]


def test_rows_that_waited_in_an_earlier_version_are_read() -> None:
    """They were one batch for each input, with their numbers in the hidden column."""
    from slackwater.transforms.rows import ipc

    old = ipc.to_bytes(batch([0, 1]).append_column(ARRIVAL, pa.array([4, 2])))
    assert taken(WaitingRows(PLAN, [b"", old, b""]), Reach(ENDED, 0)) == [(2, 1, 1), (4, 1, 0)]


@pytest.mark.parametrize("settle_ties", [False, True])
def test_rows_of_more_bytes_than_a_batch_may_have_come_in_pieces(
    settle_ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same order; with numbers that are all the same, ties are settled over all batches."""
    plan = plan_of(TEXT, 2, window="1s")

    def filled() -> WaitingRows:
        waiting = WaitingRows(plan)
        rng = np.random.default_rng(1)
        for which in range(2):
            for _ in range(5):
                texts = [f"{k:0900}" for k in rng.integers(0, 9, 20)]
                rows = pa.RecordBatch.from_pydict({"ts": rng.integers(0, 2, 20), "t": texts}, TEXT)
                waiting.add(which, rng.integers(0, 3, 20), rows)
        return waiting

    (whole,) = filled().take(settle_ties=settle_ties).steps(1000)
    monkeypatch.setattr(size, "PIECE_BYTES", 20_000)
    chunks = list(filled().take(settle_ties=settle_ties).steps(1000))
    assert len(chunks) > 5
    assert max(sum(rows.nbytes for rows in chunk.batches) for chunk in chunks) <= 20_000
    for name in ("input", "arrival"):
        assert (
            np.concatenate([getattr(chunk, name) for chunk in chunks]).tolist() == getattr(whole, name).tolist()
        )
    for which in range(2):
        assert pa.concat_batches([chunk.batches[which] for chunk in chunks]) == whole.batches[which]
