"""The operator of ChooseValues: gathers summaries, and chooses when all are there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import NEVER, Snapshot
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.choose_values.plan import ChooseValuesPlan
from slackwater.transforms.operators.choose_values.static_join import ValueCounts
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.late_rows import refuse
from slackwater.transforms.output.outputs import Outputs, late_batches
from slackwater.transforms.rows import ipc


class ValueChooser(Operator):
    """Which tuples to request when not all can be (SAJ 3): summaries in, values and numbers out at the end.

    Rows of a value add up. A row without value, or whose count is no number from 0 on, is a ``bad_record``.
    State: the summaries, which are small beside the relations that they speak of.
    """

    def __init__(self, plan: ChooseValuesPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._schema = pa.schema([("value", plan.value_type), ("count", pa.int64())])
        self._intake = Intake(plan, state.get("intake"))
        self._summaries = [list(ipc.from_bytes(rows)) for rows in state.get("summaries", ())]
        self._summaries = self._summaries or [[] for _ in plan.inputs]
        self._newest = int(state.get("newest", NEVER))
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent choosing, and making rows of the choice."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take rows of the summaries; nothing but bad ones comes out before the end."""
        out = Outputs.empty()
        self.accounting.receive(chunk.input)
        taken = self._intake.take(chunk)
        refuse(self._plan, self.accounting, taken.refused, out)
        for i, (rows, at) in enumerate(zip(taken.rows, taken.of_input, strict=True)):
            if not at.size:
                continue
            value = rows.column(self._plan.config.value).cast(self._plan.value_type)
            count = rows.column(self._plan.config.count).cast(pa.int64())
            good = pc.fill_null(pc.and_(pc.is_valid(value), pc.greater_equal(count, 0)), False)
            bad = np.flatnonzero(~good.to_numpy(zero_copy_only=False))
            ts, clock = taken.arrivals.ts[at], taken.arrivals.clock[at]
            if bad.size:
                self.accounting.reject(i, "bad_record", bad.size)
                wrong = rows.take(pa.array(bad))
                out.late.extend(late_batches(self._plan.inputs[i], "bad_record", ts[bad], clock[bad], wrong))
            self.accounting.in_order[i] += at.size - bad.size
            self._newest = max(self._newest, int(ts.max()))
            whole = pa.RecordBatch.from_arrays([value, count], schema=self._schema)
            self._summaries[i].append(whole.filter(good))
        self.accounting.state(sum(batch.num_rows for rows in self._summaries for batch in rows), self.nbytes)
        return out

    def idle(self, members: Sequence[int]) -> Outputs:
        """Nothing is chosen before all summaries are there."""
        return Outputs.empty()

    def finish(self) -> Outputs:
        """Choose: the summaries are complete."""
        out = Outputs.empty()
        started = time.perf_counter()
        values, relations = self._relations()
        chosen = self._plan.choose(relations)
        self.seconds["kernel"] += time.perf_counter() - started
        if len(chosen.values):
            started = time.perf_counter()
            numbers = [pa.array(column) for column in chosen.counts.T]
            ts = pa.array(np.full(len(chosen.values), self._newest)).cast(self._plan.time_type)
            columns = [values.take(pa.array(chosen.values)), *numbers, ts]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._plan.result_schema)
            out.results.append(batch.take(pc.sort_indices(batch.column(0))))
            self.accounting.results += batch.num_rows
            self.seconds["materialise"] += time.perf_counter() - started
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the summaries."""
        return sum(batch.nbytes for rows in self._summaries for batch in rows)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        return {
            "intake": self._intake.snapshot(),
            "summaries": [ipc.to_bytes(*rows, schema=self._schema) for rows in self._summaries],
            "newest": self._newest,
            "accounting": self.accounting.snapshot(),
        }

    def _relations(self) -> tuple[pa.Array, ValueCounts]:
        """Return all values, each once, and the number of tuples that each input has of them."""
        tables = [pa.Table.from_batches(rows, schema=self._schema) for rows in self._summaries]
        whole = pa.concat_tables(tables).combine_chunks()
        coded = whole["value"].combine_chunks().dictionary_encode()
        owner = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        counts = np.zeros((len(coded.dictionary), len(tables)), np.int64)
        np.add.at(counts, (coded.indices.to_numpy(), owner), whole["count"].to_numpy())
        return coded.dictionary, ValueCounts(np.arange(len(counts)), counts)
