"""``slackwater bench drop_ratio``: late rows, rows held and waiting time beside heartbeat (ADC, Figs. 7 and 8).

20 data sets as in the paper: 16 to 20 rows a second, intervals exponential, latencies normal (mean 1.2 s, a
standard deviation of 150, 250 or 350 ms). The paper does not tell their length; with 600 rows, half a minute
each, heartbeat comes out about as published. A running maximum is broken about ln n times in n rows, so on long
inputs heartbeat drops little too, and holds more; the second half of the first table shows that. The second table
puts ten slow rows among the first 200 of a long input; the third has the time that a row takes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.plugins.checks import sample_setting
from slackwater.plugins.contract import Arrivals, DisorderStrategy
from slackwater.plugins.disorder.drop_ratio.strategy import DropRatio
from slackwater.plugins.disorder.heartbeat import HeartbeatSlack

RATIO = 0.01
STRATEGIES: dict[str, DisorderStrategy] = {
    "drop_ratio": DropRatio(drop_ratio=RATIO),
    "heartbeat": HeartbeatSlack(),
}


def generate(seed: int, rows: int, slow_by: float = 0.0) -> Arrivals:
    """Return a data set in order of arrival, in ms; ten early rows are ``slow_by`` slower than the rest."""
    rng = np.random.default_rng(seed)
    made = np.cumsum(rng.exponential(1000 / (16 + seed % 5), rows))
    latency = np.maximum(rng.normal(1200, 150 + 100 * (seed % 3), rows), 0)
    latency[rng.choice(np.arange(20, 200), 10, replace=False)] += slow_by
    order = np.argsort(made + latency, kind="stable")
    ts, clock = made[order].astype(np.int64), (made + latency)[order].astype(np.int64)
    progress = np.maximum.accumulate(ts)
    return Arrivals(np.zeros(rows, np.int8), ts, clock, progress, progress - ts, progress)


def measure(strategy: DisorderStrategy, arrivals: Arrivals) -> tuple[float, float, float]:
    """Return the share of rows that come at or before the punctuation, rows held, and ms that a row waits."""
    bounds = strategy.build(sample_setting()).bounds(arrivals)
    came = np.arange(bounds.size)
    left = np.maximum(np.searchsorted(bounds, arrivals.ts), came)
    waited = arrivals.clock[np.minimum(left, bounds.size - 1)] - arrivals.clock
    return (arrivals.ts[1:] <= bounds[:-1]).sum() / bounds.size, (left - came).mean(), waited.mean()


def compare(sizes: tuple[int, ...], seed: int) -> Table:
    """Return what 20 data sets of each size give."""
    table = Table(
        "rows", "strategy", Column("late, mean", ".2%"), Column("late, worst", ".2%"), "sets over 1 %",
        Column("rows held", ".1f"), Column("waiting ms", ".0f"),
        title="20 data sets of each size",
    )  # fmt: skip
    for rows in sizes:
        for name, strategy in STRATEGIES.items():
            sets = np.array([measure(strategy, generate(seed + number, rows)) for number in range(20)])
            late, (_, held, waited) = sets[:, 0], sets.mean(axis=0)
            table.add(rows, name, late.mean(), late.max(), int((late > RATIO).sum()), held, waited)
    return table


def outliers(rows: int, seed: int) -> Table:
    """Return what ten slow rows at the start do to all that follow."""
    table = Table(
        "slower by s", "strategy", Column("rows held", ".1f"), Column("waiting s", ".2f"),
        title=f"{rows:,} rows, ten early ones slow", name="outliers",
    )  # fmt: skip
    for slow_by in (0, 1000, 2000, 5000, 10_000, 20_000):
        for name, strategy in STRATEGIES.items():
            runs = [measure(strategy, generate(seed + number, rows, slow_by)) for number in range(5)]
            _, held, waited = np.mean(runs, axis=0)
            table.add(slow_by // 1000, name, held, waited / 1000)
    return table


def speed(rows: int, seed: int) -> Table:
    """Return the time that a row takes."""
    arrivals = generate(seed + 1, rows)
    table = Table("buffer_limit", Column("ns a row", ".0f"), title="drop_ratio, time", name="speed")
    for limit in (None, 1000):
        strategy = DropRatio(drop_ratio=RATIO, buffer_limit=limit)
        strategy.build(sample_setting()).bounds(arrivals)
        started = time.perf_counter()
        strategy.build(sample_setting()).bounds(arrivals)
        table.add(limit, (time.perf_counter() - started) * 1e9 / rows)
    return table


def run(options: argparse.Namespace, report: Report) -> None:
    """Compare on short and long data sets, with outliers, and by time."""
    report.add(compare((options.rows, options.long_rows), options.seed))
    report.add(outliers(options.long_rows, options.seed))
    report.add(speed(options.speed_rows, options.seed))
