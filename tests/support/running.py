"""Feeds rows to an operator in chunks, through snapshots if wanted, and gathers what comes out."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins import JoinStrategy, Setting, Snapshot
from slackwater.transforms.operators.join import Chunk, Operator, Outputs
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind
from slackwater.transforms.state import snapshot as snapshots

Row = dict[str, Any]
Arrival = tuple[int, Row]

NAMES = tuple("abcdefgh")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


def plan_of(
    schemas: pa.Schema | Sequence[pa.Schema] | Mapping[str, pa.Schema], m: int = 2, **settings: Any
) -> JoinPlan:
    """Bind a join of inputs a, b, c, … ; the event time is ``ts``, and nothing guards it, unless told.

    The guard holds the first rows back until others confirm them, more than most tests have: chunks would not be
    cut where they say. ``guard={}`` is the default guard.
    """
    if isinstance(schemas, pa.Schema):
        schemas = [schemas] * m
    if not isinstance(schemas, Mapping):
        schemas = dict(zip(NAMES, schemas, strict=False))
    return bind(JoinConfig.read({"time": "ts", "guard": "none", **settings}), schemas)


def disorder_of(slack: int | str) -> dict[str, Any]:
    """The disorder setting that a slack of the reference stands for."""
    return {"strategy": slack} if isinstance(slack, str) else {"strategy": "fixed", "slack": f"{slack}ms"}


def chunk_of(plan: JoinPlan, arrivals: Sequence[Arrival], first: int = 0) -> Chunk:
    """One chunk; arrivals are numbered from ``first`` where there is no arrival column."""
    inputs = np.array([which for which, _ in arrivals], np.int8)
    batches = [
        pa.RecordBatch.from_pylist([row for which, row in arrivals if which == i], schema=schema)
        for i, schema in enumerate(plan.schemas.values())
    ]
    if plan.arrival_columns is None:
        clock = first + np.arange(len(arrivals))
    else:
        clock = np.array([row[plan.arrival_columns[which]] for which, row in arrivals])
    return Chunk(inputs, clock.astype(np.int64), batches)


class Seen(NamedTuple):
    """A tuple that reached the join."""

    identity: tuple[int, int]
    """Input, and row number within it."""
    ts: int
    late: bool
    join_size: int
    cross_size: float
    run_results: int
    """Result rows of the run it was in."""
    live: int
    """Tuples in the windows after that run."""


class RecordingJoin(JoinStrategy):
    """Another join strategy, with everything it reports written down."""

    name: ClassVar[str] = "recording"
    inner: Any
    log: Any

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> Any:
        return _Recorder(self.inner.build(setting, snapshot), self.log)


class _Recorder:
    def __init__(self, logic: Any, log: list[Any]) -> None:
        self._logic = logic
        self._log = log

    def step(self, released: Any) -> Any:
        return self._recorded(released, self._logic.step(released))

    def _recorded(self, released: Any, runs: Any) -> Any:
        for matches in runs:
            live = self._logic.live()
            for at, k in enumerate(range(matches.start, matches.stop)):
                self._log.append(
                    Seen(
                        (int(released.input[k]), int(released.seq[k])),
                        int(released.ts[k]),
                        bool(released.late[k]),
                        int(matches.join_size[at]),
                        float(matches.cross_size[at]),
                        len(matches.rows),
                        live,
                    )
                )
            yield matches

    def __getattr__(self, name: str) -> Any:
        if name == "limited_step" and not self._logic.keeps_limit:
            raise AttributeError(name)
        if name in ("punctuated_step", "limited_step"):
            step = getattr(self._logic, name)
            return lambda released, beside: self._recorded(released, step(released, beside))
        return getattr(self._logic, name)


@dataclass
class Run:
    """What an operator gave."""

    operator: Operator
    batches: list[pa.RecordBatch] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    punctuations: list[Row] = field(default_factory=list)
    log: list[Seen] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """Result rows in the order in which they came."""
        return [row for batch in self.batches for row in batch.to_pylist()]

    @property
    def results(self) -> Counter[tuple[tuple[int, ...], int]]:
        """As ``ReferenceRun.results``; every input must have a column ``id`` with the row number."""
        names = self.operator.accounting.inputs
        return Counter((tuple(row[f"{name}_id"] for name in names), row["ts"]) for row in self.rows)

    @property
    def counts(self) -> dict[int, int]:
        """As ``ReferenceRun.counts``, from an operator with ``output: counts``."""
        rows = self.rows
        assert len({row["ts"] for row in rows}) == len(rows), "a timestamp was counted twice"
        return {row["ts"]: row["count"] for row in rows}

    def late_ids(self, reason: str | None = None) -> Counter[tuple[int, int]]:
        """(input, id) of the rows in the late output."""
        names = self.operator.accounting.inputs
        return Counter(
            (names.index(row["input"]), json.loads(row["row"])["id"])
            for row in self.late
            if reason in (None, row["reason"])
        )

    @property
    def order(self) -> list[tuple[int, int]]:
        """(input, id) of the tuples in the order in which they reached the join."""
        return [entry.identity for entry in self.log]

    @property
    def join_sizes(self) -> list[int]:
        return [entry.join_size for entry in self.log]

    @property
    def cross_sizes(self) -> list[float]:
        return [entry.cross_size for entry in self.log]

    def take(self, outputs: Outputs) -> None:
        self.batches += outputs.results
        self.late += [row for batch in outputs.late for row in batch.to_pylist()]
        self.punctuations += [row for batch in outputs.punctuations for row in batch.to_pylist()]


def run(
    plan: JoinPlan, arrivals: Sequence[Arrival], cuts: Iterable[int] = (), restores: Iterable[int] = ()
) -> Run:
    """Run arrivals to the end, cut before each of ``cuts``; at each of ``restores`` the operator is written
    to bytes, thrown away and read back."""
    log: list[Seen] = []
    plan = dataclasses.replace(plan, join=RecordingJoin(inner=plan.join, log=log))
    gathered = Run(Operator(plan), log=log)
    restores = set(restores)
    edges = sorted({0, len(arrivals), *restores, *(cut for cut in cuts if 0 <= cut <= len(arrivals))})
    for start, stop in zip(edges, [*edges[1:], len(arrivals)], strict=True):
        if start in restores:
            saved = snapshots.loads(snapshots.dumps(gathered.operator.snapshot()))
            gathered.operator = Operator(plan, saved)
        chunk = chunk_of(plan, arrivals[start:stop], start)
        gathered.take(gathered.operator.push(chunk._replace(bounded=True)))
    gathered.take(gathered.operator.finish())
    return gathered


def numbered(arrivals: Iterable[tuple[int, Row]]) -> list[Arrival]:
    """Give every row its number within its input as ``id``."""
    seqs: Counter[int] = Counter()
    out = []
    for which, row in arrivals:
        out.append((which, {**row, "id": seqs[which]}))
        seqs[which] += 1
    return out
