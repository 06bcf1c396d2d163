"""What became of every row: the numbers behind the summary."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from slackwater.plugins.contract import Bools, Float64s, Int8s, Int64s, Released, Setting, Snapshot
from slackwater.transforms.errors import AccountError
from slackwater.transforms.output.latency import Waited

_MAX_DIFFERENT = 4096
_SHARES = 1 << 20
"""Shares of rows are counted in parts of this, so that sums are exact whatever the chunks."""
MORE_MEMORY: Final = np.append(0.0, 2.0 ** np.arange(-4, 8, 0.25))
"""Shares of the memory by which it might have been larger, for which ``Accounting.still_shed`` is kept."""
_BY_DISORDER, _BY_SHEDDING = range(2)


class Accounting:
    """Counts of one shard. Addable: the account of a join is the sum over its shards."""

    def __init__(self, inputs: tuple[str, ...], snapshot: Snapshot | None = None) -> None:
        self.inputs = inputs
        m = len(inputs)
        self.received = np.zeros(m, np.int64)
        self.in_order = np.zeros(m, np.int64)
        self.missed = np.zeros((2, m))
        """Rows of each input that came too late, each as the share of its partners that had gone by; and those
        that were shed before they reached the join."""
        self.late: Counter[tuple[int, str]] = Counter()
        self.copies_in_order = np.zeros(m, np.int64)
        """Copies of rows that another shard accounts for, which came in order in this one."""
        self.late_copies: Counter[tuple[int, str]] = Counter()
        """Copies that did not: they are in the late output too, as this shard misses their results."""
        self.punctuations = np.zeros(m, np.int64)
        """Rows of each input that were punctuations, not tuples."""
        self.finished = 0
        """Punctuations that left."""
        self.results = 0
        self.shed = 0.0
        """Results that tuples in order did not complete because members had been shed (``shedding.shadow``)."""
        self.shed_by = ""
        """How these were found; empty where nothing counts them."""
        self.still_shed = np.zeros(MORE_MEMORY.size)
        """Of these, how many would have been missed with that much more memory, of each of ``MORE_MEMORY``."""
        self.slack: Counter[int] = Counter()
        """How many arrivals met which slack, in ticks."""
        self.last_slack: int | None = None
        """The slack that the last arrival met, as far as this process has seen."""
        self.last_tuples = 0
        """Tuples held when that was last noted, in this process."""
        self.max_tuples = 0
        self.max_bytes = 0
        self.max_shard_bytes = 0
        """Bytes that any one shard has held, at most."""
        self.spilled_tuples = 0
        """Tuples that went to disk."""
        self.spilled_bytes = 0
        """Bytes that were on disk, at most."""
        self.queued = 0
        """Rows that waited for the join to be free, at most."""
        self.overflowed = np.zeros(m, np.int64)
        """Rows of each input that were shed before they reached the join."""
        self.waits: Counter[int] = Counter()
        """How many rows waited for how many nanoseconds until the join was free."""
        self.waited = Waited(snapshot.get("waited") if snapshot else None)
        """How long rows waited to be joined, and for which input."""
        self.source: list[int] | None = None
        """Rows that were read for each input, where whoever read them has said so."""
        self.filtered: list[int] | None = None
        """Of these, what Filter dropped."""
        if snapshot:
            self._restore(snapshot)

    def receive(self, inputs: Int8s) -> None:
        """Count rows as they come in."""
        self.received += np.bincount(inputs, minlength=len(self.inputs))

    def reject(self, which: int, reason: str, n: int) -> None:
        """Count rows that go to the late output."""
        if n:
            self.late[which, reason] += n

    def reject_each(self, rows: Int64s, reason: str) -> None:
        """Count rows of every input that go to the late output."""
        for which, n in enumerate(rows.tolist()):
            self.reject(which, reason, n)

    def recall_each(self, rows: Int64s, reason: str) -> None:
        """Count rows of every input that go to the late output after they were counted as in order."""
        self.in_order -= rows
        self.reject_each(rows, reason)

    def reject_copies(self, which: int, reason: str, n: int) -> None:
        """Count copies that go to the late output; their homes account for the rows."""
        if n:
            self.late_copies[which, reason] += n

    def refuse(self, which: int, reason: str, n: int, copies: bool = False) -> None:
        """Count rows, or copies, that never reach the join; those with a time are missed altogether."""
        if copies:
            self.reject_copies(which, reason, n)
        else:
            self.reject(which, reason, n)
            self.overflowed[which] += n if reason == "shed" else 0
        if reason != "bad_record":
            self.missed[_BY_SHEDDING if reason == "shed" else _BY_DISORDER, which] += n * _SHARES

    def join(
        self, inputs: Int8s, late: Bools, gone: Float64s, join_size: Int64s, copy: Bools | None = None
    ) -> None:
        """Count tuples that reached the join, and what they gave.

        Args:
            inputs: input of each tuple.
            late: whether it came too late.
            gone: for the late ones, the share of their partners that had been joined before.
            join_size: results it completed.
            copy: which of them another shard counts, if there are such; what they find and miss is counted here.
        """
        m = len(self.inputs)
        self.results += int(join_size.sum())
        if late.any():
            self.missed[_BY_DISORDER] += np.bincount(inputs[late], weights=np.rint(gone * _SHARES), minlength=m)
        if copy is not None:
            self.copies_in_order += np.bincount(inputs[copy & ~late], minlength=m)
            inputs, late = inputs[~copy], late[~copy]
        too_late = np.bincount(inputs[late], minlength=m)
        self.reject_each(too_late, "too_late")
        self.in_order += np.bincount(inputs, minlength=m) - too_late

    def punctuate(self, inputs: Int8s) -> None:
        """Count rows that were punctuations."""
        self.punctuations += np.bincount(inputs, minlength=len(self.inputs))

    def hold(self, slack: Int64s) -> None:
        """Note the slack that each arrival met."""
        _count(self.slack, slack)
        if slack.size:
            self.last_slack = int(slack[-1])

    def wait(self, nanos: Int64s) -> None:
        """Note how long rows waited until the join was free."""
        _count(self.waits, nanos)

    def queue_up(self, rows: int) -> None:
        """Note how many rows wait until the join is free."""
        self.queued = max(self.queued, rows)

    def state(self, tuples: int, nbytes: int) -> None:
        """Note how much is held."""
        self.last_tuples = tuples
        self.max_tuples = max(self.max_tuples, tuples)
        self.max_bytes = max(self.max_bytes, nbytes)
        self.max_shard_bytes = max(self.max_shard_bytes, nbytes)

    def spill(self, tuples: int, nbytes: int) -> None:
        """Note how many tuples have gone to disk, and the bytes that are there."""
        self.spilled_tuples = tuples
        self.spilled_bytes = max(self.spilled_bytes, nbytes)

    def __iadd__(self, other: Accounting) -> Accounting:
        """Add the account of another shard; their states are held at the same time."""
        self.received += other.received
        self.in_order += other.in_order
        self.missed += other.missed
        self.late += other.late
        self.copies_in_order += other.copies_in_order
        self.late_copies += other.late_copies
        self.punctuations += other.punctuations
        self.finished += other.finished
        self.slack += other.slack
        self.results += other.results
        self.shed += other.shed
        self.shed_by = self.shed_by or other.shed_by
        self.still_shed += other.still_shed
        self.max_tuples += other.max_tuples
        self.max_bytes += other.max_bytes
        self.max_shard_bytes = max(self.max_shard_bytes, other.max_shard_bytes)
        self.spilled_tuples += other.spilled_tuples
        self.spilled_bytes += other.spilled_bytes
        self.queued += other.queued
        self.overflowed += other.overflowed
        self.waits += other.waits
        self.waited += other.waited
        return self

    def __sub__(self, before: Accounting) -> Accounting:
        """Return what has come since ``before``; slack and state are not part of it."""
        part = Accounting(self.inputs)
        part.received = self.received - before.received
        part.in_order = self.in_order - before.in_order
        part.missed = self.missed - before.missed
        part.late = self.late - before.late
        part.copies_in_order = self.copies_in_order - before.copies_in_order
        part.late_copies = self.late_copies - before.late_copies
        part.punctuations = self.punctuations - before.punctuations
        part.finished = self.finished - before.finished
        part.results = self.results - before.results
        part.shed = self.shed - before.shed
        part.shed_by = self.shed_by
        part.overflowed = self.overflowed - before.overflowed
        return part

    def mark(self) -> Accounting:
        """Return an account to subtract later; slack and state are not part of it."""
        return self - Accounting(self.inputs)

    def missed_results(self) -> dict[str, float]:
        """Return how many results were missed, estimated: ``late`` for disorder, ``shed`` for lack of memory.

        A row that came too late is taken to belong to as many results as the average row of its input that
        came in time, less the share that it can still complete from its window. So is a row that was shed before
        it reached the join. Of a row with copies, each belongs to the results of its own shard.
        """
        possible, in_order = self.results + self.shed, self.in_order + self.copies_in_order
        shares = np.divide(self.missed / _SHARES, in_order, out=np.zeros_like(self.missed), where=in_order > 0)
        late, unseen = (shares.sum(axis=1) * possible).tolist()
        return {"late": late, "shed": self.shed + unseen}

    @property
    def shed_unmeasured(self) -> bool:
        """Whether the join shed rows, and nothing tells how many results that cost."""
        shed = sum(n for (_, reason), n in self.late.items() if reason == "shed")
        return not self.shed_by and shed > self.overflowed.sum()

    def recall_estimate(self) -> float | None:
        """Produced results over produced and missed ones, or None if there is nothing to go by."""
        if self.shed_unmeasured:
            return None
        missed = sum(self.missed_results().values())
        if not self.results and not missed:
            return None if self.late else 1.0
        return float(self.results / (self.results + missed))

    def memory_for(self, shed: float) -> float:
        """Return how many times the memory would lose no more than ``shed`` results by shedding, at least 1.

        Infinite where that is more than there is an estimate for.
        """
        if self.shed <= shed:
            return 1.0
        # An estimate from samples may rise where it should fall.
        still = np.minimum.accumulate(self.still_shed)
        if still[-1] > shed:
            return float("inf")
        return float(1 + np.interp(-shed, -still, MORE_MEMORY))

    def summary(self, nanos_per_tick: int) -> dict[str, Any]:
        """The part of the summary that the operator knows."""
        missed: dict[str, Any] = {way: round(n) for way, n in self.missed_results().items()}
        if self.shed_unmeasured:
            missed["shed"] = None
        return {
            "input": {name: int(n) for name, n in zip(self.inputs, self.received, strict=True)},
            "results": self.results,
            "late": dict(sorted(self.late_rows().items())),
            "punctuations": {"in": int(self.punctuations.sum()), "out": self.finished},
            "slack_ms": _spread_ms(self.slack, nanos_per_tick),
            "recall_estimate": self.recall_estimate() if self.received.all() else None,
            "latency_ms": self.waited.latency_ms(nanos_per_tick),
            "queue": {
                "max_rows": self.queued,
                "shed": int(self.overflowed.sum()),
                "wait_ms": _spread_ms(self.waits, 1),
            },
            "missed": {**missed, **self._found_by()},
            "state": {
                "max_tuples": self.max_tuples + self.queued,
                "max_bytes": self.max_bytes,
                "max_shard_bytes": self.max_shard_bytes,
                "spilled_tuples": self.spilled_tuples,
                "spilled_bytes": self.spilled_bytes,
            },
            "accounting": {
                name: {
                    **({} if self.source is None else {"source": self.source[i]}),
                    **({} if self.filtered is None else {"filtered": self.filtered[i]}),
                    "input": int(self.received[i]),
                    "joined_or_expired": int(self.in_order[i] + self.overflowed[i]) - self.late[i, "shed"],
                    "punctuations": int(self.punctuations[i]),
                    "late": {r: n for (j, r), n in sorted(self.late.items()) if j == i},
                    **self._copies_of(i),
                    "balanced": self.balanced(i),
                }
                for i, name in enumerate(self.inputs)
            },
        }

    def late_rows(self) -> Counter[str]:
        """Return how many rows the late output has, by reason; a row is there once for every shard it came too
        late in."""
        rows: Counter[str] = Counter()
        for (_, reason), n in (*self.late.items(), *self.late_copies.items()):
            rows[reason] += n
        return rows

    def balanced(self, which: int) -> bool:
        """Whether every row of an input is accounted for: in order, a punctuation, or late with a reason."""
        return int(self.received[which]) == self.accounted(which)

    def accounted(self, which: int) -> int:
        """How many rows of an input are in order, a punctuation, or late with a reason."""
        late = sum(n for (j, reason), n in self.late.items() if j == which and reason != "shed")
        return int(self.in_order[which] + self.punctuations[which] + self.overflowed[which]) + late

    def settle(self, given: Int64s) -> None:
        """Raise AccountError unless every row is accounted for, of those that a shard was given until its end."""
        for i, name in enumerate(self.inputs):
            if not given[i] == self.received[i] == self.accounted(i):
                raise AccountError.of(
                    f"of input {name!r}, a shard was given {given[i]} rows, received {self.received[i]} and "
                    f"accounts for {self.accounted(i)}"
                )

    def snapshot(self) -> Snapshot:
        return {
            "received": self.received.copy(),
            "in_order": self.in_order.copy(),
            "missed": self.missed.copy(),
            "late": [[i, reason, n] for (i, reason), n in self.late.items()],
            "copies_in_order": self.copies_in_order.copy(),
            "late_copies": [[i, reason, n] for (i, reason), n in self.late_copies.items()],
            "slack": [[k, n] for k, n in self.slack.items()],
            "punctuations": self.punctuations.copy(),
            "finished": self.finished,
            "results": self.results,
            "shed": [self.shed, self.shed_by],
            "still_shed": self.still_shed.copy(),
            "max": [self.max_tuples, self.max_bytes, self.max_shard_bytes],
            "spilled": [self.spilled_tuples, self.spilled_bytes],
            "queued": self.queued,
            "overflowed": self.overflowed.copy(),
            "waits": [[k, n] for k, n in self.waits.items()],
            "waited": self.waited.snapshot(),
        }

    def _restore(self, snapshot: Snapshot) -> None:
        self.received[:] = snapshot["received"]
        self.in_order[:] = snapshot["in_order"]
        self.missed[:] = snapshot["missed"]
        self.late = Counter({(i, reason): n for i, reason, n in snapshot["late"]})
        self.copies_in_order[:] = snapshot["copies_in_order"]
        self.late_copies = Counter({(i, reason): n for i, reason, n in snapshot["late_copies"]})
        self.slack = Counter({k: n for k, n in snapshot["slack"]})
        self.punctuations[:] = snapshot["punctuations"]
        self.finished = snapshot["finished"]
        self.results = snapshot["results"]
        self.shed, self.shed_by = snapshot["shed"]
        self.still_shed[:] = snapshot["still_shed"]
        self.max_tuples, self.max_bytes, self.max_shard_bytes = snapshot["max"]
        self.spilled_tuples, self.spilled_bytes = snapshot["spilled"]
        self.queued = snapshot["queued"]
        self.overflowed[:] = snapshot["overflowed"]
        self.waits = Counter({k: n for k, n in snapshot["waits"]})

    def _copies_of(self, which: int) -> dict[str, dict[str, int]]:
        late = {reason: n for (i, reason), n in sorted(self.late_copies.items()) if i == which}
        return {"late_copies": late} if late else {}

    def _found_by(self) -> dict[str, str]:
        return {"shed_by": self.shed_by} if self.shed_by else {}


def _count(seen: Counter[int], values: Int64s) -> None:
    """Count lengths of time; once there are too many different ones, they are rounded to three digits."""
    if values.size and values[0] == values[-1] and (values == values[0]).all():
        seen[int(values[0])] += values.size
    else:
        for value, n in zip(*np.unique(values, return_counts=True), strict=True):
            seen[int(value)] += int(n)
    if len(seen) > _MAX_DIFFERENT:
        counted = list(seen.items())
        seen.clear()
        for value, n in counted:
            seen[int(float(f"{value:.2e}"))] += n


def _spread_ms(seen: Counter[int], nanos: int) -> dict[str, float]:
    if not seen:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    values, counts = map(np.array, zip(*sorted(seen.items()), strict=True))
    ms = values * (nanos / 1e6)
    share = np.cumsum(counts) / counts.sum()
    return {
        "mean": float((ms * counts).sum() / counts.sum()),
        "p50": float(ms[np.searchsorted(share, 0.5)]),
        "p99": float(ms[np.searchsorted(share, 0.99)]),
        "max": float(ms[-1]),
    }


def partners_gone(released: Released, setting: Setting, on_t: int) -> tuple[Float64s, int]:
    """Return, for the late tuples of a run, the share of their partners' time span that the join has passed.

    Of windows of rows nothing is known: all of it. Also returns the join's time after the run; ``on_t`` is that
    before.
    """
    late, ts = released.late, released.ts
    if not late.any():
        return np.empty(0), int(ts[-1])
    newest = np.maximum(np.maximum.accumulate(ts), on_t)
    if setting.rows:
        return np.ones(np.count_nonzero(late)), int(newest[-1])
    own = np.asarray(setting.windows, np.float64)
    others = (own.sum() - own) / max(1, len(own) - 1)
    which = released.input[late]
    share = (others[which] + newest[late] - ts[late]) / np.maximum(own[which] + others[which], 1.0)
    return np.asarray(np.minimum(1.0, share), np.float64), int(newest[-1])
