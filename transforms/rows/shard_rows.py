"""The rows of a shard that may still be needed, with what keys and predicates read of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import Arrivals, Bools, Evicted, Held, Int8s, Int64s, Released, Snapshot
from slackwater.transforms.arrival.intake import Taken
from slackwater.transforms.disorder.buffer import Emitted
from slackwater.transforms.errors import StateError
from slackwater.transforms.kernels.rows import lookup as row_kernel
from slackwater.transforms.output.archive import Archive
from slackwater.transforms.punctuation.marks import marked
from slackwater.transforms.rows import row_code
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.store import Beside, RowStore, UnknownRow
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.state.snapshot import ANEW


class Reached(NamedTuple):
    """Rows that have reached the join, in order."""

    tuples: Released
    """What is known of them, as if all were tuples."""
    source: Int8s
    """The input by which each came; ``tuples.input`` is the one that it counts as an arrival of."""
    delay: Int64s


class ShardRows:
    """Accepted rows of every input, from their arrival until neither the buffer nor the join refers to them.

    Args:
        plan: what the operator does.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(self, plan: Plan, snapshot: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._plan = plan
        self.encoder = CellEncoder(plan.condition, snapshot.get("texts"))
        self._counts_as = np.asarray(plan.counts_as, np.int8)
        self._shared = [plan.shards > 1 and plan.partitioning.copies(i) for i in range(len(plan.members))]
        self.stores = [RowStore(schema, plan.condition.width) for schema in plan.schemas.values()]
        for store, rows in zip(self.stores, snapshot.get("rows", ()), strict=False):
            store.restore(rows)

    @property
    def nbytes(self) -> int:
        return self.encoder.dictionary.nbytes + sum(store.nbytes for store in self.stores)

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def snapshot(self) -> Snapshot:
        rows = [store.snapshot() for store in self.stores]
        return {"texts": self.encoder.dictionary.snapshot(), "rows": rows}

    def add(self, taken: Taken, show_cells: bool) -> Arrivals:
        """Keep the accepted rows; return the arrivals, with their cells if a disorder strategy wants to see them.

        The cells of punctuations are shown as null, so that they match nothing.
        """
        arrivals = taken.arrivals
        if show_cells:
            n = arrivals.ts.size
            shown = np.empty((n, self._plan.condition.width), np.int64)
            arrivals = arrivals._replace(cells=shown, nulls=np.empty(n, np.uint64))
        for i, (batch, at) in enumerate(zip(taken.rows, taken.of_input, strict=True)):
            if at.size:
                cells, nulls = self.encoder.encode(self._counts_as[i], batch, self._plan.source_columns(i))
                mark = marked(self._plan.marks, i, batch)
                beside = Beside(
                    seq=taken.seq[at],
                    ts=arrivals.ts[at],
                    arrival=arrivals.clock[at],
                    delay=arrivals.delay[at],
                    reported=np.zeros(at.size, np.bool_),
                    copy=taken.copies[i],
                    mark=mark,
                    cells=cells,
                    nulls=nulls,
                )
                self.stores[i].append(batch, beside)
                if arrivals.cells is not None and arrivals.nulls is not None:
                    row_kernel.spread(at, cells, nulls, arrivals.cells, arrivals.nulls)
                    arrivals.nulls[at[mark >= 0]] = ~np.uint64(0)
        return arrivals

    def reached(self, emitted: Emitted) -> Reached:
        """Return what is known of rows that leave the buffer."""
        n = emitted.ts.size
        cells = np.empty((n, self._plan.condition.width), np.int64)
        nulls, delay = np.empty(n, np.uint64), np.empty(n, np.int64)
        for i, store in enumerate(self.stores):
            rows = store.beside
            beside, into = (rows.seq, rows.cells, rows.nulls, rows.delay), (cells, nulls, delay)
            unknown = row_kernel.scatter(emitted.code, i, *beside, *into)
            if unknown >= 0:
                raise UnknownRow(int(row_code.seq_of(emitted.code[unknown])))
        source, seq = row_code.input_of(emitted.code), row_code.seq_of(emitted.code)
        tuples = Released(self._counts_as[source], seq, emitted.ts, emitted.late, cells, nulls)
        return Reached(tuples, source, delay)

    def held(self, evicted: Evicted) -> Held:
        """Return what joins know of rows that they had to give up."""
        n = evicted.seq.size
        cells = np.empty((n, self._plan.condition.width), np.int64)
        ts, nulls = np.empty(n, np.int64), np.empty(n, np.uint64)
        codes = row_code.pack(evicted.seq, evicted.input)
        for i in range(len(self._plan.members)):
            rows = self.stores[i].beside
            unknown = row_kernel.scatter(codes, i, rows.seq, rows.cells, rows.nulls, rows.ts, cells, nulls, ts)
            if unknown >= 0:
                raise UnknownRow(int(evicted.seq[unknown]))
        return Held(evicted.input, evicted.seq, ts, cells, nulls)

    def marks(self, released: Released, source: Int8s) -> Int8s:
        """Return which kind of punctuation each row is; -1 for tuples."""
        mark = np.full(released.ts.size, -1, np.int8)
        for i, store in enumerate(self.stores):
            mine = source == i
            mark[mine] = store.beside.mark[store.locate(released.seq[mine])]
        return mark

    def copies(self, released: Released) -> Bools | None:
        """Return which tuples another shard accounts for; None where no input has such."""
        if not any(self._shared):
            return None
        copy = np.zeros(released.ts.size, np.bool_)
        for i, store in enumerate(self.stores):
            mine = released.input == i
            if self._shared[i]:
                copy[mine] = store.beside.copy[store.locate(released.seq[mine])]
        return copy

    def needed(self, codes: Int64s, held: Held) -> list[Int64s]:
        """Return the numbers of each input's rows that the buffer, which has these codes, or the join holds."""
        return [
            np.concatenate([row_code.seqs_of(codes, i), held.seq[held.input == i]])
            for i in range(len(self.stores))
        ]

    def check(self, codes: Int64s, held: Held) -> None:
        """Raise StateError unless every row is there that the buffer, with these codes, or the join holds."""
        for store, seqs in zip(self.stores, self.needed(codes, held), strict=True):
            if not np.isin(seqs, store.beside.seq).all():
                raise StateError(f"the stored state refers to rows that it does not have; {ANEW}")

    def weigh(self, needed: list[Int64s]) -> tuple[float, int]:
        """Return the bytes of these rows, and of the texts that keys and predicates read of them."""
        used = [
            store.beside.cells[store.locate(np.sort(seqs)), c]
            for i, (store, seqs) in enumerate(zip(self.stores, needed, strict=True))
            for c in self.encoder.text_cells(self._counts_as[i])
        ]
        texts = self.encoder.dictionary.bytes_for(np.unique(np.concatenate(used))) if used else 0
        return sum(store.row_bytes(seqs) for store, seqs in zip(self.stores, needed, strict=True)), texts

    def keep(self, codes: Int64s, held: Held, archive: Archive | None = None) -> None:
        """Forget all rows but those of the buffer and of the join; some of the others go to the archive."""
        for i, (store, seq) in enumerate(zip(self.stores, self.needed(codes, held), strict=True)):
            if archive is not None:
                archive.keep(i, seq)
            store.keep(seq)

    def forget_texts(self, held_by: Iterable[tuple[Int8s, Int64s]]) -> None:
        """Forget texts that no row has, and none of the cells that others hold, given with their inputs.

        Where there are no texts, nobody is asked.
        """
        if not self.encoder.dictionary.size:
            return
        filled = zip(self._counts_as, self.stores, strict=True)
        cells_of = [(np.full(len(store), i, np.int8), store.beside.cells) for i, store in filled]
        used = [
            cells[inputs == i, c]
            for inputs, cells in (*cells_of, *held_by)
            for i in range(len(self._plan.members))
            for c in self.encoder.text_cells(i)
        ]
        self.encoder.dictionary.forget(np.concatenate(used) if used else np.empty(0, np.int64))
