"""The record store: the 2-level index of ADC sec. 3, its bounds, and what folding does not change."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.plugins.contract import NEVER
from slackwater.transforms.kernels.operators import record_store as kernel
from slackwater.transforms.operators.aggregate.record_store import RecordStore

OPS = (np.array([kernel.ADD, kernel.MIN, kernel.MAX]), np.array([kernel.ADD]))


def store(size=1, slide=1):
    return RecordStore(size, slide, OPS)


def push(records, ts, bounds=NEVER, groups=None):
    """Place a row at each of ``ts``; return what is complete after them."""
    n = len(ts)
    ts = np.asarray(ts, np.int64)
    groups = np.zeros(n, np.int64) if groups is None else np.asarray(groups, np.int64)
    value = np.arange(n)
    words = np.column_stack([np.ones(n, np.int64), value, value]), value.reshape(-1, 1) / 7
    bounds = np.full(n, bounds, np.int64)
    return list(records.advance(ts, groups, words, bounds, np.zeros(n, np.bool_), np.zeros(n)))


def nodes(records):
    """Numbers of the p-nodes in the i-node."""
    state = records._state
    return state.inode[: state.control[kernel.N_NODES], kernel.NUMBER].tolist()


def test_a_p_node_has_128_places_and_the_first_i_node_8():
    records = store()
    assert records._state.nodes.shape[:2] == (8, 128)
    push(records, range(1024))
    assert nodes(records) == list(range(8))
    assert len(records._state.nodes) == 8


def test_the_i_node_grows_and_stays_in_order_of_time():
    records = store()
    times = np.random.default_rng(1).permutation(np.arange(-2000, 2000))
    push(records, times)
    assert nodes(records) == list(range(-16, 16))
    assert len(records._state.nodes) == len(records._state.inode) == 32
    panes, _, _ = records._listed()
    assert panes.tolist() == list(range(-2000, 2000))


def test_a_gap_takes_no_p_nodes():
    records = store()
    push(records, [0, 10**15, -(10**15), 5, 10**15 + 1, 1])
    assert nodes(records) == [-(10**15) // 128, 0, 10**15 // 128]
    assert records._listed()[0].tolist() == [-(10**15), 0, 1, 5, 10**15, 10**15 + 1]


def test_p_nodes_go_as_a_whole_when_their_last_place_has_gone():
    records = store()
    push(records, range(512))
    push(records, [511], bounds=254)
    assert nodes(records) == [1, 2, 3]
    push(records, [511], bounds=255)
    assert nodes(records) == [2, 3]
    push(records, [600], bounds=599)
    assert nodes(records) == [4]
    assert len(records) == 1
    assert len(records._state.nodes) == 8


def test_records_are_used_again():
    records = store()
    for start in range(0, 300_000, 1000):
        push(records, range(start, start + 1000), bounds=start + 900)
    assert len(records._state.records) <= 1 << 14
    assert records.most < 3000


def test_folding_makes_room_before_the_store_grows():
    records = store(size=1000, slide=1000)
    for _ in range(60):
        push(records, range(1000), groups=np.arange(1000) % 3)
    assert len(records._state.records) == 1 << 13
    ((extent, group, whole, real, ends),) = list(records.flush())
    assert (extent.tolist(), group.tolist()) == ([0, 0, 0], [0, 1, 2])
    assert whole[:, 0].sum() == 60_000
    assert whole[:, 1].tolist() == [0, 1, 2] and whole[:, 2].tolist() == [999, 997, 998]
    assert real.sum() == pytest.approx(60 * sum(range(1000)) / 7)
    assert ends.tolist() == [[0, -1, 3]]


@given(
    st.lists(st.tuples(st.integers(-300, 300), st.integers(0, 3)), min_size=1, max_size=60),
    st.integers(1, 40),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_it_makes_no_difference_when_records_are_folded(rows, size, folds):
    ts, groups = zip(*rows, strict=True)
    whole, folded = store(size, 7), store(size, 7)
    push(whole, ts, groups=groups)
    edges = sorted({0, len(ts), *(f for f in folds if f < len(ts))})
    for first, last in pairwise(edges):
        n = last - first
        value = np.arange(first, last)
        words = np.column_stack([np.ones(n, np.int64), value, value]), value.reshape(-1, 1) / 7
        part = np.array(ts[first:last]), np.array(groups[first:last])
        never = np.full(n, NEVER)
        assert not list(folded.advance(*part, words, never, np.zeros(n, np.bool_), np.zeros(n)))
        kernel.fold_all(folded._state, folded._ops, folded._floating)
    for mine, theirs in zip(whole.flush(), folded.flush(), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.tobytes() == b.tobytes()
