"""Asking Kafka brokers, before a query starts: whether they answer, and what topics they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError, SlackwaterError

Offsets = dict[str, dict[int, int]]
"""Topics to partitions to offsets."""
_ASK_MS: Final = 10_000
"""How long to wait for the first answer, at most."""
_MILLI: Final = 1_000_000


def check_topics(
    session: Any,
    bootstrap_servers: str,
    topics: Sequence[str],
    client: Mapping[str, str] | None = None,
    *,
    timeout: str = "10s",
) -> None:
    """Raise unless brokers answer and have these topics. A session of Spark Connect cannot ask.

    Raises:
        ConfigError: A topic is missing.
        SlackwaterError: No broker answers.
    """
    if getattr(session, "_jvm", None) is None:
        return
    with _admin(session, bootstrap_servers, client, timeout) as (admin, jvm):
        for topic in topics:
            asked = admin.describeTopics(_listed(jvm, [topic])).allTopicNames()
            try:
                asked.get()
            except Py4JJavaError as error:
                if "UnknownTopic" not in _cause(error):
                    raise
                known = ", ".join(sorted(admin.listTopics().names().get())) or "none"
                fault = (
                    f"there is no topic {topic!r} at {bootstrap_servers}; there are: {known}. Create it, or "
                    "correct the name"
                )
                raise ConfigError(fault, "topic") from None


def milliseconds(timeout: str) -> int:
    """Return how long ``timeout`` is, at least 1; raise ConfigError if it is no duration."""
    try:
        return max(1, Duration.parse(timeout) // _MILLI)
    except ValueError as error:
        raise ConfigError(str(error), "timeout") from None


def end_offsets(
    session: Any, bootstrap_servers: str, topics: Sequence[str], client: Mapping[str, str] | None = None
) -> Offsets:
    """Return where each partition of topics ends now: the offset of the next message.

    Raises:
        SlackwaterError: No broker answers.
    """
    with open_ends(session, bootstrap_servers, topics, client) as ends:
        return ends()


@contextmanager
def open_ends(
    session: Any, bootstrap_servers: str, topics: Sequence[str], client: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Offsets]]:
    """Yield a function that returns ``end_offsets``, by one connection each time.

    Raises:
        SlackwaterError: No broker answers.
    """
    with _admin(session, bootstrap_servers, client, "10s") as (admin, jvm):

        def ends() -> Offsets:
            found: Offsets = {}
            for topic, told in admin.describeTopics(_listed(jvm, topics)).allTopicNames().get().items():
                asked = jvm.java.util.HashMap()
                latest = jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
                for part in told.partitions():
                    asked[jvm.org.apache.kafka.common.TopicPartition(topic, part.partition())] = latest
                answers = admin.listOffsets(asked).all().get()
                found[str(topic)] = {int(tp.partition()): int(told.offset()) for tp, told in answers.items()}
            return found

        yield ends


@contextmanager
def _admin(
    session: Any, bootstrap_servers: str, client: Mapping[str, str] | None, timeout: str
) -> Iterator[tuple[Any, Any]]:
    """Yield a client for questions to brokers, and the JVM it lives in."""
    jvm = session._jvm
    properties = jvm.java.util.Properties()
    millis = str(min(_ASK_MS, milliseconds(timeout)))
    given = {key.removeprefix("kafka."): value for key, value in (client or {}).items()}
    asking = {"default.api.timeout.ms": millis, "request.timeout.ms": millis}
    for key, value in {**given, **asking, "bootstrap.servers": bootstrap_servers}.items():
        properties.put(key, value)
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        yield admin, jvm
    except Py4JJavaError as error:
        raise SlackwaterError(
            f"no Kafka broker answers at {bootstrap_servers} ({_cause(error)}); start it, or correct the address"
        ) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ofMillis(0))


def _listed(jvm: Any, texts: Sequence[str]) -> Any:
    found = jvm.java.util.ArrayList()
    for text in texts:
        found.add(text)
    return found


def _cause(error: Py4JJavaError) -> str:
    """The innermost cause of an error in the JVM: its kind, and the first sentence."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    said = re.split(r"\. |\n", str(cause.getMessage()), maxsplit=1)[0]
    return f"{cause.getClass().getSimpleName()}: {said}"
