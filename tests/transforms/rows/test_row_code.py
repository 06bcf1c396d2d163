"""Codes of rows: number and input in one word, and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackwater.transforms.rows import row_code

ROWS = st.lists(st.tuples(st.integers(0, (1 << 60) - 1), st.integers(0, 7)), max_size=20)


@given(ROWS)
def test_a_code_gives_back_number_and_input(rows):
    seq = np.array([row[0] for row in rows], np.int64)
    which = np.array([row[1] for row in rows], np.int8)
    code = row_code.pack(seq, which)
    assert code.dtype == np.int64
    assert row_code.seq_of(code).tolist() == seq.tolist()
    assert row_code.input_of(code).tolist() == which.tolist()
    assert row_code.input_of(code).dtype == np.int8
    for i in range(8):
        assert row_code.seqs_of(code, i).tolist() == [n for n, w in rows if w == i]


def test_codes_of_one_input_sort_as_its_rows():
    code = row_code.pack(np.array([5, 1, 9]), 3)
    assert row_code.seq_of(np.sort(code)).tolist() == [1, 5, 9]
