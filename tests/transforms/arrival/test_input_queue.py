"""A join that is slower than its input: who waits, who is shed, and how long it takes."""

import dataclasses
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from cli_calls import call
from conditions import cuts
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_reference import queue_up
from running import SCHEMA, chunk_of, numbered, plan_of, run

from slackwater.pipelines.reconcile.local import Reconciliation
from slackwater.plugins import SheddingStrategy
from slackwater.plugins.contract import NEVER, Held
from slackwater.plugins.shedding.queue_options import Queue
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.state import snapshot as snapshots

TIMED = pa.schema([*SCHEMA, ("at", pa.int64())])
RATES = st.sampled_from([77.25, 300, 450.5, 1000, 5000])


class Dearest(SheddingStrategy):
    """A strategy of somebody else's: keeps rows with a large v."""

    name: ClassVar[str] = "dearest"
    queue: Queue | None = None

    def build(self, setting, snapshot=None):
        return DearestLogic()


class DearestLogic:
    decays = False
    memory = None

    def scores(self, tuples):
        return np.where(tuples.nulls >> np.uint64(1) & np.uint64(1), 0, tuples.cells[:, 1]).astype(float)

    def snapshot(self):
        return {}


def dearest(queue, m=2, **more):
    where = " AND ".join(f"a.k = {n}.k AND a.v + {n}.v >= 0" for n in "abc"[1:m])
    slack = {"strategy": "fixed", "slack": "3ms"}
    plan = plan_of(TIMED, m, window="200ms", where=where, arrival="at", disorder=slack, **more)
    return dataclasses.replace(plan, shedding=Dearest(queue=queue))


def ids(rows):
    return Counter((which, row["id"]) for which, row in rows)


@st.composite
def timed(draw, m, size, values=(0, 1, None)):
    """Rows with times of arrival that seldom go back, ties and pauses; few have no event time."""
    n = draw(st.integers(0, size))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    at = np.cumsum(rng.choice([0, 0, 1, 2, 9, -1], n))
    ts = 2 * at + rng.integers(-9, 10, n)
    ts = [None if rng.random() < 0.05 else int(t) for t in ts]
    k, v = (rng.choice(np.array(list(v), object), n) for v in (values, (-1, 0, 1, 2, None)))
    which = rng.integers(0, m, n)
    return numbered((int(which[i]), {"ts": ts[i], "k": k[i], "v": v[i], "at": int(at[i])}) for i in range(n))


@settings(max_examples=40)
@given(st.data())
def test_the_queue_does_what_the_model_says_and_the_join_sees_what_is_served(data):
    m = data.draw(st.sampled_from([2, 3]))
    arrivals = data.draw(timed(m, 120))
    rows, rate = data.draw(st.sampled_from([1, 2, 5, 30])), data.draw(RATES)
    model = queue_up(arrivals, rows, rate, 1000, lambda which, row, known: row["v"] or 0)
    queue = Queue(rows=rows, service_rate=rate, refresh=data.draw(st.sampled_from([1, 7, 50])))
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    got, expected = run(dearest(queue, m), arrivals, edges, restores), run(dearest(None, m), model.served)
    assert got.results == expected.results
    assert got.late_ids("shed") == ids(model.shed)
    for reason in ("too_late", "bad_record"):
        assert got.late_ids(reason) == expected.late_ids(reason)
    account = got.operator.accounting
    assert all(account.balanced(i) for i in range(m))
    assert account.queued == model.most <= rows
    assert sum(nanos * n for nanos, n in account.waits.items()) == 10**6 * sum(-(-w // 1) for w in model.waits)
    joined = sum(part["joined_or_expired"] for part in account.summary(10**6)["accounting"].values())
    assert joined + len(got.late) == len(arrivals)


class Everything:
    """Holds all that was served, as a join with endless windows would."""

    def __init__(self):
        self.rows = []

    def live(self):
        return len(self.rows)

    def held(self):
        which, rows = zip(*self.rows, strict=True) if self.rows else ((), ())
        nulls = [row["k"] is None for row in rows]
        cells = np.array([[row["k"] or 0] for row in rows], np.int64).reshape(-1, 1)
        ts = np.array([row["ts"] for row in rows], np.int64)
        return Held(np.array(which, np.int8), np.arange(len(rows)), ts, cells, np.array(nulls, np.uint64))


def partners(rows, which, row):
    others = [other["k"] for i, other in rows if i != which and other["ts"] is not None]
    same = sum(k == row["k"] for k in others) if row["k"] is not None else 0
    return same / len(others) * 1.0 if others else 0.0, float(len(others))


def modular(which, row, known):
    share, held = partners(known.held, which, row)
    return share * held


def expected(rows, which, row):
    """The share of what is to come that has the row's key: as far as values repeat, that of the past."""
    others = [other["k"] for i, other in rows if i != which and other["ts"] is not None]
    keys = [k for k in others if k is not None]
    if row["k"] is None or not keys:
        return 0.0
    if row["k"] not in keys:
        return 1.0 / len(keys) * len(keys) / len(others)
    return (1.0 - len(set(keys)) / len(keys)) * keys.count(row["k"]) / len(others)


def integrated(which, row, known):
    """What is held now, and the chance times as many arrivals as it takes to replace its own input's rows."""
    chance = expected(known.before, which, row)
    own = sum(i == which for i, other in known.held if other["ts"] is not None)
    arrived = [max(1.0, float(sum(i == j for i, _ in known.arrived))) for j in range(2)]
    return modular(which, row, known) + chance * (own * arrived[1 - which] / arrived[which])


@settings(max_examples=30)
@given(st.data())
def test_waiting_rows_are_judged_by_the_partners_they_have_and_may_expect(data):
    arrivals = data.draw(timed(2, 150, (0, 0, 0, 1, 1, 2, 3, None)))
    mode, score = data.draw(st.sampled_from([("modular", modular), ("integrated", integrated)]))
    rows, look = data.draw(st.sampled_from([2, 8])), data.draw(st.sampled_from([5, 10, 40]))
    queue = {"rows": rows, "service_rate": 300, "mode": mode, "refresh": look}
    shedding = {"strategy": "prob", "estimate": "exact", "queue": queue}
    plan = plan_of(TIMED, 2, window="1d", where="a.k = b.k", arrival="at", shedding=shedding)
    encoder = CellEncoder(plan.condition)
    # Looks are further apart once much is held; the model does not know of that.
    small = arrivals[: 2 * look + 20]
    model = queue_up(small, rows, 300, 1000, score, look)
    join, shed = Everything(), []
    waiting = InputQueue(plan, encoder, Accounting(plan.inputs))
    for start, stop in pairwise(sorted({0, len(small), *data.draw(cuts(len(small)))})):
        for served, refused in waiting.serve(chunk_of(plan, small[start:stop]), join, lambda: NEVER):
            at = [0, 0]
            rows_of = [batch.to_pylist() for batch in served.batches]
            for which in served.input:
                row = rows_of[which][at[which]]
                at[which] += 1
                join.rows += [(int(which), row)] if row["ts"] is not None else []
            shed += [(part.which, row) for part in refused for row in part.rows.to_pylist()]
        saved = snapshots.loads(snapshots.dumps(waiting.snapshot()))
        waiting = InputQueue(plan, encoder, Accounting(plan.inputs), saved)
    assert ids(shed) == ids(model.shed)


def overload(strategy, n=30_000, rate=1000, rows=150, **more):
    """Two rows a millisecond, values by Zipf's law."""
    rng = np.random.default_rng(3)
    share = 1 / np.arange(1, 51)
    k, at = rng.choice(50, n, p=share / share.sum()), np.arange(n) // 2
    queue = {"rows": rows, "service_rate": rate, "refresh": 500}
    shedding = {"strategy": strategy, "queue": queue, **more}
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("at", pa.int64())])
    plan = plan_of(schema, 2, window="400ms", where="a.k = b.k", arrival="at", output="counts", shedding=shedding)
    operator, which = Operator(plan), (np.arange(n) % 2).astype(np.int8)
    peaks = []
    for start in range(0, n, 5_000):
        part = slice(start, start + 5_000)
        table = pa.table({"ts": at[part], "k": k[part], "at": at[part]}, schema)
        batches = [table.filter(pa.array(which[part] == i)).combine_chunks().to_batches()[0] for i in range(2)]
        operator.push(Chunk(which[part], at[part], batches))
        peaks.append(operator.nbytes)
    operator.finish()
    return operator.accounting, peaks


def test_at_twice_the_service_rate_queue_memory_and_latency_are_bounded_and_prob_keeps_more_than_random():
    found = {}
    for strategy in ("random", "prob"):
        account, peaks = overload(strategy, memory=300)
        summary = account.summary(10**6)
        assert summary["queue"]["max_rows"] == 150
        assert summary["queue"]["wait_ms"]["max"] <= 151
        assert 0.48 * 30_000 < summary["queue"]["shed"] < 0.5 * 30_000
        assert account.max_tuples <= 300
        assert summary["state"]["max_tuples"] <= 450
        assert max(peaks) < 1.2 * max(peaks[:2])
        assert all(account.balanced(i) for i in range(2))
        found[strategy] = account.results
    assert found["prob"] > 2 * found["random"]


def test_nothing_is_lost_when_service_is_faster_than_arrivals():
    account, _ = overload("prob", 10_000, rate=2500)
    assert account.late == Counter()
    assert account.results == overload("prob", 10_000, rate=10**6)[0].results


def test_a_burst_is_smoothed_as_long_as_it_fits():
    arrivals = numbered((k % 2, {"ts": k // 2, "k": 1, "v": 0, "at": 100 * (k // 20)}) for k in range(200))
    account = run(dearest(Queue(rows=19, service_rate=200)), arrivals).operator.accounting
    assert (account.late.total(), account.queued, max(account.waits)) == (0, 19, 95 * 10**6)
    assert run(dearest(Queue(rows=18, service_rate=200)), arrivals).operator.accounting.late.total() == 10


def test_what_no_window_would_take_leaves_first_and_punctuations_last():
    """The join is at 100 when it is looked at; the row of time 2 is of no use to anybody."""
    rows = [(0, 100, 0, 0), (1, 100, 0, 100), (0, 120, 0, 200), (1, 120, 0, 300), (1, 121, 0, 400)]
    rows += [(0, 2, 9, 401), (1, 122, 1, 401), (0, 123, None, 401), (1, 124, 5, 401)]
    arrivals = numbered((which, {"ts": ts, "k": 1, "v": v, "at": at}) for which, ts, v, at in rows)
    plan = dearest(
        Queue(rows=2, service_rate=10, refresh=1), punctuations={"input": "a", "when": "v IS NULL", "key": "k"}
    )
    plan = dataclasses.replace(plan, windows=(9, 9))
    got = run(plan, arrivals)
    assert got.late_ids("shed") == Counter([(0, 2), (1, 3)])
    assert got.operator.accounting.punctuations.tolist() == [1, 0]


def test_shed_rows_are_archived_so_that_nothing_is_lost_for_good():
    rng = np.random.default_rng(5)
    which, k = rng.integers(2, size=300).tolist(), rng.integers(3, size=300).tolist()
    arrivals = numbered((which[t], {"ts": t // 3, "k": k[t], "v": 0, "at": t // 3}) for t in range(300))
    exact = run(dearest(None), arrivals)
    with tempfile.TemporaryDirectory() as folder:
        plan = dearest(Queue(rows=7, service_rate=1500), archive=folder)
        prepare(plan)
        got = run(plan, arrivals, (100, 200), (150,))
        assert got.late_ids("shed").total() > 50
        missed = [row for batch in Reconciliation(Path(folder)).missed_results() for row in batch.to_pylist()]
    again = Counter(((row["a_id"], row["b_id"]), row["ts"]) for row in missed)
    assert got.results + again == exact.results


def test_texts_are_judged_by_hashes_that_the_join_gives_them_too():
    texts = pa.array(["x", None, "", "a longer text than one word", "x"])
    coded = texts.dictionary_encode()
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("w", coded.type)])
    plan = plan_of(schema, 2, window="1s", where="a.k = b.k AND a.v < b.v AND a.w = b.w")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(5)), texts, pa.array([1.5, None, -0.0, 2, 3]), coded], schema=schema
    )
    encoder = CellEncoder(plan.condition)
    lasting, nulls = encoder.encode_lasting(0, batch)
    assert encoder.dictionary.size == 0
    cells, expected_nulls = encoder.encode(0, batch)
    expected = encoder.lasting(np.zeros(5, np.int8), cells)
    assert nulls.tolist() == expected_nulls.tolist()
    for c in range(3):
        valid = nulls >> np.uint64(c) & np.uint64(1) == 0
        assert lasting[valid, c].tolist() == expected[valid, c].tolist()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "shedding: strategy 'prob': there is nothing to keep to; set memory, queue, or both"),
        ({"queue": {}}, "shedding.queue.rows: strategy 'prob' needs the option 'queue.rows'; add it."),
        ({"queue": {"rows": 0}}, "'queue.rows' of strategy 'prob': input should be greater than or equal to 1"),
        ({"queue": {"rows": 5, "row": 6}}, "strategy 'prob' has no option 'queue.row'; remove it, or check"),
        ({"queue": {"rows": 5, "mode": "both"}}, "'queue.mode' of strategy 'prob': input should be 'integrated'"),
        ({"queue": {"rows": 5, "service_rate": 0}}, "'queue.service_rate' of strategy 'prob': input should be"),
        ({"queue": {"rows": 5, "service_rate": -3}}, "greater than or equal to 0.01, got -3"),
        ({"queue": {"rows": 5, "refresh": 0}}, "'queue.refresh' of strategy 'prob': input should be greater"),
        ({"queue": 7}, "option 'queue' of strategy 'prob': input should be a valid"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(options, fault):
    with pytest.raises(ConfigError) as refused:
        plan_of(TIMED, 2, window="1s", where="a.k = b.k", arrival="at", shedding={"strategy": "prob", **options})
    assert fault in str(refused.value)


def test_a_rate_without_times_of_arrival_is_refused():
    shedding = {"strategy": "random", "queue": {"rows": 5, "service_rate": 9}}
    with pytest.raises(
        ConfigError, match="service_rate: a rate goes by times of arrival; name their column with"
    ):
        plan_of(SCHEMA, 2, window="1s", shedding=shedding)


def test_the_command_line_tells_the_options_of_a_queue():
    shown = call("strategies", "prob").output
    assert "queue: {rows, mode, service_rate, arrival_unit, refresh} | none, default None - queue for" in shown
    assert "    queue.rows: whole number, required - rows of a shard that may wait" in shown
    assert "    queue.service_rate: number | none, default None - rows that a shard can join per second" in shown
