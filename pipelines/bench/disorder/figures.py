"""The table and the plots of ``slackwater bench disorder``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from slackwater.pipelines.bench.report import Column, Table

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


def table(lines: list[Line]) -> Table:
    """Return what the lines have in numbers."""
    percent = ".1%"
    made = Table(
        "data", Column("Γ", "g", "recall_asked"), "strategy", Column("average K", _time, "slack_ms"),
        Column("recall", ".4f"), Column("Φ(Γ)", percent, "phi"), Column("Φ(.99Γ)", percent, "phi_99"),
        Column("latency", _time, "latency_ms"), Column("K / max", ".3f", "slack_to_max"),
        Column("K / best", ".2f", "slack_to_best"),
    )  # fmt: skip
    for line in lines:
        made.add(*line[: len(made.columns)], bold=line.strategy == "best constant")
    return made


def _time(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms < 600_000 else f"{ms / 60_000:.1f} min"


def plots(lines: list[Line]) -> Iterator[Any]:
    """Yield for each data set: slack and recall over time, and one by the other."""
    for data in dict.fromkeys(line.data for line in lines):
        chosen = [line for line in lines if line.data == data]
        yield _over_time(data, chosen)
        yield _against(data, chosen)


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
