"""Row codes: the number of a row and its input in one word, ``seq * 8 + input``.

Buffers and queues move one word per row instead of two. Inputs number their rows apart, and there are at most
eight of them. Codes of one input sort as its row numbers do; kernels take codes apart in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackwater.plugins.contract import Int8s, Int64s


def pack(seq: Int64s, which: Any) -> Int64s:
    """Return the codes of rows, given their numbers and their inputs, or the one input of all of them."""
    return np.asarray(seq * 8 + which, np.int64)


def seq_of(code: Int64s) -> Int64s:
    """Return the row number in each code."""
    return code >> 3


def input_of(code: Int64s) -> Int8s:
    """Return the input in each code."""
    return (code & 7).astype(np.int8)


def seqs_of(code: Int64s, which: int) -> Int64s:
    """Return the numbers of the rows of one input, in the order of their codes."""
    return code[code & 7 == which] >> 3
