"""Signals that end a run: it leaves nothing half-written, and its exit code names the signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, Final

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(SystemExit):
    """A signal ended the run; the exit code is 128 and its number, as shells have it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs here as Ctrl-C does; a second one does not disturb the cleaning up.

    A signal that is ignored, as under ``nohup``, stays so. Elsewhere than in the main thread nothing happens.
    """
    before: dict[int, Any] = {}

    def told(number: int, frame: Any) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    if current_thread() is main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
