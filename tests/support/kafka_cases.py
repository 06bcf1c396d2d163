"""What tests of live queries share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def rows_in(spark: Any, folder: Path) -> list[dict[str, Any]]:
    """Rows of the micro-batches that are written completely."""
    done = [str(path.parent) for path in folder.glob("batch=*/_SUCCESS")]
    return spark.read.parquet(*done).toArrow().to_pylist() if done else []
