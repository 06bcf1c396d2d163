"""Private directories for what does not fit into memory; none outlives the run that made it for long.

A directory is its owner's as long as the owner holds the lock on the file ``lock`` inside it, which the system
lets go of when the process ends in whatever way. So a directory whose lock can be taken is of a dead owner, and
whoever makes the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref
from pathlib import Path
from typing import Final

PREFIX: Final = "slackwater-spill-"
_LOCK: Final = "lock"


class SpillDirectory:
    """A directory that only this user can read; it goes when closed, when nobody refers to it, or at exit.

    Args:
        parent: where to make it.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, parent: Path) -> None:
        self.path, lock = _create(parent)
        # A child that was forked must not take away what its parent uses.
        self._finalizer = weakref.finalize(self, _close, self.path, lock, os.getpid())

    def file(self, name: str) -> Path:
        """Return the path of a file, made if it is not there; only this user can read it."""
        path = self.path / name
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return path

    def close(self) -> None:
        """Remove the directory and all that is in it."""
        self._finalizer()


def remove_stale(parent: Path) -> int:
    """Remove the directories of owners that have died; return how many. Those in use are left alone."""
    removed = 0
    with os.scandir(parent) as entries:
        found = [Path(e) for e in entries if e.name.startswith(PREFIX) and e.is_dir(follow_symlinks=False)]
    for path in found:
        try:
            removed += _remove_if_stale(path)
        except OSError:
            continue  # Somebody else's, or somebody was faster.
    return removed


def _remove_if_stale(path: Path) -> bool:
    if path.stat().st_uid != os.geteuid():
        return False
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        path.rmdir()  # Fails unless it is empty; an owner who is just making it notices and makes another.
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(path)
    finally:
        os.close(lock)
    return True


def _create(parent: Path) -> tuple[Path, int]:
    """Return a new directory and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = os.open(path / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (path / _LOCK).stat()):
                return path, lock
        except (BlockingIOError, FileNotFoundError):
            pass  # Taken for stale before the lock was ours.
        os.close(lock)


def _close(path: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:
        return
    try:
        _empty(path)
    except OSError:
        pass
    finally:
        os.close(lock)


def _empty(path: Path) -> None:
    """Remove a directory, the lock last: what is left of an interrupted removal is still known as stale."""
    for name in os.listdir(path):
        if name != _LOCK:
            os.unlink(path / name)
    os.unlink(path / _LOCK)
    path.rmdir()
