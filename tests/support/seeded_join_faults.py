"""Mistakes that authors of joins make, one in each strategy, by kind (``seeded_faults``)."""

import time

import numpy as np
from plain_strategies import PlainJoinLogic
from seeded_faults import FAULTS, LOG, SHARED, join

from slackwater.plugins import Held, Matches

__all__ = ["FAULTS"]


# Wrong order


@join("wrong order")
def matched__newest_first(self, n, rows, probe, join_size, cross_size):
    return PlainJoinLogic.matched(self, n, rows[::-1], probe[::-1], join_size, cross_size)


@join("wrong order")
def matched__inputs_swapped(self, n, rows, probe, join_size, cross_size):
    return PlainJoinLogic.matched(self, n, [row[::-1] for row in rows], probe, join_size, cross_size)


@join("wrong order")
def held__by_number(self):
    held = PlainJoinLogic.held(self)
    return Held._make(array[np.lexsort((held.input, -held.seq))] for array in held)


@join("wrong order")
def step__second_half_first(self, released):
    found = list(PlainJoinLogic.step(self, released))
    for run in found:
        half = (run.stop + 1) // 2
        first = run.probe < half
        sizes = [(run.join_size[cut], run.cross_size[cut]) for cut in (slice(half), slice(half, None))]
        if run.stop > half:
            yield Matches(half, run.stop, run.rows[~first], run.probe[~first], *sizes[1])
        yield Matches(0, half, run.rows[first], run.probe[first], *sizes[0])


# Lost state


@join("lost state")
def snapshot__no_time(self):
    return {**PlainJoinLogic.snapshot(self), "now": -(2**63)}


@join("lost state")
def snapshot__no_nulls(self):
    kept = PlainJoinLogic.snapshot(self)
    return {**kept, "nulls": np.zeros_like(kept["nulls"])}


@join("lost state")
def snapshot__not_the_oldest(self):
    return {name: a[1:] if isinstance(a, np.ndarray) else a for name, a in PlainJoinLogic.snapshot(self).items()}


@join("lost state")
def evict__forgets_the_time(self, victims):
    PlainJoinLogic.evict(self, victims)
    self.now = -(2**63)


@join("lost state")
def evict__forgets_all_of_an_input(self, victims):
    if victims.any():
        PlainJoinLogic.evict(self, victims)
        self.kept = [(*x[:3], x[3] * 0, x[4]) if x[0] else x for x in self.kept]


# Non-determinism


@join("non-determinism")
def partners__in_the_order_of_a_set(self, row):
    names = {f"{x[0]}-{x[1]}": x for x in self.kept if x[0] != row[0]}
    return [names[name] for name in set(names)]


@join("non-determinism")
def matches__now_and_then(self, row, x):
    return PlainJoinLogic.matches(self, row, x) and time.perf_counter_ns() % 7 > 0


# Mutation


@join("mutation")
def step__nothing_is_late(self, released):
    released.late[:] = False
    return PlainJoinLogic.step(self, released)


@join("mutation")
def step__clears_null_cells(self, released):
    flags = released.nulls.view()
    flags.flags.writeable = True
    found = list(PlainJoinLogic.step(self, released))
    flags[:] = 0
    return iter(found)


@join("mutation")
def tuple_of__keeps_a_view(self, released, k):
    return (*PlainJoinLogic.tuple_of(self, released, k)[:3], released.cells[k], int(released.nulls[k]))


@join("mutation")
def evict__inverts_the_mask(self, victims):
    np.logical_not(victims, out=victims)
    self.kept = [x for x, stays in zip(self.kept, victims.tolist(), strict=True) if stays]


@join("mutation")
def held__one_array(self):
    held = PlainJoinLogic.held(self)
    if getattr(self, "seqs", np.empty(0)).size <= held.seq.size:
        self.seqs = np.empty(500, np.int64)
    self.seqs[: held.seq.size] = held.seq
    return held._replace(seq=self.seqs[: held.seq.size])


# Window edges


@join("window edge")
def stays__open_end(self, x):
    return x[2] > self.now - self.windows[x[0]]


@join("window edge")
def fits__open_end(self, x):
    return x[2] > self.now - self.windows[x[0]]


@join("window edge")
def stays__window_of_the_other(self, x):
    return x[2] >= self.now - self.windows[1 - x[0]]


@join("window edge")
def stays__widest(self, x):
    return x[2] >= self.now - max(self.windows)


@join("window edge")
def stays__one_more(self, x):
    return x[2] >= self.now - self.windows[x[0]] - 1


@join("window edge")
def partners__not_of_the_same_time(self, row):
    return [x for x in self.kept if x[0] != row[0] and x[2] != row[2]]


# Types


@join("dtype")
def matched__int32_sizes(self, n, rows, probe, join_size, cross_size):
    return PlainJoinLogic.matched(self, n, rows, probe, join_size.astype(np.int32), cross_size)


@join("dtype")
def matched__whole_cross_sizes(self, n, rows, probe, join_size, cross_size):
    return PlainJoinLogic.matched(self, n, rows, probe, join_size, cross_size.astype(np.int64))


@join("dtype")
def held__wide_inputs(self):
    held = PlainJoinLogic.held(self)
    return held._replace(input=held.input.astype(np.int64))


@join("dtype")
def matches__floats(self, row, x):
    row, x = ((*t[:3], t[3].astype(np.float64).astype(np.int64), t[4]) for t in (row, x))
    return PlainJoinLogic.matches(self, row, x)


@join("dtype")
def live__as_float(self):
    return float(len(self.kept))


@join("dtype")
def snapshot__objects(self):
    return {**PlainJoinLogic.snapshot(self), "kept": np.array([x[0] for x in self.kept], object)}


# Late tuples


@join("late")
def probes__late_ones_too(self, released, k):
    return True


@join("late")
def fits__late_ones_never(self, x):
    return x[2] >= self.now


@join("late")
def probes__late_ones_set_the_time(self, released, k):
    if released.late[k]:
        self.now = int(released.ts[k])
    return not released.late[k]


@join("late")
def probes__once_late_always_late(self, released, k):
    self.was_late = getattr(self, "was_late", False) or bool(released.late[k])
    return not self.was_late


# Leaks


@join("leak")
def advance__keeps_the_gone(self, ts):
    before = self.kept
    PlainJoinLogic.advance(self, ts)
    self.gone = [*getattr(self, "gone", ()), *(x for x in before if not self.stays(x))]


@join("leak")
def evict__remembers(self, victims):
    gone = [x[:2] for x, leaves in zip(self.kept, victims, strict=True) if leaves]
    self.evicted = [*getattr(self, "evicted", ()), *gone]
    PlainJoinLogic.evict(self, victims)


@join("leak")
def step__logs_chunks(self, released):
    LOG.append(released.ts.copy())
    return PlainJoinLogic.step(self, released)


@join("leak")
def tuple_of__interns_numbers(self, released, k):
    row = PlainJoinLogic.tuple_of(self, released, k)
    SHARED.setdefault("seen", set()).add(row[:2])
    return row
