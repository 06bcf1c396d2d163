"""The directory of an archive: whether a join can have one, and what is noted of the join in it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.state.file_lock import open_folder, try_lock

if TYPE_CHECKING:
    from slackwater.transforms.settings.models import JoinConfig
    from slackwater.transforms.settings.plan import JoinPlan

SETTINGS: Final = "join.json"
LOG: Final = "log"
UNFINISHED: Final = "unfinished"
"""File that is there from the start of a run until it has succeeded."""
FINISHED: Final = "finished"
"""File that takes its place then: shards without rows may leave nothing that says so."""
_LOCKS: Final[dict[str, int]] = {}
"""Archives of joins that programs have made in this process, and their locks."""
RESERVED: Final = ("__pos", "__gone", "__late")


def bind_archive(config: JoinConfig, schemas: Mapping[str, pa.Schema]) -> JoinConfig:
    """Return the settings with the archive's whole path; raise ConfigError if the join cannot have one."""
    if config.archive is None:
        return config
    if not config.archive or "://" in config.archive:
        fault = f"must be a directory that all workers can write to, got {config.archive!r}"
        raise ConfigError(fault, "archive")
    if not _by_time(config.window):
        raise ConfigError(
            "works with windows of time only: otherwise a row that was missed could have met any other, and all "
            "would have to be kept; set window to a duration, or leave archive out",
            "archive",
        )
    for name, schema in schemas.items():
        taken = next((column for column in RESERVED if column in schema.names), None)
        if taken is not None:
            fault = f"needs the column name {taken!r}, which input {name!r} uses; rename that column"
            raise ConfigError(fault, "archive")
    return config.model_copy(update={"archive": str(Path(config.archive).absolute())})


def _by_time(window: Any) -> bool:
    sizes = [size for key, size in window.items() if key != "closed"] if isinstance(window, dict) else [window]
    try:
        return all(Duration.parse(size) is not None for size in sizes)
    except ValueError:
        return False


def check_directory(plan: JoinPlan) -> None:
    """Raise ConfigError if the directory that a join names cannot become its archive; change nothing.

    What a run has left that never got to write a row is no hindrance.
    """
    if plan.config.archive is None:
        return
    directory = Path(plan.config.archive)
    try:
        if directory.exists() and not directory.is_dir():
            raise ConfigError(f"{str(directory)!r} is a file; name a directory", "archive")
        if directory.is_dir() and any(e.name not in (SETTINGS, UNFINISHED) for e in directory.iterdir()):
            fault = f"directory {str(directory)!r} is not empty; name a new one, or empty it"
            raise ConfigError(fault, "archive")
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(0, f"{str(there)!r} is a file")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(0, os.strerror(13))
    except OSError as error:
        raise _not_writable(directory, error) from None


def check_unlocked(plan: JoinPlan) -> None:
    """Raise ConfigError if another run is writing the archive."""
    if plan.config.archive is not None and Path(plan.config.archive).is_dir():
        os.close(_lock(Path(plan.config.archive)))


def _lock(directory: Path) -> int:
    """Lock the directory until what is returned is closed or the process ends; raise ConfigError."""
    fd = open_folder(directory)
    if not try_lock(fd):
        os.close(fd)
        raise ConfigError(f"another run is writing {str(directory)!r}; name another directory", "archive")
    return fd


def prepare(plan: JoinPlan, unfinished: bool = False) -> int | None:
    """Make the archive's directory and note what the join is, before the job starts.

    Args:
        plan: the join; nothing happens if it has no archive.
        unfinished: whether to mark it as such; who does this says when it is ``finished``.

    Returns:
        The lock that keeps other runs from the archive, to be closed; of one that is not marked as unfinished,
        None: that stays locked as long as this process lives.

    Raises:
        ConfigError: The directory cannot be written, or there is something in it already.
    """
    if plan.config.archive is None:
        return None
    directory = Path(plan.config.archive)
    check_directory(plan)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = _LOCKS.pop(str(directory), None) or _lock(directory)
        try:
            # Another run may have begun and ended since.
            check_directory(plan)
            (directory / SETTINGS).write_text(json.dumps(settings_of(plan), indent=1))
            if unfinished:
                (directory / UNFINISHED).touch()
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise _not_writable(directory, error) from None
    if unfinished:
        return lock
    _LOCKS[str(directory)] = lock
    return None


def finished(plan: JoinPlan) -> None:
    """Note that the run has succeeded, so that the archive is complete."""
    if plan.config.archive is None:
        return
    directory = Path(plan.config.archive)
    (directory / UNFINISHED).replace(directory / FINISHED)
    with suppress(OSError):
        (directory / LOG).rmdir()


def settings_of(plan: JoinPlan) -> dict[str, Any]:
    """Return what it takes to do the join again, exactly.

    Inputs that have nothing but punctuations are part of it, as their times may be the finest.
    """
    join = plan.config.model_dump(include={"time", "time_unit", "where", "output"}, exclude_none=True)
    window = plan.config.window
    join["window"] = {k: str(size) for k, size in window.items()} if isinstance(window, dict) else str(window)
    sources = [p.model_dump(exclude_none=True) for p in plan.config.punctuations if p.source is not None]
    schemas = {name: base64.b64encode(s.serialize()).decode() for name, s in plan.schemas.items()}
    return {"version": 1, "join": {**join, "punctuations": sources}, "schemas": schemas}


def _not_writable(directory: Path, error: OSError) -> ConfigError:
    why = error.strerror or error
    fault = f"cannot write to {str(directory)!r}: {why}; name a directory that can be written"
    return ConfigError(fault, "archive")
