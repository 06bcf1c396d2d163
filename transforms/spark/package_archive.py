"""This package on its way to executors that do not have it.

Imports little: it runs on executors too, which may lack what it says they lack.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from slackwater.transforms.errors import SlackwaterError

_PARTS: Final = ("pipelines", "plugins", "templates", "transforms")
_SHIPPED: Final = (".py", ".yaml", ".typed")
"""Endings of files to send: sources and templates."""
NEEDED: Final = ("jinja2", "numba", "numpy", "pandas", "pluggy", "pyarrow", "pydantic", "sqlglot", "yaml")
"""What a shard needs besides this package and PySpark."""


def ship(session: Any) -> None:
    """Send this package, with the kernels that are compiled here, to the executors of a session.

    They need not have it installed, but what it is built on: that is looked at.

    Args:
        session: a session on a cluster; where it runs locally, nothing has to be sent.

    Raises:
        SlackwaterError: An executor lacks a package.
    """
    context = session.sparkContext
    context.addPyFile(str(archive()))
    sys.path[:] = [path for path in sys.path if not path.endswith(archive().name)]
    tasks = max(2, context.defaultParallelism)
    found = set(context.parallelize(range(tasks), tasks).mapPartitions(_lacking).collect())
    if found:
        pythons, packages = ({pair[k] for pair in found} for k in range(2))
        raise SlackwaterError(
            f"executors of {context.master} lack {', '.join(sorted(packages))} in {', '.join(sorted(pythons))}; "
            "install it there (pip install 'slackwater[spark]'), or name another Python with "
            "--conf spark.pyspark.python=PATH"
        )


@contextmanager
def beside_driver() -> Iterator[None]:
    """Let processes that a session which is started meanwhile has beside the driver find this package.

    Some plan sources: they run the Python of the executors, and Spark does not tell them what was sent to those.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(archive()), before]))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


@cache
def archive() -> Path:
    """Return this package as a zip that unpacks itself when it is imported (``unpacker``); kept to the end.

    Executors that join later fetch it too.
    """
    from slackwater.transforms.kernels.compiler import SHIPPED, entries

    folder = Path(tempfile.mkdtemp(prefix="slackwater-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "slackwater-shipped.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        zipped.write(Path(__file__).with_name("unpacker.py"), "slackwater/__init__.py")
        for part in _PARTS:
            (root,) = importlib.import_module(f"slackwater.{part}").__path__
            for path in sorted(Path(root).rglob("*")):
                if path.suffix in _SHIPPED:
                    zipped.write(path, f"slackwater/{part}/{path.relative_to(root)}")
        for name, path in entries():
            zipped.write(path, f"slackwater/transforms/kernels/{SHIPPED.name}/{name}")
    return file


def _lacking(numbers: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Yield this Python and the name of a package, for each that it lacks."""
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            yield sys.executable, name
