"""An operator at work in the embedded runner: its inputs in order of arrival, and a driver for each shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.pipelines.template.graph import Port
from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.merge import split_by_shard
from slackwater.transforms.arrival.order import Numbering
from slackwater.transforms.engine.account import each_once, total
from slackwater.transforms.engine.collector import Collector
from slackwater.transforms.engine.driver import ShardDriver
from slackwater.transforms.engine.frontier import ENDED, NOTHING_YET, Reach, WaitingRows
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.settings.plan import Plan

_PIECE_ROWS: Final = 1 << 15

Emit = Callable[[Port, pa.RecordBatch], None]


class OperatorStage:
    """Merges its inputs by arrival and drives one operator per shard.

    Args:
        name: name of the node.
        plan: what it does.
        held: inputs whose rows are not in order of arrival; they are kept until the input ends, then sorted.
        emit: takes what comes out.
        end: takes the ends of the outputs.
    """

    def __init__(
        self, name: str, plan: Plan, held: frozenset[str], emit: Emit, end: Callable[[Port], None]
    ) -> None:
        self.plan = plan
        self._name, self._held, self._emit, self._end = name, held, emit, end
        self._drivers = [ShardDriver(plan, shard) for shard in range(plan.shards)]
        self._waiting = [WaitingRows(plan) for _ in self._drivers]
        self._pool = ThreadPoolExecutor(2) if len(self._drivers) > 1 else None
        self._unsorted: list[list[tuple[Int64s, pa.RecordBatch]]] = [[] for _ in plan.inputs]
        """Of inputs that are held, everything they have brought."""
        self._numbering = [Numbering(plan, i) for i in range(len(plan.inputs))]
        self._frontier = [NOTHING_YET] * len(plan.inputs)
        """The smallest number that each input may still bring."""
        self._reach = Reach.of(self._frontier)
        """Up to which rows have been processed."""
        self._collector = Collector("")
        if self._pool is None:
            self._drivers[0].hand_over(lambda batch: self._deliver(Outputs.empty()._replace(results=[batch])))

    @property
    def seconds(self) -> list[dict[str, float]]:
        """Of each shard, the time that the parts of its work took."""
        return [driver.operator.seconds for driver in self._drivers]

    def most_behind(self) -> list[str]:
        """Inputs that have not ended, the one furthest behind in arrival order first."""
        open_inputs = [i for i, frontier in enumerate(self._frontier) if frontier != ENDED]
        return [self.plan.inputs[i] for i in sorted(open_inputs, key=self._frontier.__getitem__)]

    def push(self, label: str, batch: pa.RecordBatch) -> None:
        i = self.plan.inputs.index(label)
        if not batch.num_rows:
            return
        arrival = self._numbering[i].number(batch)
        oldest = int(arrival.min())
        if (oldest, i) < self._reach and not self.plan.by_time:
            raise SlackwaterError(
                f"{self._name}: arrival of input {label!r} goes back from {self._reach.number} to {oldest}; sort "
                "the rows by arrival, or read the column straight from a file"
            )
        if label in self._held:
            self._unsorted[i].append((arrival, batch))
            return
        self._wait(i, arrival, batch)
        self._frontier[i] = max(self._frontier[i], int(arrival.max()))
        self._advance()

    def level(self) -> None:
        """Let every input be as far as the furthest: they are outputs of one operator, which is that far."""
        if ENDED not in self._frontier:
            self._frontier = [max(self._frontier)] * len(self._frontier)
            self._advance()

    def end(self, label: str) -> None:
        i = self.plan.inputs.index(label)
        self._sort(i)
        self._frontier[i] = ENDED
        self._advance()
        if all(frontier == ENDED for frontier in self._frontier):
            for driver in self._drivers:
                for outputs in driver.finish():
                    self._deliver(outputs)
            if self._pool is not None:
                self._pool.shutdown()
            for output in ("", *self.plan.side_outputs):
                self._end(Port(self._name, output))

    def drop_late(self) -> None:
        """Make no late rows: nothing reads them."""
        for driver in self._drivers:
            driver.drop_late()

    def accounting(self) -> Accounting:
        """What became of every row, over all shards."""
        return total(self.plan.inputs, (driver.accounting for driver in self._drivers))

    def warnings(self) -> list[str]:
        """Warnings of all shards, each once."""
        return each_once(self._name, (driver.warnings for driver in self._drivers))

    def _wait(self, i: int, arrival: Int64s, batch: pa.RecordBatch) -> None:
        """Let rows wait in their shards until no input can bring earlier ones."""
        for shard, at, rows in split_by_shard(self.plan, i, batch):
            self._waiting[shard].add(i, arrival if at.size == arrival.size else arrival[at], rows)

    def _sort(self, i: int) -> None:
        """Put everything that a held input has brought in order of arrival, in pieces to be taken one by one."""
        if not self._unsorted[i]:
            return
        unsorted, self._unsorted[i] = self._unsorted[i], []
        arrival = np.concatenate([arrival for arrival, _ in unsorted])
        order = np.argsort(arrival, kind="stable")
        batches = [batch for _, batch in unsorted]
        rows = SortedRows(batches[0].schema, batches, order)
        for piece in rows.cuts(_PIECE_ROWS):
            self._wait(i, arrival[order[piece]], rows.take(piece.start, piece.stop - piece.start))

    def _advance(self) -> None:
        """Process every row that came before what any input may still bring; of equal numbers, in input order."""
        self._reach = Reach.of(self._frontier)
        if self._reach.number == NOTHING_YET:
            return
        if self._pool is None:
            for outputs in self._step(0):
                self._deliver(outputs)
            return
        for shard in list(self._pool.map(lambda shard: list(self._step(shard)), range(len(self._drivers)))):
            for outputs in shard:
                self._deliver(outputs)

    def _step(self, shard: int) -> Iterator[Outputs]:
        rows = self._waiting[shard].take(self._reach)
        # As sources bound their batches, all at once; late rows of a step are put together by input.
        return self._drivers[shard].take(rows.steps(max(1, rows.size), bounded=True))

    def _deliver(self, outputs: Outputs) -> None:
        for output, batch in self._collector.take(outputs):
            self._emit(Port(self._name, output), batch)
