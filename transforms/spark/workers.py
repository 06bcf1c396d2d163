"""Python workers of Spark: what they are started with, and what they do between tasks.

Spark's daemon lets a worker look for cyclic garbage after every task, which goes through every object that there
is. With our libraries and kernels loaded these are some hundred thousand, and a micro-batch has many short tasks.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from slackwater.transforms.spark.session import is_connect

LEAST: Final = 10_000
"""Objects that may be gone through after every task."""
_SET_BY_DRIVER: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""What Spark's driver adds to the environment of a stateful function, each time a query starts."""


def let_queries_share(session: Any) -> None:
    """Let several queries at once use stateful functions that are defined from now on.

    They share a function's environment, a ``java.util.HashMap``, which Spark changes without a lock when a query
    starts. Two that start together could both add an entry and count it twice; no task could then be read again
    (``OptionalDataException``). With all entries there from the start none is added. What workers see is the
    same, as Spark sets these for each. With Spark Connect every query has a function of its own.
    """
    if not is_connect(session):
        context = session.sparkContext
        # A new one: another thread may be going through it.
        context.environment = dict.fromkeys(_SET_BY_DRIVER, "") | context.environment


def spare_loaded() -> None:
    """Let Python's collector pass over what this worker has loaded; to be called at the end of a task.

    What is there is set aside once it is more than LEAST objects and an eighth of what has been set aside before:
    a few times, while modules and kernels are loaded. What of it becomes cyclic garbage later is never freed; all
    else goes when nobody refers to it any more, as ever.
    """
    tracked = len(gc.get_objects())
    if tracked > LEAST and tracked > gc.get_freeze_count() // 8:
        gc.collect()
        gc.freeze()
