"""The table and the plots of ``slackwater bench disorder``."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

MOST_POINTS = 2_000
"""Points of a line over time: longer ones are thinned."""
COLORS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")


class Line(NamedTuple):
    """One strategy on one data set at one recall. None stands for what could not be measured."""

    data: str
    recall: float
    """The recall asked for, Γ."""
    strategy: str
    slack_ms: float
    overall: float
    """Recall over all data."""
    fulfilled: float | None
    """Φ(Γ)"""
    nearly: float | None
    """Φ(.99Γ)"""
    latency_ms: float
    to_max: float | None
    """Average slack over that of Max-K-slack."""
    to_best: float | None
    """Average slack over the best constant one."""
    hours: Any
    """Event time from the start at which ``recalls`` were measured."""
    recalls: Any
    slack_hours: Any
    """Event time from the start of ``slacks``."""
    slacks: Any
    """Average slack in ms of each interval; NaN for none."""


HEADINGS = (
    "data", "Γ", "strategy", "average K", "recall", "Φ(Γ)", "Φ(.99Γ)", "latency", "K / max", "K / best",
)  # fmt: skip
NUMBERS = (
    "data", "recall_asked", "strategy", "slack_ms", "recall", "phi", "phi_99", "latency_ms", "slack_to_max",
    "slack_to_best",
)  # fmt: skip


def show(lines: list[Line]) -> None:
    """Print the table to standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        # A file has no width, and 80 columns are too few.
        console = Console(highlight=False, width=130)
    table = Table(*HEADINGS)
    for position in (1, *range(3, len(HEADINGS))):
        table.columns[position].justify = "right"
    for line, cells in zip(lines, _cells(lines), strict=True):
        table.add_row(*cells, style="bold" if line.strategy == "best constant" else None)
    console.print(table)


def write(lines: list[Line], out: Path, console: Console) -> Iterator[Path]:
    """Write ``disorder.csv``, ``disorder.md`` and ``disorder.html`` into a folder, and yield each.

    The folder is made if need be. Without Plotly there are no plots, which is said on ``console``.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / "disorder.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NUMBERS)
        writer.writerows(["" if value is None else value for value in line[: len(NUMBERS)]] for line in lines)
    yield out / "disorder.csv"
    rows = [HEADINGS, tuple("-" * len(heading) for heading in HEADINGS), *_cells(lines)]
    text = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    (out / "disorder.md").write_text(text, encoding="utf-8")
    yield out / "disorder.md"
    if find_spec("plotly") is None:
        console.print("no plots: they need plotly; install it with: pip install 'slackwater[report]'")
        return
    (out / "disorder.html").write_text(_html(lines), encoding="utf-8")
    yield out / "disorder.html"


def _cells(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        yield (
            line.data,
            f"{line.recall:g}",
            line.strategy,
            _time(line.slack_ms),
            f"{line.overall:.4f}",
            "-" if line.fulfilled is None else f"{line.fulfilled:.1%}",
            "-" if line.nearly is None else f"{line.nearly:.1%}",
            _time(line.latency_ms),
            "-" if line.to_max is None else f"{line.to_max:.3f}",
            "-" if line.to_best is None else f"{line.to_best:.2f}",
        )


def _time(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms < 600_000 else f"{ms / 60_000:.1f} min"


def _html(lines: list[Line]) -> str:
    """Return one page that needs no network: for each data set, slack and recall over time, and one by other."""
    parts: list[str] = []
    for data in dict.fromkeys(line.data for line in lines):
        chosen = [line for line in lines if line.data == data]
        for figure in (_over_time(data, chosen), _against(data, chosen)):
            parts.append(figure.to_html(full_html=False, include_plotlyjs=not parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>slackwater bench disorder</title>'
        f"</head>\n<body>\n{''.join(parts)}\n</body></html>\n"
    )


def _over_time(data: str, lines: list[Line]) -> Any:
    """Slack above, recall below; one recall asked for at a time, chosen by a button."""
    from plotly.subplots import make_subplots

    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.06)
    colors = _colors(lines)
    asked = sorted({line.recall for line in lines})
    first = asked[len(asked) // 2]
    for line in lines:
        pairs = ((line.slack_hours, line.slacks / 1000), (line.hours, line.recalls))
        for row, (x, y) in enumerate(pairs, 1):
            thin = max(1, -(-len(x) // MOST_POINTS))
            figure.add_scatter(
                x=np.round(x[::thin], 4), y=np.round(y[::thin], 5), row=row, col=1, mode="lines",
                name=line.strategy, legendgroup=line.strategy, showlegend=row == 1, connectgaps=True,
                line={"color": colors[line.strategy], "width": 1.5}, visible=line.recall == first,
            )  # fmt: skip
    shown = [line.recall for line in lines for _ in range(2)]
    buttons = [
        {"label": f"Γ = {recall:g}", "method": "update", "args": [{"visible": [r == recall for r in shown]}]}
        for recall in asked
    ]
    figure.update_layout(
        title=f"{data}: slack and recall over time",
        height=640,
        updatemenus=[{"type": "buttons", "direction": "right", "x": 1, "xanchor": "right", "y": 1.12,
                      "active": asked.index(first), "buttons": buttons}],
    )  # fmt: skip
    figure.update_yaxes(title_text="slack in s", row=1, col=1)
    figure.update_yaxes(title_text="recall of the last period", row=2, col=1)
    figure.update_xaxes(title_text="event time in hours", row=2, col=1)
    return figure


def _against(data: str, lines: list[Line]) -> Any:
    """Average slack by recall, a line for each strategy; the slack's axis is logarithmic."""
    from plotly.graph_objects import Figure

    figure = Figure()
    colors = _colors(lines)
    for strategy in dict.fromkeys(line.strategy for line in lines):
        own = [line for line in lines if line.strategy == strategy and line.slack_ms > 0]
        figure.add_scatter(
            x=[line.overall for line in own], y=[line.slack_ms / 1000 for line in own], mode="lines+markers",
            name=strategy, line={"color": colors[strategy]}, text=[f"Γ = {line.recall:g}" for line in own],
        )  # fmt: skip
    figure.update_layout(title=f"{data}: slack against recall", height=460)
    figure.update_xaxes(title_text="recall over all data")
    figure.update_yaxes(title_text="average slack in s", type="log")
    return figure


def _colors(lines: list[Line]) -> dict[str, str]:
    names = dict.fromkeys(line.strategy for line in lines)
    return {name: COLORS[at % len(COLORS)] for at, name in enumerate(names)}
