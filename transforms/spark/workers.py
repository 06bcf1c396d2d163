"""Python workers of Spark between tasks.

Spark's daemon lets a worker look for cyclic garbage after every task, which goes through every object that there
is. With our libraries and kernels loaded these are some hundred thousand, and a micro-batch has many short tasks.
"""

from __future__ import annotations

import gc
from typing import Final

LEAST: Final = 10_000
"""Objects that may be gone through after every task."""


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
