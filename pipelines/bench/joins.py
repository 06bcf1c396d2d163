"""``slackwater bench joins``: the experiments of PWJoin, MJoin and XJoin, in shape.

Each paper is a section: a module ``joins_NAME`` with ``section() -> list[Row]``, small by arguments of its own.
A row says what was run, what it gave, which shape the paper leads to expect, and whether it was met. Strategies
that are compared run on the same chunks, in turns; where time decides, the figure is the median of their ratios.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

SECTIONS = {
    "pwjoin": "PWJoin: state, output and punctuations of joins with windows and punctuations",
    "mjoin": "MJoin: scheduling, state and purging of a one-to-many join without a window",
    "xjoin": "XJoin: a state of ten times the memory; each run a process of its own",
}
"""Name to title; the rows come from the module ``joins_NAME``."""


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


def main(arguments: list[str]) -> None:
    """Run the sections and print their tables."""
    parser = argparse.ArgumentParser(prog="slackwater bench joins", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, help="run one section only")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        # A file has no width, and 80 columns are too few.
        console = Console(highlight=False, width=150)
    for name in [options.only] if options.only else SECTIONS:
        rows = importlib.import_module(f"slackwater.pipelines.bench.joins_{name}").section()
        show(console, SECTIONS[name], rows)


def show(console: Console, title: str, rows: list[Row]) -> None:
    """Print a section."""
    table = Table("case", "measured", "expected", "met", title=title, title_justify="left")
    for row in rows:
        table.add_row(row.case, figures_of(row), row.shape, {None: "", True: "yes", False: "NO"}[row.met])
    console.print(table)


def figures_of(row: Row) -> str:
    """Return what was measured as text."""
    return ", ".join(f"{heading} {_shown(figure)}" for heading, figure in row.figures.items())


def _shown(figure: float | str) -> str:
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if isinstance(figure, int) or abs(figure) >= 100 else f"{figure:.3g}"
