"""How far a run is: runners report rows, the command line shows them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress(Protocol):
    """Told by a runner how many rows it has read. Called from one thread at a time."""

    def total(self, rows: int) -> None:
        """Say how many rows there will be, once that is known."""

    def advance(self, rows: int) -> None:
        """Say that so many more rows have been read."""


class Silent(AbstractContextManager["Silent"]):
    """Shows nothing: for runs whose standard error is not a terminal."""

    def total(self, rows: int) -> None:
        """Ignored."""

    def advance(self, rows: int) -> None:
        """Ignored."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to clean up."""


class Bar(AbstractContextManager["Bar"]):
    """A bar on standard error, which goes away at the end. Redrawn at most ten times a second."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._bar: RichProgress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(label, total=None)

    def total(self, rows: int) -> None:
        self._bar.update(self._task, total=rows)

    def advance(self, rows: int) -> None:
        self._bar.advance(self._task, rows)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def show_progress(label: str) -> Silent | Bar:
    """A bar if standard error is a terminal, else nothing."""
    return Bar(label) if sys.stderr.isatty() else Silent()
