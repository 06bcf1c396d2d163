"""A Spark session that suits joins: quiet, local unless told otherwise, with the state store they need."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from slackwater.plugins.registry.options import Memory
from slackwater.transforms.errors import SlackwaterError

DEFAULT_MASTER: Final = "local[2]"
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
STREAMING_CONF: Final = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""What a query of ours needs: state in RocksDB, saved by what a micro-batch changed, and cheap checkpoints."""
EMPTY_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
"""Setting of Spark: whether there are micro-batches without rows."""
CACHE_BYTES: Final = "spark.slackwater.cacheBytes"
"""Our own: bytes of shards that a Python worker may hold between micro-batches, such as 512MB."""
PACKED_CONF: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
}
"""For queries that handle nothing but blobs: few of them, as they are large, in one Arrow batch."""
_SESSION_CONF: Final = {
    "spark.driver.maxResultSize": "0",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOOPBACK_CONF: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_LOCAL_CONF: Final = {
    **_LOOPBACK_CONF,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.driver.memory": "2g",
}
"""The quick compiler alone halves what a short run costs: the JVM mostly moves blobs. It would keep 48 MB of
code, which a minute of short micro-batches fills."""
LASTING_CONF: Final = {"spark.driver.extraJavaOptions": ""}
"""For a session of one's own whose queries run for long: the JVM compiles as well as it can."""
_PYTHON: Final = "spark.pyspark.python"
"""Setting of Spark: the Python of the executors."""


def is_connect(session: Any) -> bool:
    """Whether a session is one of Spark Connect, which has no SparkContext."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def cache_bytes(session: Any) -> int | None:
    """Return what CACHE_BYTES says in a session; None if it is not set.

    Raises:
        SlackwaterError: It is no number of bytes.
    """
    text = session.conf.get(CACHE_BYTES, None)
    if text is None:
        return None
    try:
        found = Memory.parse(text)
    except ValueError:
        found = None
    if found is None or not found.in_bytes:
        raise SlackwaterError(f"{CACHE_BYTES}: must be bytes such as 512MB, got {text!r}")
    return found.amount


def require_java() -> None:
    """Raise unless there is a Java to run Spark with."""
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and shutil.which("java") is None:
        raise SlackwaterError(
            "runner spark needs Java 17 or later, and there is none; install a JDK and put it on PATH, or "
            "set JAVA_HOME, or use --runner local"
        )


def start_session(
    master: str | None = None, app: str = "slackwater", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session, or return the running one.

    A local session, or one whose master is on loopback, listens on loopback only. What the JVM writes to standard
    error is not shown; if the start fails, it is in a file that the message names.

    Args:
        master: where to run, by default on two local cores.
        app: its name.
        conf: settings of Spark, which replace ours.
    """
    require_java()
    master = master or DEFAULT_MASTER
    settings = _SESSION_CONF | STREAMING_CONF
    if master.startswith("local"):
        settings |= _LOCAL_CONF
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    elif "//127.0.0.1:" in master or "//localhost:" in master:
        settings |= _LOOPBACK_CONF
    if conf and _PYTHON in conf:
        # Spark reads it in spark-submit only.
        os.environ["PYSPARK_PYTHON"] = conf[_PYTHON]
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    on_loopback = "spark.driver.bindAddress" in settings
    with _quiet_jvm() as log, _listening_on_loopback() if on_loopback else nullcontext():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise SlackwaterError(
                f"Spark did not start on {master!r}: {_said(error)}; see {log} for all that it said"
            ) from error
    Path(log).unlink()
    session.sparkContext.setLogLevel("ERROR")
    # It would write a traceback when the JVM ends, of which whoever waits for the JVM is told anyway.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    return session


def _said(error: Exception) -> str:
    """The first line of an error; of one in the JVM, what was said there, with the remedy if there is one."""
    if isinstance(error, Py4JJavaError):
        lines = str(error.java_exception.getMessage()).split("SQLSTATE", 1)[0].split("\n")[:2]
    else:
        lines = str(error).strip().split("\n")[:1]
    return " ".join(map(str.strip, lines)).strip().rstrip(".") or type(error).__name__


@contextmanager
def _listening_on_loopback() -> Iterator[None]:
    """Let the web UI of a session that is started meanwhile be seen here only: it goes by no setting of Spark."""
    own = "SPARK_LOCAL_IP" not in os.environ
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        yield
    finally:
        if own:
            del os.environ["SPARK_LOCAL_IP"]


@contextmanager
def _quiet_jvm() -> Iterator[str]:
    """Let a process that is started meanwhile write its messages to a file instead of the console."""
    handle, log = tempfile.mkstemp(prefix="slackwater-spark-", suffix=".log")
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(handle, 2)
    os.close(handle)
    try:
        yield log
    finally:
        os.dup2(saved, 2)
        os.close(saved)
