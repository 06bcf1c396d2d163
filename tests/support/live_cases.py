"""Rows for scripts of live joins; the scripts themselves are those of ``slackwater.transforms.beam.testing``."""

from __future__ import annotations

import pyarrow as pa
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.test_stream import TestStream

from slackwater.transforms.beam.testing import END, LOOK, Clock, Row, Rows, Seen, Watermark, play

__all__ = ["END", "LOOK", "SCHEMA", "Clock", "Rows", "Seen", "Watermark", "play", "row"]

TestPipeline.__test__ = False
TestStream.__test__ = False

SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "ts", "k", "at", "w")])


def row(id_: int, ts: int, k: int = 1, at: int = 0, w: int | None = None) -> Row:
    """A row; the time is in milliseconds."""
    return {"id": id_, "ts": ts, "k": k, "at": at, "w": w}
