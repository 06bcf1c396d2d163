"""Locks on files and folders that end with the process that holds them, however it ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without such locks
    fcntl = None  # type: ignore[assignment]


def try_lock(fd: int) -> bool:
    """Lock an open file or folder; return False if another process, or another part of this one, has locked it.

    On a file system that knows no locks, all are granted.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def wait_for_lock(fd: int) -> None:
    """Lock an open file or folder as soon as nobody else has locked it."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)


def open_folder(folder: Path) -> int:
    """Open a folder to lock it; the lock ends when the descriptor is closed."""
    return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
