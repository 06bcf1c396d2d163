"""Rows that come too late, rows held and waiting time: drop_ratio at 1 % against heartbeat (ADC, Figs. 7 and 8).

    python benchmarks/drop_ratio.py [ROWS]

20 data sets as in the paper: 16 to 20 rows a second, intervals exponential, latencies normal (mean 1.2 s, a
standard deviation of 150, 250 or 350 ms). The paper does not tell their length; with ROWS = 600 (the default),
half a minute each, heartbeat comes out about as published. A running maximum is broken about ln n times in n
rows, so on long inputs heartbeat drops little too, and holds more; the second table shows that. The third puts
ten slow rows among the first 200 of a long input.
"""

import sys
import time

import numpy as np

from slackwater.plugins.checks import sample_setting
from slackwater.plugins.contract import Arrivals, DisorderStrategy
from slackwater.plugins.disorder.drop_ratio.strategy import DropRatio
from slackwater.plugins.disorder.heartbeat import HeartbeatSlack

RATIO = 0.01
LONG = 20_000
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


def compare(rows: int) -> None:
    print(f"\n20 data sets of {rows:,} rows    too late: mean   worst   sets over 1 %   rows held   waiting")
    for name, strategy in STRATEGIES.items():
        sets = np.array([measure(strategy, generate(seed, rows)) for seed in range(20)])
        late, (_, held, waited) = sets[:, 0], sets.mean(axis=0)
        over = int((late > RATIO).sum())
        print(f"{name:<33}{late.mean():>9.2%} {late.max():>7.2%} {over:>11} {held:>13.1f} {waited:>6.0f} ms")


def outliers() -> None:
    print(f"\n{LONG:,} rows, ten early ones slow     " + "".join(f"{name:>22}" for name in STRATEGIES))
    for slow_by in (0, 1000, 2000, 5000, 10_000, 20_000):
        found = [
            np.mean([measure(strategy, generate(seed, LONG, slow_by)) for seed in range(5)], axis=0)
            for strategy in STRATEGIES.values()
        ]
        cells = "".join(f"{held:>10.1f} rows {waited / 1000:>5.2f} s" for _, held, waited in found)
        print(f"{'slower by':<26}{slow_by / 1000:>4.0f} s   {cells}")


def speed(rows: int = 1_000_000) -> None:
    arrivals = generate(1, rows)
    for limit in (None, 1000):
        strategy = DropRatio(drop_ratio=RATIO, buffer_limit=limit)
        strategy.build(sample_setting()).bounds(arrivals)
        started = time.perf_counter()
        strategy.build(sample_setting()).bounds(arrivals)
        nanos = (time.perf_counter() - started) * 1e9 / rows
        print(f"drop_ratio, buffer_limit {limit or 'none'}: {nanos:.0f} ns a row")


def main() -> None:
    compare(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
    compare(LONG)
    outliers()
    print()
    speed()


if __name__ == "__main__":
    main()
