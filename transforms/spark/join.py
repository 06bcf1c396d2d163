"""``sliding_window_join`` and its kin: from DataFrames to DataFrames."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from slackwater.transforms.disorder.scout import scout_plan
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.operators.choose_values.plan import bind_choose_values
from slackwater.transforms.operators.group_close.plan import PUNCTUATIONS, ROWS, bind_group_close
from slackwater.transforms.operators.punctuate.plan import bind_punctuate
from slackwater.transforms.operators.reorder.plan import bind_reorder
from slackwater.transforms.operators.shed.plan import bind_shed
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.settings.explanation import explained
from slackwater.transforms.settings.models import (
    SHED_INPUTS,
    AggregateConfig,
    ChooseValuesConfig,
    GroupCloseConfig,
    JoinConfig,
    OperatorConfig,
    PunctuateConfig,
    ReorderConfig,
    ShedConfig,
)
from slackwater.transforms.settings.plan import INPUT, DisorderPlan, JoinPlan, Plan, bind, bind_disorder
from slackwater.transforms.settings.signatures import takes_settings
from slackwater.transforms.spark.blobs import (
    LATE,
    METRICS,
    OUTPUT,
    PACKED,
    PUNCTUATION,
    RESULT,
    SYNC,
    shard_keys,
)
from slackwater.transforms.spark.checkpoint import PARTITIONS, settings_of
from slackwater.transforms.spark.file_offsets import take_up_as_planned
from slackwater.transforms.spark.observation import observe
from slackwater.transforms.spark.preconditions import check_columns, check_session, check_zones
from slackwater.transforms.spark.processor import JoinProcessor
from slackwater.transforms.spark.row_order import CLOCK, TIME, carries, marked, order_of, with_arrival
from slackwater.transforms.spark.session import EMPTY_BATCHES, cache_bytes
from slackwater.transforms.spark.tasks import PARTITION, Says, packer, unpacker, whole_shard
from slackwater.transforms.spark.workers import let_queries_share

KINDS: Final = {
    "results": RESULT,
    "late": LATE,
    "punctuations": PUNCTUATION,
    "metrics": METRICS,
    "syncs": SYNC,
}
"""The outputs of a join, and what they are in its packed form."""


@dataclass(frozen=True)
class JoinOutputs:
    """The outputs of a join, as streaming or as batch DataFrames.

    ``results`` and ``late`` are views of ``packed``. In streaming, a query on each of them runs the join
    twice; to write both from one query, start it on ``packed`` and take the micro-batches apart::

        def write(batch, number):
            batch.persist()
            joined.unpack(batch).results.write...
            joined.unpack(batch).late.write...
            batch.unpersist()

        joined.packed.writeStream.foreachBatch(write).start()
    """

    results: DataFrame
    late: DataFrame
    punctuations: DataFrame
    """Values that no later result has."""
    metrics: DataFrame
    """A row per shard and interval; see the setting ``metrics``."""
    syncs: DataFrame
    """Of an aggregate, the ends of its extents; else empty."""
    packed: DataFrame
    """Everything the shards gave, as rows of ``packing.OUTPUT``."""
    plan: Plan
    observation: Observation | None = None
    """Of batch DataFrames, what the first action on them found, as ``observing`` says; else None."""

    def unpack(self, packed: DataFrame) -> JoinOutputs:
        """Return the outputs that are in ``packed``, a micro-batch of this join's own packed DataFrame."""
        return unpack(packed, self.plan)

    def output_of(self, packed: DataFrame, output: str) -> DataFrame:
        """Return one of them by name: each costs the driver some milliseconds to define."""
        return _of_kind(packed, self.plan, output)

    def explain(self) -> str:
        """Return what the join does, and how and why its rows are split over shards so."""
        return explained(self.plan)


@takes_settings(JoinConfig)
def sliding_window_join(
    streams: Mapping[str, DataFrame], *, name: str | None = None, **settings: Any
) -> JoinOutputs:
    """Join two to eight DataFrames over sliding windows, tolerating disorder as the settings say.

    Streaming: rows of one micro-batch have arrived before those of the next; within a micro-batch they are
    taken in the order of the ``arrival`` column, by default the one that results of ours and messages of
    ``read_from_kafka`` carry, else in the order in which Spark reads them, inputs taking turns. With each
    micro-batch every shard is told how far all rows have brought the inputs, so that rows wait no longer than in
    one shard, and none comes too late that would not there. What is held back for order stays in the state until
    newer rows release it, or until an input has been silent for ``idle_timeout``; with that setting Spark makes
    micro-batches without rows too, and a query with the trigger ``availableNow`` does not end. Needs the RocksDB
    state store (``spark.sql.streaming.stateStore.providerClass``); the number of shuffle partitions at the time
    of the call should be that of the query.

    Batch: everything is one finite input, and everything held is released at its end. Rows of a DataFrame have no
    order: without an ``arrival`` column they are taken in order of event time, so that none is late. A shard's
    rows must fit into a worker's memory.

    Args:
        streams: the inputs by name, all streaming or all batch; the names are used in the settings.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    plan = _bound(bind, JoinConfig, streams, settings)
    assert isinstance(plan, JoinPlan)
    if plan.config.archive is not None and any(frame.isStreaming for frame in streams.values()):
        fault = (
            "is complete when the inputs end, and streaming DataFrames do not; use batch ones, or leave it off"
        )
        raise ConfigError(fault, "archive")
    prepare(plan)
    return apply_plan(plan, streams, name)


@takes_settings(ReorderConfig)
def reorder(rows: DataFrame, *, name: str | None = None, **settings: Any) -> JoinOutputs:
    """Put rows in order of event time; those that come too late for it are in ``late``.

    Streaming and batch as in ``sliding_window_join``. The rows of ``results`` are in order as they leave the
    stateful step; what Spark does with them afterwards may not keep it.

    Args:
        rows: the input.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    return apply_plan(_bound(bind_reorder, ReorderConfig, {INPUT: rows}, settings), {INPUT: rows}, name)


@takes_settings(AggregateConfig)
def sliding_window_aggregate(rows: DataFrame, *, name: str | None = None, **settings: Any) -> JoinOutputs:
    """Aggregate rows over sliding windows, tolerating disorder as the settings say.

    Streaming and batch as in ``sliding_window_join``. ``results`` has a row for each group of each extent that is
    complete, ``syncs`` one for the end of each.

    Args:
        rows: the input.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    return apply_plan(_bound(bind_aggregate, AggregateConfig, {INPUT: rows}, settings), {INPUT: rows}, name)


@takes_settings(PunctuateConfig)
def punctuate(rows: DataFrame, *, name: str | None = None, **settings: Any) -> JoinOutputs:
    """Put rows in order of event time, as ``reorder``, and say in ``punctuations`` what no later row will have.

    Args:
        rows: the input.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    return apply_plan(_bound(bind_punctuate, PunctuateConfig, {INPUT: rows}, settings), {INPUT: rows}, name)


@takes_settings(ShedConfig)
def shed(
    rows: DataFrame, partners: DataFrame | None = None, *, name: str | None = None, **settings: Any
) -> JoinOutputs:
    """Let so many rows per second pass; those that are worth least are in ``late`` when too many wait.

    Args:
        rows: the input.
        partners: where rows may find partners, if what they are worth depends on it; it is only looked at.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    streams = {
        name: frame for name, frame in zip(SHED_INPUTS, (rows, partners), strict=True) if frame is not None
    }
    if settings.get("arrival") is None and carries(CLOCK, streams):
        settings = {"arrival_unit": "ns", **settings}
    return apply_plan(_bound(bind_shed, ShedConfig, streams, settings), streams, name)


@takes_settings(ChooseValuesConfig)
def choose_values(streams: Mapping[str, DataFrame], *, name: str | None = None, **settings: Any) -> JoinOutputs:
    """Choose which tuples to request from relations of which only summaries are known; batch only.

    Args:
        streams: the summaries by name.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    return apply_plan(
        bind_choose_values(ChooseValuesConfig.of_keywords(settings), _schemas(streams)), streams, name
    )


@takes_settings(GroupCloseConfig)
def group_close(
    rows: DataFrame, punctuations: DataFrame, *, name: str | None = None, **settings: Any
) -> JoinOutputs:
    """Aggregate rows per group, and give a group out as soon as a punctuation says that it is over.

    Batch as in ``sliding_window_join``. Streaming: of one micro-batch, rows and punctuations are taken in order
    of event time; what a punctuation speaks of has to come with it or before it, as from a join.

    Args:
        rows: the input, such as the ``results`` of a join.
        punctuations: ``ts`` and ``pattern``, such as the ``punctuations`` of that join.
        name: what Spark calls it: its observed metrics are ``slackwater.NAME``; by default a number.

    Raises:
        ConfigError: A setting is wrong or does not fit the columns.
    """
    streams = {ROWS: rows, PUNCTUATIONS: punctuations}
    return apply_plan(bind_group_close(GroupCloseConfig.of_keywords(settings), _schemas(streams)), streams, name)


def _bound(
    binder: Callable[[Any, Mapping[str, pa.Schema]], Plan],
    config: type[OperatorConfig],
    streams: Mapping[str, DataFrame],
    settings: Mapping[str, Any],
) -> Plan:
    """Return the plan of settings, with the order of arrival that the inputs carry unless they name one."""
    schemas = _schemas(streams)
    given = with_arrival(settings, streams)
    plan = binder(config.of_keywords(given), schemas)
    if settings.get("arrival") is None and plan.disorder.reads_clock and carries(TIME, streams):
        assert isinstance(plan, DisorderPlan)
        # As if none had been found: nothing tells when results arrived.
        bind_disorder(plan.config.model_copy(update={"arrival": None}), schemas)
    return plan


def _schemas(streams: Mapping[str, DataFrame]) -> dict[str, pa.Schema]:
    if len({frame.isStreaming for frame in streams.values()}) > 1:
        raise ConfigError("some inputs are streaming and some are batch DataFrames; make them alike", "input")
    check_columns(streams)
    return {name: _arrow(frame.schema) for name, frame in streams.items()}


def apply_plan(plan: Plan, streams: Mapping[str, DataFrame], name: str | None = None) -> JoinOutputs:
    """Pack the inputs of a plan by shard, run the shards, and take their outputs apart."""
    first = next(iter(streams.values()))
    session = first.sparkSession
    partitions = int(session.conf.get(PARTITIONS))
    timers = first.isStreaming and plan.idle_timeout is not None
    if timers and session.conf.get(EMPTY_BATCHES) == "false":
        fault = f"takes micro-batches without rows; set {EMPTY_BATCHES} to true, or leave it out"
        raise ConfigError(fault, "idle_timeout")
    live = first.isStreaming
    check_zones(plan, streams)
    check_session(session, plan.shards, live)
    keys = shard_keys(plan.shards, partitions)
    if live:
        take_up_as_planned(session, PARTITION)
    scouts = live and scout_plan(plan) is not None
    says = Says(beats=live and not plan.by_time, samples=scouts, calls=live)
    packed = [
        _numbered_columns(streams[label])
        .withColumn(PARTITION, F.spark_partition_id())
        .mapInArrow(packer(plan, i, keys, says), PACKED)
        for i, label in enumerate(plan.inputs)
    ]
    joined = join_packed(reduce(DataFrame.union, packed), plan, keys, timers, scouts)
    observed, observation = observe(joined, name)
    return replace(unpack(observed, plan), observation=observation)


def _numbered_columns(rows: DataFrame) -> DataFrame:
    """Return rows with other names for columns, where ``mapInArrow`` would take a name for a path."""
    plain = all("." not in name and "`" not in name for name in rows.columns)
    return rows if plain else rows.toDF(*map(str, range(len(rows.columns))))


def join_packed(
    packed: DataFrame, plan: Plan, keys: Sequence[int], timers: bool = False, scouts: bool = False
) -> DataFrame:
    """Join rows of ``packing.PACKED``; return rows of ``packing.OUTPUT``.

    Of a streaming DataFrame, inputs end when their marks say so; of a batch DataFrame, with the last row.

    Args:
        packed: the rows.
        plan: the join.
        keys: the value of the column ``shard`` for each shard.
        timers: whether to let Spark call shards by the clock, for inputs that fall idle. Spark then makes
            micro-batches without rows too, so that a query with the trigger ``availableNow`` does not end.
        scouts: whether every shard gets samples to learn from (``scouting``).
    """
    shards = packed.groupBy("shard")
    if packed.isStreaming:
        session = packed.sparkSession
        settings = settings_of(plan, session.conf.get(PARTITIONS))
        processor = JoinProcessor(
            plan, uuid.uuid4().hex, keys, settings, timers=timers, scouts=scouts, cache_bytes=cache_bytes(session)
        )
        let_queries_share(session)
        return shards.transformWithState(processor, OUTPUT, "Append", "ProcessingTime" if timers else "None")
    return shards.applyInArrow(whole_shard(plan, keys), OUTPUT)


def unpack(packed: DataFrame, plan: Plan) -> JoinOutputs:
    """Return the outputs that are in rows of ``packing.OUTPUT``."""
    return JoinOutputs(**{output: _of_kind(packed, plan, output) for output in KINDS}, packed=packed, plan=plan)


def _of_kind(packed: DataFrame, plan: Plan, output: str) -> DataFrame:
    schema = plan.output_schema("" if output == "results" else output)
    kind, spark_schema = KINDS[output], from_arrow_schema(schema)
    if output == "results":
        spark_schema = marked(spark_schema, order_of(plan))
    return packed.where(packed.kind == kind).mapInArrow(unpacker(kind, _arrow(spark_schema)), spark_schema)


def _arrow(schema: StructType) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in to_arrow_schema(schema, timezone="UTC")])
