"""Spark in processes of their own: killed in mid-stream, short of memory, without a connector, with a web UI."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from spark_cases import rows_of

pytest.importorskip("pyspark")

from slackwater.pipelines.bench.kills import driver as kills
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import LATE_SCHEMA, bind
from slackwater.transforms.spark.blobs import LATE, RESULT
from slackwater.transforms.spark.tasks import unpacker

pytestmark = pytest.mark.own_java


def schemas_of(inputs: list[list[pa.Table]]) -> dict[str, pa.Schema]:
    return {name: parts[0].schema for name, parts in zip("ab", inputs, strict=True)}


def undisturbed(settings: dict[str, Any], inputs: list[list[pa.Table]]) -> dict[str, Counter[Any]]:
    """Return results and late rows of one operator per shard, given a file of each input at a time and a beat."""
    plan = bind(JoinConfig.read(settings), schemas_of(inputs))
    operators = [Operator(plan, shard=shard) for shard in range(plan.config.shards)]
    found: dict[str, Counter[Any]] = {"results": Counter(), "late": Counter()}
    for parts in zip(*inputs, strict=True):
        batches = [part.combine_chunks().to_batches()[0] for part in parts]
        homes = [plan.partitioning.routes(i, batch).home for i, batch in enumerate(batches)]
        progress = np.array([batch["ts"].to_numpy().max() for batch in batches])
        for shard, operator in enumerate(operators):
            mine = [batch.filter(pa.array(home == shard)) for batch, home in zip(batches, homes, strict=True)]
            chunk = in_arrival_order(mine, [batch["at"].to_numpy() for batch in mine])
            for out in (operator.push(chunk), operator.advance(progress)):
                for name, given in (("results", out.results), ("late", out.late)):
                    found[name].update(rows_of(given))
    return found


def committed(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield what a file sink of Spark's holds: files that no commit names are left out, as Spark does."""
    logs = sorted((folder / "_spark_metadata").glob("[0-9]*"))
    for line in (line for log in logs for line in log.read_text().splitlines()[1:]):
        yield from pq.read_table(urlsplit(json.loads(line)["path"]).path).to_batches()


@pytest.mark.usefixtures("spark_python")
def test_a_driver_that_is_killed_twice_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Results and late rows are written together, and taken apart when they are read."""
    inputs = kills.write_inputs(tmp_path / "in", rows=1500, files=6)
    case = kills.settings_of("fixed")
    seen = kills.Driver(tmp_path / "in", tmp_path / "out", "fixed", ["packed"]).run(2, random.Random(4))
    assert len(seen) == 2
    assert seen[-1] < 6, "both came in mid-stream"
    plan = bind(JoinConfig.read(case), schemas_of(inputs))
    packed = pa.Table.from_batches(committed(tmp_path / "out" / "packed"))
    expected = undisturbed(case, inputs)
    for name, kind, schema in (("results", RESULT, plan.result_schema), ("late", LATE, LATE_SCHEMA)):
        mine = packed.filter(pc.field("kind") == kind).to_batches()
        assert rows_of(list(unpacker(kind, schema)(mine))) == expected[name], name
    assert all(rows.total() > 100 for rows in expected.values())


UI = """
import json, psutil, urllib.request
from urllib.parse import urlsplit
from slackwater.pipelines.runners.spark import runner as run_spark
from slackwater.pipelines.template.reader import read_template
from slackwater.transforms.spark.session import start_session
session = start_session(conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
run_spark.run(read_template("demo", {"out": "OUT"}), session=session)
port = urlsplit(session.sparkContext.uiWebUrl).port
api = f"http://127.0.0.1:{port}/api/v1/applications"
def get(path):
    return json.load(urllib.request.urlopen(api + path))
app = get("")[0]["id"]
java = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
listening = {c.laddr.ip for p in java for c in p.net_connections() if c.status == psutil.CONN_LISTEN}
print(json.dumps([get(f"/{app}/jobs"), get(f"/{app}/sql?planDescription=true"), sorted(listening)]))
session.stop()
"""


@pytest.mark.usefixtures("spark_python")
def test_the_web_ui_says_what_runs_and_is_seen_here_only(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UI.replace("OUT", str(tmp_path))], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    jobs, queries, listening = json.loads(done.stdout.splitlines()[-1])
    assert jobs
    assert all(job["description"].startswith("joined\n") for job in jobs)
    assert {query["description"].splitlines()[0] for query in queries} == {"joined"}
    assert any("TransformWithStateInPySpark" in query["planDescription"] for query in queries)
    assert all(address.removeprefix("::ffff:") == "127.0.0.1" for address in listening), listening


SCRIPT = """
import sys
import numpy as np
from pyspark.sql import functions as F
from slackwater.transforms.spark import clean_errors, read_from_kafka, start_session
from slackwater.transforms.spark.failures import stop_session

def tell(action):
    try:
        with clean_errors():
            action()
    except Exception as error:
        print(type(error).__name__, error, flush=True)

def greedy(batches):
    for batch in batches:
        np.ones(1 << 33)
        yield batch

if sys.argv[1] == "start":
    tell(lambda: start_session(conf={"spark.driver.memory": "100m"}))
    sys.exit()
if sys.argv[1] == "kill":
    session = start_session()
    session.sparkContext._gateway.proc.kill()
    tell(lambda: session.range(4).collect())
    stop_session(session)
    sys.exit()
session = start_session(conf={"spark.driver.memory": "512m", "spark.executor.pyspark.memory": "2g"})
tell(lambda: read_from_kafka(session, "127.0.0.1:1", "t", schema="a INT"))
tell(lambda: session.range(4).mapInArrow(greedy, "id long").collect())
tell(lambda: session.range(1).select(F.size(F.array_repeat(F.col("id"), 2_000_000_000))).collect())
"""


def test_too_little_memory_and_a_missing_connector_are_told_in_one_sentence() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for what in ("start", "kill", "go on")
    ]
    told, errors = map("".join, zip(*(process.communicate(timeout=200) for process in running), strict=True))
    assert "Traceback" not in errors
    heap, ended, kafka, python, java = told.splitlines()
    assert heap.startswith("SlackwaterError Spark did not start on 'local[2]': ")
    assert (
        "System memory 104857600 must be at least 471859200. Please increase heap size using the --driver" in heap
    )
    assert kafka.startswith("SlackwaterError this Spark session has no Kafka connector; start it with ")
    assert "spark-sql-kafka-0-10_2.13:" in kafka
    assert python.startswith(
        "SlackwaterError a Python worker ran out of memory (MemoryError): give it more (spark."
    )
    # Spark both fails the job and ends the JVM: the one or the other is seen first.
    assert re.match(
        r"SlackwaterError Spark(?: ran out of memory \(Java heap space|'s Java process ran out of memory \(exit "
        r"code 52)\): give it more \(spark\.driver\.memory",
        java,
    )
    assert ended.startswith(
        "SlackwaterError Spark's Java process has ended, often for lack of memory (exit code -9): give it more"
    )
