"""Arrow batches as elements of a PCollection."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.rows import ipc


class ArrowBatchCoder(beam.coders.Coder):  # type: ignore[misc, unused-ignore]
    """Writes a record batch with its schema in Arrow's stream format; slices write only their rows."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        return ipc.to_bytes(value)

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        return ipc.from_bytes(encoded)[0]

    def is_deterministic(self) -> bool:
        """False: a batch cannot be a key."""
        return False

    def to_type_hint(self) -> type:
        return pa.RecordBatch


beam.coders.registry.register_coder(pa.RecordBatch, ArrowBatchCoder)
