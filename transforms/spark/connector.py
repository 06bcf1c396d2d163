"""Spark's Kafka connector: where its jars are, or how to get them.

PySpark comes without it. A session needs it from its start, in ``spark.jars``::

    session = start_session(conf=with_kafka())

The jars are looked for in this order: the folder that SLACKWATER_KAFKA_JARS names; the cache; ``mvn``, which
fetches the connector of PySpark's own version or, where a repository lacks it, the last that this was tried with.
``python -m slackwater.transforms.spark.connector`` does all of it ahead of time and prints the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slackwater.transforms.engine import maven
from slackwater.transforms.engine.maven import Module
from slackwater.transforms.errors import SlackwaterError

VARIABLE: Final = "SLACKWATER_KAFKA_JARS"
JARS: Final = "spark.jars"
FALLBACK_VERSION: Final = "4.2.0"
"""The connector of this version runs on later versions of Spark too."""
FALLBACK_TOKENS: Final = "4.0.0"
"""So does this version of its part for delegation tokens, which repositories may lack in others."""
_GROUP: Final = "org.apache.spark"
_CONNECTOR: Final = "spark-sql-kafka-0-10_2.13"
_TOKENS: Final = "spark-token-provider-kafka-0-10_2.13"
_NOT_IN_SPARK: Final = (_CONNECTOR, _TOKENS, "kafka-clients", "commons-pool2")


def with_kafka(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return settings for a session with the Kafka connector beside what ``conf`` has; fetch it if need be.

    Raises:
        SlackwaterError: The connector is not here and could not be fetched.
    """
    conf = dict(conf or {})
    jars = [*filter(None, [conf.get(JARS)]), *map(str, kafka_jars())]
    return {**conf, JARS: ",".join(jars)}


def kafka_jars() -> list[Path]:
    """Return the jars of the connector for this PySpark, fetched unless they are here.

    Raises:
        SlackwaterError: They are not here and could not be fetched.
    """
    folder = cached()
    if folder is None:
        folder = _fetch()
    return sorted(folder.glob("*.jar"))


def cached() -> Path | None:
    """Return the folder with the jars, or None if they would have to be fetched."""
    named = os.environ.get(VARIABLE)
    if named:
        if not any(Path(named).glob("*.jar")):
            raise SlackwaterError(f"{VARIABLE} names {named!r}, a folder without jars; correct or unset it")
        return Path(named)
    return _folder() if _folder().is_dir() else None


def require_kafka(session: Any) -> None:
    """Raise SlackwaterError if a session was started without the connector."""
    jvm = getattr(session, "_jvm", None)
    provider = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
    if jvm is not None and not jvm.org.apache.spark.util.Utils.classIsLoadable(provider):
        raise SlackwaterError(
            "this Spark session has no Kafka connector; start it with "
            "slackwater.transforms.spark.start_session(conf=with_kafka()), or with --packages "
            f"{_GROUP}:{_CONNECTOR}:{session.version}"
        )


def cache_folder() -> Path:
    """Where fetched libraries are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater"


def _folder() -> Path:
    return cache_folder() / f"spark-kafka-{_spark_version()}"


def _spark_version() -> str:
    from pyspark import __version__

    return str(__version__)


def _fetch() -> Path:
    """Fetch the connector; return the folder of its jars."""
    tokens = [Module(_GROUP, _TOKENS, FALLBACK_TOKENS)]
    ways: dict[tuple[str, ...], list[Module]] = {(_spark_version(),): [], (FALLBACK_VERSION,): []}
    ways[FALLBACK_VERSION, f"with tokens {FALLBACK_TOKENS}"] = tokens
    faults = []
    for (version, *rest), pinned in ways.items():
        module = Module(_GROUP, _CONNECTOR, version)
        try:
            maven.copy_with_dependencies([module], _folder(), pinned=pinned, only=_NOT_IN_SPARK)
        except (OSError, subprocess.SubprocessError) as error:
            faults.append(f"{' '.join([version, *rest])}: {maven.brief(error)}")
            continue
        return _folder()
    raise SlackwaterError(
        f"Kafka needs the Spark connector {_GROUP}:{_CONNECTOR}:{_spark_version()}, and mvn could not fetch it "
        f"({'; '.join(faults)}); put it with {', '.join(_NOT_IN_SPARK[1:])} into a folder, and name that in "
        f"{VARIABLE}"
    )


def main() -> int:
    """Make sure that the connector is here, and print where."""
    try:
        jars = kafka_jars()
    except SlackwaterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{jars[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
