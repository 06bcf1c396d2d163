"""Ids of results: unique, and the same wherever the input is cut, snapshots are taken or the join is restored."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_cases import SCHEMA, N, arrivals, plan_of
from journaling import part_of

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind
from slackwater.transforms.state import snapshot as snapshots

SHARD = 3
"""Of the operators here."""


def results_of(plan: Any, whole: Any, cuts: list[int], restored: set[int]) -> Counter[Any]:
    """Return (id, row) of all results; after the pieces that are named, another operator goes on."""
    operator, found = open_operator(plan, shard=SHARD), []
    for k, (start, stop) in enumerate(pairwise([0, *cuts, N])):
        found += operator.push(part_of(whole, start, stop)).results
        if k in restored:
            state = snapshots.loads(snapshots.dumps(operator.snapshot()))
            operator.close()
            operator = open_operator(plan, state, SHARD)
    found += operator.finish().results
    operator.close()
    return Counter(tuple(row.values()) for batch in found for row in batch.to_pylist())


@pytest.mark.parametrize("name", ["fixed", "result_slack", "prob", "xjoin", "mjoin"])
@settings(max_examples=5, deadline=None)
@given(
    cuts=st.lists(st.integers(1, N - 1), min_size=2, max_size=8, unique=True).map(sorted),
    restored=st.sets(st.integers(0, 8)),
    seed=st.integers(0, 99),
)
def test_cuts_and_restores_change_no_id(name: str, cuts: list[int], restored: set[int], seed: int) -> None:
    if name == "mjoin":
        case = {"time": "ts", "where": "a.at = b.id", "unique": "b.id", "id": "key"}
        case |= {"join": {"strategy": "mjoin", "memory": 40}}
        plan = bind(JoinConfig.read(case), {"a": SCHEMA, "b": SCHEMA})
    else:
        plan = plan_of(name, id="key")
    whole = arrivals(plan, seed)
    expected = results_of(plan, whole, [], set())
    assert results_of(plan, whole, cuts, restored) == expected
    ids = Counter(row[-1] for row in expected.elements())
    assert expected.total() > 5
    assert max(ids.values()) == 1


def test_an_id_is_the_shard_and_the_number_of_every_member() -> None:
    plan = plan_of("fixed", id="key")
    whole = arrivals(plan, 1)
    numbers = [{row["id"]: n for n, row in enumerate(batch.to_pylist())} for batch in whole.batches]
    assert plan.result_schema.names[-1] == "key"
    for row in results_of(plan, whole, [100], {0}):
        named = dict(zip(plan.result_schema.names, row, strict=True))
        assert named["key"] == f"{SHARD}-{numbers[0][named['a_id']]}-{numbers[1][named['b_id']]}"


def faulty(**changes: Any) -> None:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    case = {"time": "ts", "window": "1s", "where": "a.k = b.k", **changes}
    bind(JoinConfig.read(case), {"a": schema, "b": schema})


def test_counts_have_no_members_to_make_an_id_of() -> None:
    with pytest.raises(
        ConfigError, match="id: counts have one row per shard and timestamp, and no members; leave"
    ):
        faulty(id="key", output="counts")


def test_the_column_needs_a_name_of_its_own() -> None:
    with pytest.raises(ConfigError, match="id: there is a result column called 'a_k' already; choose another"):
        faulty(id="a_k")
