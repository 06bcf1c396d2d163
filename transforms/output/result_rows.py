"""Results on their way to the main output: gathered as row numbers, made into rows many at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Int64s
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.size import PIECE_BYTES, cuts
from slackwater.transforms.rows.store import RowStore
from slackwater.transforms.rows.stored_rows import StoredRows
from slackwater.transforms.settings.plan import JoinPlan

RESULTS_AT_ONCE: Final = 1 << 17


class ResultRows:
    """Results of one shard that have been found and not written."""

    def __init__(self, plan: JoinPlan, stores: Sequence[RowStore], shard: int = 0) -> None:
        self._plan, self._stores, self._shard = plan, stores, shard
        self._found: list[tuple[Int64s, Int64s]] = []
        self._size = 0
        self.takes: Callable[[pa.RecordBatch], None] | None = None
        """Takes results before the step is over, where they are many bytes; else they wait in its outputs."""

    @property
    def full(self) -> bool:
        """Whether it is time to write."""
        return self._size >= RESULTS_AT_ONCE

    def add(self, rows: Int64s, ts: Int64s) -> None:
        """Take results, ``[results, inputs]``, with their times."""
        self._found.append((rows, ts))
        self._size += len(ts)

    def add_in_order(self, found: Sequence[tuple[Int64s, Int64s]], ts: Int64s) -> None:
        """Take results as they were found, each with the tuple that completed it, in the order of these.

        Args:
            found: results and, for each, the index of the tuple.
            ts: times of the tuples.
        """
        if not found:
            return
        rows, probe = map(np.concatenate, zip(*found, strict=True))
        order = np.argsort(probe, kind="stable")
        self.add(rows[order], ts[probe[order]])

    def write(self, out: Outputs) -> None:
        """Make rows of what was taken."""
        if not self._found:
            return
        rows, ts = map(np.concatenate, zip(*self._found, strict=True))
        self._found.clear()
        self._size = 0
        stores = self._stores[: rows.shape[1]]
        at = [store.locate(rows[:, i]) for i, store in enumerate(stores)]
        sizes: Any = sum(store.sizes(places) for store, places in zip(stores, at, strict=True))
        for part in [slice(None)] if isinstance(sizes, int) else cuts(sizes):
            taken = [store.take(places[part]) for store, places in zip(stores, at, strict=True)]
            self._write(out, taken, ts[part], list(rows[part].T))
            self._hand_over(out)

    def _hand_over(self, out: Outputs) -> None:
        """Let results go that take too much memory to wait for the others of the step."""
        if self.takes is not None and sum(batch.nbytes for batch in out.results) >= PIECE_BYTES:
            for batch in out.results:
                self.takes(batch)
            out.results.clear()

    def write_stored(self, out: Outputs, members: Sequence[StoredRows], ts: Int64s) -> None:
        """Write results of which each input's members were read from disk (``RowDisk``)."""
        for part in cuts(np.sum([rows.sizes for rows in members], axis=0)):
            columns = [rows.batch(part).columns for rows in members]
            seqs = [] if self._plan.config.id is None else [mine.pop() for mine in columns]
            self._write(out, columns, ts[part], seqs)
            self._hand_over(out)

    def _write(self, out: Outputs, members: Sequence[Sequence[Any]], ts: Int64s, seqs: Sequence[Any]) -> None:
        """Write results of which each input's members and their row numbers are known."""
        columns = [column for mine in members for column in mine]
        beside = [pa.array(ts).cast(self._plan.time_type)]
        if self._plan.config.id is not None:
            # Row numbers are counted over all arrivals of a shard: neither cuts nor restarts show.
            texts = [pc.cast(seq if isinstance(seq, pa.Array) else pa.array(seq), pa.string()) for seq in seqs]
            beside.append(pc.binary_join_element_wise(str(self._shard), *texts, "-"))
        out.results.append(self._plan.result_batch(columns, *beside))
