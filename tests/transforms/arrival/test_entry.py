"""The stage where rows arrive: what is refused before the queue, what waits, and what the guard lets in."""

import numpy as np
import pyarrow as pa
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.plugins.contract import Held
from slackwater.transforms.arrival.bad_rows import bad_row, with_bad
from slackwater.transforms.arrival.entry import Entry
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.rows import row_code
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.sharding.copies import with_copies
from slackwater.transforms.state import snapshot as snapshots

TIMED = pa.schema([*SCHEMA, ("at", pa.int64())])


class Nothing:
    """A join that holds nothing."""

    def live(self):
        return 0

    def held(self):
        return Held.none(1)


def entry_of(plan, snapshot=None):
    state = {} if snapshot is None else snapshots.loads(snapshots.dumps(snapshot))
    return Entry(plan, CellEncoder(plan.condition), Accounting(plan.inputs), state)


def times(turns):
    """Event times of the rows that are let in, and reasons of those that are refused."""
    let_in, refused = [], []
    for taken in turns:
        let_in += taken.arrivals.ts.tolist()
        refused += [(row.reason, row.rows.num_rows) for row in taken.refused]
    return let_in, refused


def take(entry, chunk):
    return times(entry.take(chunk, Nothing(), lambda: 0))


def test_rows_are_numbered_and_those_without_a_time_refused():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k")
    entry = entry_of(plan)
    rows = numbered([(0, {"ts": 5}), (1, {"ts": None}), (1, {"ts": 7}), (0, {"ts": 6})])
    (taken,) = entry.take(chunk_of(plan, rows), Nothing(), lambda: 0)
    assert row_code.input_of(taken.codes).tolist() == [0, 1, 0]
    assert row_code.seq_of(taken.codes).tolist() == [0, 1, 1]
    assert [(refused.which, refused.reason) for refused in taken.refused] == [(1, "bad_record")]
    assert entry.progress.tolist() == [6, 7]


def test_what_the_source_could_not_read_does_not_wait_in_the_queue():
    queue = {"rows": 9, "service_rate": 1}
    plan = plan_of(
        TIMED, window="9ms", where="a.k = b.k", arrival="at", shedding={"strategy": "random", "queue": queue}
    )
    entry = entry_of(plan)
    chunk = chunk_of(plan, numbered((k % 2, {"ts": k, "k": 1, "at": k}) for k in range(6)))
    first, *others = chunk.batches
    torn = with_bad(first, [1], [bad_row("torn", "no number")])
    assert take(entry, chunk._replace(batches=[torn, *others])) == ([0], [("bad_record", 1)])
    assert len(entry.queue) == 4
    again = entry_of(plan, entry.snapshot())
    assert len(again.queue) == 4
    assert times(again.rest()) == ([1, 3, 4, 5], [])


def test_rows_that_the_guard_doubts_wait_for_those_after_them():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", guard={"future": "1s"})
    entry = entry_of(plan)
    rows = numbered([*((k % 2, {"ts": k}) for k in range(200)), (0, {"ts": 10**7})])
    assert take(entry, chunk_of(plan, rows)._replace(bounded=True)) == (list(range(200)), [])
    again = entry_of(plan, entry.snapshot())
    assert times(again.served()) == ([], []), "nothing waits in a queue"
    assert times(again.rest()) == ([], [("future_time", 1)])
    assert not again.intake.holds


def test_copies_are_not_received():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k")
    accounting = Accounting(plan.inputs)
    entry = Entry(plan, CellEncoder(plan.condition), accounting, {})
    chunk = chunk_of(plan, numbered([(0, {"ts": 5}), (0, {"ts": 6}), (1, {"ts": 6})]))
    first, *others = chunk.batches
    chunk = chunk._replace(batches=[with_copies(first, np.array([True, False])), *others])
    assert take(entry, chunk) == ([5, 6, 6], [])
    assert accounting.received.tolist() == [1, 1]
