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

from slackwater.pipelines import local, run_beam
from slackwater.pipelines.run_spark import run as run_spark
from slackwater.pipelines.template import TemplateError, read_template_text
from slackwater.transforms.errors import ConfigError, SlackwaterError

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


def test_the_command_line_checks_them_and_tells_which_options_are_for_them(template: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(template.format(folder=tmp_path))
    assert call("check", tmp_path / "t.yaml").exit_code == 0
    result = call("run", tmp_path / "t.yaml", "--checkpoint", tmp_path)
    assert result.exit_code == 2
    assert re.search(
        r"--checkpoint: is for templates that read from Kafka, with --runner spark; leave it out", result.output
    )
