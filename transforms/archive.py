"""The archive of a join: every row that results were missed of, and the rows that it could have met (SAJ 2.2).

A row is written when nothing can happen to it any more, with three numbers beside it. ``pos`` is its place in
the order in which rows reached the join. ``gone`` is the place of the last row that could have met it: of one
that was evicted where that happened, of one that never was in a window its own. ``late`` says that it came too
late to look for partners itself.

A result of the exact join was produced if and only if its member with the largest ``pos`` was not late and not
after the ``gone`` of any other member: it looked for the others when it came, and nobody could have later. So
what was missed can be told from the archive alone.

Files are Parquet, by input and time. Those that no missed row reaches are removed at the end.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.plugins.contract import UNBOUNDED, Bools, Evicted, Int64s, Released, Snapshot
from slackwater.plugins.options import Duration
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.rowstore import RowStore

POS: Final = "__pos"
GONE: Final = "__gone"
LATE: Final = "__late"
STAYS: Final = 1 << 62
"""``gone`` of a row that stayed as long as its window."""
SETTINGS: Final = "join.json"
BUCKET: Final = 16
"""Longest windows per bucket of time."""
_SEQ, _POS, _GONE, _LATE = range(4)


def prepare(plan: JoinPlan) -> None:
    """Make the archive's directory and note what the join is; raise ConfigError if there is one already."""
    if plan.config.archive is None:
        return
    directory = Path(plan.config.archive)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(
                f"directory {str(directory)!r} is not empty; name a new one, or empty it", "archive"
            )
        (directory / SETTINGS).write_text(json.dumps(settings_of(plan), indent=1))
    except OSError as error:
        fault = (
            f"cannot write to {str(directory)!r}: {error.strerror or error}; name a directory that can be written"
        )
        raise ConfigError(fault, "archive") from None


def settings_of(plan: JoinPlan) -> dict[str, Any]:
    """Return what it takes to do the join again, exactly."""
    config: dict[str, Any] = plan.config.model_dump(include={"time", "time_unit", "where"})
    window = plan.config.window
    config["window"] = str(window) if isinstance(window, Duration) else window
    schemas = {name: base64.b64encode(schema.serialize()).decode() for name, schema in plan.schemas.items()}
    return {"version": 1, "join": config, "schemas": schemas}


def produced(members: Sequence[tuple[Int64s, Int64s, Bools]]) -> Bools:
    """Say which results were produced; ``members`` are ``pos``, ``gone`` and ``late`` of each input's member."""
    pos = np.stack([member[0] for member in members])
    last = pos.argmax(axis=0)
    at = np.arange(pos.shape[1])
    out = ~np.stack([member[2] for member in members])[last, at]
    for i, (_, gone, _) in enumerate(members):
        out &= (last == i) | (gone >= pos[last, at])
    return out


class Archive:
    """What one shard has to keep for later.

    Args:
        plan: the join; its setting ``archive`` names the directory.
        shard: number of the shard: it has files of its own.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: JoinPlan, shard: int, snapshot: Snapshot | None = None) -> None:
        assert plan.config.archive is not None
        self._plan, self._shard = plan, shard
        self._directory = Path(plan.config.archive)
        reach = max(plan.windows)
        self._bucket = 1 << 62 if reach >= UNBOUNDED else max(1, BUCKET * reach)
        self._first = 0
        self._position = int(snapshot["position"]) if snapshot else 0
        self._files = int(snapshot["files"]) if snapshot else 0
        self._missed: set[int] = set(snapshot["missed"]) if snapshot else set()
        """Buckets with rows that results were missed of."""
        self._written: set[int] = set(snapshot["written"]) if snapshot else set()
        none = np.empty((0, 4), np.int64)
        self._fates = (
            [np.array(f, np.int64) for f in snapshot["fates"]] if snapshot else [none] * len(plan.inputs)
        )
        """Of each input's rows that have reached the join and are not written: seq, pos, gone, late."""

    def release(self, released: Released, on_t: int) -> None:
        """Note rows in the order in which they reach the join, whose time was ``on_t`` before them."""
        n = released.ts.size
        self._first = self._position
        self._position += n
        pos = self._first + np.arange(n)
        newest = np.maximum.accumulate(np.append(on_t, released.ts))[:-1]
        kept = ~released.late | (released.ts >= newest - np.asarray(self._plan.windows)[released.input])
        self._note(released, pos, np.where(kept, STAYS, pos))

    def pass_over(self, released: Released) -> None:
        """Note rows that never reached the join."""
        never = np.full(released.ts.size, -1)
        self._note(released._replace(late=np.ones(never.size, np.bool_)), never, never)

    def evict(self, evicted: Evicted) -> None:
        """Note rows of those released just now, or before, that went for lack of memory."""
        for i, fates in enumerate(self._fates):
            mine = np.flatnonzero(evicted.input == i)
            places = np.searchsorted(fates[:, _SEQ], evicted.seq[mine])
            fates[places, _GONE] = self._first + evicted.at[mine]

    def write(self, which: int, store: RowStore, places: Int64s) -> None:
        """Write those of the rows that the join should have seen; nothing happens to them any more."""
        fates, ts, seqs = self._fates[which], store.beside.ts[places], store.beside.seq[places]
        at = np.minimum(np.searchsorted(fates[:, _SEQ], seqs), max(0, len(fates) - 1))
        known = np.flatnonzero(fates[at, _SEQ] == seqs) if len(fates) else np.empty(0, np.int64)
        order = known[np.argsort(ts[known], kind="stable")]
        mine = fates[at[order]]
        self._fates[which] = np.delete(fates, at[order], axis=0)
        rows = store.batch(places[order])
        columns = {POS: mine[:, _POS], GONE: mine[:, _GONE], LATE: mine[:, _LATE] != 0}
        for name, values in columns.items():
            rows = rows.append_column(name, pa.array(values))
        buckets = ts[order] // self._bucket
        self._missed.update(np.unique(buckets[(mine[:, _GONE] < STAYS) | (mine[:, _LATE] != 0)]).tolist())
        cuts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(order)]
        for start, stop in pairwise(cuts):
            if stop > start:
                self._write_bucket(which, int(buckets[start]), rows.slice(start, stop - start))

    def close(self, stores: Sequence[RowStore]) -> None:
        """Write all rows that are left, and remove the files that no missed row reaches."""
        for which, store in enumerate(stores):
            self.write(which, store, np.arange(len(store)))
        needed = {bucket + way for bucket in self._missed for way in (-1, 0, 1)}
        for bucket in sorted(self._written - needed):
            for name in self._plan.inputs:
                for file in self._folder(name, bucket).glob(f"{self._shard:05}-*.parquet"):
                    file.unlink()

    def _note(self, released: Released, pos: Int64s, gone: Int64s) -> None:
        fates = np.column_stack([released.seq, pos, gone, released.late])
        for i in range(len(self._fates)):
            mine = fates[released.input == i]
            if len(mine):
                both = np.concatenate([self._fates[i], mine])
                self._fates[i] = both[np.argsort(both[:, _SEQ], kind="stable")]

    def _write_bucket(self, which: int, bucket: int, rows: pa.RecordBatch) -> None:
        folder = self._folder(self._plan.inputs[which], bucket)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(rows), folder / f"{self._shard:05}-{self._files:08}.parquet")
        except OSError as error:
            fault = (
                f"archive: cannot write to {str(folder)!r}: {error.strerror or error}; make room, or name another"
            )
            raise SlackwaterError(fault) from None
        self._files += 1
        self._written.add(bucket)

    def _folder(self, name: str, bucket: int) -> Path:
        return self._directory / f"input={name}" / f"bucket={bucket}"

    def snapshot(self) -> Snapshot:
        return {
            "position": self._position,
            "files": self._files,
            "missed": sorted(self._missed),
            "written": sorted(self._written),
            "fates": self._fates,
        }
