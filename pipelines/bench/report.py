"""What a benchmark has measured: tables and plots, printed and written in one way for all.

Tables go to standard output, progress to standard error. With a folder, each table becomes a CSV file with its
numbers in full, all tables one Markdown file, and plots one HTML page that opens without a network.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from slackwater.pipelines.bench.benchmark import MARKDOWN

WIDTH = 150
"""Of tables that go to a file or a pipe: neither has a width, and 80 columns are too few."""


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    form: str | Callable[[Any], str] = ""
    """How a value is shown: a format such as ``.1%``, or a function; by default three digits."""
    key: str = ""
    """Heading in CSV files; by default that of the table."""


class Table:
    """Rows of values under headings."""

    def __init__(self, *columns: Column | str, title: str = "", name: str = "") -> None:
        """Open a table; ``name`` tells its file from those of other tables of the same benchmark."""
        self.columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self.title, self.name = title, name
        self.rows: list[tuple[Any, ...]] = []
        self._bold: list[bool] = []

    @classmethod
    def of(cls, figures: Mapping[str, Any], title: str = "", name: str = "") -> Table:
        """Return a table with a row for each figure."""
        table = cls("figure", "value", title=title, name=name)
        for row in figures.items():
            table.add(*row)
        return table

    def add(self, *values: Any, bold: bool = False) -> None:
        """Add a row. None stands for what could not be measured."""
        if len(values) != len(self.columns):
            raise ValueError(f"{len(values)} values for {len(self.columns)} columns")
        self.rows.append(values)
        self._bold.append(bold)

    def column(self, heading: str) -> list[Any]:
        """Return the values below a heading."""
        at = [column.heading for column in self.columns].index(heading)
        return [row[at] for row in self.rows]

    def cells(self) -> list[list[str]]:
        """Return what is shown."""
        return [[_shown(*both) for both in zip(self.columns, row, strict=True)] for row in self.rows]

    def print(self, console: Console) -> None:
        """Print the table, numbers to the right."""
        table = RichTable(title=Text(self.title) if self.title else None, title_justify="left")
        for at, column in enumerate(self.columns):
            words = any(isinstance(row[at], str) for row in self.rows)
            table.add_column(column.heading, justify="left" if words else "right")
        for cells, bold in zip(self.cells(), self._bold, strict=True):
            table.add_row(*map(Text, cells), style="bold" if bold else None)
        console.print(table)

    def csv(self, file: Path) -> None:
        """Write headings and values as CSV."""
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow([column.key or column.heading for column in self.columns])
            writer.writerows(["" if value is None else value for value in row] for row in self.rows)

    def markdown(self) -> str:
        """Return the table as Markdown, below its title."""
        headings = [column.heading for column in self.columns]
        lines = [headings, ["-" * max(3, len(heading)) for heading in headings], *self.cells()]
        title = f"## {self.title}\n\n" if self.title else ""
        return title + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _shown(column: Column, value: Any) -> str:
    match value:
        case None:
            return "-"
        case str():
            return value
        case _ if callable(column.form):
            return column.form(value)
        case bool():
            return "yes" if value else "NO"
        case _ if column.form:
            return format(value, column.form)
        case int():
            return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Report:
    """Prints what a benchmark finds and, where a place is named, writes it."""

    def __init__(self, name: str, out: Path | None = None) -> None:
        """Report on the benchmark ``name``, into ``out``: a folder, or a Markdown file."""
        self.tables: list[Table] = []
        self._name = name
        self._file = out if out is not None and out.suffix in MARKDOWN else None
        self._folder = None if self._file else out
        self._figures: list[Any] = []
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH)
        self._progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def progress(self, text: str) -> None:
        """Say on standard error what is going on."""
        self._progress.print(text)

    def say(self, text: str) -> None:
        """Print a line to standard output."""
        self._console.print(text, markup=False, soft_wrap=True)

    def add(self, table: Table) -> None:
        """Print a table and write it at once: what was measured is there even if the rest fails."""
        table.print(self._console)
        self.tables.append(table)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            table.csv(self._told("_".join(filter(None, (self._name, table.name))) + ".csv"))
        text = "\n".join(each.markdown() for each in self.tables)
        if self._file is not None:
            self._file.write_text(f"# slackwater bench {self._name}\n\n{text}", encoding="utf-8")
        elif self._folder is not None:
            (self._folder / f"{self._name}.md").write_text(text, encoding="utf-8")

    def plot(self, figures: Callable[[], Iterable[Any]]) -> None:
        """Write Plotly figures to a page; they are made only where there is a folder, and Plotly."""
        if self._folder is None:
            return
        if find_spec("plotly") is None:
            self.progress("no plots: they need plotly; install it with: pip install 'slackwater[report]'")
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._figures += figures()
        parts = [
            figure.to_html(full_html=False, include_plotlyjs=number == 0)
            for number, figure in enumerate(self._figures)
        ]
        self._told(f"{self._name}.html").write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>slackwater bench {self._name}</title></head>\n<body>\n{''.join(parts)}\n</body></html>\n",
            encoding="utf-8",
        )

    def _told(self, name: str) -> Path:
        assert self._folder is not None
        self.progress(f"writing {self._folder / name}")
        return self._folder / name
