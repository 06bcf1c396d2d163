"""Programs in the folder benchmarks, which tests run on a small scale."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_benchmark(name: str) -> Any:
    """Return a program as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
