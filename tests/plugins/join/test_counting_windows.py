"""Windows that tell how many results tuples find, and list none."""

import numpy as np
from running import SCHEMA, plan_of

from slackwater.plugins.contract import Held, Released
from slackwater.plugins.join.window.counting import CountingWindows

SETTING = plan_of(SCHEMA, window="10ms", where="a.k = b.k").setting


def tuples(*rows, late=()):
    """Rows (input, time, key), numbered in order."""
    which, ts, k = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    n = ts.size
    marked = np.isin(np.arange(n), late)
    return Released(which.astype(np.int8), np.arange(n), ts, marked, k.reshape(-1, 1), np.zeros(n, np.uint64))


def put(windows, released, now):
    windows.put(Held(released.input, released.seq, released.ts, released.cells, released.nulls), now)


def test_tuples_find_those_before_them_and_stay():
    windows = CountingWindows(SETTING)
    found = windows.sizes(tuples((0, 1, 7), (1, 2, 7), (1, 3, 8), (0, 12, 7)), 4)
    assert found.tolist() == [0, 1, 0, 1]
    assert windows.now == 12
    assert windows.sizes(tuples((0, 1, 7)).part(slice(0)), 0).tolist() == []


def test_visitors_do_not_stay_and_late_tuples_fill_the_windows():
    windows = CountingWindows(SETTING, visiting=True)
    found = windows.sizes(tuples((0, 1, 7), (1, 2, 7), (1, 3, 7), late=[0]), 1)
    assert found[1:].tolist() == [1, 1]
    assert windows.live() == 1


def test_what_is_put_in_is_found_by_others_and_goes_through_a_snapshot():
    windows = CountingWindows(SETTING)
    put(windows, tuples((0, 1, 7), (0, 2, 7)), 5)
    assert windows.now == 5
    again = CountingWindows(SETTING, windows.snapshot())
    assert again.now == 5
    assert again.sizes(tuples((1, 6, 7)), 1).tolist() == [2]
