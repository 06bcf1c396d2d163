"""The stage that delivers: everything that leaves a shard, and the account of every row.

The law that it relies on: every row is in exactly one account. It is joined in order, a punctuation, or late with
a reason; ``Accounting.settle`` raises where that does not come to the rows received.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Evicted, Finished, Held, Int64s, Matches, Released, Snapshot
from slackwater.plugins.guard.calls import JoinGuard
from slackwater.transforms.arrival.intake import Refused
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.archive import Archive
from slackwater.transforms.output.late_rows import LateRows, refuse
from slackwater.transforms.output.outputs import Counts, Outputs
from slackwater.transforms.output.result_rows import RESULTS_AT_ONCE, ResultRows
from slackwater.transforms.output.step import Outcome
from slackwater.transforms.punctuation.judge import Judged
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan


class Delivery:
    """Gathers what a step of an operator gives, and writes it as ``Outputs``.

    Args:
        plan: what the operator does.
        rows: the rows that results and late rows are made of.
        join: the join that finds the results, to be named if it names rows that there are not.
        accounting: what became of the rows.
        seconds: where the time is added up that making result rows takes, as ``materialise``.
        shard: its number.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self,
        plan: JoinPlan,
        rows: ShardRows,
        join: JoinGuard,
        accounting: Accounting,
        seconds: dict[str, float],
        shard: int,
        snapshot: Mapping[str, Any],
    ) -> None:
        self._plan, self._rows, self._join = plan, rows, join
        self._accounting, self._seconds = accounting, seconds
        self._counted = plan.config.output == "counts"
        self._results = ResultRows(plan, rows.stores, shard)
        self._unordered: list[tuple[Int64s, Int64s]] = []
        """Results of this run of a join that finds them in another order than that of its tuples."""
        self._counts = Counts(plan, snapshot.get("counts"))
        self._late = LateRows(plan, rows.stores, accounting)
        self._finished: list[Finished] = []
        """What the join has proved finished in this step."""
        self.archive: Archive | None = None
        if plan.config.archive is not None:
            self.archive = Archive(plan, shard, rows.stores, snapshot.get("archive"))
        self._out = Outputs.empty()

    def drop_late(self) -> None:
        """Count late rows and make none: nobody reads them."""
        self._late.wanted = False

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let results go before their step is over, where they are many bytes."""
        self._results.takes = take

    def refuse(self, refused: Iterable[Refused]) -> None:
        """Take rows that the way in refuses."""
        refused = list(refused)
        refuse(self._plan, self._accounting, refused, self._out)
        if self.archive is not None:
            for which, reason, ts, _, rows, _ in refused:
                if reason in ("too_late", "shed") and ts is not None:
                    self.archive.missed(which, rows, ts)

    def take_late(self, judged: Judged) -> None:
        """Take late tuples, before any is joined: of what the join sheds, they are in the late output already."""
        released, late = judged.reached.tuples, judged.too_late
        self._late.add(released.input[late], released.seq[late], "too_late")
        if self.archive is not None and judged.dropped is not None:
            self.archive.pass_over(released.part(judged.dropped))

    def release(self, released: Released) -> None:
        """Take note of tuples that are about to be joined."""
        if self.archive is not None:
            self.archive.release(released)

    def take(self, released: Released, matches: Matches) -> None:
        """Take what a run of the join has found for some of these tuples."""
        if matches.evicted is not None:
            self._evict(matches.evicted)
        self.take_owed(matches)
        if self._counted:
            self._counts.add(released.ts[matches.start : matches.stop], matches.join_size)
        elif len(matches.rows) and self._join.reorders:
            self._unordered.append((matches.rows, matches.probe))
        elif len(matches.rows):
            self._results.add(matches.rows, released.ts[matches.probe])
            if self._results.full:
                self._write_results()

    def take_owed(self, matches: Matches) -> None:
        """Take what a run brings besides the results of its tuples."""
        if matches.finished is not None and len(matches.finished.ts):
            self._finished.append(matches.finished)
        if matches.settled is None:
            return
        ts, rows = matches.settled
        self._accounting.results += len(ts)
        if rows is None:
            self._counts.add(ts, np.ones(len(ts), np.int64))
        else:
            self._results.write_stored(self._out, rows, ts)

    def put_in_order(self, released: Released) -> None:
        """Put the results of these tuples in their order, where the join has not: all of them are found."""
        if self._unordered:
            self._results.add_in_order(self._unordered, released.ts)
            self._unordered.clear()

    def account(self, outcome: Outcome) -> None:
        """Take what became of rows that have reached the join."""
        tuples, gone, sizes, violating = outcome.tuples, outcome.gone, outcome.sizes, outcome.violating
        if outcome.marked is not None:
            self._accounting.punctuate(outcome.marked)
        if violating is not None:
            self._accounting.reject_each(np.bincount(violating.input), "punctuation_violated")
            self._late.add(violating.input, violating.seq, "punctuation_violated")
        copies = self._rows.copies(tuples)
        self._accounting.join(tuples.input, tuples.late, gone, sizes[0], copies)

    def recall(self, held: Held, which: Bools) -> None:
        """Let tuples that seemed right when they came go to the late output as contradictions after all."""
        reason = "punctuation_violated"
        self._accounting.recall_each(self._late.add(held.input[which], held.seq[which], reason), reason)

    def close_step(self, owes: bool = False) -> None:
        """Write what was gathered in this step; the join may have said that it owes results of any time."""
        self._write_results()
        self._counts.emit(self._out, owes)
        self._write_rest()

    def finish(self, runs: Iterable[Matches]) -> Iterable[Outputs]:
        """Yield the outputs of the last step, in parts, with what a join finds on disk at the end."""
        for matches in runs:
            self.take_owed(matches)
            if sum(batch.num_rows for batch in self._out.results) >= RESULTS_AT_ONCE:
                yield self.collect()
        self._write_rest()
        self._counts.finish(self._out)

    def close_archive(self) -> None:
        """Write the rows that are left: no result can be missed any more."""
        if self.archive is not None:
            self.archive.close()

    def collect(self, metrics: Iterable[pa.RecordBatch] = ()) -> Outputs:
        """Return what this step has given, with what was measured in it, and begin another."""
        out, self._out = self._out, Outputs.empty()
        out.metrics.extend(metrics)
        return out

    def snapshot(self) -> Snapshot:
        state: dict[str, Any] = {"counts": self._counts.pending}
        return state if self.archive is None else {**state, "archive": self.archive.snapshot()}

    @property
    def nbytes(self) -> int:
        """Bytes of what waits to be archived."""
        return 0 if self.archive is None else self.archive.nbytes

    def _evict(self, evicted: Evicted) -> None:
        """Let tuples that went for lack of memory go to the late output."""
        fresh = self._join.blaming(self._join.sheds_by, self._late.add, evicted.input, evicted.seq, "shed")
        self._accounting.reject_each(fresh, "shed")
        if self.archive is not None:
            self.archive.evict(evicted)

    def _write_results(self) -> None:
        """Make rows of the results that were found."""
        started = time.perf_counter()
        self._join.blaming("step", self._results.write, self._out)
        self._seconds["materialise"] += time.perf_counter() - started

    def _write_rest(self) -> None:
        """Write late rows and punctuations of this step, at once: they may be few in each of many runs."""
        self._late.write(self._out)
        if self._finished:
            batch = self._plan.punctuation_batch(self._rows.encoder, self._finished)
            self._out.punctuations.append(batch)
            self._accounting.finished += batch.num_rows
            self._finished.clear()
