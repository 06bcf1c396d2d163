"""Freed memory goes back to the system where memory is limited in bytes."""

import numpy as np
import pyarrow as pa
import pytest

from slackwater.transforms.shedding import allocator


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


@pytest.mark.skipif(allocator._glibc() is None, reason="needs glibc")
def test_what_was_freed_is_given_back_once_there_is_more_than_may_be_kept():
    pieces = [np.ones(6_000) for _ in range(4_000)]
    size, last = sum(piece.nbytes for piece in pieces), pieces[-1]
    # What other tests in this process have freed.
    free = allocator._glibc().mallinfo2().fordblks
    pieces.clear()
    before = resident()
    allocator.trim_unused(free + 2 * size)
    kept = resident()
    allocator.trim_unused(free + size // 4)
    assert before - kept < size // 4
    assert kept - resident() > size // 2
    assert last.all()
    assert pa.default_memory_pool().backend_name == "system"
