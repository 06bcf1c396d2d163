"""What Spark says when a query fails, in one sentence that says what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import TimeoutExpired
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from slackwater.transforms.errors import SlackwaterError

_GOES_ON: Final = "run it again, with the same checkpoint if it had one: nothing is lost"
_KNOWN: Final = (
    (
        r"OutOfMemoryError: ([\w ]+)",
        "Spark ran out of memory ({}): give it more (spark.driver.memory, on a cluster spark.executor.memory), "
        f"or let micro-batches have fewer rows; then {_GOES_ON}",
    ),
    (
        r"\b(?:numpy\.\S*_Array)?(MemoryError)\b|ArrowMemoryError: (.+)",
        "a Python worker ran out of memory ({}): give it more (spark.executor.pyspark.memory), use more shards, "
        f"or let micro-batches have fewer rows; then {_GOES_ON}",
    ),
    (
        r"(Python worker exited unexpectedly \(crashed\))",
        "{}: often it was killed as the machine had no memory left; give it more, use more shards, or let "
        f"micro-batches have fewer rows; then {_GOES_ON}",
    ),
    (
        r"UnknownTopicOrPartitionException: (.+)",
        "Kafka no longer has a topic or partition of this query ({}): create it again, or start with a new "
        "checkpoint",
    ),
    (
        r"((?:Some data may have been lost|KafkaIllegalStateException|OffsetOutOfRangeException)[^\n]*)",
        "Kafka no longer has messages that this query has not read ({}): keep them for longer, and start with a "
        "new checkpoint, or set the option failOnDataLoss to false to go on without them",
    ),
    (
        r"(?:kafka\S*\.|\.errors\.|concurrent\.)TimeoutException: (.+)|(Topic \S+ not present in metadata .+)"
        r"|(Timed out waiting for a node assignment.*)|(Failed to get records for .+)",
        f"no Kafka broker answers any more ({{}}): see to it, and {_GOES_ON}",
    ),
)
"""What is found in the text of an error, and what it means."""
_SECONDS: Final = 2
"""In which a JVM that no longer answers ends."""
_OUT_OF_MEMORY: Final = 52
"""What Spark exits with when Java has no heap left for a task."""


@contextmanager
def clean_errors() -> Iterator[None]:
    """Turn what Spark and its workers report into the error that was raised there, or into what it means.

        with clean_errors():
            query.awaitTermination()

    Raises:
        SlackwaterError: instead of an error of PySpark's, or of the JVM behind it.
    """
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    # Within another of these, that one takes it away.
    loggers = [logger for logger in loggers if _is_not_of_py4j not in logger.filters]
    for logger in loggers:
        logger.addFilter(_is_not_of_py4j)
    try:
        yield
    except (PySparkException, Py4JError, ConnectionRefusedError, ConnectionResetError) as error:
        text = _text(error)
        found = re.search(r"slackwater\.[\w.]*Error: (.+)", text)
        if found:
            raise SlackwaterError(found[1].strip()) from None
        told = explained(text) or _ended(error)
        if told is not None:
            raise SlackwaterError(told) from error
        last = re.findall(r"^(?:[\w.]+(?:Error|Exception)): .+", text, re.MULTILINE)
        first = text.strip().splitlines()[:1]
        raise SlackwaterError(f"Spark: {(last or first or ['the query failed'])[-1]}") from error
    finally:
        # After the end of the JVM, threads that served it go on complaining.
        if _exit_code() is None:
            for logger in loggers:
                logger.removeFilter(_is_not_of_py4j)


def stop_session(session: Any) -> None:
    """Stop a session; of one whose JVM has gone, whoever waited for that has been told."""
    try:
        session.stop()
    except (Py4JError, OSError):
        if _exit_code(_SECONDS) is None:
            raise


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep py4j from logging what goes wrong in its own code when the JVM ends: whoever waits for it is told."""
    return "py4j" not in record.pathname


def _text(error: Exception) -> str:
    """Return what an error says; nothing if the JVM that would know has gone."""
    try:
        return str(error)
    except (Py4JError, OSError):
        return ""


def _exit_code(seconds: float = 0) -> int | None:
    """Return what the JVM of the session ended with, if it has or does so within these seconds."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(seconds))
    except TimeoutExpired:
        return None


def _ended(error: Exception) -> str | None:
    """Return what an error means if the JVM of the session has ended, else None."""
    code = None if isinstance(error, PySparkException) else _exit_code(_SECONDS)
    if code is None:
        return None
    ended = "ran out of memory" if code == _OUT_OF_MEMORY else "has ended, often for lack of memory"
    return (
        f"Spark's Java process {ended} (exit code {code}): give it more (spark.driver.memory), or let "
        f"micro-batches have fewer rows; then {_GOES_ON}"
    )


def explained(text: str) -> str | None:
    """Return what an error of Spark's means and what to do, or None if it is not known."""
    for pattern, meaning in _KNOWN:
        found = re.search(pattern, text)
        if found:
            said = next(filter(None, found.groups()), "").strip().rstrip(".")
            return meaning.format(said)
    return None
