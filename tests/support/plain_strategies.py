"""Small strategies in plain Python, one of each stage, whose steps can be replaced: right as they are."""

from collections import Counter
from typing import Any, ClassVar

import numpy as np

from slackwater.plugins import DisorderStrategy, Held, JoinStrategy, Matches, SheddingStrategy


class PlainSlack(DisorderStrategy):
    """Hold rows for the longest delay of their input and a share of the delays of the last interval."""

    name: ClassVar[str] = "plain_slack"
    logic: ClassVar[Any] = None

    def build(self, setting, snapshot=None):
        return (self.logic or PlainSlackLogic)(setting, snapshot)


class PlainSlackLogic:
    interval = 20

    def __init__(self, setting, snapshot):
        m = len(setting.inputs)
        self.setting = setting
        self.slack = snapshot["slack"] if snapshot else 0
        self.largest = np.array(snapshot["largest"]) if snapshot else np.zeros(m, np.int64)

    def bounds(self, arrivals):
        out = np.empty(arrivals.ts.size, np.int64)
        for i in range(self.largest.size):
            mine = np.flatnonzero(arrivals.input == i)
            if mine.size:
                largest = np.maximum(np.maximum.accumulate(arrivals.delay[mine]), self.largest[i])
                self.largest[i] = largest[-1]
                out[mine] = arrivals.progress[mine] - largest - self.slack
        return out

    def bounds_at(self, progress):
        return progress - self.largest - self.slack

    def adapt(self, feedback):
        if feedback.delay.size:
            self.slack = int(np.quantile(feedback.delay, 0.8, method="higher"))

    def report(self):
        return {"slack": float(self.slack)}

    def snapshot(self):
        return {"slack": self.slack, "largest": self.largest.copy()}


class PlainJoin(JoinStrategy):
    """Test every combination of a row with the windows of the other inputs."""

    name: ClassVar[str] = "plain_join"
    logic: ClassVar[Any] = None

    def build(self, setting, snapshot=None):
        if len(setting.inputs) != 2 or setting.metadata:
            raise ValueError("joins two inputs, in windows")
        return (self.logic or PlainJoinLogic)(setting, snapshot)


class PlainJoinLogic:
    """Tuples in a list, oldest arrival first: (input, seq, ts, cells, nulls)."""

    def __init__(self, setting, snapshot):
        self.setting, self.windows = setting, setting.windows
        self.now = snapshot["now"] if snapshot else -(2**63)
        self.kept = [] if snapshot is None else list(self.read(snapshot))

    def read(self, snapshot):
        arrays = (snapshot[name] for name in Held._fields)
        for i, seq, ts, cells, nulls in zip(*arrays, strict=True):
            yield int(i), int(seq), int(ts), cells.copy(), int(nulls)

    def step(self, released):
        n = released.ts.size
        join_size, cross_size = np.zeros(n, np.int64), np.zeros(n)
        rows, probe = [], []
        for k in range(n):
            row = self.tuple_of(released, k)
            if self.probes(released, k):
                self.advance(row[2])
                partners = self.partners(row)
                cross_size[k] = len(partners)
                found = [x for x in partners if self.matches(row, x)]
                join_size[k] = len(found)
                rows += [[row[1], x[1]] if row[0] == 0 else [x[1], row[1]] for x in found]
                probe += [k] * len(found)
            if self.fits(row):
                self.kept.append(row)
        if self.setting.counts_only:
            rows, probe = [], []
        if n:
            yield self.matched(n, rows, probe, join_size, cross_size)

    def tuple_of(self, released, k):
        cells = released.cells[k].copy()
        return int(released.input[k]), int(released.seq[k]), int(released.ts[k]), cells, int(released.nulls[k])

    def probes(self, released, k):
        return not released.late[k]

    def advance(self, ts):
        self.now = ts
        self.kept = [x for x in self.kept if self.stays(x)]

    def stays(self, x):
        return x[2] >= self.now - self.windows[x[0]]

    def fits(self, x):
        return x[2] >= self.now - self.windows[x[0]]

    def partners(self, row):
        return [x for x in self.kept if x[0] != row[0]]

    def matches(self, row, x):
        a, b = (row, x) if row[0] == 0 else (x, row)
        test = self.setting.condition.test
        nulls = [np.array([t[4]], np.uint64) for t in (a, b)]
        return bool(test([a[3][None], b[3][None]], nulls)[0])

    def matched(self, n, rows, probe, join_size, cross_size):
        rows = np.array(rows, np.int64).reshape(-1, 2)
        return Matches(0, n, rows, np.array(probe, np.int64), join_size, cross_size)

    def live(self):
        return len(self.kept)

    def held(self):
        columns = list(zip(*self.kept, strict=True)) or [()] * 5
        cells = np.array(columns[3], np.int64).reshape(-1, self.setting.condition.width)
        seq, ts = (np.array(columns[c], np.int64) for c in (1, 2))
        return Held(np.array(columns[0], np.int8), seq, ts, cells, np.array(columns[4], np.uint64))

    def evict(self, victims):
        self.kept = [x for x, gone in zip(self.kept, victims.tolist(), strict=True) if not gone]

    def snapshot(self):
        return {**self.held()._asdict(), "now": self.now}


class PlainShedding(SheddingStrategy):
    """Keep the tuples whose values come most often."""

    name: ClassVar[str] = "plain_shedding"
    logic: ClassVar[Any] = None

    def build(self, setting, snapshot=None):
        return (self.logic or PlainSheddingLogic)(setting, snapshot)


class PlainSheddingLogic:
    decays = False
    memory = 10

    def __init__(self, setting, snapshot):
        self.counts = Counter()
        if snapshot:
            self.counts.update(dict(zip(snapshot["values"].tolist(), snapshot["counts"].tolist(), strict=True)))

    def value(self, tuples, k):
        return int(tuples.cells[k, 0]) if tuples.cells.shape[1] else 0

    def scores(self, tuples):
        return np.array([self.score(tuples, k) for k in range(tuples.ts.size)], np.float64)

    def score(self, tuples, k):
        return self.counts[self.value(tuples, k)] / (1 + self.counts.total())

    def observe(self, tuples):
        out = np.empty(tuples.ts.size)
        for k in range(out.size):
            out[k] = self.score(tuples, k)
            self.counts[self.value(tuples, k)] += 1
        return out

    def snapshot(self):
        values = np.array(sorted(self.counts), np.int64)
        return {"values": values, "counts": np.array([self.counts[v] for v in values.tolist()], np.int64)}
