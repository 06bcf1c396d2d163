"""Where file sources go on when a query is started again: after the files of the last planned micro-batch.

Spark's file source notes which files it takes next before the micro-batch that takes them is planned. A driver
that is killed in between finds them noted, and takes them together with those that follow: this input is ahead of
the others from then on. Its rows arrive sooner than they would have, so other rows are late, and strategies learn
something else. Without such notes the micro-batch is planned again, with the files that it would have had.
"""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from typing import Any, Final
from weakref import WeakSet

from pyspark.sql.streaming import StreamingQueryListener

from slackwater.transforms.spark.session import is_connect

_VERSION: Final = "v1"
"""First line of the offsets and notes that this module reads."""
_NONE: Final = "-"
"""In offsets: the source has given nothing yet."""
_SESSIONS: WeakSet[Any] = WeakSet()
"""Those whose queries are looked after."""


def take_up_as_planned(session: Any, column: str) -> None:
    """Forget what was not planned whenever a query that has this column in its plan is started in the session.

    With Spark Connect nothing is done: the checkpoint is out of reach.
    """
    if not is_connect(session) and session not in _SESSIONS:
        session.streams.addListener(_AtStart(session, column))
        _SESSIONS.add(session)


class _AtStart(StreamingQueryListener):
    """Spark waits for it when a query is started, before it looks at the sources."""

    def __init__(self, session: Any, column: str) -> None:
        self._session, self._column = session, column

    def onQueryStarted(self, event: Any) -> None:
        query = self._session.streams.get(str(event.id))._jsq.streamingQuery()
        if self._column in query.analyzedPlan().toString():
            forget_unplanned(self._session, query.resolvedCheckpointRoot())

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def forget_unplanned(session: Any, checkpoint: str) -> dict[int, int]:
    """Remove what file sources have noted after the last planned micro-batch of a query that is not running.

    Nothing that was planned is touched. What Spark needs to read the notes before is there: it keeps those of
    ``spark.sql.streaming.minBatchesToRetain`` micro-batches.

    Args:
        session: a session that can read the checkpoint, not of Spark Connect.
        checkpoint: its folder, on any file system that Spark can use.

    Returns:
        The number of removed notes of each source that had any, by number of the source.
    """
    folder = _Folder(session, checkpoint)
    offsets, sources = folder.at("offsets"), folder.at("sources")
    plans = offsets.numbers()
    planned = dict(enumerate(offsets.lines(plans[-1])[1:])) if plans else None
    forgotten = {}
    for source in sources.numbers():
        notes = sources.at(str(source))
        until = -1 if planned is None else _last_note(planned.get(source))
        noted = notes.numbers()
        if until is None or not noted or noted[-1] <= until or not _of_files(notes.lines(noted[-1], most=1)):
            continue
        log = session._jvm.org.apache.spark.sql.execution.streaming.runtime.FileStreamSourceLog
        log(1, session._jsparkSession, notes.path).purgeAfter(until)
        forgotten[source] = noted[-1] - until
    return forgotten


def _last_note(offset: str | None) -> int | None:
    """Return the number of the last note that an offset includes; None if it is not that of a file source."""
    if offset == _NONE:
        return -1
    content = None if offset is None else json.loads(offset)
    return content.get("logOffset") if isinstance(content, dict) else None


def _of_files(lines: list[str]) -> bool:
    """Whether lines are notes of a file source; others keep there what they began with."""
    return bool(lines) and "path" in json.loads(lines[0])


class _Folder:
    """Part of a checkpoint, in which Spark numbers its files."""

    def __init__(self, session: Any, path: str) -> None:
        self._session, self.path = session, path
        self._hadoop = session._jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._hadoop.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def at(self, name: str) -> _Folder:
        """Return a folder in it."""
        return _Folder(self._session, f"{self.path}/{name}")

    def numbers(self) -> list[int]:
        """Return the numbers in it; none if it is not there."""
        found = self._files.listStatus(self._hadoop) if self._files.exists(self._hadoop) else []
        names = [status.getPath().getName().removesuffix(".compact") for status in found]
        return sorted(int(name) for name in names if name.isdigit())

    def lines(self, number: int, most: int | None = None) -> list[str]:
        """Return the lines of a file, so many at most, after the first; none if that names another version."""
        jvm = self._session._jvm
        files = [jvm.org.apache.hadoop.fs.Path(self._hadoop, f"{number}{end}") for end in ("", ".compact")]
        stream = self._files.open(next(file for file in files if self._files.exists(file)))
        reader = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8"))
        with closing(reader):
            if reader.readLine() != _VERSION:
                return []
            return list(islice(iter(reader.readLine, None), most))
