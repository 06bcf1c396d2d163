"""The same in another process: one that has other hashes of texts, other clocks and other dice.

It is started once and kept. A strategy that it cannot load, say one that is defined in a session, is checked in
this process only.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import IO, Any

from slackwater.plugins.checks.frame import Differs

_SEED = "4242"


def compare(function: Callable[..., Any], given: tuple[Any, ...], look: Callable[[Any], None]) -> None:
    """Call a function of a module in the other process; let ``look`` compare what it returns."""
    from numba import cloudpickle

    try:
        asked = cloudpickle.dumps((function, given))
    except Exception:
        # Nothing that engines could send to a worker: another check says so.
        return
    status, answer = pickle.loads(_other().ask(asked))  # noqa: S301
    if status == "raised":
        raise Differs(f"in another process: {answer}")
    if status == "done":
        look(answer)


class _Other:
    """A Python process that answers calls."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": _SEED,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        if os.environ.get("PYTHONHASHSEED") == _SEED:
            environment["PYTHONHASHSEED"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        atexit.register(self._process.kill)

    def ask(self, call: bytes) -> bytes:
        assert self._process.stdin is not None and self._process.stdout is not None
        _write(self._process.stdin, call)
        answer = _read(self._process.stdout)
        if not answer:
            _other.cache_clear()
            raise Differs(f"another process that ran it ended with code {self._process.wait()}")
        return answer


@cache
def _other() -> _Other:
    return _Other()


def serve() -> None:
    """Answer calls until there are no more."""
    from slackwater.plugins.checks.observer import disturbed

    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with disturbed():
        while call := _read(calls):
            try:
                function, given = pickle.loads(call)  # noqa: S301
            except Exception as error:
                _write(answers, pickle.dumps(("unknown", str(error))))
                continue
            try:
                answer = "done", function(*given)
            except Exception as error:
                answer = "raised", f"{type(error).__name__}: {error}"
            _write(answers, pickle.dumps(answer))


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(len(content).to_bytes(8, "little") + content)
    file.flush()


def _read(file: IO[bytes]) -> bytes:
    size = file.read(8)
    return file.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
