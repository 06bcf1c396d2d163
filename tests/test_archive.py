"""Produced and reconciled results together are the exact join, each once."""

import tempfile
from collections import Counter
from pathlib import Path

from conditions import cuts, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, plan_of, run

from slackwater.pipelines.reconcile import Reconciliation
from slackwater.transforms import archive


def identities(rows, names):
    return Counter(tuple(row[f"{name}_id"] for name in names) for row in rows)


@settings(max_examples=25)
@given(st.data())
def test_produced_and_reconciled_are_exact(data):
    m = data.draw(st.sampled_from([2, 3]))
    arrivals = data.draw(streams(m, 80, 30))
    where = " AND ".join([f"a.k = {n}.k" for n in "bc"[: m - 1]] + [f"a.v + {'bc'[m - 2]}.v >= 1"])
    common = {"window": {n: w for n, w in zip("abc"[:m], ("9ms", "4ms", "20ms"), strict=False)}, "where": where}
    exact = run(plan_of(SCHEMA, m, **common, disorder={"strategy": "fixed", "slack": "10s"}), arrivals, (), ())
    shedding = data.draw(
        st.sampled_from(
            [{"strategy": "none"}, {"strategy": "random", "memory": 9}, {"strategy": "prob", "memory": 5}]
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(
            SCHEMA, m, **common, disorder={"strategy": "fixed", "slack": "2ms"}, shedding=shedding, archive=folder
        )
        archive.prepare(plan)
        edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
        got = run(plan, arrivals, edges, restores)
        missed = [row for batch in Reconciliation(Path(folder)).missed() for row in batch.to_pylist()]
    names = "abc"[:m]
    assert identities(got.rows, names) + identities(missed, names) == identities(exact.rows, names)
