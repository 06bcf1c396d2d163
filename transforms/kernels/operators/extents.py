"""Window extents from the record store, one arrival at a time (ADC sec. 6).

Extent i holds the rows of ``[(i + 1)·slide - range, (i + 1)·slide)``. A punctuation τ says that no row at or
before τ is to come; the extent is complete once τ ≥ (i + 1)·slide - 1 (the paper prints (6.2) the other way
round). In panes: ``step`` panes make a slide, ``span`` panes a range, and extent i has the panes from
``(i + 1)·step - span`` up to ``(i + 1)·step``.
"""

from typing import Any, NamedTuple

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.operators.record_store import (
    GROUP,
    INDEX,
    LAST,
    LAST_STAMP,
    N_NODES,
    N_RECORDS,
    N_WAITING,
    NEVER,
    NEXT,
    NODE,
    NONE,
    NUMBER,
    PLACES,
    PRODUCED,
    STAMP,
    TAU,
    WAITING,
    StoreState,
    drop_before,
    fold,
    merge,
    place,
)

DONE, NO_NODE, NO_ROOM = range(3)


class Produced(NamedTuple):
    """Room for groups of extents, and for the ends of extents."""

    extent: Any
    records: Any
    """Group, and the words of its aggregate, laid out as in the store."""
    reals: Any
    """The same memory as floats."""
    sync: Any
    """``[capacity, 3]``: an extent that is complete, the arrival that completed it, its groups."""
    n: Any
    """[groups, ends] that are filled."""


@kernel(inline=True)
def _owned(state):  # type: ignore[no-untyped-def]
    return StoreState(
        borrowed(state.inode), borrowed(state.nodes), borrowed(state.records), borrowed(state.reals),
        borrowed(state.seen), borrowed(state.control),
    )  # fmt: skip


@kernel(inline=True)
def _first_pane(state):  # type: ignore[no-untyped-def]
    """Return the first pane that has a record, or NEVER."""
    for at in range(state.control[N_NODES]):
        node = state.inode[at, NODE]
        for p in range(PLACES):
            if state.nodes[node, p, LAST] != NONE:
                return state.inode[at, NUMBER] * PLACES + p
    return NEVER


@kernel(inline=True)
def _produce(state, extent, first, end, ops, floating, out):  # type: ignore[no-untyped-def]
    """Append the groups of the panes from ``first`` up to ``end``, panes in order of time."""
    control = state.control
    base = out.n[0]
    n = base
    stamp = NEVER
    for at in range(control[N_NODES]):
        start = state.inode[at, NUMBER] * PLACES
        if start >= end:
            break
        node = state.inode[at, NODE]
        for p in range(max(0, first - start), min(PLACES, end - start)):
            last = state.nodes[node, p, LAST]
            if last == NONE:
                continue
            if state.nodes[node, p, WAITING] > 0:
                control[N_WAITING] -= state.nodes[node, p, WAITING]
                state.nodes[node, p, WAITING] = 0
                fold(state, node, p, ops, floating)
                last = state.nodes[node, p, LAST]
                stamp = NEVER
            if stamp == NEVER:
                # Folding has used the marks: mark anew what the extent has so far.
                control[LAST_STAMP] += 1
                stamp = control[LAST_STAMP]
                for k in range(base, n):
                    state.seen[out.records[k, GROUP], STAMP] = stamp
                    state.seen[out.records[k, GROUP], INDEX] = k
            record = last
            while True:
                record = state.records[record, NEXT]
                group = state.records[record, GROUP]
                if state.seen[group, STAMP] == stamp:
                    into = state.seen[group, INDEX]
                    merge(ops, floating, out.records, out.reals, into, state.records, state.reals, record)
                else:
                    state.seen[group, STAMP] = stamp
                    state.seen[group, INDEX] = n
                    out.extent[n] = extent
                    for c in range(ops.size):
                        out.records[n, c] = state.records[record, c]
                    n += 1
                if record == last:
                    break
    out.n[0] = n
    return n - base


@kernel(inline=True)
def _end(out, extent, at, groups):  # type: ignore[no-untyped-def]
    k = out.n[1]
    out.sync[k, 0] = extent
    out.sync[k, 1] = at
    out.sync[k, 2] = groups
    out.n[1] = k + 1


@kernel
def _complete(state, step, span, ops, floating, done, at, out):  # type: ignore[no-untyped-def]
    """Produce every extent up to ``done``, in order; return False once there is no room for the next.

    Extents without rows are passed over; each run of them that has a beginning is ended once, at its last.
    """
    control = state.control
    while control[PRODUCED] < done:
        begun = control[PRODUCED] != NEVER
        pane = _first_pane(state)
        extent = done + 1
        if pane != NEVER:
            extent = pane // step
            if begun:
                extent = max(extent, control[PRODUCED] + 1)
        if out.n[1] + 2 > out.sync.shape[0]:
            return False
        if extent > done:
            if begun:
                _end(out, done, at, 0)
            control[PRODUCED] = done
            return True
        if out.n[0] + min(control[N_RECORDS], state.seen.shape[0]) > out.extent.size:
            return False
        if begun and extent > control[PRODUCED] + 1:
            _end(out, extent - 1, at, 0)
        end = (extent + 1) * step
        _end(out, extent, at, _produce(state, extent, end - span, end, ops, floating, out))
        control[PRODUCED] = extent
        drop_before(state, end + step - span)
    return True


@kernel(inline=True)
def _limits(produced, slide, step, span):  # type: ignore[no-untyped-def]
    """Return what to compare with rather than divide: the punctuation that completes the extent after
    ``produced``, the pane before which a row is late, and the first pane of an open extent."""
    if produced == NEVER:
        return NEVER + 1, NEVER, NEVER
    return (produced + 2) * slide - 1, (produced + 1) * step, (produced + 2) * step - span


@kernel
def advance(pane, group, whole, real, bounds, start, stop, spec, ops, floating, owned, out, late, gone):  # type: ignore[no-untyped-def]
    """Take the arrivals from ``start`` up to ``stop``: place each row, then produce what its bound completes.

    A row is late where an extent that should hold it has been produced; ``gone`` is the share of such extents.
    It is placed all the same if an extent that holds it is still open. Rows between extents, where the slide is
    longer than the range, are dropped. Returns where it stopped and why: DONE, or NO_NODE or NO_ROOM, after
    which the caller makes room and calls again from there. ``spec`` is (slide in ticks, step, span).
    """
    state = _owned(owned)
    slide, step, span = spec
    control = state.control
    tau = control[TAU]
    next_tau, late_before, open_from = _limits(control[PRODUCED], slide, step, span)
    for k in range(start, stop + 1):
        if tau >= next_tau:
            control[TAU] = tau
            done = (tau + 1) // slide - 1
            if not _complete(state, step, span, ops, floating, done, k - 1, out):
                return k, NO_ROOM
            next_tau, late_before, open_from = _limits(control[PRODUCED], slide, step, span)
        if k == stop:
            break
        p = pane[k]
        if span >= step or (p + span) // step > p // step:
            if p >= open_from and not place(state, p, group[k], whole, real, k):
                control[TAU] = tau
                return k, NO_NODE
            if p < late_before:
                first = p // step
                last = (p + span) // step - 1
                late[k] = True
                gone[k] = (min(last, control[PRODUCED]) - first + 1) / (last - first + 1)
        tau = max(tau, bounds[k])
    control[TAU] = tau
    return stop, DONE


@kernel
def flush(spec, ops, floating, owned, at, out):  # type: ignore[no-untyped-def]
    """Produce every extent that holds a row: the input has ended. Returns DONE or NO_ROOM, as ``advance``."""
    state = _owned(owned)
    _, step, span = spec
    control = state.control
    if control[N_NODES] == 0:
        return DONE
    newest = control[N_NODES] - 1
    node = state.inode[newest, NODE]
    p = PLACES - 1
    while p > 0 and state.nodes[node, p, LAST] == NONE:
        p -= 1
    if state.nodes[node, p, LAST] == NONE:
        return DONE
    done = (state.inode[newest, NUMBER] * PLACES + p + span) // step - 1
    if control[PRODUCED] < done and not _complete(state, step, span, ops, floating, done, at, out):
        return NO_ROOM
    return DONE
