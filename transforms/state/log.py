"""What an operator was given, as bytes, to be given again: rows, and the word that inputs are idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from slackwater.plugins.clock import clock_at
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows import ipc
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.state import snapshot as snapshots


class Taker(Protocol):
    """What can be given rows, and the word that inputs are idle: an operator, or its driver."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals."""

    def idle(self, members: Sequence[int]) -> Outputs:
        """Hold nothing back for these inputs."""


def rows_given(chunk: Chunk, nanos: int) -> bytes:
    """Return arrivals, and when the operator took them by the time of day, as bytes."""
    batches = [ipc.to_bytes(batch) if batch.num_rows else b"" for batch in chunk.batches]
    came = b"" if chunk.came is None else chunk.came.tobytes()
    order = {"input": chunk.input.tobytes(), "arrival": chunk.arrival.tobytes(), "came": came}
    return snapshots.dumps({"nanos": nanos, "batches": batches, **order})


def idle_given(members: Sequence[int]) -> bytes:
    """Return which inputs were found idle, as bytes."""
    return snapshots.dumps({"idle": list(members)})


def give_again(plan: Plan, taker: Taker, given: bytes) -> Outputs:
    """Give an operator what these bytes say, or its driver; it does as it did."""
    tree = snapshots.loads(given)
    if "idle" in tree:
        return taker.idle(tree["idle"])
    chunk = Chunk(
        np.frombuffer(tree["input"], np.int8).copy(),
        np.frombuffer(tree["arrival"], np.int64).copy(),
        [
            ipc.from_bytes(batch)[0] if batch else pa.RecordBatch.from_pylist([], schema=schema)
            for batch, schema in zip(tree["batches"], plan.schemas.values(), strict=True)
        ],
        np.frombuffer(tree["came"], np.int64).copy() if tree["came"] else None,
    )
    with clock_at(tree["nanos"]):
        return taker.push(chunk)
