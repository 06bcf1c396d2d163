"""The archives of a run: made before it starts, complete once it has succeeded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from slackwater.pipelines.assembly.pipeline import Assembly
from slackwater.pipelines.template.reader import node_error
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.output.archive_directory import check_directory, check_unlocked, finished, prepare
from slackwater.transforms.settings.plan import JoinPlan


def check_archives(assembly: Assembly) -> None:
    """Raise TemplateError if a directory that a join names cannot become its archive; change nothing."""
    taken: dict[str, str] = {}
    for name, plan in _joins(assembly):
        try:
            check_directory(plan)
            check_unlocked(plan)
            if plan.config.archive is not None and os.path.realpath(plan.config.archive) in taken:
                other = taken[os.path.realpath(plan.config.archive)]
                raise ConfigError(f"is that of {other!r} too; give each join a directory of its own", "archive")
        except ConfigError as error:
            raise node_error(assembly.pipeline.node(name), error) from None
        if plan.config.archive is not None:
            taken[os.path.realpath(plan.config.archive)] = name


def _joins(assembly: Assembly) -> Iterator[tuple[str, JoinPlan]]:
    """Yield the joins by name: they alone have archives."""
    for name, plan in assembly.plans.items():
        if isinstance(plan, JoinPlan):
            yield name, plan


@contextmanager
def archives_of(assembly: Assembly) -> Iterator[None]:
    """Make the archives of all joins, and keep other runs from them.

    What a run that fails leaves in them says that it is not complete.
    """
    check_archives(assembly)
    with ExitStack() as locks:
        for name, plan in _joins(assembly):
            try:
                lock = prepare(plan, unfinished=True)
            except ConfigError as error:
                raise node_error(assembly.pipeline.node(name), error) from None
            if lock is not None:
                locks.callback(os.close, lock)
        yield
        for _, plan in _joins(assembly):
            finished(plan)
