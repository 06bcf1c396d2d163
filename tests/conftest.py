"""Makes the helpers in ``support`` importable, sets how hard property tests try, and holds the Spark session."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))
pytest.register_assert_rewrite("runner_cases", "runner_contract")

# PySpark forks to start Java. If Beam has used gRPC before, gRPC's handlers run in the fork, and now and then
# abort it before it becomes Java: "Java gateway process exited before sending its port number".
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_QUIET)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def _group(item: pytest.Item) -> str:
    """What one worker takes: all that needs the session of Spark, or Beam's job server, and else a file."""
    if item.get_closest_marker("spark") or {"spark", "broker"} & set(getattr(item, "fixturenames", ())):
        return "spark"
    return "beam_spark" if item.get_closest_marker("beam_spark") else item.nodeid.split("::", maxsplit=1)[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where there are workers, give each whole groups, and begin with what takes longest: what needs Java."""
    if not hasattr(config, "workerinput"):
        return
    groups = {item: _group(item) for item in items}
    java = {group for item, group in groups.items() if item.get_closest_marker("own_java")}
    first = ["spark", "beam_spark", *sorted(java)]
    ranks = {group: rank for rank, group in enumerate(first)}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: ranks.get(groups[item], len(first)))


@pytest.fixture(scope="session")
def spark_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let Spark, here and in processes started from here, have Python processes that start quickly.

    Spark lets every one find a zip of PySpark's sources first, and each compiles them anew. Here they find the
    installed PySpark, which halves what a query costs.
    """
    launcher = tmp_path_factory.mktemp("spark") / "python"
    path, python = (shlex.quote(text) for text in (os.environ.get("PYTHONPATH", ""), sys.executable))
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} "$@"\n')
    launcher.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(launcher))
        yield


@pytest.fixture(scope="session")
def spark(spark_python: None) -> Iterator[Any]:
    """One session for the whole test run, as the Spark runner would start it, with Kafka if that was fetched."""
    from slackwater.transforms.spark.connector import cached, with_kafka
    from slackwater.transforms.spark.session import start_session

    session = start_session(app="slackwater tests", conf=with_kafka() if cached() else {})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    """One Kafka broker for the whole test run."""
    from slackwater.pipelines.bench.kafka.broker import Broker

    with Broker() as running:
        yield running
