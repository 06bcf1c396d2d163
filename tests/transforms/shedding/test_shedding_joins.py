"""Every join that sheds keeps to its memory, accounts for every row, and finds some of the exact results."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, numbered, plan_of, run

from slackwater.plugins.registry.manager import manager
from slackwater.transforms.errors import ConfigError

SHEDS = {"mswj": "40ms", "wjoin": "40ms", "pwjoin": "40ms", "pjoin": None, "symmetric_hash": None}
REFUSES = ("mjoin", "xjoin")


def arrivals_of(seed, n=260, keys=12):
    """Rows of two inputs; every key is punctuated in the end, and may come again by mistake."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        ts = 2 * k - int(rng.integers(0, 9)) * int(rng.random() < 0.2)
        is_over = rng.random() < 0.15
        rows.append(
            (int(rng.integers(0, 2)), {"ts": ts, "k": int(rng.integers(0, keys)), "v": -1 if is_over else 1})
        )
    return numbered(rows)


def join_of(join, shedding, punctuated, slack="6ms"):
    punctuations = [{"input": name, "when": "v < 0", "key": "k"} for name in "ab"] if punctuated else []
    window = {} if SHEDS[join] is None else {"window": SHEDS[join]}
    return plan_of(
        SCHEMA,
        where="a.k = b.k",
        disorder={"strategy": "fixed", "slack": slack},
        join={"strategy": join},
        shedding=shedding,
        punctuations=punctuations,
        **window,
    )


def test_every_join_is_here():
    assert {p.strategy.name for p in manager().strategies("join") if p.plugin == "builtin"} == {*SHEDS, *REFUSES}


@settings(max_examples=25)
@given(st.data())
def test_a_join_sheds_within_its_memory(data):
    join = data.draw(st.sampled_from(sorted(SHEDS)))
    strategy = data.draw(st.sampled_from(["random", "prob", "life"]))
    memory = data.draw(st.sampled_from([2, 9, 24]))
    punctuated = data.draw(st.booleans())
    arrivals = arrivals_of(data.draw(st.integers(0, 10**6)))
    edges = data.draw(st.lists(st.integers(0, len(arrivals)), max_size=4))
    exact = run(join_of(join, {"strategy": "none"}, False, "10s"), arrivals)
    plan = join_of(join, {"strategy": strategy, "memory": memory}, punctuated)
    got, whole = run(plan, arrivals, edges, edges[:2]), run(plan, arrivals)
    accounting = got.operator.accounting
    assert accounting.max_tuples <= memory
    assert got.results == whole.results
    assert got.late_ids("shed") == whole.late_ids("shed")
    for i in range(2):
        assert accounting.balanced(i)
        assert accounting.late[i, "shed"] == sum(n for (j, _), n in got.late_ids("shed").items() if j == i)
    assert max(got.late_ids().values(), default=1) == 1
    assert got.results <= exact.results
    for row in got.punctuations:
        value = json.loads(row["pattern"])["a_k"]
        assert not any(result["a_k"] == value and result["ts"] > row["ts"] for result in got.rows)


def test_a_late_row_that_is_shed_at_once_is_late_whatever_the_chunks():
    plan, arrivals = join_of("mswj", {"strategy": "prob", "memory": 2}, True), arrivals_of(11874)
    whole = run(plan, arrivals)
    assert whole.late_ids("too_late")
    assert run(plan, arrivals, [20], [20]).late_ids("shed") == whole.late_ids("shed")


@pytest.mark.parametrize("join", REFUSES)
def test_joins_that_use_the_disk_shed_nothing(join):
    with pytest.raises(
        ConfigError, match=f"shedding: strategy '{join}' has a memory of its own and loses nothing"
    ):
        plan_of(
            SCHEMA,
            where="a.k = b.k",
            join={"strategy": join},
            unique="a.id",
            shedding={"strategy": "random", "memory": 9},
        )
