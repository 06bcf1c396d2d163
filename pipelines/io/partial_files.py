"""Files that are written beside their place, and get there together: all of them, or none.

A partial file is created anew, never through a link, and is locked as long as its run lives. What a run that was
killed has left is known by having no lock, and is removed by the next run that writes the same file.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.state.file_lock import open_folder, try_lock, wait_for_lock

_ENDING: Final = ".partial"
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class PartialFile:
    """A file on its way to its name.

    Args:
        file: where it is to be; its folder is made if it is not there.

    Raises:
        SlackwaterError: It cannot be written.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with writing(file):
            if file.is_dir():
                raise SlackwaterError(f"cannot write {str(file)!r}: it is a folder; name a file")
            file.parent.mkdir(parents=True, exist_ok=True)
            with _locked(file.parent):
                _remove_stale(file)
                self._path = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}{_ENDING}")
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666)
                try_lock(fd)
        self.out: BinaryIO = os.fdopen(fd, "wb")

    @property
    def backup(self) -> Path:
        """Where the file that is replaced is kept until all are in place."""
        return self._path.with_name(f"{self._path.name}.old{_ENDING}")

    def flush(self) -> None:
        """Bring all that was written to the disk."""
        with writing(self.file):
            self.out.flush()
            os.fsync(self.out.fileno())

    def keep_old(self) -> None:
        """Keep what is at the file's place, if there is something."""
        if self.file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with suppress(FileNotFoundError):
            try:
                os.link(self.file, self.backup, follow_symlinks=False)
            except (OSError, NotImplementedError):
                # A file system without hard links.
                os.rename(self.file, self.backup)

    def place(self) -> None:
        """Give the file its name."""
        os.replace(self._path, self.file)

    def put_back(self) -> None:
        """Undo ``place``, or ``keep_old`` alone."""
        if self.backup.exists():
            os.replace(self.backup, self.file)
        elif not self._path.exists():
            self.file.unlink(missing_ok=True)

    def forget_old(self) -> None:
        """Remove what ``keep_old`` has kept."""
        with suppress(OSError):
            self.backup.unlink(missing_ok=True)

    def discard(self) -> None:
        """Leave nothing behind of a file that has not got its name."""
        with suppress(OSError):
            self.out.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def place_all(partials: Sequence[PartialFile]) -> None:
    """Give files their names, replacing older ones; if one cannot get its own, all stay as they were."""
    done: list[PartialFile] = []
    folders = sorted({partial.file.parent.resolve() for partial in partials})
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(_locked(folder))
        try:
            for partial in partials:
                done.append(partial)
                with writing(partial.file):
                    partial.keep_old()
                    partial.place()
        except BaseException:
            for partial in reversed(done):
                with suppress(OSError):
                    partial.put_back()
            raise
        for partial in partials:
            partial.forget_old()
            partial.discard()
        for folder in folders:
            with suppress(OSError):
                _sync_folder(folder)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Name the file in what goes wrong while it is written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "the files of earlier runs are as they were; make room" if full else "check the path"
        raise SlackwaterError(f"cannot write {str(file)!r}: {error.strerror or error}; {remedy}") from None


def _remove_stale(file: Path) -> None:
    """Remove partial files of runs that are no more; the folder is locked."""
    for path in file.parent.glob(f".{_escaped(file.name)}.*{_ENDING}"):
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | _NO_LINK)
            try:
                if try_lock(fd):
                    path.unlink()
            finally:
                os.close(fd)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    fd = open_folder(folder)
    try:
        wait_for_lock(fd)
        yield
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    fd = open_folder(folder)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
