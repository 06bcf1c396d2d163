"""A join with punctuations in memory and its overflow on disk, put together.

Punctuations let the join in memory forget tuples; what these owe goes to disk (``OverflowLogic``). Two things
are left to do. A value that the join in memory has proved finished may still be in results that are owed: it is
passed on when its partition has been settled. And a tuple on disk of which the other input has punctuated the
value matches nothing new: it is dropped when its partition has been settled and is written anew. Both wait until
there are many of them, or for the end of the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    Bools,
    Finished,
    Int8s,
    Int64s,
    JoinLogic,
    Matches,
    Punctuations,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.contract.disk import DiskReader, Stored
from slackwater.plugins.join.overflow.logic import Limits, OverflowLogic, late_run, moved

Signature = tuple[tuple[int, ...], Int64s, Int64s]
"""The key classes whose values are followed; of each pattern its input if it names values of all of them, else
-1; and where among the pattern's values those of the classes are."""


class PunctuatedOverflowLogic(OverflowLogic):
    """A join of two inputs with punctuations and without a window, with a limit to what is in memory.

    Args:
        make: makes the join in memory, from nothing or from a snapshot.
        setting: the join.
        limits: what may be in memory.
        signature: the values that the join in memory follows.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        make: Callable[[Snapshot | None], JoinLogic],
        setting: Setting,
        limits: Limits,
        signature: Signature,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._signature, self._input_of, self._order = signature
        super().__init__(make, setting, limits, self._signature, snapshot)
        self._cells = [[setting.condition.classes[c][i] for c in self._classes] for i in range(2)]
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._withheld_in = np.array(state.get("withheld_in", []), np.int64)
        """Partition of each value that is finished but for what is owed; its time; the value."""
        self._withheld_ts = np.array(state.get("withheld_ts", []), np.int64)
        shape = len(self._withheld_in), len(self._classes)
        self._withheld = np.array(state.get("withheld", []), np.int64).reshape(shape)
        self._over: dict[tuple[int, int], list[list[Any]]] = {}
        """For each input and partition, the values that the input has punctuated, a column per class."""
        self._over_count: Counter[int] = Counter()

    def step(self, released: Released) -> Iterator[Matches]:
        none = np.empty(0, np.int64)
        low = np.empty((0, max(1, len(self._signature))), np.int64)
        return self.punctuated_step(released, Punctuations(none, none, none.astype(np.int8), low, none))

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterator[Matches]:
        n = released.ts.size
        for start, stop in self._parts(n) if n else [(0, 0)]:
            part = released.part(slice(start, stop))
            self._enter(part)
            last = punctuations.at < stop if stop < n else punctuations.at <= stop
            mine = (punctuations.at >= start) & last
            given = Punctuations._make(array[mine] for array in punctuations)
            for run in self._inner.punctuated_step(part, given._replace(at=given.at - start)):
                yield self._withholding(moved(run, start))
            self._note_values(given)
            yield from self._go_back(start, stop)
            yield from self._settle_values(stop)

    def held_cells(self) -> tuple[Int8s, Int64s]:
        inputs, cells = self._inner.held_cells()
        more = np.zeros((len(self._withheld), cells.shape[1]), np.int64)
        more[:, self._cells[0]] = self._withheld
        return np.concatenate([inputs, np.zeros(len(more), np.int8)]), np.concatenate([cells, more])

    def finish(self) -> Iterator[Matches]:
        yield from super().finish()
        yield self._told(0, np.ones(len(self._withheld), np.bool_))

    def snapshot(self) -> Snapshot:
        # What is punctuated is not kept: tuples on disk stay that could go, and no result changes.
        state = {"withheld_in": self._withheld_in, "withheld_ts": self._withheld_ts, "withheld": self._withheld}
        return {**super().snapshot(), **state}

    def _withholding(self, run: Matches) -> Matches:
        """Keep back the values of a run that may be in results that are owed."""
        if run.finished is None or not self._signature or self._overflow is None or not self._overflow.writes:
            return run
        finished = run.finished
        if finished.high is not None:
            # A range has no partition to wait for; not to pass it on is always safe.
            single = finished.high == finished.values[:, 0]
            at, ts, values = (array[single] for array in (finished.at, finished.ts, finished.values))
            finished = Finished(at, ts, finished.classes, values)
        partitions = self._overflow.partitions_of_values(0, finished.values)
        wait = ~self._overflow.empty(partitions)
        self._withheld_in = np.concatenate([self._withheld_in, partitions[wait]])
        self._withheld_ts = np.concatenate([self._withheld_ts, finished.ts[wait]])
        self._withheld = np.concatenate([self._withheld, finished.values[wait]])
        go = ~wait
        return run._replace(
            finished=finished._replace(at=finished.at[go], ts=finished.ts[go], values=finished.values[go])
        )

    def _note_values(self, punctuations: Punctuations) -> None:
        """Remember what is punctuated, as far as tuples on disk may have it, and values are followed."""
        if not self._signature or self._overflow is None or not self._overflow.writes:
            return
        inputs = self._input_of[punctuations.pattern]
        low = np.take_along_axis(punctuations.low, self._order[punctuations.pattern], axis=1)
        for which in range(2):
            values = low[inputs == which]
            partitions = self._overflow.partitions_of_values(which, values)
            useful = self._overflow.partners[1 - which, partitions] > 0
            for partition in np.unique(partitions[useful]):
                found = values[partitions == partition]
                columns = [
                    self._overflow.disk.values(which, cell, np.ascontiguousarray(found[:, c]))
                    for c, cell in enumerate(self._cells[which])
                ]
                self._over.setdefault((which, int(partition)), []).append(columns)
                self._over_count[int(partition)] += len(found)

    def _settle_values(self, at: int) -> Iterator[Matches]:
        """Settle partitions of which many values are known, most first, until there are few in all."""
        if self._overflow is None:
            return
        while len(self._withheld) + self._over_count.total() > max(16, self._limit // 4):
            known = self._over_count + Counter(self._withheld_in.tolist())
            partition = known.most_common(1)[0][0]
            yield from self._settle_partition(partition, at)
            for which in range(2):
                self._overflow.clean(which, partition, partial(self._useless, which, partition))
            self._over.pop((0, partition), None)
            self._over.pop((1, partition), None)
            del self._over_count[partition]
            yield self._told(at, self._withheld_in == partition)

    def _useless(self, which: int, partition: int, reader: DiskReader, part: Stored) -> Bools:
        """Say which tuples of an input have a value that the other one has punctuated."""
        out = np.zeros(len(part.nulls), np.bool_)
        mine = _joined(np.ascontiguousarray(part.cells[:, self._cells[which]]))
        for columns in self._over.get((1 - which, partition), []):
            words = [
                reader.words(1 - which, cell, column)
                for cell, column in zip(self._cells[1 - which], columns, strict=True)
            ]
            out |= np.isin(mine, _joined(np.column_stack(words)))
        return out

    def _told(self, at: int, which: Bools) -> Matches:
        """Pass values on that were kept back."""
        ts, values = self._withheld_ts[which], self._withheld[which]
        self._withheld_in, self._withheld_ts = self._withheld_in[~which], self._withheld_ts[~which]
        self._withheld = self._withheld[~which]
        finished = Finished(np.full(len(ts), at), ts, self._signature, values)
        return late_run(at, None)._replace(finished=finished)


def _joined(words: Int64s) -> Any:
    """Return rows of words as one value each."""
    return words.ravel() if words.shape[1] == 1 else words.view([("", np.int64)] * words.shape[1]).ravel()
