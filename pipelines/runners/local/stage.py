"""An operator at work in the embedded runner: merges its inputs by arrival and feeds a shard each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.pipelines.template.graph import ARRIVAL, Port
from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.merge import in_arrival_order, split_by_shard
from slackwater.transforms.arrival.order import Numbering
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import JoinPlan

NOTHING_YET: Final = -(1 << 64)
"""Before all numbers of arrival, which have 64 bits."""
_ENDED: Final = 1 << 64
_PIECE_ROWS: Final = 1 << 15

Emit = Callable[[Port, pa.RecordBatch], None]


class OperatorStage:
    """Merges its inputs by arrival and feeds one operator per shard.

    Args:
        name: name of the node.
        plan: what it does.
        held: inputs whose rows are not in order of arrival; they are kept until the input ends, then sorted.
        emit: takes what comes out.
        end: takes the ends of the outputs.
    """

    def __init__(
        self, name: str, plan: JoinPlan, held: frozenset[str], emit: Emit, end: Callable[[Port], None]
    ) -> None:
        self.plan = plan
        self._name, self._held, self._emit, self._end = name, held, emit, end
        self.operators = [open_operator(plan, shard=shard) for shard in range(plan.config.shards)]
        self._pool = ThreadPoolExecutor(2) if len(self.operators) > 1 else None
        self._pending: list[list[tuple[Int64s, pa.RecordBatch]]] = [[] for _ in plan.inputs]
        self._numbering = [Numbering(plan, i) for i in range(len(plan.inputs))]
        self._frontier = [NOTHING_YET] * len(plan.inputs)
        """The smallest number that each input may still bring."""
        self._done = NOTHING_YET, 0
        """Number and input up to which rows have been processed."""
        self._emitted = dict.fromkeys(("", *plan.side_outputs), 0)
        if len(self.operators) == 1 and isinstance(self.operators[0], Operator):
            self.operators[0].delivery.takes = lambda batch: self._pass_on("", batch)

    def most_behind(self) -> list[str]:
        """Inputs that have not ended, the one furthest behind in arrival order first."""
        open_inputs = [i for i, frontier in enumerate(self._frontier) if frontier != _ENDED]
        return [self.plan.inputs[i] for i in sorted(open_inputs, key=self._frontier.__getitem__)]

    def push(self, label: str, batch: pa.RecordBatch) -> None:
        i = self.plan.inputs.index(label)
        if not batch.num_rows:
            return
        arrival = self._numbering[i].number(batch)
        oldest = int(arrival.min())
        if (oldest, i) < self._done and not self.plan.arrives_by_time:
            raise SlackwaterError(
                f"{self._name}: arrival of input {label!r} goes back from {self._done[0]} to {oldest}; sort the "
                "rows by arrival, or read the column straight from a file"
            )
        self._pending[i].append((arrival, batch))
        if label in self._held:
            return
        self._frontier[i] = max(self._frontier[i], int(arrival.max()))
        self._advance()

    def level(self) -> None:
        """Let every input be as far as the furthest: they are outputs of one operator, which is that far."""
        if _ENDED not in self._frontier:
            self._frontier = [max(self._frontier)] * len(self._frontier)
            self._advance()

    def end(self, label: str) -> None:
        i = self.plan.inputs.index(label)
        if label in self._held:
            self._sort(i)
        self._frontier[i] = _ENDED
        self._advance()
        if all(frontier == _ENDED for frontier in self._frontier):
            for operator in self.operators:
                for outputs in operator.finishing():
                    self._deliver([outputs])
            if self._pool is not None:
                self._pool.shutdown()
            for output in self._emitted:
                self._end(Port(self._name, output))

    def drop_late(self) -> None:
        """Make no late rows: nothing reads them."""
        for operator in self.operators:
            if isinstance(operator, Operator):
                operator.drop_late()

    def accounting(self) -> Accounting:
        """What became of every row, over all shards."""
        total = Accounting(self.plan.inputs)
        for operator in self.operators:
            total += operator.accounting
        return total

    def warnings(self) -> list[str]:
        """Warnings of all shards, each once."""
        return [f"{self._name}: {w}" for w in dict.fromkeys(w for op in self.operators for w in op.warnings)]

    def _advance(self) -> None:
        """Process every row that came before what any input may still bring; of equal numbers, in input order."""
        self._done = first, behind = min((frontier, i) for i, frontier in enumerate(self._frontier))
        if first == NOTHING_YET:
            return
        taken = [self._take(i, first if i <= behind else first - 1) for i in range(len(self._pending))]
        if not any(len(arrival) for arrival, _ in taken):
            return
        if self._pool is None:
            chunk = in_arrival_order([batch for _, batch in taken], [arrival for arrival, _ in taken])
            self._deliver([self.operators[0].push(chunk._replace(bounded=True))])
            return
        batches, arrivals = self._split(taken)
        chunks = [
            in_arrival_order(*given)._replace(bounded=True) for given in zip(batches, arrivals, strict=True)
        ]
        self._deliver(
            list(self._pool.map(lambda pair: pair[0].push(pair[1]), zip(self.operators, chunks, strict=True)))
        )

    def _split(
        self, taken: list[tuple[Int64s, pa.RecordBatch]]
    ) -> tuple[list[list[pa.RecordBatch]], list[list[Int64s]]]:
        """Return, for each shard, its rows of every input and their arrival numbers."""
        batches = [[batch.slice(0, 0) for _, batch in taken] for _ in self.operators]
        arrivals = [[arrival[:0] for arrival, _ in taken] for _ in self.operators]
        for i, (arrival, batch) in enumerate(taken):
            for shard, at, rows in split_by_shard(self.plan, i, batch):
                batches[shard][i], arrivals[shard][i] = rows, arrival[at]
        return batches, arrivals

    def _sort(self, i: int) -> None:
        """Put everything that an input has brought in order of arrival, in pieces to be taken one by one."""
        if not self._pending[i]:
            return
        arrival = np.concatenate([arrival for arrival, _ in self._pending[i]])
        order = np.argsort(arrival, kind="stable")
        rows = pa.concat_batches([batch for _, batch in self._pending[i]]).take(pa.array(order))
        pieces = [slice(start, start + _PIECE_ROWS) for start in range(0, len(order), _PIECE_ROWS)]
        self._pending[i] = [(arrival[order[p]], rows.slice(p.start, _PIECE_ROWS)) for p in pieces]

    def _take(self, i: int, last: int) -> tuple[Int64s, pa.RecordBatch]:
        """Remove and return the rows of an input with numbers up to ``last``."""
        arrivals, batches, left = [], [], []
        for arrival, batch in self._pending[i]:
            if int(arrival.max()) <= last:
                arrivals.append(arrival)
                batches.append(batch)
                continue
            if int(arrival.min()) <= last:
                early = arrival <= last
                arrivals.append(arrival[early])
                batches.append(batch.filter(pa.array(early)))
                arrival, batch = arrival[~early], batch.filter(pa.array(~early))
            left.append((arrival, batch))
        self._pending[i] = left
        if not batches:
            schema = self.plan.schemas[self.plan.inputs[i]].append(pa.field(ARRIVAL, pa.int64()))
            return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema)
        return np.concatenate(arrivals), batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _deliver(self, outputs: list[Outputs]) -> None:
        for given in outputs:
            for output, batches in zip(("", "late", "metrics", "syncs", "punctuations"), given, strict=True):
                for batch in batches:
                    self._pass_on(output, batch)

    def _pass_on(self, output: str, batch: pa.RecordBatch) -> None:
        first = self._emitted[output]
        self._emitted[output] += batch.num_rows
        number = pa.array(np.arange(first, first + batch.num_rows))
        self._emit(Port(self._name, output), batch.append_column(ARRIVAL, number))
