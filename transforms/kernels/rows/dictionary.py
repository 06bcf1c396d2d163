"""Exact dictionary encoding of byte strings to int64 codes, with a dictionary that can forget.

The dictionary is an open-addressing table over an arena of bytes. Codes are handed out in increasing order
and stay valid until ``compact`` drops the entry.
"""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

_FNV_OFFSET = np.uint64(14695981039346656037)
_FNV_PRIME = np.uint64(1099511628211)


@kernel
def mix(x):  # type: ignore[no-untyped-def]
    """Spread a 64-bit value over all its bits (the finaliser of SplitMix64)."""
    x = np.uint64(x)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


@kernel
def spread(numbers):  # type: ignore[no-untyped-def]
    """Return unsigned numbers, each spread over all its bits."""
    out = np.empty(numbers.size, np.uint64)
    for k in range(numbers.size):
        out[k] = mix(numbers[k])
    return out


@kernel
def hash_bytes(data, first, last):  # type: ignore[no-untyped-def]
    """Hash ``data[first:last]`` eight bytes at a time."""
    h = _FNV_OFFSET ^ np.uint64(last - first)
    at = first
    while at + 8 <= last:
        word = np.uint64(0)
        for b in range(8):
            word |= np.uint64(data[at + b]) << np.uint64(8 * b)
        h = mix(h ^ word) * _FNV_PRIME
        at += 8
    while at < last:
        h = (h ^ np.uint64(data[at])) * _FNV_PRIME
        at += 1
    return mix(h)


@kernel
def hash_strings(offsets, data, out):  # type: ignore[no-untyped-def]
    """Write a hash of each string to ``out``: the same for equal strings in every process."""
    for k in range(out.size):
        out[k] = np.int64(hash_bytes(data, offsets[k], offsets[k + 1]))


@kernel
def hash_ints(values, out):  # type: ignore[no-untyped-def]
    """Write a hash of each integer to ``out``."""
    for k in range(out.size):
        out[k] = np.int64(mix(np.uint64(values[k]) + np.uint64(0x9E3779B97F4A7C15)))


@kernel
def encode(offsets, data, valid, table, starts, hashes, codes, arena, n_entries, n_bytes, next_code, out):  # type: ignore[no-untyped-def]
    """Write the code of each valid string to ``out``, adding the new ones to the dictionary.

    The caller has made ``table`` at least twice as large as all entries there may be, and ``starts``,
    ``hashes``, ``codes`` and ``arena`` large enough. Returns the new counts.
    """
    mask = table.size - 1
    for k in range(out.size):
        if not valid[k]:
            out[k] = 0
            continue
        first = offsets[k]
        last = offsets[k + 1]
        h = hash_bytes(data, first, last)
        at = np.int64(h & np.uint64(mask))
        while True:
            entry = table[at]
            if entry < 0:
                table[at] = n_entries
                hashes[n_entries] = h
                codes[n_entries] = next_code
                for b in range(first, last):
                    arena[n_bytes + b - first] = data[b]
                starts[n_entries] = n_bytes
                n_bytes += last - first
                starts[n_entries + 1] = n_bytes
                out[k] = next_code
                n_entries += 1
                next_code += 1
                break
            if hashes[entry] == h and starts[entry + 1] - starts[entry] == last - first:
                same = True
                for b in range(last - first):
                    if arena[starts[entry] + b] != data[first + b]:
                        same = False
                        break
                if same:
                    out[k] = codes[entry]
                    break
            at = (at + 1) & mask
    return n_entries, n_bytes, next_code


@kernel
def compact(keep, starts, hashes, codes, arena, n_entries):  # type: ignore[no-untyped-def]
    """Move the entries marked in ``keep`` to the front; return the new counts of entries and bytes."""
    n = 0
    n_bytes = 0
    for entry in range(n_entries):
        if not keep[entry]:
            continue
        first = starts[entry]
        length = starts[entry + 1] - first
        for b in range(length):
            arena[n_bytes + b] = arena[first + b]
        starts[n] = n_bytes
        hashes[n] = hashes[entry]
        codes[n] = codes[entry]
        n += 1
        n_bytes += length
    starts[n] = n_bytes
    return n, n_bytes


@kernel
def rehash(table, hashes, n_entries):  # type: ignore[no-untyped-def]
    """Fill the emptied ``table`` from ``hashes``."""
    mask = table.size - 1
    for entry in range(n_entries):
        at = np.int64(hashes[entry] & np.uint64(mask))
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = entry
