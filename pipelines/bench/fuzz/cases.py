"""The cases of ``slackwater bench fuzz``: inputs, files and a template, each a function of seed and number."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.fuzz.conditions import Columns, condition, sql
from slackwater.pipelines.bench.fuzz.data import (
    DAY,
    NANOS,
    WORDS,
    YEAR_1,
    YEAR_9999,
    Column,
    Pool,
    carried,
    column,
    column_of,
    families_of,
    pool,
    type_for,
    unit_nanos,
)
from slackwater.transforms.expressions.tree import Expr

NAMES: Final = "abcd"
_FORMATS: Final = ("parquet", "parquet", "parquet", "csv", "json")
_READERS: Final = {"parquet": "ReadFromParquet", "csv": "ReadFromCsv", "json": "ReadFromJson"}
_MOST: Final = {2: 60, 3: 24, 4: 12}
"""Rows per input, at most, by the number of inputs: what a truth can be found for quickly."""


@dataclass(frozen=True)
class Input:
    """One input: its columns in order of arrival within it, and the exact time of each row."""

    name: str
    format: str
    columns: list[Column]
    times: list[int | None]
    """Nanoseconds since 1970."""
    files: int
    compressed: bool

    @property
    def stated(self) -> dict[str, Any]:
        """The setting ``schema`` for columns of texts that could be numbers, truth values or times."""
        if self.format != "csv":
            return {}
        texts = {c.name: {*c.values} - {None} for c in self.columns if c.family == "text"}
        schema = {name: "string" for name, values in texts.items() if values and not values & {*WORDS}}
        return {"schema": schema} if schema else {}

    @property
    def table(self) -> pa.Table:
        """All rows."""
        return pa.table({column.name: column.array for column in self.columns})


@dataclass(frozen=True)
class Case:
    """A join to try."""

    seed: int
    number: int
    inputs: list[Input]
    tree: Expr | None
    windows: list[int]
    """Of each input, in nanoseconds."""
    open_end: bool
    """Whether windows leave out their far end."""
    complete: bool
    """Whether no row can be too late."""
    config: dict[str, Any]
    sink: str

    @property
    def counts(self) -> bool:
        """Whether results are only counted."""
        return self.config.get("output") == "counts"

    def template(self, folder: Path) -> str:
        """Return the template that joins what ``write`` has put into a folder."""
        reads = [
            {
                "type": _READERS[i.format],
                "name": i.name.upper(),
                "config": {"path": str(folder / i.name), **i.stated},
            }
            for i in self.inputs
        ]
        join = {
            "type": "SlidingWindowJoin",
            "name": "joined",
            "input": {i.name: i.name.upper() for i in self.inputs},
            "config": self.config,
        }
        sinks = [
            _sink(self.sink, "Results", "joined", folder / "out"),
            _sink("WriteToJson", "Late", "joined.late", folder / "late.jsonl"),
        ]
        # JSON is YAML, and much faster to write.
        return json.dumps({"pipeline": {"transforms": [*reads, join, *sinks]}}, ensure_ascii=False)

    def write(self, folder: Path) -> None:
        """Write the files of every input."""
        for i in self.inputs:
            (folder / i.name).mkdir()
            table = i.table
            size = -(-len(table) // i.files) or 1
            for part in range(i.files):
                _write(i, table.slice(part * size, size), folder / i.name / f"part-{part + 8}")


def _sink(type_: str, name: str, source: str, path: Path) -> dict[str, Any]:
    return {"type": type_, "name": name, "input": source, "config": {"path": str(path)}}


def make_case(seed: int, number: int, rows: int = 60) -> Case:
    """Return the case of a seed with this number; ``rows`` is the most that an input has."""
    rng = Random(f"{seed}/{number}")
    names = NAMES[: rng.choice([2, 2, 2, 2, 3, 3, 4])]
    formats = [rng.choice(_FORMATS) for _ in names]
    if rng.random() < 0.5:
        formats = ["parquet"] * len(names)
    most = min(rows, _MOST[len(names)])
    sizes = [_size(rng, most) for _ in names]
    pools = [pool(rng, family, set(formats)) for family in _families(rng, set(formats))]
    clock = Clock(rng, formats, sizes)
    inputs: list[Input] = []
    arrival = rng.random() < 0.5
    for name, format, size, times in zip(names, formats, sizes, clock.times, strict=True):
        columns = [column_of("id", pa.int64(), "id", [*range(size)]), clock.column(rng, format, times)]
        if arrival:
            columns.append(clock.arrivals(len(inputs)))
        columns += _columns(rng, format, pools, size)
        exact = columns[1].values if clock.unit is None else _in_nanos(columns[1].values, clock.unit)
        files = rng.choice([1, 1, 2, 3]) if size > 3 else 1
        inputs.append(Input(name, format, columns, exact, files, rng.random() < 0.3))
    by_name = {i.name: [c for c in i.columns if c.family not in ("id", "time")] for i in inputs}
    tree = condition(rng, names, Columns(by_name, {p.family: p for p in pools}))
    windows, open_end, setting = _windows(rng, names, clock.step)
    config: dict[str, Any] = {"time": "ts", "window": setting, "disorder": clock.disorder}
    config |= {"time_unit": clock.unit} if clock.unit else {}
    config |= {"arrival": "arrived"} if arrival else {}
    config |= {"where": sql(tree)} if tree is not None else {}
    config |= {"shards": rng.choice([2, 3])} if rng.random() < 0.3 else {}
    config |= {"output": "counts"} if rng.random() < 0.15 else {}
    sink = rng.choice(["WriteToParquet", "WriteToParquet", "WriteToParquet", "WriteToJson", "WriteToCsv"])
    if (
        sink == "WriteToCsv"
        and any(c.family == "carried" for i in inputs for c in i.columns)
        and rng.random() < 0.9
    ):
        sink = "WriteToJson"
    return Case(seed, number, inputs, tree, windows, open_end, clock.complete, config, sink)


def _size(rng: Random, most: int) -> int:
    """Return a number of rows, now and then a small one."""
    return rng.choice([0, 1, 3]) if rng.random() < 0.06 else rng.randint(max(2, most // 3), most)


def _families(rng: Random, formats: set[str]) -> list[str]:
    known = families_of(formats)
    chosen = rng.sample(known, min(len(known), rng.randint(1, 3)))
    return chosen if set(chosen) & {"number", "text"} or rng.random() < 0.5 else [*chosen, "number"]


def _columns(rng: Random, format: str, pools: list[Pool], rows: int) -> list[Column]:
    columns: list[Column] = []
    for p in pools:
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            columns.append(column(rng, f"c{len(columns)}", type_for(rng, p.family, format), p, rows))
    if not columns:
        columns.append(column(rng, "c0", type_for(rng, pools[0].family, format), pools[0], rows))
    if format == "parquet" and rng.random() < 0.3:
        columns.append(carried(rng, f"c{len(columns)}", rows))
    return columns


def _in_nanos(values: list[int | None], unit: str) -> list[int | None]:
    return [None if value is None else value * NANOS[unit] for value in values]


def _windows(rng: Random, names: str, step: int) -> tuple[list[int], bool, Any]:
    """Return the windows in nanoseconds, whether their far end is open, and the setting."""
    open_end = rng.random() < 0.15
    sizes = [rng.choice([1, 2, 3, 10, 40] * 10 + [0]) * max(step, 10**6) for _ in names]
    if rng.random() < 0.6 or open_end:
        sizes = [sizes[0] or (step * open_end)] * len(names)
    texts = [f"{size // 10**6}ms" if size % DAY or not size else f"{size // DAY}d" for size in sizes]
    if open_end:
        return sizes, True, {"size": texts[0], "closed": "right"}
    if len(set(texts)) == 1:
        return sizes, False, texts[0]
    return sizes, False, dict(zip(names, texts, strict=True))


class Clock:
    """The event times of a case, the order of arrival, and how the join deals with disorder."""

    def __init__(self, rng: Random, formats: list[str], sizes: list[int]) -> None:
        self.step = rng.choice([10**6, 10**6, 10**9, 60 * 10**9, DAY])
        self.unit = rng.choice([None, None, "s", "ms", "us", "ns"])
        if self.unit is not None:
            self.step = max(self.step, NANOS[self.unit])
        base = rng.choice([0, 1_700_000_000_000_000_000 // DAY * DAY, -10 * self.step, 40 * 365 * DAY])
        span = rng.choice([1, 5, 20, 60])
        at = sorted(base + rng.randrange(span) * self.step for _ in range(sum(sizes)))
        order = [i for i, size in enumerate(sizes) for _ in range(size)]
        rng.shuffle(order)
        self.complete, self.disorder = True, rng.choice([{"strategy": "none"}, {"strategy": "max"}])
        late = rng.random()
        if late < 0.5:
            at = self._delayed(rng, at)
            slack = max(at) - min(at) if at else 0
            self.complete = late < 0.3
            if self.complete:
                self.disorder = {"strategy": "fixed", "slack": f"{slack // 10**6 + 1}ms"}
            else:
                little = f"{rng.choice([0, 1, 3]) * self.step // 10**6}ms"
                self.disorder = rng.choice([{"strategy": "fixed", "slack": little}, self.disorder])
        self._arrived: list[list[int]] = [[k for k, i in enumerate(order) if i == j] for j in range(len(sizes))]
        self.times: list[list[int | None]] = [[at[k] for k in mine] for mine in self._arrived]
        if rng.random() < 0.1 and formats == ["parquet"] * len(formats):
            self._spoil(rng)

    def _delayed(self, rng: Random, at: list[int]) -> list[int]:
        """Times in another order: some rows come later than they should."""
        return [t for _, t in sorted((t + rng.choice([0, 0, 0, 1, 5]) * self.step, t) for t in at)]

    def _spoil(self, rng: Random) -> None:
        """Let a few rows have no time, or one at the edges."""
        for times in self.times:
            for k in range(len(times)):
                if rng.random() < 0.1:
                    times[k] = rng.choice([None, None, YEAR_1, YEAR_9999, 2**63 - 1, -(2**63)])

    def column(self, rng: Random, format: str, times: list[int | None]) -> Column:
        """Return the event-time column of an input."""
        if self.unit is not None:
            ticks = [None if t is None else t // NANOS[self.unit] for t in times]
            array = pa.array([None if t is None else max(-(2**63), min(2**63 - 1, t)) for t in ticks], pa.int64())
            return Column("ts", array.type, "time", array.to_pylist(), array)
        units = [unit for unit in NANOS if NANOS[unit] <= self.step]
        types: list[pa.DataType] = [pa.timestamp(unit, rng.choice([None, "UTC"])) for unit in units]
        if self.step == DAY:
            types += [pa.date32(), pa.date64()]
        type_ = rng.choice(types) if format == "parquet" else pa.timestamp("s" if "s" in units[:1] else "ms")
        if format != "parquet" and self.step < 10**9:
            type_ = pa.timestamp("ms")
        return column_of("ts", type_, "time", times)

    def arrivals(self, which: int) -> Column:
        """Return the arrival column of an input."""
        return column_of("arrived", pa.int64(), "id", self._arrived[which])


def _write(i: Input, table: pa.Table, path: Path) -> None:
    if i.format == "parquet":
        pq.write_table(table, f"{path}.parquet", row_group_size=7 if i.compressed else 1 << 20)
        return
    lines = _csv(table) if i.format == "csv" else _json(table)
    ending = {"csv": "csv", "json": "jsonl"}[i.format]
    data = "".join(line + "\n" for line in lines).encode()
    if i.compressed:
        Path(f"{path}.{ending}.gz").write_bytes(gzip.compress(data, 1))
    else:
        Path(f"{path}.{ending}").write_bytes(data)


def _csv(table: pa.Table) -> list[str]:
    lines = [",".join(table.column_names)]
    columns = [_texts(column) for column in table.columns]
    for row in zip(*columns, strict=True):
        lines.append(",".join("" if text is None else _quoted(text) for text in row))
    return lines


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') or text != text.strip() else text


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return values as a CSV file has them."""
    if pa.types.is_timestamp(column.type):
        return [None if v is None else str(v).replace("T", " ") for v in _stamps(column)]
    return [
        None if v is None else (str(v).lower() if isinstance(v, bool) else str(v)) for v in column.to_pylist()
    ]


def _stamps(column: pa.ChunkedArray) -> list[np.datetime64 | None]:
    unit = column.type.unit
    return [None if v is None else np.datetime64(v, unit) for v in column.cast(pa.int64()).to_pylist()]


def _json(table: pa.Table) -> list[str]:
    columns = [
        [None if v is None else str(v) for v in _stamps(column)]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [json.dumps(row, ensure_ascii=row["id"] % 2 == 0) for row in rows]


__all__ = ["Case", "Input", "make_case", "unit_nanos"]
