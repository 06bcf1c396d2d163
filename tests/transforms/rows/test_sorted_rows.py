"""Rows in another order: the same parts whether all fit into one batch or not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from slackwater.transforms.rows import size
from slackwater.transforms.rows.sorted_rows import SortedRows

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])


def batches(*lengths: int) -> list[pa.RecordBatch]:
    starts = np.cumsum([0, *lengths[:-1]])
    return [
        pa.RecordBatch.from_pydict(
            {"k": np.arange(s, s + n), "t": [f"{k:0500}" for k in range(s, s + n)]}, SCHEMA
        )
        for s, n in zip(starts, lengths, strict=True)
    ]


@pytest.mark.parametrize("shuffled", [False, True])
def test_parts_are_the_same_whether_all_rows_fit_into_one_batch_or_not(
    shuffled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = batches(7, 0, 1, 30, 2)
    order = np.random.default_rng(3).permutation(40) if shuffled else None
    expected = np.arange(40) if order is None else order
    whole = SortedRows(SCHEMA, given, order)
    assert whole.sizes is None and len(list(whole.parts())) == 1
    monkeypatch.setattr(size, "PIECE_BYTES", 5_000)
    cut = SortedRows(SCHEMA, given, order)
    sizes = cut.sizes
    assert sizes is not None and len(cut) == len(whole) == 40
    assert (sizes >= 500).all() and (sizes < 600).all()
    for start, n in ((0, 40), (0, 7), (6, 2), (7, 1), (8, 30), (39, 1), (40, 0), (12, 0), (35, 99)):
        assert cut.take(start, n) == whole.take(start, n)
        assert cut.take(start, n).column("k").to_pylist() == expected[start : start + n].tolist()
    parts = list(cut.parts())
    assert len(parts) > 4 and max(part.nbytes for part in parts) <= 5_000
    assert {cut.stop - cut.start for cut in cut.cuts(3)} == {1, 3}
    assert [k for part in parts for k in part.column("k").to_pylist()] == expected.tolist()


def test_rows_without_texts_are_one_batch_whatever_they_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "PIECE_BYTES", 10)
    numbers = [batch.select(["k"]) for batch in batches(7, 3)]
    rows = SortedRows(numbers[0].schema, numbers, np.arange(10)[::-1])
    assert rows.sizes is None
    assert rows.take(0, 10).column("k").to_pylist() == list(range(9, -1, -1))


def test_no_batch_is_no_rows_of_the_schema() -> None:
    rows = SortedRows(SCHEMA, [])
    assert len(rows) == 0 and rows.take(0, 5).schema == SCHEMA and not list(rows.parts())
