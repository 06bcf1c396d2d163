"""The command line. Every command imports what it needs when it runs, so that ``--help`` is instant."""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.pipelines.cli.errors import UsageError, reporting, show_warning
from slackwater.pipelines.cli.live_options import Checkpoint, UntilCaughtUp, with_live_options
from slackwater.pipelines.cli.startup import spare_pandas

if TYPE_CHECKING:
    from slackwater.pipelines.template.graph import Pipeline

app = typer.Typer(
    name="slackwater",
    help="Join out-of-order streams: YAML templates, run here, on Beam, on Beam's Spark runner or on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_own_process = False
"""Whether this process is the command: then it may be bent to the command's needs."""


class Runner(StrEnum):
    """Where a template can run."""

    local = "local"
    beam = "beam"
    beam_spark = "beam-spark"
    spark = "spark"


Template = Annotated[
    str, typer.Argument(metavar="TEMPLATE", help="Path of a template, or name of a shipped one.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a template variable; may be repeated."),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE", help="Load strategies from a module; may be repeated."),
]
Summary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the summary to a file, as JSON.", dir_okay=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main() -> None:
    """Entry point of the ``slackwater`` command."""
    global _own_process  # noqa: PLW0603
    _own_process = True
    # pydantic would look through every installed distribution for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    warnings.showwarning = show_warning
    app()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from importlib import metadata

        typer.echo(f"slackwater {metadata.version('slackwater')}")
        raise typer.Exit


@app.command()
@reporting
def run(
    template: Template,
    variables: Variables = None,
    runner: Annotated[Runner, typer.Option(help="Where to run.")] = Runner.local,
    summary: Summary = None,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a JSON line per interval of stream time.", dir_okay=False),
    ] = None,
    beam_options: Annotated[
        list[str] | None,
        typer.Option("--beam-option", metavar="KEY=VALUE", help="Set a pipeline option of Beam; repeatable."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master, such as spark://host:7077.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Set a property of Spark; may be repeated."),
    ] = None,
    checkpoint: Checkpoint = None,
    until_caught_up: UntilCaughtUp = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Run a template to the end of its inputs, or until it is stopped, and print a summary."""
    from slackwater.pipelines.cli.progress import show_progress
    from slackwater.pipelines.cli.tables import show_summary
    from slackwater.pipelines.runners.metrics_file import metrics_to
    from slackwater.pipelines.runners.signals import ending_on_signals
    from slackwater.pipelines.template.reader import read_template

    _check_folders(summary=summary, metrics=metrics)
    _load_plugins(plugins)
    pipeline = read_template(template, _pairs(variables))
    _check_apart(pipeline, summary=summary, metrics=metrics)
    start = _runner(runner, _pairs(beam_options, "--beam-option"), master, conf)
    start = with_live_options(start, pipeline, runner is Runner.spark, checkpoint, until_caught_up, metrics)
    with ending_on_signals(), show_progress(template) as progress, metrics_to(metrics, pipeline) as measured:
        result = start(measured, progress=progress)
    for warning in result.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)
    if summary is not None:
        summary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    show_summary(result)


def _runner(
    runner: Runner, beam_options: dict[str, str], master: str | None = None, conf: list[str] | None = None
) -> Callable[..., dict[str, Any]]:
    if runner is not Runner.spark and (master or conf):
        raise UsageError(f"--{'master' if master else 'conf'}: is for --runner spark, not {runner}; leave it out")
    if beam_options and runner not in (Runner.beam, Runner.beam_spark):
        raise UsageError(f"--beam-option: is for --runner beam or beam-spark, not {runner}; leave it out")
    if runner is Runner.local:
        spare_pandas(_own_process)
        from slackwater.pipelines.runners.local.runner import run as run_local

        return run_local
    # Importing Beam logs what it would need for clouds that nobody asked for.
    logging.disable(logging.WARNING)
    engine = "spark" if runner is Runner.spark else "beam"
    module = importlib.import_module(f"slackwater.pipelines.runners.{engine}.runner")
    logging.disable(logging.NOTSET)
    start: Callable[..., dict[str, Any]] = module.run
    if runner is Runner.spark:
        return functools.partial(start, master=master, conf=_pairs(conf, "--conf"))
    return functools.partial(start, spark=runner is Runner.beam_spark, options=beam_options)


@app.command()
@reporting
def check(
    template: Template,
    variables: Variables = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say how joins are split over shards, and why.")
    ] = False,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """Check a template against its inputs without running it."""
    from slackwater.pipelines.assembly.pipeline import assemble
    from slackwater.pipelines.cli.tables import show_assembly
    from slackwater.pipelines.io.sources import source_schema
    from slackwater.pipelines.runners.archives import check_archives
    from slackwater.pipelines.runners.live_run import prepared
    from slackwater.pipelines.template.graph import Create, Read
    from slackwater.pipelines.template.reader import read_template
    from slackwater.transforms.settings.time_zones import zone_warnings

    def schema_of(node: Any) -> Any:
        assert isinstance(node.config, Read | Create)
        return source_schema(node.config)

    _load_plugins(plugins)
    spare_pandas(_own_process)
    assembly = assemble(prepared(read_template(template, _pairs(variables))), schema_of)
    check_archives(assembly)
    for name, plan in assembly.plans.items():
        for warning in zone_warnings(plan):
            typer.echo(f"warning: {name}: {warning}", err=True)
    show_assembly(assembly, explain)


@app.command()
@reporting
def reconcile(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory that the setting archive of a join names.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write, .parquet, .csv or .json; default: DIR/reconciled.parquet."
        ),
    ] = None,
    runner: Annotated[Runner, typer.Option(help="Where to run: local or spark.")] = Runner.local,
    summary: Summary = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    debug: Debug = False,
) -> None:
    """Write the results that a join has missed, from its archive."""
    from slackwater.pipelines.cli.tables import show_reconciled
    from slackwater.pipelines.reconcile.local import reconcile as reconcile_archive
    from slackwater.pipelines.runners.signals import ending_on_signals

    _check_folders(summary=summary, out=out)
    with ending_on_signals():
        if runner is Runner.spark:
            from slackwater.pipelines.reconcile.spark import run_parts

            result = reconcile_archive(directory, out, force, run_parts)
        elif runner is Runner.local:
            spare_pandas(_own_process)
            result = reconcile_archive(directory, out, force)
        else:
            raise UsageError(f"--runner {runner}: reconcile runs on local or spark")
    if summary is not None:
        summary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    show_reconciled(result)


@app.command()
@reporting
def templates(debug: Debug = False) -> None:
    """List the shipped templates."""
    from slackwater.pipelines.cli.tables import show_table
    from slackwater.pipelines.template.text import shipped

    rows = []
    for name, text in shipped().items():
        first = text.lstrip().split("\n", 1)[0]
        rows.append((name, first.lstrip("# ").strip() if first.startswith("#") else ""))
    show_table(("template", "purpose"), rows)


@app.command()
@reporting
def providers(debug: Debug = False) -> None:
    """Print where the file is that tells Beam's own YAML runner of the transforms of ours."""
    from slackwater.pipelines.template.text import providers as path

    typer.echo(path())


@app.command()
@reporting
def strategies(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show only the strategies of this name.")
    ] = None,
    plugins: Plugins = None,
    debug: Debug = False,
) -> None:
    """List the strategies that templates can name, with their options."""
    from slackwater.pipelines.cli.tables import show_strategies
    from slackwater.plugins.registry.manager import manager

    _load_plugins(plugins)
    found = [p for p in manager().strategies() if name in (None, p.strategy.name)]
    if not found:
        known = ", ".join(dict.fromkeys(p.strategy.name for p in manager().strategies()))
        raise UsageError(f"no strategy named {name!r}; installed: {known}. Check the spelling.")
    show_strategies(found, manager().broken)


@app.command()
@reporting
def schema(plugins: Plugins = None, debug: Debug = False) -> None:
    """Print the JSON Schema of templates, for editors that complete and check."""
    from slackwater.pipelines.template.json_schema import template_schema

    _load_plugins(plugins)
    typer.echo(json.dumps(template_schema(), indent=2))


@app.command()
@reporting
def generate(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Data set; none lists them.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write into.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows per stream.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 7,
    format: Annotated[str, typer.Option(help="parquet, csv or json.")] = "parquet",
    knobs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KNOB=VALUE", help="Set a knob of the data set; may be repeated."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a seeded data set of the papers, with its exact result counts."""
    from slackwater.pipelines.cli.tables import show_datasets, show_generated
    from slackwater.pipelines.generate import DATASETS
    from slackwater.pipelines.generate import generate as write_dataset

    if dataset is None:
        show_datasets(DATASETS.values())
        return
    if out is None:
        raise UsageError("generate needs --out DIR; name the folder to write into")
    values = _pairs(knobs)
    reserved = values.keys() & {"rows", "seed", "format", "out", "dataset"}
    if reserved:
        word = min(reserved)
        raise UsageError(f"--set {word}: is no knob of a data set; use --{word}")
    try:
        written = write_dataset(dataset, out, rows=rows, seed=seed, format=format, **values)
    except ValueError as error:
        raise UsageError(str(error)) from error
    show_generated(written)


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@reporting
def bench(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Benchmark, such as local; without it, all are listed.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[--rows N] [--seed N] [--out DIR] [--quick] [OPTIONS]...",
            help="Options of the benchmark; NAME --help shows them.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a benchmark and print what it measured; list all benchmarks."""
    from slackwater.pipelines.bench import registry
    from slackwater.pipelines.cli.tables import show_benchmarks

    if name in ("-h", "--help"):
        typer.echo(context.get_help())
        return
    if name is None:
        show_benchmarks(registry.BENCHMARKS.values())
        return
    if name not in registry.BENCHMARKS:
        known = ", ".join(registry.BENCHMARKS)
        raise UsageError(f"no benchmark named {name!r}; known: {known}. Check the spelling.")
    registry.run_bench(name, *(arguments or ()))


def _check_folders(**files: Path | None) -> None:
    for option, file in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"--{option}: there is no folder {file.parent}; create it or choose another")


def _check_apart(pipeline: Pipeline, **files: Path | None) -> None:
    from slackwater.pipelines.assembly.paths import taken_by

    for option, file in files.items():
        name = None if file is None else taken_by(pipeline, file)
        if name is not None:
            raise UsageError(f"--{option}: {str(file)!r} is a file of {name!r}; choose another")


def _pairs(given: list[str] | None, option: str = "--set") -> dict[str, str]:
    """Return ``NAME=VALUE`` texts as a mapping."""
    pairs: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if option == "--conf" and not (equals and name.startswith("spark.")):
            raise UsageError(f"--conf {text}: must be KEY=VALUE with a key that begins with spark.")
        if not equals or not (name.isidentifier() or option == "--conf"):
            raise UsageError(f"{option} {text}: must be NAME=VALUE")
        if name in pairs:
            raise UsageError(f"{option} {name}: is given twice; keep one")
        pairs[name] = value
    return pairs


def _load_plugins(modules: list[str] | None) -> None:
    if not modules:
        return
    from slackwater.plugins.registry.manager import manager

    if "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        manager().add_module(module)


if __name__ == "__main__":
    main()
