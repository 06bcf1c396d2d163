"""Templates that read from Kafka: live runs on Spark, from where the checkpoint says until they are told to."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from kafka_cases import rows_in, wait_until

pytest.importorskip("pyspark")

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.cli.live_options import with_live_options
from slackwater.pipelines.cli.progress import Silent
from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.runners.live_run import prepared
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.runners.metrics_file import metrics_to
from slackwater.pipelines.runners.spark.live import LiveRun, measured
from slackwater.pipelines.runners.spark.runner import run as run_spark
from slackwater.pipelines.template.reader import TemplateError, read_template_text
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.spark import KafkaSink, read_from_kafka, sliding_window_join, write_outputs

pytestmark = pytest.mark.spark

BASE = 1_700_000_000_000

TEMPLATE = """
pipeline:
  transforms:
    - type: ReadFromKafka
      name: Orders
      config:
        topic: {topics}-orders
        bootstrap_servers: "{address}"
        format: JSON
        auto_offset_reset_config: earliest
        consumer_config: {{max.poll.records: 100}}
        schema:
          type: object
          properties: {{ts: {{type: integer}}, id: {{type: integer}}, v: {{type: number}}}}
    - {{type: Filter, name: Large, input: Orders, config: {{keep: v >= 0 or raw is not null}}}}
    - type: ReadFromKafka
      name: Clicks
      config:
        topic: {topics}-clicks
        bootstrap_servers: "{address}"
        format: JSON
        auto_offset_reset_config: earliest
        schema: '{{"properties": {{"ts": {{"type": "integer"}}, "order": {{"type": "integer"}}}}}}'
    - type: SlidingWindowJoin
      name: joined
      input: {{orders: Large, clicks: Clicks}}
      config:
        time: ts
        window: 50ms
        where: orders.id = clicks.order
        id: key
        idle_timeout: 500ms
        disorder: {{strategy: fixed, slack: 100ms}}
    - type: MapToFields
      name: Short
      input: joined
      config: {{fields: {{key: key, id: orders_id, double: orders_v * 2}}}}
    - type: WriteToKafka
      input: Short
      config: {{topic: "{topics}-out", bootstrap_servers: "{address}", format: JSON}}
    - {{type: WriteToParquet, input: joined.late, config: {{path: "{folder}/late"}}}}
"""


@pytest.fixture(scope="module")
def template(broker: Any) -> str:
    for name in ("orders", "clicks", "out"):
        broker.create(f"live-{name}", 2)
    return TEMPLATE.replace("{topics}", "live").replace("{address}", broker.address)


def send(broker: Any, ids: range) -> None:
    """Send orders and clicks; Kafka's timestamps are their times, so they arrive by turns."""
    millis = [BASE + 10 * i for i in ids]
    broker.send("live-orders", [{"ts": 10 * i, "id": i, "v": i % 5 - 1} for i in ids], 0, millis)
    broker.send("live-clicks", [{"ts": 10 * i + 7, "order": i} for i in ids], 1, [at + 7 for at in millis])


def run(text: str, folder: Path, spark: Any, **options: Any) -> Any:
    pipeline = read_template_text("live.yaml", text.format(folder=folder))
    return run_spark(pipeline, session=spark, checkpoint=str(folder / "checkpoint"), **options)


def test_a_live_run_goes_on_from_its_checkpoint_and_stops_when_told(
    template: str, spark: Any, broker: Any, tmp_path: Path
) -> None:
    """The first run ends when it has caught up, and nothing is held back; the second one by SIGTERM."""
    send(broker, range(100))
    broker.send("live-orders", ["{nonsense"], 1, [BASE])
    summary = run(template, tmp_path, spark, until_caught_up=True)
    assert summary["runner"] == "spark"
    assert summary["input"] == {"orders": 81, "clicks": 100}
    assert (summary["results"], summary["late"]) == (80, {"bad_record": 1})
    (late,) = rows_in(spark, tmp_path / "late")
    assert json.loads(late["row"])["raw"] == "{nonsense"
    send(broker, range(100, 200))

    def stop_when_written() -> None:
        try:
            wait_until(lambda: len(broker.received("live-out")) >= 160)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop_when_written)
    stopping.start()
    summary = run(template, tmp_path, spark)
    stopping.join()
    assert summary["results"] == 160, "it counts from the first run on"
    found = [json.loads(value) for key, value in broker.received("live-out")]
    assert sorted(row["id"] for row in found) == [i for i in range(200) if i % 5]
    assert all(row["double"] == 2.0 * (row["id"] % 5 - 1) for row in found)
    assert {row["key"] for row in found} == {key.decode() for key, _ in broker.received("live-out")}


def test_only_spark_runs_them_and_needs_a_checkpoint(template: str, spark: Any, tmp_path: Path) -> None:
    pipeline = read_template_text("live.yaml", template.format(folder=tmp_path))
    for runner, start in (("local", local.run), ("beam", run_beam.run)):
        told = (
            rf"^live.yaml:4: Orders: reads from Kafka, which runner {runner} cannot; use --runner spark, or read"
        )
        with pytest.raises(TemplateError, match=told):
            start(pipeline)
    with pytest.raises(
        ConfigError, match=r"^--checkpoint: a run that reads from Kafka needs a folder from which"
    ):
        run_spark(pipeline, session=spark)


FAULTS = [
    (
        ("format: JSON\n        auto", "format: AVRO\n        auto"),
        r":9: Orders.format: must be JSON, got 'AVRO'; read other",
    ),
    (("-orders", "-odrers"), r":7: Orders.topic: there is no topic 'live-odrers' at "),
    (
        ("type: number", "type: array"),
        r"Orders.schema.properties.v: type must be one of integer, number, string, boo",
    ),
    (
        ("max.poll.records: 100", "auto.offset.reset: latest"),
        "Orders.consumer_config.auto.offset.reset: is auto_offset_r",
    ),
    (
        ("input: Short\n", "input: Clicks\n"),
        "WriteToKafka.input: reads a topic without an operator between, which a live",
    ),
    (
        ("WriteToParquet", "WriteToCsv"),
        "WriteToCsv: writes one file when a run ends, and a live run does not; write Parq",
    ),
    (
        ("window: 50ms", "window: 50ms\n        archive: {folder}/archive"),
        "joined.archive: is complete when the inputs end, and what reads from Kafka does not; leave it off",
    ),
    (
        ("type: MapToFields", "type: Reorder"),
        "a live run has one operator between Kafka and its sinks, and this templa",
    ),
]


@pytest.mark.parametrize(("change", "told"), FAULTS)
def test_faults_of_a_template_are_told_with_their_place(
    change: tuple[str, str], told: str, template: str, spark: Any, tmp_path: Path
) -> None:
    text = template.replace(*change)
    assert text != template
    if change[1] == "type: Reorder":
        text = text.replace(
            "{{fields: {{key: key, id: orders_id, double: orders_v * 2}}}}", "{{time: ts, arrival: ts}}"
        )
    with pytest.raises(SlackwaterError, match=told):
        run(text, tmp_path, spark, until_caught_up=True)
    if "topic 'live-odrers'" not in told:
        (tmp_path / "t.yaml").write_text(text.format(folder=tmp_path))
        result = call("check", tmp_path / "t.yaml")
        assert result.exit_code == 2
        assert re.search(told, " ".join(result.output.split())), "what a live run refuses, check refuses"


CHAIN = """
pipeline:
  transforms:
    - type: ReadFromKafka
      name: Joined
      config:
        topic: {topic}
        bootstrap_servers: "{address}"
        format: JSON
        auto_offset_reset_config: earliest
        schema: {{properties: {{ts: {{type: integer}}, a_k: {{type: integer}}, id: {{type: string}}}}}}
    - type: SlidingWindowAggregate
      name: counts
      input: Joined
      config: {{time: ts, range: 100ms, slide: 100ms, aggregates: {{n: count(*)}}, idle_timeout: 500ms}}
    - {{type: WriteToParquet, input: counts, config: {{path: "{folder}/counts"}}}}
    - {{type: WriteToParquet, input: counts.late, config: {{path: "{folder}/late"}}}}
"""


def test_a_second_template_reads_the_first_ones_topic_in_its_order(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    """Two shards write to three partitions; the default strategy has no slack for what one would send anyhow."""
    topics = {name: broker.create(f"chain-{name}", 2) for name in "ab"}
    out = broker.create("chain-out", 3)
    for which, topic in enumerate(topics.values()):
        rows = [{"ts": 10 * i + which, "k": i % 7} for i in range(1000)]
        broker.send(topic, rows, which, [BASE + i for i in range(1000)])
    frames = {
        name: read_from_kafka(spark, broker.address, topic, schema="ts BIGINT NOT NULL, k BIGINT", raw=None)
        for name, topic in topics.items()
    }
    joined = sliding_window_join(frames, time="ts", window="1s", where="a.k = b.k", shards=2, id="id")
    assert joined.plan.config.arrival == {"a": "arrival", "b": "arrival"}, "Kafka's own, without being named"
    sink = KafkaSink(broker.address, out)
    write_outputs(joined, str(tmp_path / "c"), trigger={"availableNow": True}, results=sink).awaitTermination()
    sent = len(broker.received(out))
    text = CHAIN.format(topic=out, address=broker.address, folder=tmp_path)
    summary = run_spark(
        read_template_text("second.yaml", text),
        session=spark,
        checkpoint=str(tmp_path / "second"),
        until_caught_up=True,
    )
    assert summary["input"] == {"input": sent}
    assert summary["late"] == {}
    assert sent > 10_000


def test_a_backlog_is_read_in_parts_and_a_run_that_is_idle_rests(
    template: str, spark: Any, broker: Any, tmp_path: Path
) -> None:
    """While it rests, no micro-batch is made; a message wakes it. Meanwhile its metrics are in a file."""
    for name in ("orders", "clicks", "out"):
        broker.create(f"rest-{name}", 2)
    text = template.replace("live-", "rest-").format(folder=tmp_path)
    millis = [BASE + 10 * i for i in range(100)]
    broker.send("rest-orders", [{"ts": 10 * i, "id": i, "v": 1} for i in range(100)], 0, millis)
    broker.send("rest-clicks", [{"ts": 10 * i, "order": i} for i in range(100)], 1, millis)
    session = spark.newSession()
    session.conf.set("spark.slackwater.rowsPerBatch", "40")
    session.conf.set("spark.slackwater.trigger", "100ms")
    pipeline = prepared(measured(read_template_text("rest.yaml", text)))
    metrics = str(tmp_path / "metrics.jsonl")
    live = LiveRun(
        assemble(pipeline, lambda node: None), session, str(tmp_path / "checkpoint"), Silent(), metrics
    )
    stop, told = threading.Event(), []
    running = threading.Thread(target=live.run, args=(stop, False, told.append))
    running.start()
    commits = tmp_path / "checkpoint" / "commits"

    def micro_batches() -> int:
        return sum(path.name.isdigit() for path in commits.glob("*"))

    try:
        wait_until(lambda: live.resting.is_set() or not running.is_alive(), 120)
        resting_since = micro_batches()
        assert resting_since >= 3, "the backlog came in parts"
        assert len(broker.received("rest-out")) == 100, "nothing is held"
        broker.send("rest-orders", [{"ts": 1000, "id": 7, "v": 1}], 0, [BASE + 1000])
        broker.send("rest-clicks", [{"ts": 1000, "order": 7}], 1, [BASE + 1000])
        wait_until(lambda: len(broker.received("rest-out")) == 101, 120)
    finally:
        stop.set()
        running.join(60)
    lines = [json.loads(line) for line in Path(metrics).read_text().splitlines()]
    assert {line["join"] for line in lines} == {"joined"}
    assert lines[0].keys() >= {"batch", "slack_ms", "produced"}
    assert live.told() == "joined: 202 rows, 101 results, 0 late"


def test_settings_of_a_live_run_are_checked(template: str, spark: Any, tmp_path: Path) -> None:
    for key, value, told in (
        ("rowsPerBatch", "many", "must be a whole number of rows above 0, got 'many'"),
        ("trigger", "soon", "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 'soon'"),
    ):
        session = spark.newSession()
        session.conf.set(f"spark.slackwater.{key}", value)
        with pytest.raises(SlackwaterError, match=rf"^spark.slackwater.{key}: {told}"):
            run(template, tmp_path, session)


def test_the_command_line_checks_them_and_tells_which_options_are_for_them(template: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(template.format(folder=tmp_path))
    assert call("check", tmp_path / "t.yaml").exit_code == 0
    pipeline = read_template_text("t.yaml", template.format(folder=tmp_path))
    start = with_live_options(print, pipeline, True, tmp_path, False, tmp_path / "m.jsonl")  # type: ignore[arg-type]
    assert start.keywords["metrics"] == str(tmp_path / "m.jsonl")  # type: ignore[attr-defined]
    with metrics_to(tmp_path / "m.jsonl", pipeline) as measured_by_run:
        assert measured_by_run is pipeline, "a live run writes them as it goes"
    result = call("run", tmp_path / "t.yaml", "--checkpoint", tmp_path)
    assert result.exit_code == 2
    assert re.search(
        r"--checkpoint: is for templates that read from Kafka, with --runner spark; leave it out", result.output
    )
