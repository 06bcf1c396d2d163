"""Record batches as bytes in Arrow's stream format, schema included."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def to_bytes(*batches: pa.RecordBatch, schema: pa.Schema | None = None) -> bytes:
    """Return batches of one schema as bytes; slices write only their rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes | pa.Buffer) -> Sequence[pa.RecordBatch]:
    """Return the batches that ``to_bytes`` was given."""
    with pa.ipc.open_stream(data) as reader:
        return list(reader)
