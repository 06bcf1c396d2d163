"""A faster start by half a second: PyArrow imports pandas at its first conversion, and few commands need it."""

from __future__ import annotations

import sys
from typing import Any


def spare_pandas(own_process: bool) -> None:
    """Keep PyArrow from importing pandas.

    PyArrow remembers that there is no pandas, so only a process that ends with the command may do this;
    plugins, which may want pandas, are loaded first.
    """
    if not own_process or "pandas" in sys.modules:
        return
    import pyarrow as pa

    from slackwater.plugins.registry.manager import manager

    manager()
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        pa.scalar(0)
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """An import finder that knows that there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
