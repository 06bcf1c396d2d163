"""Joins through Spark Connect: a server of its own on loopback, and a client without a JVM."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_cases import bound, expected, file_rows, settings, stream, write

pytest.importorskip("grpc_status")

pytestmark = pytest.mark.own_java

CASE = settings(where="a.k = b.k", shards=4, arrival="arrived")
SERVER = """
import sys
from slackwater.transforms.spark.session import start_session
start_session(conf={
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": sys.argv[1],
})
print("ready", flush=True)
sys.stdin.read()
"""
CLIENT = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from slackwater.transforms.spark import (
    group_close, reorder, shed, sliding_window_aggregate, sliding_window_join
)

port, folder, case = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
batch = {name: session.read.parquet(str(folder / name)) for name in "ab"}
joined = sliding_window_join(batch, **case)
pq.write_table(joined.results.toArrow(), folder / "batch.parquet")
found = {"batch": joined.observation.get, "late": joined.late.count()}
rows, common = batch["a"], {"time": "ts", "arrival": "arrived"}
sums = {"aggregates": {"n": "count(*)"}}
others = [
    reorder(rows, disorder=case["disorder"], **common),
    sliding_window_aggregate(rows, range="1s", disorder=case["disorder"], **sums, **common),
    shed(rows, rate=100, queue=5, **common),
    group_close(joined.results, joined.punctuations, time="ts", by=["a_k"], **sums),
]
found["others"] = [part.results.count() for part in others]

streams = {
    name: session.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    for name, frame in batch.items()
}
joined = sliding_window_join(streams, name="mine", **case)
out = str(folder / "out")

def write(packed, number):
    parts = joined.unpack(packed.persist())
    parts.results.write.mode("append").parquet(out)
    parts.late.write.mode("append").parquet(out + "-late")
    packed.unpersist()

writer = joined.packed.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "state"))
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
seen = [part["observedMetrics"]["slackwater.mine"] for part in query.recentProgress]
found["streaming"] = [
    dict(zip([field["name"] for field in part.schema["fields"]], part.values, strict=True)) for part in seen
]
found["written"] = [session.read.parquet(path).count() for path in (out, out + "-late")]

from slackwater.pipelines.runners.spark import runner as run_spark
from slackwater.pipelines.template.reader import read_template
try:
    run_spark.run(read_template("demo", {}), session=session)
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
session.stop()
print(json.dumps(found))
"""


@pytest.fixture
def server(spark_python: None) -> Any:
    """The port of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield port
        process.communicate()


def test_batch_and_streaming_joins_through_connect(server: int, tmp_path: Path) -> None:
    tables = [stream(i) for i in range(2)]
    for path in write(tmp_path, tables, files=2):
        for k in range(2):
            os.utime(path / f"{k}.parquet", (1_700_000_000 + k,) * 2)
    command = [sys.executable, "-c", CLIENT, str(server), str(tmp_path), json.dumps(CASE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    results, late = expected(bound(tables, **CASE), tables, frames=True)
    assert file_rows(tmp_path / "batch.parquet") == results
    assert found["late"] == late.total()
    assert found["batch"]["results"] == results.total()
    reordered, extents, passed, groups = found["others"]
    assert 300 < reordered < 400
    assert extents == len({ts // 1000 for ts in tables[0]["ts"].to_pylist() if ts is not None})
    assert 5 < passed < 400
    assert groups == 12
    assert [part["input"] for part in found["streaming"]] == [400, 400]
    assert sum(part["results"] for part in found["streaming"]) == found["written"][0] > 0.9 * results.total()
    assert sum(part["late"] for part in found["streaming"]) == found["written"][1] > 0
    assert found["error"].startswith(
        "SlackwaterError: runner spark: templates do not run over Spark Connect; name"
    )
