"""Going on from a checkpoint with other settings: refused with what has changed, or migrated exactly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from journal_cases import SCHEMA, arrivals, plan_of
from journaling import part_of

pytest.importorskip("pyspark")

from pyspark.sql.streaming.stateful_processor import TimerValues
from spark_stores import Handle, Query, packed_rows

from slackwater.transforms.errors import ShardError
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind
from slackwater.transforms.spark.blobs import RESULT, ROLL, Packed
from slackwater.transforms.spark.checkpoint import CheckpointError, plan_before, settings_of
from slackwater.transforms.spark.processor import JoinProcessor
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state import snapshot as snapshots

N = 300


def rows_of(batches: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def taken(shard: Shard, rows: list[Any]) -> list[Any]:
    given = Given([Packed(row.input, row.place, row.blob) for row in rows], 0)
    return [batch for outputs in shard.take(given) for batch in outputs.results]


def test_settings_that_may_change_take_effect_where_the_query_goes_on() -> None:
    """With the new slack alone, what was logged would be replayed into another state: results twice, or never."""
    before = plan_of("fixed", id="key")
    slower = JoinConfig.read(
        {**before.config.model_dump(exclude_none=True), "disorder": {"strategy": "fixed", "slack": "90ms"}}
        | {"metrics": "1s"}
    )
    after = bind(slower, {"a": SCHEMA, "b": SCHEMA})
    whole = arrivals(before, 3)
    parts = [packed_rows(before, part_of(whole, start, start + 50)) for start in range(0, N, 50)]
    undisturbed = Shard(before)
    expected = [batch for rows in parts[:3] for batch in taken(undisturbed, rows)]
    undisturbed = Shard(after, snapshots.loads(snapshots.dumps(undisturbed.snapshot())))
    expected += [batch for rows in parts[3:] for batch in taken(undisturbed, rows)]
    query = Query(before)
    found = [batch for rows in parts[:3] for batch in query.micro_batch(rows)[RESULT]]
    query.plan = after
    query.forget(0)
    found += query.micro_batch(parts[3])[RESULT]
    query.forget(0)
    found += [batch for rows in parts[4:] for batch in query.micro_batch(rows)[RESULT]]
    assert rows_of(found) == rows_of(expected)
    assert rows_of(found) != rows_of(batch for rows in parts for batch in taken(Shard(after), rows))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"window": "200ms"}, 'window was "100ms" and is "200ms"; set it back, or start with a new checkpoint'),
        ({"shards": 4}, "shards was 1 and is 4; set it back"),
        ({"join": {"strategy": "pwjoin"}}, 'join.strategy was "mswj" and is "pwjoin"'),
        (
            {"disorder": {"strategy": "max"}},
            'disorder.strategy was "fixed" and is "max"; disorder.slack was "40ms"',
        ),
        ({"where": "a.k = b.k AND a.id < b.id"}, 'where was "a.k = b.k" and is "a.k = b.k AND a.id < b.id"'),
        ({"guard": {"past": "1d"}}, 'guard.past was null and is "1d"'),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], told: str) -> None:
    query = Query(plan_of("fixed"))
    whole = arrivals(query.plan, 1)
    query.micro_batch(packed_rows(query.plan, part_of(whole, 0, 50)))
    query.forget(0)
    config = {**query.plan.config.model_dump(exclude_none=True), **changes}
    query.plan = bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})
    with pytest.raises(CheckpointError, match="the checkpoint is of a query with other settings: ") as error:
        query.micro_batch(packed_rows(plan_of("fixed"), part_of(whole, 50, 100)))
    assert told in str(error.value)


def changed(before: JoinPlan, after: JoinPlan, partitions: str = "2") -> str:
    with pytest.raises(CheckpointError) as error:
        plan_before(after, settings_of(after, partitions), settings_of(before, "2"))
    return str(error.value)


def test_another_transform_other_columns_and_partitions_are_told() -> None:
    plan = plan_of("fixed")
    config = plan.config
    assert 'transform was "Aggregate" and is "Join"' in changed(plan_of("aggregate"), plan)
    wider = bind(config, {"a": SCHEMA, "b": SCHEMA.remove(3)})
    assert '"at int64"] and is ["id int64", "ts int64", "k string"]' in changed(plan, wider)
    assert 'spark.sql.shuffle.partitions was "2" and is "8"' in changed(plan, plan, "8")


def test_recall_may_change_but_no_other_option_of_its_strategy() -> None:
    config = plan_of("result_slack").config.model_dump(exclude_none=True)
    plans = [
        bind(JoinConfig.read({**config, "disorder": {**config["disorder"], **more}}), {"a": SCHEMA, "b": SCHEMA})
        for more in ({}, {"recall": 0.99}, {"period": "2s"})
    ]
    settings = [settings_of(plan, "2") for plan in plans]
    former = plan_before(plans[1], settings[1], settings[0])
    assert former is not None
    assert former.disorder == plans[0].disorder
    assert 'disorder.period was "1s" and is "2s"' in changed(plans[0], plans[2])


def test_other_keys_are_refused_by_what_was_noted_for_all_shards() -> None:
    """With another number of partitions, shards have other keys, under which nothing is found."""
    plan, handle = plan_of("fixed"), Handle()

    def called(partitions: str, plan: JoinPlan = plan) -> list[Any]:
        processor = JoinProcessor(plan, "query", [7], settings_of(plan, partitions))
        processor.init(handle)
        return list(processor.handleInputRows((ROLL,), iter(()), TimerValues(0)))

    assert called("2") == called("2") == []
    with pytest.raises(
        CheckpointError, match=r'spark.sql.shuffle.partitions was "2" and is "3"; set it back, or'
    ):
        called("3")
    called("2", plan_of("fixed", metrics="1s"))
    called("2")


def test_faults_name_the_shard_and_the_rows() -> None:
    plan = plan_of("fixed")
    shard = Shard(plan, number=2)
    rows = packed_rows(plan, part_of(arrivals(plan, 1), 0, 50))
    shard._driver.operator.push = None  # type: ignore[assignment, method-assign]
    with pytest.raises(
        ShardError, match=r"shard 2, input 'a' arrivals \d+ to \d+, input 'b' arrivals \d+ to \d+: "
    ):
        taken(shard, rows)
