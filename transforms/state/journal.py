"""The state of a shard outside the process: a base, and a log of what has been given since.

A shard is deterministic: given the same input, it is in the same state. So a bundle writes what the shard was
given, and appends it to the log. When the log has grown to ``GROWTH`` times the last snapshot, and to
``LEAST_LOG``, the next bundle writes a snapshot instead, the new base, and the log begins anew. What is written
is therefore proportional to the input, whatever the window, and what there is to read is proportional to the
state. A store that can choose keeps the log before the base too, until the next one, so that a process that is a
few entries behind need not read a base.

Rows kept by time bucket would be written once too, but they are not all that a shard holds: there are heaps,
counts, dictionaries, and what strategies have learned. Each strategy would need a way of its own to tell what
has changed. A log serves all of them, also those of third parties, and restores them exactly.

A version is a number and a random token, new with every attempt. A process that holds the shard at the version
in the summary reads nothing else. One that has fallen behind reads the entries that it missed, provided that
they follow its own version; else it reads base and log. What a failed attempt has left in memory has a token
that nothing stored follows, and is never used. Base, entries and summary are sealed (``snapshot.seal``), and the
numbers of the base and entries that are read must lead to that in the summary: what was damaged, or has a gap, is
refused.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from struct import Struct
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from slackwater.plugins.contract import Snapshot
from slackwater.transforms.errors import StateError
from slackwater.transforms.state import snapshot as snapshots

GROWTH: Final = 2
"""Size of a log beyond which a base is written, in sizes of the last base."""
LEAST_LOG: Final = 1 << 20
"""Bytes of a log below which no base is written, unless a journal is told otherwise."""
_HEAD: Final = Struct("<q8s8s")
"""Of an entry, or a base: its version, and the token of the version that it follows."""
_FOLLOWS_ALL: Final = b"all\0\0\0\0\0"
"""Instead of a token, of a base."""
_BASE: Final = "the base of the stored state"
_ENTRY: Final = "an entry of the stored state"
_SUMMARY: Final = "the summary of the stored state"


class ShardStore(Protocol):
    """Where an engine keeps the state of one shard. Writes take effect together, or not at all."""

    chooses: bool
    """Whether entries are read and dropped one by one; else it is all or none."""

    def summary(self) -> bytes | None:
        """What was last put, or None if nothing ever was."""

    def base(self) -> bytes:
        """What was last put."""

    def log(self, first: int) -> Iterable[bytes]:
        """Entries with numbers from ``first`` on, in any order; all of them if the store cannot choose."""

    def put_summary(self, summary: bytes) -> None:
        """Replace the summary: a few hundred bytes."""

    def put_base(self, base: bytes, gone: range) -> None:
        """Replace the base, and drop the entries with these numbers; all of them if the store cannot choose."""

    def append(self, number: int, entry: bytes) -> None:
        """Add an entry to the log."""

    def clear(self) -> None:
        """Drop everything."""


class Held(Protocol):
    """What a journal keeps: an operator, or whatever an engine has around it."""

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""

    def close(self) -> None:
        """Remove what is on disk; it is of no use any more."""


T = TypeVar("T", bound=Held)


class Version(NamedTuple):
    """A state of a shard: how many commits led to it, and which attempt made it."""

    number: int
    token: bytes

    def next(self) -> Version:
        """Return the version of an attempt to go on from this one."""
        return Version(self.number + 1, os.urandom(8))


NEW: Final = Version(0, bytes(8))
"""A shard that has been given nothing."""


class Shards(Generic[T]):
    """Shards that this process holds, at most so many and so many bytes; the one used last stays longest."""

    def __init__(self, most: int = 256, most_bytes: int = 1 << 30) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._held: OrderedDict[Hashable, tuple[Version, T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def bound(self, most_bytes: int) -> None:
        """Hold so many bytes at most, from the next shard on that is kept."""
        self._most_bytes = most_bytes

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: Hashable) -> tuple[Version, T] | None:
        """Remove a shard and return it: whoever works on it puts it back, in its new version."""
        with self._lock:
            found = self._held.pop(key, None)
        return None if found is None else found[:2]

    def put(self, key: Hashable, version: Version, shard: T) -> None:
        """Keep a shard; others have to make room. One that is too large by itself is not kept."""
        gone = []
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                gone.append(before)
            self._held[key] = (version, shard, shard.nbytes)
            while len(self._held) > self._most or self._nbytes() > self._most_bytes:
                gone.append(self._held.popitem(last=False)[1])
        for _, old, _ in gone:
            old.close()

    def _nbytes(self) -> int:
        return sum(size for *_, size in self._held.values())


class Journal(Generic[T]):
    """Opens shards, and writes down what they are given.

    Args:
        shards: those that this process holds.
        restore: makes a shard, from nothing or from a snapshot.
        replay: gives a shard again what an entry says it was given.
        least_log: bytes of a log below which no base is written.
    """

    def __init__(
        self,
        shards: Shards[T],
        restore: Callable[[Snapshot | None], T],
        replay: Callable[[T, bytes], object],
        least_log: int = LEAST_LOG,
    ) -> None:
        self._shards, self._restore, self._replay, self._least_log = shards, restore, replay, least_log

    def open(self, key: Hashable, store: ShardStore) -> Opened[T]:
        """Return a shard as the store has it, to be used in a ``with``: leaving it commits, an error does not.

        Args:
            key: what the shard is known by in this process.
            store: its state.
        """
        summary = store.summary()
        opened: Opened[T] = Opened(self._shards, key, store, summary, self._least_log)
        held = self._shards.take(key)
        if held is not None:
            version, shard = held
            missed = opened.missed_since(version)
            if missed is not None:
                self._give_again(shard, missed)
                opened.shard = shard
                return opened
            shard.close()
        base = opened.base()
        with snapshots.restoring():
            opened.shard = self._restore(None if base is None else snapshots.loads(base, _BASE))
        self._give_again(opened.shard, opened.since_base())
        return opened

    def _give_again(self, shard: T, log: Iterable[bytes]) -> None:
        """Give a shard what it took before: if it fails now, an entry is of another shard."""
        with snapshots.restoring(_ENTRY):
            for given in log:
                self._replay(shard, given)


class _Entry(NamedTuple):
    version: Version
    follows: bytes
    given: bytes

    def dumps(self) -> bytes:
        return snapshots.seal(_HEAD.pack(*self.version, self.follows), self.given)

    @classmethod
    def loads(cls, data: bytes, what: str) -> _Entry:
        content = snapshots.unseal(data, what)
        if len(content) < _HEAD.size:
            raise StateError(f"{what} is none that Slackwater has written; {snapshots.ANEW}")
        number, token, follows = _HEAD.unpack_from(content)
        return cls(Version(number, token), follows, bytes(content[_HEAD.size :]))


class _Summary(NamedTuple):
    version: Version
    base: Version
    """Of which the base is; NEW as long as there is none."""
    base_bytes: int
    log_bytes: int
    """Of the entries since the base."""
    kept: int
    """Number of the version from which all entries are there."""
    notes: dict[str, Any]

    def dumps(self) -> bytes:
        return snapshots.dumps(self._asdict())

    @classmethod
    def loads(cls, data: bytes) -> _Summary:
        tree = snapshots.loads(data, _SUMMARY)
        with snapshots.restoring(_SUMMARY):
            return cls(**{**tree, **{name: Version(*tree[name]) for name in ("version", "base")}})


class Opened(Generic[T]):
    """A shard in use, and what it has been given since it was opened."""

    shard: T

    def __init__(
        self, shards: Shards[T], key: Hashable, store: ShardStore, summary: bytes | None, least_log: int
    ) -> None:
        self._shards, self._key, self._store, self._least_log = shards, key, store, least_log
        self._found = _Summary(NEW, NEW, 0, 0, 0, {}) if summary is None else _Summary.loads(summary)
        self._given: list[bytes | None] = []
        self._over = self._goes = False
        self.notes: dict[str, Any] = dict(self._found.notes)
        """Small things that an engine keeps beside the shard: numbers and texts."""
        self.read_bytes = len(summary or b"")
        """What was read from the store."""
        self.written_bytes = 0
        """What was written to it; known once the shard has been left."""

    @property
    def is_new(self) -> bool:
        """Whether nothing has ever been committed."""
        return self._found.version == NEW

    @property
    def stored_bytes(self) -> int:
        """Bytes of the base and of the log since; once the shard has been left, as they are then."""
        return self._found.base_bytes + self._found.log_bytes

    def log(self, given: bytes | None) -> None:
        """Say what the shard was given. None is what cannot be given again: a base is written then."""
        self._given.append(given)

    def end(self) -> None:
        """Say that the shard is over: its state is dropped when it is left."""
        self._over = True

    def let_go(self) -> None:
        """Say that this process is not to hold the shard once it has been left."""
        self._goes = True

    def missed_since(self, version: Version) -> list[bytes] | None:
        """Return what was given after a version; None if that is none of those that led to the present one."""
        now = self._found.version
        if version == now:
            return []
        if not self._found.kept <= version.number < now.number:
            return None
        entries = self._entries(version)
        return [entry.given for entry in entries] if _leads(version, entries, now) else None

    def base(self) -> bytes | None:
        """Read the last snapshot; None if there is none yet."""
        if self._found.base == NEW:
            return None
        data = self._store.base()
        self.read_bytes += len(data)
        base = _Entry.loads(data, _BASE)
        if base.version.number != self._found.base.number or base.follows != _FOLLOWS_ALL:
            raise StateError(
                f"{_BASE} is number {base.version.number} and should be {self._found.base.number}: parts are "
                f"mixed up; {snapshots.ANEW}"
            )
        return base.given

    def since_base(self) -> list[bytes]:
        """Read what was given after the last snapshot."""
        base, now = self._found.base, self._found.version
        entries = self._entries(base) if self._found.log_bytes else []
        # An engine that repeats a step may keep parts of several attempts at it: Beam the log of one and the
        # summary of another, Spark a file of its state store that one has written, and changes after the next. A
        # shard does the same again, so tokens may differ; numbers have to follow each other.
        if [entry.version.number for entry in entries] != [*range(base.number + 1, now.number + 1)]:
            raise StateError(
                f"the stored state has {len(entries)} entries since number {base.number}, and should have those "
                f"that lead to {now.number}: some are missing, or of another state; {snapshots.ANEW}"
            )
        return [entry.given for entry in entries]

    def _entries(self, after: Version) -> list[_Entry]:
        read = []
        for data in self._store.log(after.number + 1):
            self.read_bytes += len(data)
            read.append(_Entry.loads(data, _ENTRY))
        return sorted(entry for entry in read if entry.version.number > after.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.shard.close()
        elif self._over:
            self._store.clear()
            self.shard.close()
        else:
            self._commit()
            if self._goes:
                self.shard.close()
            else:
                self._shards.put(self._key, self._found.version, self.shard)

    def _commit(self) -> None:
        found = self._found
        if not self._given and self.notes == found.notes:
            return
        entries, version = [], found.version
        for given in self._given:
            follows, version = version.token, version.next()
            entries.append((version.number, _Entry(version, follows, given or b"").dumps()))
        new_bytes = sum(len(entry) for _, entry in entries)
        found = found._replace(log_bytes=found.log_bytes + new_bytes)
        if None in self._given or found.log_bytes > max(GROWTH * found.base_bytes, self._least_log):
            found = self._put_base(found, version, new_bytes)
        for number, entry in entries if found.kept < version.number else ():
            self._store.append(number, entry)
            self.written_bytes += len(entry)
        self._found = found._replace(version=version, notes=self.notes)
        summary = self._found.dumps()
        self._store.put_summary(summary)
        self.written_bytes += len(summary)

    def _put_base(self, found: _Summary, version: Version, new_bytes: int) -> _Summary:
        """Write a snapshot; keep the log before it, unless what has been given now takes more than a snapshot."""
        base = _Entry(version, _FOLLOWS_ALL, snapshots.dumps(self.shard.snapshot())).dumps()
        leads_on = self._store.chooses and None not in self._given and new_bytes < len(base)
        kept = found.base.number if leads_on else version.number
        self._store.put_base(base, range(found.kept + 1, min(kept, found.version.number) + 1))
        self.written_bytes += len(base)
        return found._replace(base=version, base_bytes=len(base), log_bytes=0, kept=kept)


def _leads(start: Version, entries: list[_Entry], end: Version) -> bool:
    """Whether entries lead from one version to another without a gap."""
    versions = [start, *(entry.version for entry in entries)]
    return versions[-1] == end and all(
        entry.follows == before.token and entry.version.number == before.number + 1
        for entry, before in zip(entries, versions, strict=False)
    )
