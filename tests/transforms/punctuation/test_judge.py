"""The stage that judges: tuples, punctuations, and what contradicts them."""

import numpy as np
import pyarrow as pa
from running import SCHEMA, plan_of

from slackwater.plugins.contract import Matches
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.disorder.buffer import Emitted
from slackwater.transforms.output.step import Joined
from slackwater.transforms.punctuation.judge import DROPPED, JOINS, MARKED, VIOLATES, Judge
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.state import snapshot as snapshots

OVER = {"input": "a", "when": "a.v = 1", "key": "k"}


def reached(plan, rows, given, late=()):
    """Let rows (k, v), one millisecond apart, reach the join; those of ``late`` are late."""
    columns = [(*range(len(given)),), (*range(len(given)),), *zip(*given, strict=True)]
    batch = pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA)
    n = batch.num_rows
    chunk = Chunk(np.zeros(n, np.int8), np.arange(n), [batch, batch.slice(0, 0)])
    taken = Intake(plan).take(chunk)
    rows.add(taken, False)
    marked = np.isin(np.arange(n), late)
    return rows.reached(Emitted(taken.codes, np.arange(n), marked, np.arange(n)))


def joined(n, contradicts=()):
    out = Joined()
    none = np.empty(0, np.int64)
    wrong = np.isin(np.arange(n), contradicts)
    out.add(Matches(0, n, none.reshape(0, 2), none, 1 + np.arange(n), np.ones(n), contradicts=wrong))
    return out


def test_without_promises_all_rows_are_tuples():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k")
    rows = ShardRows(plan)
    judge = Judge(plan, rows)
    judged = judge.judge(reached(plan, rows, [(1, 0), (1, 1), (2, 0)], late=[1]))
    assert judged.verdict is judged.joins is judged.dropped is judged.punctuations is None
    assert judged.too_late.tolist() == [False, True, False]
    assert judged.tuples.seq.tolist() == [0, 1, 2]
    outcome = judged.outcome(joined(3), np.array([0.5]))
    assert outcome.sizes[0].tolist() == [1, 2, 3]
    assert outcome.gone.tolist() == [0.5]
    assert outcome.violating is outcome.marked is None
    assert judge.snapshot() == {}
    assert not judge.promised


def test_rows_are_sorted_and_the_join_sees_the_tuples_only():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", punctuations=[OVER])
    rows = ShardRows(plan)
    judge = Judge(plan, rows)
    given = [(1, 0), (1, 1), (2, 0), (1, 0), (1, 0)]
    judged = judge.judge(reached(plan, rows, given, late=[4]))
    assert judged.verdict.tolist() == [JOINS, MARKED, JOINS, VIOLATES, DROPPED]
    assert judged.tuples.seq.tolist() == [0, 2]
    assert judged.punctuations.low[:, 0].tolist() == [1]
    assert judged.too_late.tolist() == [False, False, False, False, True]
    outcome = judged.outcome(joined(2), np.array([0.25]))
    assert outcome.tuples.seq.tolist() == [0, 2, 4]
    assert outcome.sizes[0].tolist() == [1, 2, 0]
    assert outcome.gone.tolist() == [1.0], "it has missed all its partners"
    assert outcome.marked.tolist() == [0]
    assert outcome.violating.seq.tolist() == [3]


def test_what_the_join_finds_to_contradict_is_taken_out_after_it():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", punctuations=[OVER])
    rows = ShardRows(plan)
    judge = Judge(plan, rows, elsewhere=np.array([True]))
    judged = judge.judge(reached(plan, rows, [(1, 1), (1, 0), (3, 0), (1, 0)], late=[3]))
    assert judged.verdict.tolist() == [MARKED, JOINS, JOINS, JOINS]
    outcome = judged.outcome(joined(3, contradicts=[0, 2]), np.array([0.25]))
    assert outcome.violating.seq.tolist() == [1]
    assert outcome.tuples.seq.tolist() == [2, 3]
    assert outcome.sizes[0].tolist() == [2, 3]
    assert outcome.gone.tolist() == [1.0]


def test_the_stage_goes_on_from_its_snapshot():
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", punctuations=[OVER])
    rows = ShardRows(plan)
    judge = Judge(plan, rows)
    judge.judge(reached(plan, rows, [(1, 1), (2, 0)]))
    state = snapshots.loads(snapshots.dumps(judge.snapshot()))
    rows = ShardRows(plan)
    again = Judge(plan, rows, snapshot=state["promises"])
    ((inputs, cells),) = again.held_cells()
    assert inputs.tolist() == [0]
    assert cells[:, 0].tolist() == [1]
    verdict = again.judge(reached(plan, rows, [(9, 9), (9, 9), (1, 0), (2, 0)])).verdict
    assert verdict.tolist()[2:] == [VIOLATES, JOINS]
