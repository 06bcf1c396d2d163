"""What allocators keep of freed memory: whoever is held to bytes must give it back, or it counts as used."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa


class _Info(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def trim_unused(most: int) -> None:
    """Give freed memory back to the system if there are more than ``most`` bytes of it.

    Arrow gets its memory from the C library from now on: its own allocator may keep half as much again.

    Of other libraries than glibc from 2.33 on, nothing more is asked.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    library = _glibc()
    if library is not None and library.mallinfo2().fordblks > most:
        library.malloc_trim(0)


@cache
def _glibc() -> Any:
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallinfo2") and hasattr(library, "malloc_trim")):
        return None
    library.mallinfo2.restype = _Info
    return library
