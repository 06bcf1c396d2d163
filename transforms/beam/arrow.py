"""Arrow batches as elements of a PCollection."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa


class ArrowBatchCoder(beam.coders.Coder):  # type: ignore[misc, unused-ignore]
    """Writes a record batch with its schema in Arrow's stream format; slices write only their rows."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def is_deterministic(self) -> bool:
        """False: a batch cannot be a key."""
        return False

    def to_type_hint(self) -> type:
        return pa.RecordBatch


beam.coders.registry.register_coder(pa.RecordBatch, ArrowBatchCoder)
