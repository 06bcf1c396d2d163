"""``slackwater bench aggregate``: SlidingWindowAggregate against per-tuple Python readings of it.

All take the same Arrow rows in the same order, with the same slack: range 5 m, slide 1 m, 100 groups, count, avg
and max, a fifth of the rows up to 30 s late, and leave out nulls and rows that come too late. One Python reading
adds each row to each extent that holds it, as the definition says; the other keeps partial aggregates per pane
and group, as the operator does. Neither has a guard, an accounting or rows in a late output. They are run on a
part of the rows. Shows rows per second of CPU time, which other work on the machine disturbs less, the best of
several turns, and how many times as fast the operator is.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import inf

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.aggregate.operator import Aggregator
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.settings.models import AggregateConfig

RANGE, SLIDE, SLACK, GROUPS, CHUNK = 300_000, 60_000, 30_000, 100, 1 << 17
SETTINGS = {
    "time": "ts",
    "range": "5m",
    "slide": "1m",
    "group_by": ["segment"],
    "aggregates": {"cars": "count(*)", "speed": "avg(speed)", "top": "max(speed)"},
    "disorder": {"strategy": "fixed", "slack": "30s"},
}

Result = tuple[int, int, int, float | None, float | None]
"""Extent, segment, cars, mean and largest speed."""


def rows_of(n: int, seed: int) -> pa.RecordBatch:
    """Return reports of speeds, one every 10 ms."""
    rng = np.random.default_rng(seed)
    late = rng.integers(0, SLACK, n) * (rng.random(n) < 0.2)
    segment = rng.integers(0, GROUPS, n)
    columns = {"ts": 10 * np.arange(n) - late, "segment": segment, "speed": rng.normal(60, 15, n)}
    return pa.RecordBatch.from_pydict(columns)


def with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with texts for segments."""
    names = pa.array([f"segment {k}" for k in range(GROUPS)])
    return batch.set_column(1, "segment", names.take(batch.column("segment")))


def operator_run(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the results of the operator."""
    plan = bind_aggregate(AggregateConfig.read(SETTINGS), {"input": batch.schema})
    operator = Aggregator(plan)
    found: list[pa.RecordBatch] = []
    for start in range(0, batch.num_rows, CHUNK):
        part = batch.slice(start, CHUNK)
        n = part.num_rows
        found += operator.push(Chunk(np.zeros(n, np.int8), start + np.arange(n), [part])).results
    return found + operator.finish().results


def tuples_of(batch: pa.RecordBatch) -> Iterator[tuple[int, int, float | None]]:
    """Yield rows as Python tuples."""
    return zip(*(batch.column(name).to_pylist() for name in ("ts", "segment", "speed")), strict=True)


def add(groups: dict[int, list[float]], key: int, speed: float | None) -> None:
    """Add a row to its group: rows, rows with a speed, their sum and the largest."""
    group = groups.get(key)
    if group is None:
        group = groups[key] = [0, 0, 0.0, -inf]
    group[0] += 1
    if speed is not None:
        group[1] += 1
        group[2] += speed
        group[3] = max(group[3], speed)


def results_of(extent: int, groups: dict[int, list[float]]) -> Iterator[Result]:
    """Yield the rows of an extent."""
    for key, (cars, n, total, top) in groups.items():
        yield extent, key, int(cars), total / n if n else None, top if n else None


def extents_run(batch: pa.RecordBatch) -> list[Result]:
    """Return the same results, each row added to each of its extents."""
    extents: defaultdict[int, dict[int, list[float]]] = defaultdict(dict)
    results: list[Result] = []
    late = 0
    newest, produced = -(1 << 62), -(1 << 62)

    def produce(done: int) -> None:
        nonlocal produced
        for extent in range(max(produced + 1, min(extents, default=done + 1)), done + 1):
            results.extend(results_of(extent, extents.pop(extent, {})))
        produced = done

    for ts, key, speed in tuples_of(batch):
        first = ts // SLIDE
        late += first <= produced
        for extent in range(max(produced + 1, first), (ts + RANGE) // SLIDE):
            add(extents[extent], key, speed)
        newest = max(newest, ts)
        done = (newest - SLACK + 1) // SLIDE - 1
        if done > produced:
            produce(done)
    produce(max(extents, default=0))
    return results


def panes_run(batch: pa.RecordBatch) -> list[Result]:
    """Return the same results, each row added to its pane and the panes put together for each extent."""
    panes: defaultdict[int, dict[int, list[float]]] = defaultdict(dict)
    results: list[Result] = []
    late = 0
    newest, produced = -(1 << 62), -(1 << 62)
    span = RANGE // SLIDE

    def produce(done: int) -> None:
        nonlocal produced
        for extent in range(max(produced + 1, min(panes, default=done + 1)), done + 1):
            groups: dict[int, list[float]] = {}
            for pane in range(extent + 1 - span, extent + 1):
                for key, part in panes.get(pane, {}).items():
                    group = groups.get(key)
                    if group is None:
                        groups[key] = part.copy()
                        continue
                    for word in range(3):
                        group[word] += part[word]
                    group[3] = max(group[3], part[3])
            results.extend(results_of(extent, groups))
            panes.pop(extent + 1 - span, None)
        produced = done

    for ts, key, speed in tuples_of(batch):
        pane = ts // SLIDE
        late += pane <= produced
        if pane + span - 1 > produced:
            add(panes[pane], key, speed)
        newest = max(newest, ts)
        done = (newest - SLACK + 1) // SLIDE - 1
        if done > produced:
            produce(done)
    produce(max(panes, default=0) + span - 1)
    return results


def run(options: argparse.Namespace, report: Report) -> None:
    """Check that all agree, then time them in turns."""
    rows = options.rows
    batch = rows_of(rows, options.seed)
    part = batch.slice(0, max(1, rows // 4))
    text = with_text(batch)
    columns = ["extent", "segment", "cars", "speed", "top"]
    found = pa.Table.from_batches(operator_run(part))
    results = sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))
    assert results == sorted(panes_run(part)), "they do not agree"
    assert [row[:3] for row in results] == [row[:3] for row in sorted(extents_run(part))], "they do not agree"
    runs: list[tuple[str, Callable[[], object], int]] = [
        ("operator", lambda: operator_run(batch), rows),
        ("operator, groups by text", lambda: operator_run(text), rows),
        ("Python, row by row and extent by extent", lambda: extents_run(part), part.num_rows),
        ("Python, row by row, with panes", lambda: panes_run(part), part.num_rows),
    ]
    best = dict.fromkeys((name for name, _, _ in runs), 0.0)
    for _ in range(options.rounds):
        for name, work, n in runs:
            started = time.process_time()
            work()
            best[name] = max(best[name], n / (time.process_time() - started))
    table = Table("run", "rows/s", Column("operator is times as fast", ".1f"))
    for name, rate in best.items():
        table.add(name, rate, best["operator"] / rate)
    report.add(table)
