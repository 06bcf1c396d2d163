"""Joins of inputs that never end: rows are processed as they arrive, and state is kept by a journal."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow, WindowedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from slackwater.plugins.clock import now_nanos
from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.beam.metrics import report, report_journal
from slackwater.transforms.beam.outputs import ACCOUNTING, MAIN
from slackwater.transforms.beam.shard import ORDER
from slackwater.transforms.engine.account import Account
from slackwater.transforms.engine.collector import by_name
from slackwater.transforms.engine.driver import ShardDriver, since_last
from slackwater.transforms.engine.faults import naming_rows
from slackwater.transforms.engine.frontier import WaitingRows
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.settings.time_unit import NANOS
from slackwater.transforms.sharding.copies import with_columns
from slackwater.transforms.state.journal import Journal, Opened, Shards
from slackwater.transforms.state.log import give_again, idle_given, rows_given

_PART: Final = 1 << 20
"""Bytes of a base that are one element of a bag: runners limit how large these may be."""
_PLACE: Final = struct.Struct("<i")
_SHARDS: Final[Shards[ShardDriver]] = Shards()
"""Those of all joins that this process works on."""
_END, _EXPIRED = "end", "expired"


class BeamStore:
    """The state of one shard as Beam keeps it; a bag gives its elements in any order, and all or none."""

    chooses = False

    def __init__(self, summary: Any, base: Any, log: Any) -> None:
        self._summary, self._base, self._log = summary, base, log

    def summary(self) -> bytes | None:
        found: bytes | None = self._summary.read()
        return found

    def base(self) -> bytes:
        parts = sorted(self._base.read(), key=lambda part: int.from_bytes(part[: _PLACE.size], "little"))
        return b"".join(part[_PLACE.size :] for part in parts)

    def log(self, first: int) -> Iterable[bytes]:
        entries: Iterable[bytes] = self._log.read()
        return entries

    def put_summary(self, summary: bytes) -> None:
        self._summary.write(summary)

    def put_base(self, base: bytes, gone: range) -> None:
        self._base.clear()
        self._log.clear()
        for place, start in enumerate(range(0, len(base), _PART)):
            self._base.add(_PLACE.pack(place) + base[start : start + _PART])

    def append(self, number: int, entry: bytes) -> None:
        self._log.add(entry)

    def clear(self) -> None:
        for state in (self._summary, self._base, self._log):
            state.clear()


class LiveShard(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Gives every piece to the operator of its shard when it arrives.

    Rows arrive in the order in which pieces reach this step; an arrival column orders the rows of a piece. An
    input that brings none for ``idle_timeout`` holds nothing back any more. When the watermark reaches the end of
    the window, everything held is released; when no more rows can come for it, its state goes.

    Args:
        plan: the join.
        lateness: how long after the end of a window Beam lets rows in.
    """

    SUMMARY = ReadModifyWriteStateSpec("summary", BytesCoder())
    BASE = BagStateSpec("base", BytesCoder())
    LOG = BagStateSpec("log", BytesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)
    _SUMMARY: Any = beam.DoFn.StateParam(SUMMARY)
    _BASE: Any = beam.DoFn.StateParam(BASE)
    _LOG: Any = beam.DoFn.StateParam(LOG)
    _END: Any = beam.DoFn.TimerParam(END)

    def __init__(self, plan: Plan, lateness: Duration) -> None:
        self._plan, self._lateness = plan, lateness
        self._join = uuid.uuid4().hex
        timeout = plan.idle_timeout
        self._timeout = None if timeout is None else timeout / 1e9

    def process(
        self,
        element: tuple[int, tuple[int, pa.RecordBatch]],
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        summary: Any = _SUMMARY,
        base: Any = _BASE,
        log: Any = _LOG,
        end: Any = _END,
    ) -> Iterator[Any]:
        """Process the rows of a piece."""
        yield from self._take(element, timestamp, window, BeamStore(summary, base, log), end)

    @on_timer(END)
    def end_window(
        self,
        shard: int = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        tag: str = beam.DoFn.DynamicTimerTagParam,
        summary: Any = _SUMMARY,
        base: Any = _BASE,
        log: Any = _LOG,
        end: Any = _END,
    ) -> Iterator[Any]:
        """Release everything; drop the state, unless Beam may let more rows in."""
        yield from self._finish(shard, window, tag, BeamStore(summary, base, log), end)

    def _take(
        self,
        element: tuple[int, tuple[int, pa.RecordBatch]],
        timestamp: Any,
        window: Any,
        store: BeamStore,
        end: Any,
        idle: Any = None,
    ) -> Iterator[Any]:
        shard, (which, batch) = element
        member = self._plan.counts_as[which]
        with self._open(shard, window, store) as opened:
            notes, new = opened.notes, opened.is_new
            silent = set(notes.get("idle", ())) - {member}
            notes.update(stamp=timestamp.micros, idle=sorted(silent))
            before = opened.shard.accounting.mark()
            outputs = self._push(opened, self._arrivals(notes, which, batch))
        if new:
            end.set(window.max_timestamp(), dynamic_timer_tag=_END)
        if self._timeout is not None:
            due = Timestamp(micros=now_nanos() // 1000) + self._timeout
            for spoke in range(len(self._plan.members)) if new else (member,):
                idle.set(due, dynamic_timer_tag=str(spoke))
        self._report(opened, before)
        yield from _tagged(outputs, timestamp, window)

    def _finish(
        self, shard: int, window: Any, tag: str, store: BeamStore, end: Any, idle: Any = None
    ) -> Iterator[Any]:
        with self._open(shard, window, store) as opened:
            before = opened.shard.accounting.mark()
            if tag == _END and self._lateness > 0 and not isinstance(window, GlobalWindow):
                end.set(window.max_timestamp() + self._lateness, dynamic_timer_tag=_EXPIRED)
                outputs = self._rest(opened, range(len(self._plan.members)))
                yield from _tagged(outputs, window.max_timestamp(), window)
            else:
                for outputs in opened.shard.finish():
                    yield from _tagged(outputs, window.max_timestamp(), window)
                account = Account(shard, opened.shard.accounting, opened.shard.warnings)
                yield beam.pvalue.TaggedOutput(ACCOUNTING, account.dumps())
                for member in range(len(self._plan.members)) if self._timeout is not None else ():
                    idle.clear(dynamic_timer_tag=str(member))
                opened.end()
        self._report(opened, before)

    def _open(self, shard: int, window: Any, store: BeamStore) -> Opened[ShardDriver]:
        plan = self._plan
        journal = Journal(
            _SHARDS,
            lambda snapshot: ShardDriver(plan, shard, snapshot),
            lambda driver, given: give_again(plan, driver, given),
        )
        with naming_rows(plan, shard):
            return journal.open((self._join, shard, window), store)

    def _push(self, opened: Opened[ShardDriver], chunk: Chunk) -> Outputs:
        nanos, driver = now_nanos(), opened.shard
        started = time.perf_counter()
        outputs = driver.push(chunk, nanos)
        driver.measure(time.perf_counter() - started)
        opened.log(None if driver.measures else rows_given(chunk, nanos))
        return outputs

    def _rest(self, opened: Opened[ShardDriver], silent: Iterable[int]) -> Outputs:
        opened.notes["idle"] = members = sorted(silent)
        outputs = opened.shard.idle(members)
        opened.log(None if opened.shard.measures else idle_given(members))
        return outputs

    def _arrivals(self, notes: dict[str, Any], which: int, batch: pa.RecordBatch) -> Chunk:
        """Return the rows of a piece in the order in which they arrived."""
        names = self._plan.schemas[self._plan.inputs[which]].names
        first = notes.get("arrived", 0)
        notes["arrived"] = first + batch.num_rows
        ordered = ORDER in batch.schema.names
        numbers = int64s(batch.column(ORDER)) if ordered else first + np.arange(batch.num_rows)
        waiting = WaitingRows(self._plan)
        waiting.add(which, numbers, with_columns(batch, names))
        chunk = waiting.take().whole()
        return chunk if self._plan.queue is None else chunk._replace(came=_since_last(notes, chunk.input.size))

    def _report(self, opened: Opened[ShardDriver], before: Any) -> None:
        driver = opened.shard
        report(driver.accounting, NANOS[self._plan.unit], driver.nbytes, before)
        report_journal(opened)


class IdleLiveShard(LiveShard):
    """As ``LiveShard``, with a timer by the clock for every input: a step of its own, as a step that has such a
    timer cannot run on every runner, whether it sets it or not."""

    IDLE = TimerSpec("idle", TimeDomain.REAL_TIME)
    END = TimerSpec("end", TimeDomain.WATERMARK)  # a timer has one method only
    _SUMMARY, _BASE, _LOG = LiveShard._SUMMARY, LiveShard._BASE, LiveShard._LOG
    _IDLE: Any = beam.DoFn.TimerParam(IDLE)
    _END: Any = beam.DoFn.TimerParam(END)

    def process(
        self,
        element: tuple[int, tuple[int, pa.RecordBatch]],
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        summary: Any = _SUMMARY,
        base: Any = _BASE,
        log: Any = _LOG,
        end: Any = _END,
        idle: Any = _IDLE,
    ) -> Iterator[Any]:
        """Process the rows of a piece."""
        yield from self._take(element, timestamp, window, BeamStore(summary, base, log), end, idle)

    @on_timer(IDLE)
    def fall_idle(
        self,
        shard: int = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        tag: str = beam.DoFn.DynamicTimerTagParam,
        summary: Any = _SUMMARY,
        base: Any = _BASE,
        log: Any = _LOG,
    ) -> Iterator[Any]:
        """Release what an input holds back that has been silent for too long."""
        with self._open(shard, window, BeamStore(summary, base, log)) as opened:
            if opened.is_new:
                opened.end()
                return
            before = opened.shard.accounting.mark()
            outputs = self._rest(opened, {*opened.notes["idle"], int(tag)})
        self._report(opened, before)
        # A timer by the clock fires at no event time. The last piece has one, which is in the window.
        yield from _tagged(outputs, Timestamp(micros=opened.notes["stamp"]), window)

    @on_timer(END)
    def end_window(
        self,
        shard: int = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        tag: str = beam.DoFn.DynamicTimerTagParam,
        summary: Any = _SUMMARY,
        base: Any = _BASE,
        log: Any = _LOG,
        end: Any = _END,
        idle: Any = _IDLE,
    ) -> Iterator[Any]:
        """Release everything; drop the state, unless Beam may let more rows in."""
        yield from self._finish(shard, window, tag, BeamStore(summary, base, log), end, idle)


def _since_last(notes: dict[str, Any], n: int) -> Int64s:
    """Return when the rows of a piece came, in microseconds: one after the other since the last piece."""
    now = now_nanos() // 1000
    before = notes.get("taken", now)
    notes["taken"] = now
    return since_last(before, now, n)


def _tagged(outputs: Outputs, stamp: Timestamp, window: Any) -> Iterator[Any]:
    """Yield outputs as Beam takes them, each with its tag, Beam's event time and window."""
    for tag, batch in by_name(outputs, MAIN):
        value = WindowedValue(batch, stamp, (window,))
        yield value if tag == MAIN else beam.pvalue.TaggedOutput(tag, value)
