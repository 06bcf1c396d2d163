"""One Spark session for the whole test run: ``pytest_plugins = ["spark_session"]``, or import the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that the Spark runner itself would start."""
    from slackwater.transforms.spark.session import start_session

    session = start_session(app="slackwater tests")
    yield session
    session.stop()
