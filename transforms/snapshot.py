"""Snapshots as bytes: nested mappings of arrays, numbers, text and bytes; no code, no pickle."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_MAGIC = b"SLKW2\n"


def dumps(snapshot: Mapping[str, Any]) -> bytes:
    """Return ``snapshot`` as bytes."""
    blobs: list[bytes] = []
    header = json.dumps(_pack(snapshot, blobs)).encode()
    out = io.BytesIO()
    out.write(_MAGIC)
    for part in (header, *blobs):
        out.write(len(part).to_bytes(8, "little"))
        out.write(part)
    return out.getvalue()


def loads(data: bytes) -> dict[str, Any]:
    """Return the snapshot that ``dumps`` wrote."""
    if not data.startswith(_MAGIC):
        raise ValueError("these bytes are no snapshot of Slackwater, or one of another version")
    at = len(_MAGIC)
    parts: list[bytes] = []
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    tree: dict[str, Any] = _unpack(json.loads(parts[0]), parts[1:])
    return tree


def _pack(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, Mapping):
        return {"map": {str(k): _pack(v, blobs) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return {"list": [_pack(v, blobs) for v in value]}
    if isinstance(value, bytes):
        blobs.append(value)
        return {"bytes": len(blobs) - 1}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or value.dtype.names:
            raise TypeError(f"a snapshot cannot hold an array of {value.dtype}; use numbers or texts")
        # Not NumPy's own format: its header is read by Python's parser, which fails at times in several threads.
        blobs.append(value.tobytes())
        return {"array": [len(blobs) - 1, value.dtype.str, value.shape]}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"is": value}
    raise TypeError(
        f"a snapshot cannot hold {type(value).__name__}; use arrays, numbers, text, bytes or mappings"
    )


def _unpack(value: Any, blobs: list[bytes]) -> Any:
    ((kind, content),) = value.items()
    if kind == "map":
        return {k: _unpack(v, blobs) for k, v in content.items()}
    if kind == "list":
        return [_unpack(v, blobs) for v in content]
    if kind == "bytes":
        return blobs[content]
    if kind == "array":
        at, dtype, shape = content
        return np.frombuffer(blobs[at], dtype).reshape(shape).copy()
    return content
