"""MJoin's experiments on ``news``: scheduling, state, purging (paper sec. 6).

The join logic is driven without an operator, on rows in order of event times. Where scheduling or purging is
compared, everything is one step, so that no queue runs empty before its input has ended (the paper's CPU-limited
mode). A *value out* is a punctuation passed on; *items* are tuples and punctuations processed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.generate.news import NEWS
from slackwater.plugins.contract import (
    UNBOUNDED,
    JoinStrategy,
    Metadata,
    Pattern,
    Punctuations,
    Released,
    Setting,
)
from slackwater.plugins.join.one_to_many.mjoin import MetadataJoin
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy
from slackwater.transforms.expressions.condition import Condition

SCHEDULED = MetadataJoin(streams="priority", tuples="value_oriented")
PLAIN = MetadataJoin(streams="random", tuples="sequential")
EQUAL = SCHEDULED.model_copy(update={"quota_many": SCHEDULED.quota})
"""With the same quota for both inputs, as in the paper."""
STEP = 1 << 12
SHARES = (0.05, 0.1, 0.25)
"""Of the results, to be found first."""


class News(NamedTuple):
    """The tuples of the data set as they reach a join, and the punctuations between them."""

    setting: Setting
    released: Released
    punctuations: Punctuations

    def steps(self, size: int) -> Iterator[tuple[Released, Punctuations]]:
        """Cut into steps of so many tuples."""
        n, at = len(self.released.ts), self.punctuations.at
        for start in range(0, n, size):
            stop = min(n, start + size)
            first, last = np.searchsorted(at, start), len(at) if stop == n else np.searchsorted(at, stop)
            marks = Punctuations._make(array[first:last] for array in self.punctuations)
            yield self.released.part(slice(start, stop)), marks._replace(at=marks.at - start)


class Flow(NamedTuple):
    """How far a join was whenever it handed results on: seconds, tuples and punctuations processed, and so on."""

    seconds: list[float]
    processed: list[int]
    results: list[int]
    finished: list[int]
    live: int
    """Tuples held at the end."""
    most: int
    """Tuples in memory at most, useless ones included."""

    def until(self, results: float) -> float:
        """Return the seconds that it took to find so many results."""
        return float(np.interp(results, self.results, self.seconds))

    def items(self, results: float) -> float:
        """Return how many items it took to find so many results."""
        return float(np.interp(results, self.results, self.processed))

    def told(self, processed: float) -> float:
        """Return how many values had been passed on when so many items were processed."""
        return float(np.interp(processed, self.processed, self.finished))


def section(rows: int = 200_000, rounds: int = 7, seed: int = 7) -> list[Row]:
    """Run the three experiments on so many accesses, each comparison so many times in turns."""
    out = []
    follow(SlidingWindowJoinStrategy(), load(1_000))
    follow(MetadataJoin(), load(1_000))
    for order in ("ordered", "random"):
        news = load(rows, seed, order=order)
        out += [*scheduling(news, order, rounds), state(news, order)]
    return [*out, purging(news, rounds), throughput(news, rounds)]


def load(rows: int, seed: int = 7, **knobs: Any) -> News:
    """Generate news and accesses; closing rows become punctuations of ``accesses.sno``."""
    streams = NEWS.make(rows, seed, NEWS.parse(knobs)).streams
    columns = [np.concatenate([streams[name][column] for name in NEWS.streams]) for column in ("ts", "sno")]
    ts, sno = (column.astype(np.int64) for column in columns)
    which = np.repeat(np.arange(2, dtype=np.int8), [len(streams[name]["ts"]) for name in NEWS.streams])
    closes = np.concatenate([np.zeros((which == 0).sum(), np.bool_), streams["accesses"]["kind"] == "closed"])
    order = np.argsort(ts, kind="stable")
    ts, sno, which, closes = ts[order], sno[order], which[order], closes[order]
    tuples = ~closes
    n, of = int(tuples.sum()), which[tuples]
    seq = np.where(of == 0, np.cumsum(of == 0), np.cumsum(of == 1)) - 1
    words = sno[:, None]
    released = Released(of, seq, ts[tuples], np.zeros(n, np.bool_), words[tuples], np.zeros(n, np.uint64))
    m = len(ts) - n
    at = np.cumsum(tuples)[closes]
    marks = Punctuations(at, ts[closes], np.zeros(m, np.int8), words[closes], np.zeros(m, np.int64))
    schema = pa.schema([("sno", pa.int64())])
    condition = Condition("news.sno = accesses.sno", dict.fromkeys(NEWS.streams, schema))
    patterns, metadata = (Pattern(1, (0,), False),), (Metadata("unique", 0, (0,)),)
    setting = Setting(NEWS.streams, (UNBOUNDED,) * 2, condition, False, 1_000_000, patterns, metadata)
    return News(setting, released, marks)


def follow(strategy: JoinStrategy, news: News, step: int | None = None) -> Flow:
    """Join everything, by steps of so many tuples or in one."""
    logic: Any = strategy.build(news.setting)
    flow = Flow([0.0], [0], [0], [0], 0, 0)
    started = time.perf_counter()
    for released, marks in news.steps(step or len(news.released.ts)):
        punctuated = getattr(logic, "punctuated_step", None)
        for run in logic.step(released) if punctuated is None else punctuated(released, marks):
            flow.seconds.append(time.perf_counter() - started)
            flow.processed.append(getattr(logic, "processed", 0))
            flow.results.append(flow.results[-1] + len(run.rows))
            flow.finished.append(flow.finished[-1] + (0 if run.finished is None else len(run.finished.ts)))
    return flow._replace(live=logic.live(), most=getattr(logic, "most", logic.live()))


def scheduling(news: News, order: str, rounds: int) -> list[Row]:
    """Experiment 1: how soon results and punctuations come."""
    out = []
    for quotas, strategy in (("", SCHEDULED), (", equal quotas", EQUAL)):
        runs = [(follow(strategy, news), follow(PLAIN, news)) for _ in range(rounds)]
        ours, plain = runs[0]
        for share in SHARES:
            n = int(share * ours.results[-1])
            items = plain.items(n)
            figures = {"items": ours.items(n) / items, "values out": ours.told(items) / plain.told(items)}
            seconds = statistics.median(a.until(n) / b.until(n) for a, b in runs)
            case = f"{order}, scheduled against random{quotas}: first {n:,} results"
            met = figures["items"] < 1 < figures["values out"]
            shape = "fewer items, more values" if strategy is SCHEDULED else ""
            out.append(
                Row(case, figures if shape else {**figures, "seconds": seconds}, shape, met if shape else None)
            )
            if shape:
                out.append(Row(case, {"seconds": seconds}, "sooner", seconds < 1, timed=True))
    return out


def state(news: News, order: str) -> Row:
    """Experiment 2: what is in memory as data streams in, against a symmetric hash join, which keeps it all."""
    ours = follow(MetadataJoin(), news, STEP)
    kept = follow(SlidingWindowJoinStrategy(), news, STEP)
    figures = {"tuples kept by all": kept.most, "by mjoin at most": ours.most, "at the end": ours.live}
    met = ours.most < 0.1 * kept.most and ours.results[-1] == kept.results[-1]
    return Row(f"{order}, state of batch purging", figures, "below a tenth", met)


def purging(news: News, rounds: int) -> Row:
    """Experiment 3: what purging after every punctuation costs."""
    ratio = _ratio(MetadataJoin(purge="batch"), MetadataJoin(purge="immediate"), news, rounds)
    return Row("random, batch purging against immediate", {"seconds": ratio}, "sooner", ratio < 1, timed=True)


def throughput(news: News, rounds: int) -> Row:
    """What metadata saves: tuples that are dropped need no place in memory."""
    ratio = _ratio(MetadataJoin(), SlidingWindowJoinStrategy(), news, rounds, STEP)
    return Row("random, mjoin against mswj without windows", {"seconds": ratio}, "sooner", ratio < 1, timed=True)


def _ratio(ours: JoinStrategy, other: JoinStrategy, news: News, rounds: int, step: int | None = None) -> float:
    runs = [(follow(ours, news, step), follow(other, news, step)) for _ in range(rounds)]
    return statistics.median(a.seconds[-1] / b.seconds[-1] for a, b in runs)
