"""What the command line prints: tables on a terminal, aligned plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from slackwater.pipelines.assembly.pipeline import Assembly
    from slackwater.pipelines.bench.benchmark import Benchmark
    from slackwater.pipelines.generate import Dataset, GeneratedDataset
    from slackwater.pipelines.template.graph import Read
    from slackwater.plugins.contract import Strategy
    from slackwater.plugins.registry.field_docs import Documented
    from slackwater.plugins.registry.manager import Provided
    from slackwater.transforms.settings.plan import Plan

_FILES_SHOWN: Final = 20


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: as a table with a header on a terminal, else aligned and without it."""
    rows = [tuple(row) for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header)
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(header))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_summary(summary: Mapping[str, Any]) -> None:
    """Print the numbers of a run, line by line; of several joins the sums and then each."""
    show_table(("what", "value"), list(_summary_rows(summary)))


def show_reconciled(summary: Mapping[str, Any]) -> None:
    """Print what became of an archive."""
    rows = [
        ("archive", f"{summary['rows']:,} rows, {summary['missed_rows']:,} of them missed results"),
        ("results", f"{summary['results']:,}"),
        ("written to", summary["file"]),
        ("elapsed", f"{summary['elapsed_s']:,.3f} s"),
    ]
    show_table(("what", "value"), rows)


def _summary_rows(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    joins = summary.get("joins", {})
    for name, part in joins.items():
        yield from ((f"{name}: {what}", value) for what, value in _verdict_rows(part))
    if not joins:
        yield from _verdict_rows(summary)
    yield from _number_rows(summary)
    for name, part in joins.items():
        yield from ((f"{name}: {what}", value) for what, value in _number_rows(part))


def _number_rows(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What was counted and measured."""
    if "runner" in summary:
        yield "runner", str(summary["runner"])
    for name, rows in summary.get("input", {}).items():
        yield f"input {name}", f"{rows:,} rows"
    if "results" in summary:
        yield "results", f"{summary['results']:,}"
    late = summary.get("late", {})
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in late.items() if n)
    yield "late", reasons or "0"
    slack = summary.get("slack_ms") or {}
    if slack:
        yield "slack", ", ".join(f"{key} {value:,g} ms" for key, value in slack.items() if value is not None)
    if summary.get("recall_estimate") is not None and "recall" not in summary:
        yield "recall (estimated)", f"{summary['recall_estimate']:.4f}"
    queue = summary.get("queue") or {}
    if queue.get("max_rows"):
        waits = ", ".join(f"{key} {value:,g} ms" for key, value in queue["wait_ms"].items())
        yield "queue", f"at most {queue['max_rows']:,} rows, {queue['shed']:,} shed, wait {waits}"
    missed = summary.get("missed") or {}
    if missed.get("shed") and "recall" not in summary:
        yield "missed (estimated)", f"{missed['late']:,} by disorder, {missed['shed']:,} by shedding"
    state = summary.get("state") or {}
    if state:
        yield "state", f"at most {state['max_tuples']:,} tuples, {state['max_bytes'] / 1e6:,.1f} MB"
    if state.get("spilled_tuples"):
        yield "on disk", f"{state['spilled_tuples']:,} tuples, {state['spilled_bytes'] / 1e6:,.1f} MB"
    if "elapsed_s" in summary:
        yield "elapsed", f"{summary['elapsed_s']:,.3f} s"
        yield "throughput", f"{summary['rows_per_s']:,.0f} rows/s"


def _verdict_rows(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What was asked for and what was reached."""
    recall = summary.get("recall")
    if recall:
        reached = recall["reached"]
        met = "nothing to go by" if reached is None else _met(reached, recall["asked"])
        shown = "unknown" if reached is None else f"{reached:.4f} (estimated)"
        yield "recall", f"asked {recall['asked']:g}, reached {shown}: {met}"
        if recall["periods"]:
            below = recall["periods"] - recall["periods_met"]
            yield "periods", f"{below:,} of {recall['periods']:,} below the recall asked for"
        missed = summary.get("missed") or {}
        by = [("disorder", missed.get("late")), ("shedding", missed.get("shed"))]
        yield (
            "missed (estimated)",
            ", ".join(f"{n or 0:,} results by {why}" for why, n in by if n or why == "disorder"),
        )
        if recall["capped_by"]:
            yield "wait capped by", ", ".join(recall["capped_by"])
    ratio = summary.get("drop_ratio")
    if ratio and ratio["reached"] is not None:
        met = "met" if ratio["reached"] <= ratio["asked"] else "not met"
        yield "too late", f"asked {ratio['asked']:.3%} of the rows, reached {ratio['reached']:.3%}: {met}"
    latency = summary.get("latency_ms") or {}
    if latency.get("p50") is not None:
        yield "latency added", ", ".join(f"{name} {value:,.4g} ms" for name, value in latency.items())


def _met(reached: float, asked: float) -> str:
    from slackwater.plugins.disorder.budget import NEARLY

    return "met" if reached >= asked else "nearly met" if reached >= NEARLY * asked else "not met"


def show_assembly(assembly: Assembly, explain: bool = False) -> None:
    """Print what a checked template reads, joins and writes; of joins also how they are split, if told so."""
    from slackwater.pipelines.template.graph import Port, Read

    pipeline = assembly.pipeline
    typer.echo(f"ok: {pipeline.file}: {len(pipeline.nodes)} transforms")
    for node in pipeline.nodes:
        reads = ", ".join(
            str(port) if label == "input" else f"{label} = {port}" for label, port in node.inputs.items()
        )
        path = getattr(node.config, "path", "")
        typer.echo(" ".join(filter(None, [f"  {node.name}: {node.type}", path, reads and f"({reads})"])))
        if isinstance(node.config, Read):
            typer.echo(f"    files: {_files(node.config)}")
        schema = assembly.schemas.get(Port(node.name))
        if node.name in assembly.plans:
            for what, text in _operator_rows(assembly.plans[node.name], explain):
                typer.echo(f"    {what}: {text}")
        if schema is not None:
            typer.echo(f"    columns: {', '.join(f'{field.name} {field.type}' for field in schema)}")


def _files(config: Read) -> str:
    """Return the files that a source reads, in order, and those at its path that it does not, and why."""
    from slackwater.pipelines.io.source_files import list_files

    taken, skipped = list_files(config)
    read = ", ".join(Path(file).name for file in taken[:_FILES_SHOWN])
    more = f" and {len(taken) - _FILES_SHOWN} more" if len(taken) > _FILES_SHOWN else ""
    left = [f"{Path(file).name} ({why})" for file, why in skipped[:_FILES_SHOWN]]
    left += [f"{len(skipped) - _FILES_SHOWN} more"] if len(skipped) > _FILES_SHOWN else []
    return f"{len(taken)}: {read}{more}" + (f"; skipped: {', '.join(left)}" if left else "")


def _operator_rows(plan: Plan, explain: bool) -> Iterable[tuple[str, str]]:
    from slackwater.transforms.operators.registry import operator_of
    from slackwater.transforms.settings.explanation import split_rows
    from slackwater.transforms.settings.plan import JoinPlan

    inputs = plan.inputs
    times = ", ".join(f"{i}.{column}" for i, column in zip(inputs, plan.time_columns, strict=True))
    yield "time", f"{times} (in {plan.unit})"
    if plan.arrival_columns is not None and not plan.by_time:
        yield "arrival", ", ".join(f"{i}.{c}" for i, c in zip(inputs, plan.arrival_columns, strict=True))
    yield from operator_of(plan.config).describe(plan)
    if explain and isinstance(plan, JoinPlan):
        yield from split_rows(plan)
    else:
        yield "shards", str(plan.shards)


def show_strategies(found: Sequence[Provided], broken: Mapping[str, str]) -> None:
    """Print strategies with their options, then the plugins that could not be loaded."""
    for provided in found:
        strategy = provided.strategy
        typer.echo(f"{strategy.stage}: {strategy.name}  [{provided.distribution}]")
        typer.echo(f"  {purpose(strategy)}")
        for name, kind, default, about in option_rows(strategy):
            typer.echo(f"    {name}: {kind}, {default}{' - ' if about else ''}{about}")
    for plugin, fault in broken.items():
        typer.echo(f"broken: plugin {plugin!r} could not be loaded ({fault})")


def purpose(strategy: type[Strategy]) -> str:
    """First line of a strategy's docstring."""
    return (strategy.__doc__ or "").strip().split("\n", 1)[0]


def option_rows(strategy: type[Documented], within: str = "") -> Iterable[tuple[str, str, str, str]]:
    """Name, type, default and meaning of every option; those of an option that has its own come after it."""
    from typing import get_args

    from slackwater.plugins.registry.field_docs import Documented

    said = strategy.descriptions()
    for name, field in strategy.model_fields.items():
        default = "required" if field.is_required() else f"default {field.get_default(call_default_factory=True)}"
        parts = [part for part in get_args(field.annotation) if isinstance(part, type)]
        nested = next((part for part in parts if issubclass(part, Documented)), None)
        kind = _type_word(field.annotation) if nested is None else f"{{{', '.join(nested.model_fields)}}} | none"
        yield within + name, kind, default, " ".join(said[name].split())
        if nested is not None:
            yield from option_rows(nested, f"{within}{name}.")


def _type_word(annotation: Any) -> str:
    import types
    from typing import Literal, Union, get_args, get_origin

    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(_type_word(part) for part in get_args(annotation))
    if annotation is type(None):
        return "none"
    words = {
        "Duration": "duration (such as 250ms, 5s, 1m)",
        "int": "whole number",
        "Memory": "tuples or bytes",
        "MemoryLimit": "tuples or bytes, or {duration: tuples or bytes}",
        "float": "number",
        "str": "text",
    }
    name = getattr(annotation, "__name__", str(annotation))
    return words.get(name, name)


def show_datasets(datasets: Iterable[Dataset]) -> None:
    """Print the data sets that can be generated, with their knobs."""
    for dataset in datasets:
        typer.echo(f"{dataset.name}: {dataset.purpose}")
        typer.echo(f"    streams: {', '.join(dataset.streams)}; {dataset.default_rows:,} rows each unless --rows")
        for knob in dataset.knobs:
            default = ",".join(map(str, knob.default)) if isinstance(knob.default, tuple) else knob.default
            shown = f"default {'none' if default is None else default}"
            typer.echo(f"    {knob.name}: {knob.expects()}; {shown} - {knob.about.rstrip('.')}")


def show_generated(written: GeneratedDataset) -> None:
    """Print what was written, and the variables that a template needs to run on it."""
    import shlex

    for name, path in written.files.items():
        typer.echo(f"{path}: {written.rows[name]:,} rows")
    query = f"{written.query.where}, window {written.query.duration}"
    typer.echo(f"{written.truth}: {written.results:,} results of {query}")
    settings = (f"--set {shlex.quote(f'{name}={value}')}" for name, value in written.variables.items())
    typer.echo(f"variables: {' '.join(settings)}")


def show_benchmarks(benchmarks: Iterable[Benchmark]) -> None:
    """Print the benchmarks, what each measures and how long it takes."""
    rows = [(benchmark.name, benchmark.purpose, benchmark.takes) for benchmark in benchmarks]
    show_table(("benchmark", "measures", "takes about"), rows)
