"""Snapshots as bytes: nested mappings of arrays, numbers, text and bytes; no code, no pickle.

Stored bytes begin with a version, their length and a checksum (``seal``). Kernels trust the numbers that they are
restored with, so what does not match is refused before anything of it is used.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from struct import Struct
from typing import Any, BinaryIO, Final

import numpy as np

from slackwater.transforms.errors import SlackwaterError, StateError

VERSION: Final = 4
"""Of what is stored: raise it when the layout of any state changes, so that older ones are refused."""
_NAME: Final = b"SLKW"
_HEAD: Final = Struct("<4s2sQI")
"""Name, version and a line feed, bytes that follow, their CRC-32."""
_SIZE: Final = Struct("<Q")
ANEW: Final = "go on from an intact copy, or start anew without it"
"""What can be done about state that is of no use."""


def seal(*parts: bytes | memoryview) -> bytes:
    """Return parts as one, with a head by which ``unseal`` knows whether they are what was written.

    The checksum takes less time than the copy: about 3 GB/s, measured.
    """
    size = check = 0
    for part in parts:
        size += len(part)
        check = zlib.crc32(part, check)
    return b"".join((_HEAD.pack(_NAME, b"%d\n" % VERSION, size, check), *parts))


def unseal(data: bytes | memoryview, what: str = "the stored state") -> memoryview:
    """Return what ``seal`` was given, as one.

    Args:
        data: what it returned.
        what: how an error calls it.

    Raises:
        StateError: The bytes are others, or of another version.
    """
    view = memoryview(data)
    if bytes(view[:4]) != _NAME or len(view) < _HEAD.size:
        raise StateError(f"{what} is damaged: it does not begin as Slackwater writes it; {ANEW}")
    _, version, size, check = _HEAD.unpack_from(view)
    if version != b"%d\n" % VERSION:
        shown = version[:1].decode("ascii", "replace")
        raise StateError(
            f"{what} was written by another version of Slackwater (layout {shown}, this one reads {VERSION}); "
            "finish with the version that wrote it, or start anew without it"
        )
    content = view[_HEAD.size :]
    if len(content) != size:
        raise StateError(f"{what} is damaged: it has {len(content)} of {size} bytes; {ANEW}")
    if zlib.crc32(content) != check:
        raise StateError(f"{what} is damaged: its checksum does not match; {ANEW}")
    return content


def unsealed(file: BinaryIO, end: int, what: str) -> Iterator[memoryview]:
    """Yield what was sealed, one part after the other, from where a file stands up to ``end``.

    Raises:
        StateError: As ``unseal``.
    """
    while (at := file.tell()) < end:
        head = file.read(_HEAD.size)
        size = _HEAD.unpack(head)[2] if len(head) == _HEAD.size else 0
        yield unseal(head + file.read(min(size, end - at)), what)


@contextmanager
def restoring(what: str = "the stored state") -> Iterator[None]:
    """Turn whatever fails while something becomes as a snapshot says into a StateError."""
    try:
        yield
    except (SlackwaterError, MemoryError):
        raise
    except Exception as error:
        raise StateError(
            f"{what} does not fit what reads it ({type(error).__name__}: {error}); {ANEW}"
        ) from error


def dumps(snapshot: Mapping[str, Any]) -> bytes:
    """Return ``snapshot`` as bytes."""
    blobs: list[bytes] = []
    header = json.dumps(_pack(snapshot, blobs)).encode()
    return seal(*(piece for part in (header, *blobs) for piece in (_SIZE.pack(len(part)), part)))


def loads(data: bytes | memoryview, what: str = "the stored state") -> dict[str, Any]:
    """Return the snapshot that ``dumps`` wrote.

    Raises:
        StateError: The bytes are others, or of another version; it calls them ``what``.
    """
    content = unseal(data, what)
    at, parts = 0, list[bytes]()
    try:
        while at < len(content):
            (size,) = _SIZE.unpack_from(content, at)
            at += _SIZE.size + size
            parts.append(bytes(content[at - size : at]))
        tree: dict[str, Any] = _unpack(json.loads(parts[0]), parts[1:])
    except Exception as error:
        raise StateError(f"{what} is none that Slackwater has written ({error}); {ANEW}") from error
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
