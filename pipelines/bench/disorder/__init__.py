"""Disorder strategies: how much slack they take for the recall, or the share of late rows, that is asked for."""

from __future__ import annotations

import argparse

from slackwater.pipelines.bench.benchmark import Benchmark, known_words, option, rows, words

RECALLS = (0.8, 0.9, 0.95, 0.99, 0.999)
DATA = ("syn3", "syn4", "soccer", "flights", "flights_weather")
NANOS_PER_MS = 1_000_000


def _data(text: str) -> tuple[str, ...]:
    return known_words(text, DATA, "data set", "known")


def _strategies(text: str) -> tuple[str, ...]:
    from slackwater.plugins.registry.manager import manager

    return known_words(text, manager().names("disorder"), "strategy", "installed")


def _recalls(text: str) -> tuple[float, ...]:
    try:
        recalls = tuple(sorted({float(word) for word in words(text)}))
    except ValueError:
        recalls = ()
    if not recalls or not all(0 < recall <= 1 for recall in recalls):
        raise argparse.ArgumentTypeError(
            f"must be numbers above 0 and at most 1, separated by commas, got {text!r}"
        )
    return recalls


def _duration(text: str) -> str:
    from slackwater.plugins.registry.options import Duration

    try:
        if Duration.parse(text) >= NANOS_PER_MS:
            return text
        raise ValueError(f"must be at least 1ms, got {text!r}")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


BENCHMARKS = (
    Benchmark(
        "disorder",
        "slack, recall and latency of disorder strategies against the best constant slack",
        takes="15 minutes",
        function="disorder.comparison:run",
        rows=rows(None, "rows per stream; by default the data set's own number"),
        seed=7,
        options=(
            option("--data", type=_data, help=f"data sets, comma-separated, of {', '.join(DATA)}"),
            option("--recall", type=_recalls, default=RECALLS, help="recalls asked for, comma-separated"),
            option(
                "--strategies",
                type=_strategies,
                help="disorder strategies, comma-separated; by default none, max and all that take a recall",
            ),
            option("--period", type=_duration, help="period over which recall is measured, such as 1m"),
            option("--interval", type=_duration, help="time between measurements and adaptations, such as 1s"),
        ),
        quick={"data": ("syn3",), "rows": 3_000, "period": "5s", "recall": (0.9,)},
    ),
    Benchmark(
        "quality_driven",
        "recall and K of quality_driven on the synthetic streams of its paper, beside Max-K-slack",
        takes="3 minutes",
        function="disorder.quality_driven:run",
        rows=rows(180_000, "rows per stream, 6,000 a minute"),
        seed=7,
        options=(option("--data", type=_data, default=("syn3", "syn4"), help="data sets, comma-separated"),),
        quick={"data": ("syn3",), "rows": 12_000},
    ),
    Benchmark(
        "drop_ratio",
        "late rows, rows held and waiting time of drop_ratio at 1 % against heartbeat",
        takes="20 seconds",
        function="disorder.drop_ratio:run",
        rows=rows(600, "rows of each of the 20 short data sets"),
        seed=0,
        options=(
            option("--long-rows", default=20_000, help="rows of the long data sets"),
            option("--speed-rows", default=1_000_000, help="rows for the time that a row takes"),
        ),
        quick={"rows": 300, "long_rows": 2_000, "speed_rows": 20_000},
    ),
)
