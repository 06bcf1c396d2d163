"""Text as JSON strings, a whole column of UTF-8 bytes in one pass."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

_QUOTE, _BACKSLASH, _SPACE = 34, 92, 32
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@kernel
def quoted_size(offsets, data):  # type: ignore[no-untyped-def]
    """Return how many bytes the quoted strings take together."""
    size = 2 * (offsets.size - 1)
    for at in range(offsets[0], offsets[-1]):
        byte = data[at]
        size += 6 if byte < _SPACE else 2 if byte == _QUOTE or byte == _BACKSLASH else 1
    return size


@kernel
def quote(offsets, data, ends, out):  # type: ignore[no-untyped-def]
    """Write each string, quoted and escaped, to ``out`` and its end to ``ends``; bytes above 127 stay."""
    to = 0
    for k in range(offsets.size - 1):
        out[to] = _QUOTE
        to += 1
        for at in range(offsets[k], offsets[k + 1]):
            byte = data[at]
            if byte < _SPACE:
                for c in (_BACKSLASH, 117, 48, 48):
                    out[to] = c
                    to += 1
                out[to] = _HEX[byte >> 4]
                out[to + 1] = _HEX[byte & 15]
                to += 2
                continue
            if byte == _QUOTE or byte == _BACKSLASH:
                out[to] = _BACKSLASH
                to += 1
            out[to] = byte
            to += 1
        out[to] = _QUOTE
        to += 1
        ends[k + 1] = to
