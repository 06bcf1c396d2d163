"""Options of the command line for live runs: those of templates that read from Kafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.transforms.errors import ConfigError

if TYPE_CHECKING:
    from slackwater.pipelines.template.graph import Pipeline

Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder from which a run that reads from Kafka goes on.", file_okay=False),
]
UntilCaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="End a run that reads from Kafka when it has read what there is."),
]


def with_live_options(
    start: Callable[..., dict[str, Any]],
    pipeline: Pipeline,
    on_spark: bool,
    checkpoint: Path | None,
    until_caught_up: bool,
    metrics: Path | None = None,
) -> Callable[..., dict[str, Any]]:
    """Return a runner that is told of the options for live runs; raise if they are given for another run."""
    from slackwater.pipelines.runners.live_run import is_live

    if is_live(pipeline) and on_spark:
        folder = None if checkpoint is None else str(checkpoint)
        file = None if metrics is None else str(metrics)
        return partial(start, checkpoint=folder, until_caught_up=until_caught_up, metrics=file, tell=_tell)
    if checkpoint is not None or until_caught_up:
        option = "--until-caught-up" if checkpoint is None else "--checkpoint"
        raise ConfigError("is for templates that read from Kafka, with --runner spark; leave it out", option)
    return start


def _tell(line: str) -> None:
    typer.echo(line, err=True)
