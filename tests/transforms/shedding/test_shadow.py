"""What shedding costs is counted exactly as long as the sample is the whole, and estimated well from there on."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT, cuts, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, plan_of, run
from shadow_cases import account_of, counting, stream

from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.shedding import shadow

CONDITIONS = {
    "a.k = b.k AND a.v + b.v >= 2": (2, lambda rows: eq(rows, "k") and sum(row["v"] for row in rows) >= 2),
    "a.v < b.v": (2, lambda rows: rows[0]["v"] < rows[1]["v"]),
    "a.k = b.k AND b.k = c.k": (3, lambda rows: eq(rows, "k")),
}


def eq(rows, column):
    return len({row[column] for row in rows}) == 1


def possible(log, rows, window, m, holds):
    """Results of a join without a limit, of tuples in the order in which they reached the limited one."""
    seen = [[] for _ in range(m)]
    count, now = 0, None
    for entry in log:
        which = entry.identity[0]
        row = rows[entry.identity]
        if not entry.late:
            now = entry.ts
            partners = [
                [row] if i == which else [r for r in seen[i] if r["ts"] >= now - window] for i in range(m)
            ]
            count += sum(
                None not in [r[c] for r in members for c in "kv"] and holds(members)
                for members in product(*partners)
            )
        seen[which].append(row)
    return count


@settings(max_examples=40 * EFFORT)
@given(
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(["random", "prob"]),
    st.sampled_from([1, 6, 20]),
    st.data(),
)
def test_lost_results_are_those_that_a_join_without_a_limit_finds(where, strategy, memory, data):
    m, holds = CONDITIONS[where]
    arrivals = data.draw(streams(m, 60, 20))
    arrivals = [(which, {**row, "k": row["k"] or 0, "v": row["v"] or 0}) for which, row in arrivals]
    plan = plan_of(
        SCHEMA,
        m,
        window="9ms",
        where=where,
        disorder={"strategy": "fixed", "slack": "2ms"},
        shedding={"strategy": strategy, "memory": memory},
    )
    whole = run(plan, arrivals)
    account = whole.operator.accounting
    rows = {(which, row["id"]): row for which, row in arrivals}
    assert account.results + account.shed == possible(whole.log, rows, 9, m, holds)
    again = run(plan, arrivals, data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals))))
    assert again.operator.accounting.shed == account.shed
    assert again.operator.accounting.still_shed.tolist() == account.still_shed.tolist()


@pytest.mark.parametrize(
    ("strategy", "memory", "keys", "skew", "near"),
    [
        ("random", 3000, 300, 0.0, 0.05),
        ("prob", 3000, 300, 0.0, 0.05),
        ("random", 2000, 50, 1.0, 0.05),
        ("prob", 2000, 50, 1.0, 0.05),
        ("life", 2000, 2000, 1.0, 0.1),
    ],
)
def test_late_and_shed_results_are_told_apart(strategy, memory, keys, skew, near):
    """Truth: all results, less those without a memory limit, less those with it; the buffer is not the limit."""
    rows = stream(60_000, keys=keys, skew=skew)
    exact = account_of(counting(disorder={"strategy": "max"}), rows).results
    unlimited = account_of(counting(), rows).results
    account = account_of(counting(shedding={"strategy": strategy, "memory": memory}), rows)
    missed = account.missed_results()
    assert missed["late"] == pytest.approx(exact - unlimited, rel=near)
    assert missed["shed"] == pytest.approx(unlimited - account.results, rel=near)
    assert account.recall_estimate() == pytest.approx(account.results / exact, abs=0.01)
    assert account.summary(10**6)["missed"]["shed_by"] == "evicted rows"


@pytest.mark.parametrize(
    ("where", "strategy", "found_by", "near"),
    [
        ("a.k = b.k AND b.k = c.k", "random", "sampled keys", 0.35),
        ("a.k = b.k AND b.v = c.v", "random", "scores", 0.1),
    ],
)
def test_losses_of_three_inputs(where, strategy, found_by, near):
    rows = stream(30_000, 3, 200, late=0.0)
    unlimited = account_of(counting(3, where, "1s"), rows).results
    account = account_of(counting(3, where, "1s", shedding={"strategy": strategy, "memory": 2800}), rows)
    assert account.shed == pytest.approx(unlimited - account.results, rel=near)
    assert account.shed_by == found_by


@pytest.mark.parametrize("m", [2, 3])
def test_a_sample_does_not_show_chunks_or_restarts(m):
    rows = stream(9000, m, 40)
    plan = counting(m, "a.k = b.k" + " AND b.k = c.k" * (m - 2), shedding={"strategy": "prob", "memory": 300})
    whole = account_of(plan, rows)
    assert whole.shed > 0
    for other in (account_of(plan, rows, 997), account_of(plan, rows, 1500, restore=3)):
        assert other.shed == whole.shed
        assert other.still_shed.tolist() == whole.still_shed.tolist()


def test_few_of_many_evictions_are_looked_for_wherever_chunks_end():
    """More evictions than are looked for one by one: still close, and the same in other chunks."""
    rows = stream(200_000, keys=100, skew=0.5, late=0.0)
    in_order = {"window": "300ms", "disorder": {"strategy": "none"}}
    plan = counting(**in_order, shedding={"strategy": "prob", "memory": 200})
    whole = account_of(plan, rows)
    assert sum(whole.late.values()) > 2 * shadow.STAGES[-1].start
    unlimited = account_of(counting(**in_order), rows).results
    assert whole.shed == pytest.approx(unlimited - whole.results, rel=0.02)
    for other in (account_of(plan, rows, 9973), account_of(plan, rows, 30_011, restore=4)):
        assert other.shed == whole.shed
        assert other.still_shed.tolist() == whole.still_shed.tolist()


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(shadow, "MOST", 512)
    plan = counting(shedding={"strategy": "random", "memory": 500})
    operator, rows = Operator(plan), stream(30_000)
    for start in range(0, 30_000, 500):
        part = slice(start, start + 500)
        inputs = rows["input"][part]
        columns = [[rows[name][part][inputs == i] for name in ("ts", "ts", "k", "v")] for i in range(2)]
        operator.push(Chunk(inputs, start + np.arange(500), [pa.record_batch(c, schema=SCHEMA) for c in columns]))
        assert operator.join.shadow._sample.live() <= 512
    assert operator.join.shadow._sample.level > 2
