"""One way to run a case on any runner, and one comparison: every runner gives what the embedded one gives.

A case is a template over data of its own, in parts that can run apart: joins that share inputs, or whole
templates. Most of what a query of Spark or a job of Beam costs is its start, so Beam gets all parts in one job,
and Spark the jobs of a case two at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Flatten, Pipeline
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.settings.models import OperatorConfig

ONE_BATCH = 1 << 20
TOLD = ("input", "results", "late", "punctuations", "accounting")
"""What a summary says of every operator that is the same on every runner."""
BEAM = ("FnApiRunner", "BundleBasedDirectRunner")
SPARK = ("spark in several batches", "spark in one batch")

Node = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """What a run wrote, as lines by file, and what it said of its operators."""

    data: Path
    out: Path
    parts: tuple[str, ...]
    files: dict[str, list[str]]
    summaries: list[dict[str, Any]]
    joins: dict[str, Any]

    def rows(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[file]]


@dataclass(frozen=True)
class Case:
    """A template with its data, where it runs, and what it must show."""

    name: str
    write: Callable[[Path], None]
    """Writes the inputs into a folder."""
    build: Callable[[Path, Path, Sequence[str]], Pipeline]
    """Makes the pipeline of some parts, from the folders of the inputs and of the outputs."""
    check: Callable[[Ran], None]
    """Asserts, of every runner, that the case shows what it is there for, and what is true of it."""
    runners: Mapping[str, Sequence[str] | None]
    """Runners besides the embedded one, each with the parts that it runs; None is all."""
    parts: tuple[str, ...] = ("all",)
    jobs: Callable[[Sequence[str]], list[Sequence[str]]] = lambda parts: [parts]
    """How Spark takes the parts."""
    rows_per_batch: int | Mapping[str, int] = 400
    """For several micro-batches; by part, or of all."""
    told: tuple[str, ...] | None = TOLD
    """What summaries must have in common of every operator; None is all but speed."""
    in_order: Callable[[str], bool] = lambda file: False
    """Files whose lines must also be in the same order."""
    compared: Callable[[str], bool] = lambda file: True
    """Files that do not depend on where batches are cut."""
    plain: bool = field(default=False)
    """Whether numbers are compared as numbers, as Beam's own sinks write them in another way."""

    def run(self, runner: str, data: Path, session: Any = None) -> Ran:
        """Run the case, on Spark in a session."""
        parts = tuple(self.parts if self.runners.get(runner) is None else self.runners[runner] or ())
        out = data / runner
        told = self._told(runner, data, out, parts, session)
        joins = {name: join for pipeline, summary in told for name, join in operators(pipeline, summary).items()}
        ran = Ran(data, out, parts, lines_in(out, self.plain), [summary for _, summary in told], joins)
        name = runner.partition(" ")[0] if runner.startswith(("local", "spark")) else "beam"
        assert {summary["runner"] for _, summary in told} == {"beam-spark" if runner == "beam-spark" else name}
        for name, join in joins.items():
            assert all(account["balanced"] for account in join["accounting"].values()), name
        self.check(ran)
        return ran

    def _told(
        self, runner: str, data: Path, out: Path, parts: tuple[str, ...], session: Any
    ) -> list[tuple[Pipeline, dict[str, Any]]]:
        """Run the jobs; return each with its summary."""
        pipeline = self.build(data, out, parts)
        if runner.startswith("local"):
            return [(pipeline, local.run(pipeline))]
        if runner in SPARK:
            with ThreadPoolExecutor(2) as pool:
                jobs = [(job, runner == SPARK[0]) for job in self.jobs(parts)]
                return list(pool.map(lambda job: self._on_spark(data, out, *job, session), jobs))
        from slackwater.pipelines.runners.beam import runner as beam

        how: dict[str, Any] = {"spark": True} if runner == "beam-spark" else {"options": {"runner": runner}}
        return [(pipeline, beam.run(pipeline, **how))]

    def _on_spark(
        self, data: Path, out: Path, job: Sequence[str], several: bool, session: Any
    ) -> tuple[Pipeline, dict[str, Any]]:
        from slackwater.pipelines.runners.spark import runner as spark

        rows = self.rows_per_batch
        size = rows if isinstance(rows, int) else rows.get(job[0], 400)
        pipeline, batches = self.build(data, out, job), Batches()
        summary = spark.run(
            pipeline, session=session, rows_per_batch=size if several else ONE_BATCH, progress=batches
        )
        assert (batches.seen > sum(map(calls_of, pipeline.nodes))) == several, job
        return pipeline, summary

    def compare(self, found: Ran, expected: Ran) -> None:
        """Assert that a runner gave what the embedded one gave."""
        wanted = {
            file: lines
            for file, lines in expected.files.items()
            if found.parts == expected.parts or file.split(".")[0] in found.parts
        }
        assert set(found.files) == set(wanted)
        for file, lines in wanted.items():
            if self.compared(file):
                assert Counter(found.files[file]) == Counter(lines), file
                in_order = self.in_order(file) or found.out.name.startswith("local")
                assert found.files[file] == lines or not in_order, file
        assert set(found.joins) <= set(expected.joins)
        if self.told is None:
            assert list(map(without_speed, found.summaries)) == list(map(without_speed, expected.summaries))
            return
        for name, join in found.joins.items():
            for part in self.told:
                assert _told(join, part) == _told(expected.joins[name], part), (name, part)


def _told(join: dict[str, Any], part: str) -> Any:
    """A part of what a summary says of an operator, but for what was read before it.

    Spark reads what Flatten gives as a source of its own; ``test_accounts`` looks at what was read and filtered.
    """
    if part != "accounting":
        return join.get(part)
    read = ("source", "filtered")
    return {name: {k: v for k, v in of.items() if k not in read} for name, of in join[part].items()}


def operators(pipeline: Pipeline, summary: dict[str, Any]) -> dict[str, Any]:
    """What a summary says of every operator, whose sums it says too; that of a single one is all it says."""
    if "joins" in summary:
        joins = summary["joins"]
        assert summary["late"] == sum((Counter(join["late"]) for join in joins.values()), Counter())
        rows = {f"{name}.{given}": n for name, join in joins.items() for given, n in join["input"].items()}
        assert summary["input"] == rows
        for way, total in summary.get("punctuations", {}).items():
            assert total == sum(join.get("punctuations", {}).get(way, 0) for join in joins.values())
        return joins
    (name,) = (node.name for node in pipeline.nodes if isinstance(node.config, OperatorConfig))
    return {name: summary}


def without_speed(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what differs from runner to runner: names, speed, and when state was measured."""
    timed = ("runner", "elapsed_s", "rows_per_s", "busy_s", "state", "joins", "warnings")
    joins = {
        name: {k: v for k, v in join.items() if k != "state"} for name, join in summary.get("joins", {}).items()
    }
    return {key: value for key, value in summary.items() if key not in timed} | {"joins": joins}


class Batches:
    """Counts micro-batches, and inputs that Flatten has read."""

    seen = 0

    def total(self, rows: int) -> None:
        """What there is to read."""

    def advance(self, rows: int) -> None:
        self.seen += 1


def calls_of(node: Any) -> int:
    """Calls of ``Batches.advance`` that a node of a pipeline costs, at least."""
    return len(node.inputs) if isinstance(node.config, Flatten) else isinstance(node.config, OperatorConfig)


def lines_in(folder: Path, plain: bool = False) -> dict[str, list[str]]:
    """Every file under a folder as lines, Parquet files as one for the schema and one for each row.

    Plain ones have numbers alike, and the parts of a file under one name without its ending.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        table = pq.read_table(file) if file.read_bytes()[:4] == b"PAR1" else None
        if plain:
            name = name.split(".", maxsplit=1)[0].partition("-0000")[0]
            texts = file.read_text().splitlines() if table is None else []
            rows = map(json.loads, texts) if table is None else table.to_pylist()
            found.setdefault(name, []).extend(json.dumps(_plain(row), sort_keys=True) for row in rows)
        elif table is None:
            found[name] = file.read_text().splitlines()
        else:
            found[name] = [str(table.schema.remove_metadata()), *map(str, table.to_pylist())]
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers alike, also in rows within late rows: Beam writes ten digits, and whole ones without a point."""
    out = {}
    for key, value in row.items():
        nested = isinstance(value, str) and value.startswith("{")
        number = isinstance(value, int | float)
        out[key] = _plain(json.loads(value)) if nested else round(value, 7) + 0.0 if number else value
    return out


def pipeline_of(nodes: Sequence[Node]) -> Pipeline:
    """Read nodes as a template."""
    text = json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    return read_template_text("case.yaml", text)


def parquet(name: str, path: Any) -> Node:
    return {"type": "ReadFromParquet", "name": name, "config": {"path": str(path)}}


def sink(port: str, path: Any) -> Node:
    return {"type": "WriteToJson", "name": f"Sink {port}", "input": port, "config": {"path": str(path)}}


def merged(pipelines: Mapping[str, Pipeline]) -> Pipeline:
    """Put pipelines side by side, with their names before those of their nodes."""
    nodes = []
    for name, part in pipelines.items():
        for node in part.nodes:
            inputs = {label: replace(port, node=f"{name} {port.node}") for label, port in node.inputs.items()}
            nodes.append(replace(node, name=f"{name} {node.name}", inputs=inputs))
    return replace(part, nodes=tuple(nodes))


def halves(parts: Sequence[str]) -> list[Sequence[str]]:
    """Two jobs of Spark that take about as long."""
    return [half for half in (parts[::2], parts[1::2]) if half]
