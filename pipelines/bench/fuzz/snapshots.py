"""Damages stored state in many ways, and sees that it is refused or does no harm.

Each case takes a snapshot, or the base, log and summary of a journal, and flips bits, cuts, inserts, zeroes,
swaps, or puts bytes of another state in. What reads it has to end with a StateError, or to give the rows that the
intact state gives. Anything else is a failure; a crash ends the run.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.report import Report, Table
from slackwater.plugins.clock import clock_at
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.errors import SlackwaterError, StateError
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.operators.reorder.plan import bind_reorder
from slackwater.transforms.operators.shed.plan import bind_shed
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.models import AggregateConfig, JoinConfig, ReorderConfig, ShedConfig
from slackwater.transforms.settings.plan import Plan, bind
from slackwater.transforms.state import snapshot as snapshots
from slackwater.transforms.state.journal import Journal, Shards
from slackwater.transforms.state.log import give_again, rows_given

SCHEMA: Final = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("done", pa.bool_())])
ROWS: Final = 240
"""Rows that a state is given, two thirds of them before it is stored."""
_PUNCTUATED: Final = {"input": "b", "when": "b.done", "key": "k"}
JOINS: Final[dict[str, dict[str, Any]]] = {
    "mswj": {"disorder": {"strategy": "fixed", "slack": "40ms"}},
    "quality_driven": {"disorder": {"strategy": "quality_driven", "recall": 0.9, "interval": "100ms"}},
    "result_slack": {
        "disorder": {"strategy": "result_slack", "recall": 0.9, "interval": "100ms", "period": "1s"}
    },
    "counts": {"output": "counts", "disorder": {"strategy": "max"}},
    "prob": {"shedding": {"strategy": "prob", "memory": 20}, "metrics": "100ms"},
    "pwjoin": {"join": {"strategy": "pwjoin"}, "punctuations": _PUNCTUATED},
    "pjoin": {"join": {"strategy": "pjoin"}, "window": None, "punctuations": _PUNCTUATED},
    "mjoin": {"join": {"strategy": "mjoin"}, "window": None, "unique": ["b.k"]},
    "symmetric_hash": {"join": {"strategy": "symmetric_hash"}, "window": None},
    "xjoin": {"join": {"strategy": "xjoin", "memory": 30}, "window": None},
}
OTHERS: Final = ("aggregate", "reorder", "shed")


@cache
def plan_of(name: str) -> Plan:
    """Return the plan of a subject: a join, or an operator of another kind."""
    if name == "aggregate":
        extents = {"time": "ts", "range": "200ms", "slide": "50ms", "group_by": "k"}
        return bind_aggregate(AggregateConfig.read({**extents, "aggregates": {"n": "count(*)"}}), {"a": SCHEMA})
    if name == "reorder":
        slack = {"strategy": "fixed", "slack": "90ms"}
        return bind_reorder(ReorderConfig.read({"time": "ts", "disorder": slack}), {"input": SCHEMA})
    if name == "shed":
        return bind_shed(ShedConfig.read({"time": "ts", "rate": 80, "queue": 30}), {"rows": SCHEMA})
    config = {"time": "ts", "window": "100ms", "where": "a.k = b.k", **JOINS[name]}
    config = {key: value for key, value in config.items() if value is not None}
    return bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})


def arrivals(plan: Plan, start: int, stop: int) -> Chunk:
    """Return rows that come out of order, the same ones every time."""
    rng = np.random.default_rng(5)
    which = rng.integers(0, len(plan.inputs), ROWS).astype(np.int8)
    ts = 5 * np.arange(ROWS) - np.where(rng.random(ROWS) < 0.3, rng.integers(0, 120, ROWS), 0)
    columns = {
        "id": np.arange(ROWS),
        "ts": ts,
        "k": rng.integers(0, 8, ROWS).astype(str),
        "done": rng.random(ROWS) < 0.04,
    }
    rows = pa.RecordBatch.from_pydict(columns, schema=SCHEMA).slice(start, stop - start)
    inputs = which[start:stop]
    batches = [rows.filter(pa.array(inputs == i)) for i in range(len(plan.inputs))]
    return Chunk(inputs, np.arange(start, stop), batches)


class Parts:
    """State as named bytes, which a journal can be kept in (``ShardStore``)."""

    chooses = True

    def __init__(self, parts: dict[str, bytes] | None = None) -> None:
        self.parts = dict(parts or {})

    def summary(self) -> bytes | None:
        return self.parts.get("summary")

    def base(self) -> bytes:
        return self.parts.get("base", b"")

    def log(self, first: int) -> Iterator[bytes]:
        while (entry := self.parts.get(f"entry {first}")) is not None:
            yield entry
            first += 1

    def put_summary(self, summary: bytes) -> None:
        self.parts["summary"] = summary

    def put_base(self, base: bytes, gone: range) -> None:
        self.parts["base"] = base
        for number in gone:
            self.parts.pop(f"entry {number}", None)

    def append(self, number: int, entry: bytes) -> None:
        self.parts[f"entry {number}"] = entry

    def clear(self) -> None:
        self.parts.clear()


class Subject(NamedTuple):
    """State as it is stored, and how to go on from it."""

    name: str
    parts: dict[str, bytes]
    go_on: Callable[[dict[str, bytes]], list[Outputs]]


def subjects(names: Iterable[str]) -> Iterator[Subject]:
    """Yield a snapshot and two journals, without and with a base, of these joins and operators."""
    for name in names:
        plan = plan_of(name)
        yield Subject(f"{name}, snapshot", {"snapshot": _snapshot(plan)}, _from_snapshot(plan))
        for least_log in (1 << 20, 16_000):
            stored = _journal(plan, least_log)
            yield Subject(f"{name}, journal of {len(stored)} parts", stored, _from_journal(plan))


def _snapshot(plan: Plan) -> bytes:
    operator = open_operator(plan)
    operator.push(arrivals(plan, 0, ROWS * 2 // 3))
    data = snapshots.dumps(operator.snapshot())
    operator.close()
    return data


def _from_snapshot(plan: Plan) -> Callable[[dict[str, bytes]], list[Outputs]]:
    def go_on(parts: dict[str, bytes]) -> list[Outputs]:
        operator = open_operator(plan, snapshots.loads(parts["snapshot"]))
        try:
            return [operator.push(arrivals(plan, ROWS * 2 // 3, ROWS)), operator.finish()]
        finally:
            operator.close()

    return go_on


def _journal_of(plan: Plan, least_log: int = 1 << 20) -> Journal[Operator]:
    def replay(operator: Operator, given: bytes) -> None:
        give_again(plan, operator, given)

    return Journal(Shards[Operator](most=1), lambda old: open_operator(plan, old), replay, least_log)


def _journal(plan: Plan, least_log: int) -> dict[str, bytes]:
    store, journal = Parts(), _journal_of(plan, least_log)
    for start in range(0, ROWS * 2 // 3, 20):
        chunk = arrivals(plan, start, start + 20)
        with clock_at(start), journal.open("shard", store) as opened:
            opened.shard.push(chunk)
            opened.log(rows_given(chunk, start))
            opened.let_go()
    return store.parts


def _from_journal(plan: Plan) -> Callable[[dict[str, bytes]], list[Outputs]]:
    def go_on(parts: dict[str, bytes]) -> list[Outputs]:
        with clock_at(ROWS), _journal_of(plan).open("shard", Parts(parts)) as opened:
            opened.end()
            return [opened.shard.push(arrivals(plan, ROWS * 2 // 3, ROWS)), opened.shard.finish()]

    return go_on


def damaged(rng: np.random.Generator, parts: dict[str, bytes], other: dict[str, bytes]) -> dict[str, bytes]:
    """Return parts with one thing or a few wrong; ``other`` is the state of something else."""
    parts, names = dict(parts), sorted(parts)
    name = names[rng.integers(len(names))]
    data = bytearray(parts[name])
    at, size = int(rng.integers(len(data))), int(rng.integers(1, 200))
    match rng.integers(10):
        case 0 | 1 | 2:
            data[at] ^= 1 << int(rng.integers(8))
        case 3:
            for place in rng.integers(0, len(data), size):
                data[place] ^= int(rng.integers(256))
        case 4:
            del data[at:]
        case 5:
            del data[at : at + size]
        case 6:
            data[at:at] = rng.bytes(size)
        case 7:
            data[at : at + size] = bytes(len(data[at : at + size]))
        case 8:
            to = int(rng.integers(len(data)))
            data[at : at + 8], data[to : to + 8] = data[to : to + 8], data[at : at + 8]
        case _:
            return _mixed(rng, parts, name, other)
    return {**parts, name: bytes(data)}


def _mixed(
    rng: np.random.Generator, parts: dict[str, bytes], name: str, other: dict[str, bytes]
) -> dict[str, bytes]:
    """Return parts with a whole one in the place of another, of another state or version, or missing."""
    match rng.integers(4):
        case 0:
            swapped = sorted(parts)[rng.integers(len(parts))]
            parts[name], parts[swapped] = parts[swapped], parts[name]
        case 1 if len(parts) > 1:
            parts[name] = other[sorted(other)[rng.integers(len(other))]]
        case 2:
            parts[name] = b"SLKW2\n" + parts[name][6:]
        case _:
            parts[name] = b""
    return parts


def outcome_of(subject: Subject, parts: dict[str, bytes], expected: Any) -> str:
    """Return what reading these parts ends in: ``refused`` and ``same`` are as it should be."""
    try:
        found = rows_of(subject.go_on(parts))
    except StateError:
        return "refused"
    except SlackwaterError as error:
        return f"refused as if the user had done it: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "same" if found == expected else "changed result"


def rows_of(outputs: Iterable[Outputs]) -> list[Any]:
    """Return all rows of every output, those of a step in any order."""
    return [
        sorted(repr(row) for batch in batches for row in batch.to_pylist()) for out in outputs for batches in out
    ]


def fuzz(cases: int, seed: int, names: Iterable[str] = (*JOINS, *OTHERS)) -> Counter[str]:
    """Return how many cases ended in what."""
    rng = np.random.default_rng(seed)
    known = list(subjects(names))
    expected = [rows_of(subject.go_on(subject.parts)) for subject in known]
    found: Counter[str] = Counter()
    while found.total() < cases:
        n, other = rng.integers(len(known), size=2)
        parts = damaged(rng, known[n].parts, known[other].parts)
        if parts != known[n].parts and known[n].parts != known[other].parts:
            outcome = outcome_of(known[n], parts, expected[n])
            found[outcome if outcome in ("refused", "same") else f"{known[n].name}: {outcome}"] += 1
    return found


def run(options: argparse.Namespace, report: Report) -> None:
    """Damage, read and count; raise unless all went well."""
    started = time.perf_counter()
    found = fuzz(options.rows, options.seed)
    table = Table("outcome", "cases", title=f"{found.total():,} cases in {time.perf_counter() - started:.0f} s")
    for outcome in ("refused", "same"):
        table.add(outcome, found.pop(outcome, 0))
    for outcome, n in found.most_common(20):
        table.add(outcome, n)
    report.add(table)
    if found:
        told = "; ".join(f"{n} × {outcome}" for outcome, n in found.most_common(20))
        raise SlackwaterError(f"damaged state was not refused: {told}; mend what reads it")
