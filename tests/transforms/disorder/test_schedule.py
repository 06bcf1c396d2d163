"""Where chunks are cut: before every row at which something is due, and wherever an engine has cut."""

import numpy as np
from conditions import cuts
from hypothesis import given
from hypothesis import strategies as st

from slackwater.transforms.disorder.schedule import Schedule


class Every:
    """Due once per so many rows of the stream."""

    def __init__(self, name, rows, log):
        self.name, self.rows, self.log = name, rows, log
        self.seen = 0

    def meet(self, time, start):
        if self.seen % self.rows == 0:
            self.log.append((self.name, int(time[start])))
        return start + self.rows - self.seen % self.rows

    def count(self, rows):
        self.seen += rows


class At:
    """Due before the first row of each time that is a multiple of so much."""

    def __init__(self, name, step, log):
        self.name, self.step, self.log = name, step, log
        self.next = 0

    def meet(self, time, start):
        if time[start] >= self.next:
            self.log.append((self.name, int(time[start])))
            self.next = (int(time[start]) // self.step + 1) * self.step
        return int(np.searchsorted(time, self.next))

    def count(self, rows):
        pass


def met(times, edges, every, step):
    """What was due at which row, and the parts: in rows of the stream."""
    log, parts, start = [], [], 0
    schedule = Schedule(At("time", step, log), Every("rows", every, log))
    for stop in [*sorted(edges), len(times)]:
        parts += [(start + p.start, start + p.stop) for p in schedule.parts(np.array(times[start:stop]))]
        start = stop
    return log, parts


def test_without_occasions_a_chunk_is_one_part_and_no_rows_are_none():
    assert list(Schedule().parts(np.arange(5))) == [slice(0, 5)]
    assert list(Schedule().parts(np.arange(0))) == []


def test_a_chunk_is_cut_before_the_row_at_which_something_is_due():
    log, parts = met([0, 1, 5, 6, 7, 30, 31], [], 4, 10)
    assert parts == [(0, 4), (4, 5), (5, 7)]
    assert log == [("time", 0), ("rows", 0), ("rows", 7), ("time", 30)]


def test_of_several_that_are_due_the_first_is_met_first():
    assert met([0, 10], [], 1, 10)[0] == [("time", 0), ("rows", 0), ("time", 10), ("rows", 10)]


@given(st.data())
def test_what_is_due_does_not_depend_on_where_chunks_end(data):
    times = np.cumsum(data.draw(st.lists(st.integers(0, 9), max_size=40))).tolist()
    every, step = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20))
    edges = data.draw(cuts(len(times)))
    whole, parts = met(times, [], every, step)
    log, cut = met(times, edges, every, step)
    assert log == whole
    assert {start for start, _ in cut} == {start for start, _ in parts} | {e for e in edges if e < len(times)}
