"""Workers of Spark: what they are started with, and that what they have loaded is not gone through again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from slackwater.transforms.spark import sliding_window_join

SCRIPT = """
import gc
from slackwater.transforms.spark.workers import LEAST, spare_loaded

kept = [[] for _ in range(2 * LEAST)]
spare_loaded()
first = gc.get_freeze_count()
assert first > 2 * LEAST and len(gc.get_objects()) < LEAST
more = [[] for _ in range(LEAST // 2)]
spare_loaded()
assert gc.get_freeze_count() == first, "a few more are left to the collector"
class Node: pass
node = Node()
node.itself = node
del node
assert gc.collect() > 0
"""


def test_what_a_worker_has_loaded_is_set_aside_and_new_garbage_is_still_found() -> None:
    # A process of its own: what is set aside stays so.
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def stateful_environment(frame: Any) -> dict[str, str]:
    """Return what the workers of the stateful step of a DataFrame are started with, as the driver has it now."""
    nodes = [frame._jdf.queryExecution().analyzed()]
    while nodes[-1].nodeName() != "TransformWithStateInPySpark":
        children = nodes.pop().children()
        nodes += [children.apply(k) for k in range(children.size())]
    return dict(nodes[-1].functionExpr().func().envVars())


@pytest.mark.spark
def test_a_query_adds_nothing_to_an_environment_that_queries_share(spark: Any, tmp_path: Path) -> None:
    # What two add at once, Spark would count twice: then no task of either could be read.
    rows = spark.createDataFrame([(1, 1), (2, 1)], "ts long, k long")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("ts long, k long").parquet(str(tmp_path / "rows"))
    joined = sliding_window_join({"a": stream, "b": stream}, time="ts", window="1s", where="a.k = b.k")
    before = stateful_environment(joined.results)
    query = (
        joined.results.writeStream.format("parquet")
        .option("path", str(tmp_path / "results"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    after = stateful_environment(joined.results)
    assert after["SPARK_LOCAL_DIRS"], "set by the driver"
    assert set(after) == set(before)
