"""GroupClose as a PTransform and as a function on DataFrames, alone and behind a join."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import GroupCloseConfig

ROWS = [(1, "a", 5), (2, "b", 6), (4, "a", 7), (6, "b", 8), (9, "c", 9), (12, "c", 1), (15, "b", 2)]
MARKS = [(4, {"k": "a"}), (9, {"k": "b"}), (20, {"k": "c"})]
SETTINGS = {"time": "ts", "by": "k", "aggregates": {"n": "count(*)", "s": "sum(v)"}}
GROUPS = [("a", 2, 12, 4, "punctuation"), ("b", 2, 14, 9, "punctuation"), ("c", 2, 10, 20, "punctuation")]
LATE = [(15, "punctuation_violated")]
JOIN = {"time": "ts", "where": "a.k = b.k", "window": "5ms", "join": {"strategy": "pwjoin"}}
PUNCTUATIONS = [{"input": name, "when": "v = 0", "key": "k"} for name in "ab"]
INPUTS = {
    "a": [(1, "x", 1), (3, "y", 2), (5, "x", 0), (9, "y", 0)],
    "b": [(2, "x", 5), (4, "y", 6), (5, "x", 0), (9, "y", 0), (20, "z", 1)],
}
JOINED = [("x", 1, 5, "punctuation"), ("y", 1, 6, "punctuation")]


@pytest.mark.beam
def test_the_transform_closes_groups_in_order_of_time():
    import apache_beam as beam
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam import GroupClose

    with TestPipeline() as p:
        rows = p | "Rows" >> beam.Create([beam.Row(ts=ts, k=k, v=v) for ts, k, v in reversed(ROWS)])
        marks = [beam.Row(ts=ts, pattern=json.dumps(pattern)) for ts, pattern in MARKS]
        both = {"rows": rows, "punctuations": p | "Marks" >> beam.Create(marks)}
        for shards in (1, 3):
            closed = both | f"Close {shards}" >> GroupClose(**SETTINGS, shards=shards)
            got = closed.main | f"Plain {shards}" >> beam.Map(
                lambda row: (row.k, row.n, row.s, row.ts, row.closed_by)
            )
            assert_that(got, equal_to(GROUPS), f"groups {shards}")
            late = closed.late | f"Late {shards}" >> beam.Map(lambda row: (row.ts, row.reason))
            assert_that(late, equal_to(LATE), f"late {shards}")


@pytest.mark.beam
def test_the_transform_knows_the_keys_of_the_join_before_it():
    import apache_beam as beam
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam import GroupClose, SlidingWindowJoin

    with TestPipeline() as p:
        inputs = {
            name: p | name >> beam.Create([beam.Row(ts=ts, k=k, v=v, at=ts) for ts, k, v in rows])
            for name, rows in INPUTS.items()
        }
        joined = inputs | SlidingWindowJoin(**JOIN, arrival="at", punctuations=PUNCTUATIONS)
        closed = {"rows": joined.main, "punctuations": joined.punctuations} | GroupClose(
            time="ts", by="b_k", aggregates={"n": "count(*)", "s": "sum(b_v)"}
        )
        got = closed.main | "Plain" >> beam.Map(lambda row: (row.b_k, row.n, row.s, row.closed_by))
        assert_that(got, equal_to(JOINED))


@pytest.mark.beam
def test_the_constructor_has_the_settings_of_templates_and_documents_each():
    from apache_beam.yaml.yaml_provider import InlineProvider

    from slackwater.transforms.beam import GroupClose

    schema = InlineProvider.config_schema_from_callable(GroupClose)
    assert {field.name for field in schema.fields} == set(GroupCloseConfig.model_fields)
    assert all(field.description for field in schema.fields)
    assert InlineProvider.description_from_callable(GroupClose).startswith(
        "Groups and aggregates rows, and emits a group when"
    )


@pytest.mark.beam
def test_the_transform_needs_both_inputs_by_name():
    import apache_beam as beam

    from slackwater.transforms.beam import GroupClose

    rows = beam.Pipeline() | beam.Create([beam.Row(ts=1, k="a", v=1)])
    with pytest.raises(ConfigError, match=r"needs two inputs with names: \{rows: PCollection, punctuations"):
        {"rows": rows} | GroupClose(**SETTINGS)


def frames(spark):
    rows = spark.createDataFrame(ROWS, "ts long, k string, v long").repartition(2)
    marks = spark.createDataFrame([(ts, json.dumps(p)) for ts, p in MARKS], "ts long, pattern string")
    return rows, marks


def plain(frame):
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.spark
def test_the_function_works_on_frames(spark):
    from slackwater.transforms.spark import group_close, sliding_window_join

    closed = group_close(*frames(spark), **SETTINGS, shards=3)
    assert plain(closed.results) == GROUPS
    assert [(row.ts, row.reason) for row in closed.late.collect()] == LATE
    inputs = {
        n: spark.createDataFrame(rows, "ts long, k string, v long").coalesce(1) for n, rows in INPUTS.items()
    }
    inputs = {name: frame.withColumn("at", frame.ts) for name, frame in inputs.items()}
    joined = sliding_window_join(inputs, **JOIN, arrival="at", punctuations=PUNCTUATIONS)
    counted = {"by": "b_k", "same": {"a_k": "b_k"}, "aggregates": {"n": "count(*)", "s": "sum(b_v)"}}
    behind = group_close(joined.results, joined.punctuations, time="ts", **counted)
    assert [(row.b_k, row.n, row.s, row.closed_by) for row in behind.results.orderBy("b_k").collect()] == JOINED


@pytest.mark.spark
def test_streaming_groups_leave_in_the_micro_batch_that_passes_their_punctuation(spark, tmp_path):
    """Three micro-batches through snapshots; the end never comes, so what nothing closes stays."""
    from slackwater.transforms.spark import group_close

    rows = pa.table({"ts": [r[0] for r in ROWS], "k": [r[1] for r in ROWS], "v": [r[2] for r in ROWS]})
    marks = pa.table({"ts": [m[0] for m in MARKS], "pattern": [json.dumps(m[1]) for m in MARKS]})
    cuts = {"rows": (rows, [0, 3, 5, 7]), "marks": (marks, [0, 1, 2, 3])}
    streams = {}
    for name, (table, at) in cuts.items():
        (tmp_path / name).mkdir()
        for k in range(3):
            file = tmp_path / name / f"{k}.parquet"
            pq.write_table(table.slice(at[k], at[k + 1] - at[k]), file)
            os.utime(file, (1_700_000_000 + k,) * 2)
        schema = spark.read.parquet(str(tmp_path / name)).schema
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams[name] = source.parquet(str(tmp_path / name))
    closed = group_close(streams["rows"], streams["marks"], **SETTINGS)
    left, late = [], []

    def write(batch, number):
        batch.persist()
        left.append(plain(closed.unpack(batch).results))
        late.extend((row.ts, row.reason) for row in closed.unpack(batch).late.collect())
        batch.unpersist()

    query = closed.packed.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert left == [[], [GROUPS[0]], [GROUPS[1]]]
    assert late == LATE


@pytest.mark.spark
def test_frames_that_are_not_alike_are_refused(spark, tmp_path):
    from slackwater.transforms.spark import group_close

    rows, marks = frames(spark)
    marks.write.parquet(str(tmp_path / "marks"))
    stream = spark.readStream.schema(marks.schema).parquet(str(tmp_path / "marks"))
    with pytest.raises(
        ConfigError, match="some inputs are streaming and some are batch DataFrames; make them alike"
    ):
        group_close(rows, stream, **SETTINGS)
