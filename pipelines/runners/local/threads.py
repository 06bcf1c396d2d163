"""Overlapping reading, joining and writing: Arrow and the kernels leave the interpreter lock alone."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_END = object()
_PATIENCE = 1.0
"""Seconds to wait for a thread that is told to stop."""


class Prefetch(Generic[T]):
    """Iterates in a thread of its own, a few items ahead.

    Args:
        items: what to iterate; consumed in the thread.
        ahead: items that may wait, at most.
    """

    def __init__(self, items: Iterator[T], ahead: int = 2) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(ahead)
        self._stop = threading.Event()
        self.busy_s = 0.0
        self._thread = threading.Thread(target=self._work, args=(items,), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = self._queue.get()
        if item is _END:
            self._queue.put(_END)
            raise StopIteration
        if isinstance(item, BaseException):
            self._queue.put(_END)
            raise item
        return item

    def close(self) -> None:
        """Stop reading ahead and wait for the thread, but not for ever: it may be in a slow read."""
        self._stop.set()
        until = time.monotonic() + _PATIENCE
        while self._thread.is_alive() and time.monotonic() < until:
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue

    def _work(self, items: Iterator[T]) -> None:
        try:
            while not self._stop.is_set():
                started = time.perf_counter()
                item = next(items, _END)
                self.busy_s += time.perf_counter() - started
                self._queue.put(item)
                if item is _END:
                    return
        except BaseException as error:
            self._queue.put(error)


class Background(Generic[T]):
    """Calls a function for each item in a thread of its own, in order.

    Args:
        work: what to do with an item.
        ahead: items that may wait, at most.
    """

    def __init__(self, work: Callable[[T], None], ahead: int = 4) -> None:
        self._work_on = work
        self._queue: queue.Queue[Any] = queue.Queue(ahead)
        self._error: BaseException | None = None
        self.busy_s = 0.0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Hand over an item, waiting while too many do; raise what an earlier one raised."""
        if self._error is not None:
            raise self._error
        self._queue.put(item)

    def close(self) -> None:
        """Wait until every item is done; raise what one of them raised."""
        self._queue.put(_END)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (item := self._queue.get()) is not _END:
            if self._error is None:
                started = time.perf_counter()
                try:
                    self._work_on(item)
                except BaseException as error:
                    self._error = error
                self.busy_s += time.perf_counter() - started
