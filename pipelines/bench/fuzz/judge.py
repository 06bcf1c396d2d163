"""Runs a case of ``slackwater bench fuzz`` and compares what came out with the truth, row by row."""

from __future__ import annotations

import csv
import json
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.fuzz.cases import Case
from slackwater.pipelines.bench.fuzz.data import NANOS, unit_nanos
from slackwater.pipelines.bench.fuzz.truth import Result, is_meaningless, truth
from slackwater.pipelines.io.plain_types import plain_type
from slackwater.pipelines.template.graph import Pipeline
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import SlackwaterError

Runner = Callable[[Pipeline], dict[str, Any]]

NOT_JOINED: Final = ("bad_record", "future_time")
"""Reasons for which a row takes part in no result."""
_ORDINARY: Final = 100 * 365 * 86_400 * 10**9
"""Times nearer to 1970 than this are of no special kind; rows with such a time must not be refused."""


class Overdue(BaseException):
    """A case takes too long; no ordinary exception, so that nothing takes it for one of its own."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: ``joined`` as it should, ``refused`` in clear words, or with a ``finding``."""

    kind: str
    text: str = ""
    results: int = 0
    by: str = ""
    """Who told the truth."""
    late: Counter[str] = field(default_factory=Counter)


def judge(case: Case, run: Runner, root: str | None = None) -> Verdict:
    """Run a case in a folder of its own below ``root`` and say whether every row is where it should be."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=root))
    try:
        case.write(folder)
        try:
            summary = run(read_template_text("case.yaml", case.template(folder)))
        except SlackwaterError as error:
            return Verdict("refused", str(error).replace(str(folder), "."))
        except Exception as error:
            return Verdict("finding", f"raw {type(error).__name__}: {error}")
        return _verdict(case, summary, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verdict(case: Case, summary: dict[str, Any], folder: Path) -> Verdict:
    if is_meaningless(case):
        return Verdict("finding", "the condition compares what cannot be compared, and was not refused")
    read = {i.name: len(i.times) for i in case.inputs}
    if summary["input"] != read:
        return Verdict("finding", f"the inputs have {read} rows, the summary says {summary['input']}")
    late = [json.loads(line) for line in (folder / "late.jsonl").read_text("utf-8").split("\n") if line]
    gone: dict[str, dict[int, str]] = {i.name: {} for i in case.inputs}
    shards, times = case.config.get("shards", 1), Counter[tuple[str, int]]()
    for row in late:
        name, key = row["input"], json.loads(row["row"])["id"]
        times[name, key] += 1
        if times[name, key] > shards or key not in range(read[name]):
            return Verdict("finding", f"the late row {row} is there too often, or was never given")
        gone[name][key] = max(gone[name].get(key, ""), row["reason"])
    reasons = Counter(row["reason"] for row in late)
    if reasons != Counter(summary["late"]):
        return Verdict("finding", f"late rows by reason are {dict(reasons)}, the summary says {summary['late']}")
    fault = _needless(case, gone)
    if fault:
        return Verdict("finding", fault)
    # A row that one shard refuses may be joined in another; only what cannot be read is the same in all.
    nowhere = NOT_JOINED if shards == 1 else {"bad_record"}
    absent = {name: {k for k, why in rows.items() if why in nowhere} for name, rows in gone.items()}
    expected, by = truth(case, absent)
    out = _output(case, folder)
    if case.counts:
        fault = _counts_fault(case, out, expected, gone)
    else:
        fault = _rows_fault(case, out, expected, gone, folder)
    if fault:
        return Verdict("finding", f"{fault} (truth by {by})")
    return Verdict("joined", results=sum(expected.values()), by=by, late=reasons)


def _needless(case: Case, gone: dict[str, dict[int, str]]) -> str:
    """Say which rows were kept out without need, or let in without a time."""
    for i in case.inputs:
        for k, t in enumerate(i.times):
            why = gone[i.name].get(k)
            if t is None and why != "bad_record":
                return f"row {k} of {i.name} has no time, but is not in late as bad_record ({why})"
            if why is None:
                continue
            if why in NOT_JOINED and t is not None and abs(t) < _ORDINARY:
                return f"row {k} of {i.name} is in late as {why} though nothing is wrong with it"
            if case.complete and why == "too_late" and _tame(case):
                return f"row {k} of {i.name} is too_late though its slack is enough"
    return ""


def _tame(case: Case) -> bool:
    """Whether all times are ordinary: one at the edge of all times makes others late."""
    return all(t is not None and abs(t) < _ORDINARY for i in case.inputs for t in i.times)


def _output(case: Case, folder: Path) -> pa.Table:
    if case.sink == "WriteToParquet":
        return pq.read_table(folder / "out.parquet")
    if case.sink == "WriteToCsv":
        # Arrow's reader splits rows with NUL in the wrong places.
        with (folder / "out.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        whole = {name: name != "ts" for name in _identity(case)}
        return pa.table(
            {name: [int(r[name]) if is_id else r[name] for r in lines] for name, is_id in whole.items()}
        )
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").split("\n") if line]
    return pa.table({name: [row[name] for row in rows] for name in _identity(case)})


def _identity(case: Case) -> list[str]:
    return ["ts", "count"] if case.counts else ["ts", *(f"{i.name}_id" for i in case.inputs)]


def _nanos(case: Case, column: pa.ChunkedArray) -> list[int] | None:
    """The results' times, where the output has them as numbers or timestamps."""
    if case.config.get("time_unit"):
        factor = NANOS[case.config["time_unit"]]
        return [int(value) * factor for value in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        ticks = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()
        return [tick * unit_nanos(column.type) for tick in ticks]
    return None


def _counts_fault(case: Case, out: pa.Table, expected: Counter[Result], gone: dict[str, dict[int, str]]) -> str:
    times = _nanos(case, out["ts"])
    late = any(gone.values())
    found: Counter[Any] = Counter()
    at: list[Any] = [None] * len(out) if times is None else times
    for t, n in zip(at, out["count"].to_pylist(), strict=True):
        found[t] += n
    wanted: Counter[Any] = Counter()
    for result, n in expected.items():
        wanted[result[-1] if times is not None else None] += n
    if not late and found != wanted and (found or wanted):
        return f"counts {dict(found - wanted)} too many, {dict(wanted - found)} missing"
    return f"counts {dict(found - wanted)} too many" if found - wanted else ""


def _found(case: Case, out: pa.Table) -> Counter[Result]:
    """The results that came out; at time 0 where the output has times as text."""
    ids = [out[f"{i.name}_id"].to_pylist() for i in case.inputs]
    return Counter(zip(*ids, _nanos(case, out["ts"]) or [0] * len(out), strict=True))


def _wanted(case: Case, out: pa.Table, expected: Counter[Result]) -> Counter[Result]:
    """The results that should have come out, as ``_found`` has them."""
    if _nanos(case, out["ts"]) is not None:
        return expected
    return Counter({(*result[:-1], 0): n for result, n in expected.items()})


def _rows_fault(
    case: Case, out: pa.Table, expected: Counter[Result], gone: dict[str, dict[int, str]], folder: Path
) -> str:
    found = _found(case, out)
    expected = _wanted(case, out, expected)
    more = found - expected
    if more:
        return f"{sum(more.values())} of {len(out)} results are wrong, such as {_shown(case, next(iter(more)))}"
    for result in _unexplained(case, expected - found, gone):
        return f"the result {_shown(case, result)} is missing and none of its rows is late"
    ids = [out[f"{i.name}_id"].to_pylist() for i in case.inputs]
    return _values_fault(case, out, ids, folder) if case.sink == "WriteToParquet" else ""


def _unexplained(case: Case, missing: Counter[Result], gone: dict[str, dict[int, str]]) -> list[Result]:
    """Return the missing results of which no row is late."""
    names = [i.name for i in case.inputs]
    return [
        result
        for result in missing.elements()
        if not any(k in gone[name] for name, k in zip(names, result[:-1], strict=True))
    ]


def _shown(case: Case, result: Result) -> str:
    """A result with the values of its members, in the columns that the condition names."""
    where = str(case.config.get("where", ""))
    parts = [
        f"{i.name}{k}: "
        + ", ".join(f"{c.name}={c.values[k]!r}" for c in i.columns if f"{i.name}.{c.name}" in where)
        for i, k in zip(case.inputs, result[:-1], strict=True)
    ]
    return f"[{'; '.join(parts)}; at {result[-1]}]"


def _values_fault(case: Case, out: pa.Table, ids: list[list[int]], folder: Path) -> str:
    """Say which value of a result is not that of its member, or not of its type."""
    for i, members in zip(case.inputs, ids, strict=True):
        kept = pq.read_schema(next((folder / i.name).iterdir())) if i.format == "parquet" else None
        for c in i.columns:
            got = out[f"{i.name}_{c.name}"]
            if kept is not None and got.type != plain_type(kept.field(c.name).type):
                return (
                    f"column {i.name}.{c.name} has the type {kept.field(c.name).type}, in the results {got.type}"
                )
            if kept is None and c.family in ("instant", "time"):
                continue
            given = _plain(c.array)
            for k, b in zip(members, _plain(got), strict=True):
                if not _same(given[k], b):
                    return f"column {i.name}.{c.name} has {given[k]!r}, in the results {b!r}"
    return ""


def _plain(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        factor = unit_nanos(column.type)
        return [None if v is None else v * factor for v in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    return bool(a == b) or str(a) == str(b)
