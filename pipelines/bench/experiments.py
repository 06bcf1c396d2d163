"""Experiments of papers: what was run, what it gave, the shape that the paper leads to expect."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from slackwater.pipelines.bench.report import Column, Report, Table


class Row(NamedTuple):
    """One run of a section, or several that are compared."""

    case: str
    """Data and settings."""
    figures: Mapping[str, float | str]
    """What was measured, by name."""
    shape: str = ""
    """What is expected, in words; empty for a row that only informs."""
    met: bool | None = None
    timed: bool = False
    """Whether time decides: then a busy machine may miss the shape, and no test asks for it."""


class Section(NamedTuple):
    """A part of a benchmark: a module with ``section() -> list[Row]``, small by arguments of its own."""

    title: str
    module: str
    quick: Mapping[str, Any]
    """Arguments of a small run."""


def run(sections: Mapping[str, Section], options: argparse.Namespace, report: Report) -> None:
    """Run all sections, or the one of ``--only``; ``--rows`` and ``--seed`` go to those that have them."""
    for name, section in sections.items():
        if options.only not in (None, name):
            continue
        function = importlib.import_module(f"slackwater.pipelines.bench.{section.module}").section
        asked = {"rows": options.rows, "seed": options.seed}
        known = inspect.signature(function).parameters
        quick = dict(section.quick) if options.quick else {}
        given = {key: value for key, value in asked.items() if value is not None and key in known}
        report.add(table(name, section.title, function(**quick | given)))


def table(name: str, title: str, rows: list[Row]) -> Table:
    """Return a section as a table."""
    met = Column("met", lambda met: "yes" if met else "NO")
    made = Table("case", "measured", "expected", met, title=title, name=name)
    for row in rows:
        made.add(row.case, figures_of(row), row.shape, "" if row.met is None else row.met)
    return made


def figures_of(row: Row) -> str:
    """Return what was measured as text."""
    return ", ".join(f"{heading} {_shown(figure)}" for heading, figure in row.figures.items())


def _shown(figure: float | str) -> str:
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if isinstance(figure, int) or abs(figure) >= 100 else f"{figure:.3g}"
