"""What the operator promises to strategies: feedback for every tuple once, and a memory limit that holds."""

import dataclasses
from collections import Counter
from typing import Any, ClassVar

import pytest
from cheapest import CheapestLogic
from conditions import EFFORT, cuts, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, numbered, plan_of, run

from slackwater.plugins import DisorderStrategy, SheddingStrategy


class Moody(DisorderStrategy):
    """Changes its slack at every adaptation and writes down what it was told."""

    name: ClassVar[str] = "moody"
    interval: int
    log: Any

    def build(self, setting, snapshot=None):
        return MoodyLogic(self.interval, self.log, snapshot["calls"] if snapshot else 0)


class MoodyLogic:
    def __init__(self, interval, log, calls):
        self.interval = interval
        self.log = log
        self.calls = calls

    def bounds(self, arrivals):
        return arrivals.progress - 4 * (self.calls % 3)

    def adapt(self, feedback):
        self.calls += 1
        columns = (
            feedback.input,
            feedback.ts,
            feedback.delay,
            feedback.late,
            feedback.join_size,
            feedback.cross_size,
        )
        self.log.append((feedback.now, list(zip(*(column.tolist() for column in columns), strict=True))))

    def snapshot(self):
        return {"calls": self.calls}


def delays(arrivals):
    """Delay of each row when it arrived, by (input, row number)."""
    progress, out = {}, {}
    for which, row in arrivals:
        progress[which] = max(progress.get(which, row["ts"]), row["ts"])
        out[which, row["id"]] = progress[which] - row["ts"]
    return out


def adaptation_times(arrivals, interval):
    """Stream time at each call: when the newest event time reaches the end of an interval."""
    newest = due = None
    times = []
    for _, row in arrivals:
        newest = row["ts"] if newest is None else max(newest, row["ts"])
        due = newest + interval if due is None else due
        if newest >= due:
            times.append(newest)
            due += (newest - due) // interval * interval + interval
    return times


def moody_run(arrivals, interval, edges, restores):
    plan = plan_of(SCHEMA, window="6ms", where="a.k = b.k")
    log = []
    got = run(dataclasses.replace(plan, disorder=Moody(interval=interval, log=log)), arrivals, edges, restores)
    return got, log


@settings(max_examples=40 * EFFORT)
@given(streams(2, 60), st.integers(1, 12), st.data())
def test_feedback_covers_every_tuple_once_at_the_right_times(arrivals, interval, data):
    got, log = moody_run(arrivals, interval, (), ())
    assert [now for now, _ in log] == adaptation_times(arrivals, interval)
    told = [entry for _, entries in log for entry in entries]
    delay = delays(arrivals)
    seen = [(e.identity[0], e.ts, delay[e.identity], e.late, e.join_size, e.cross_size) for e in got.log]
    assert told == seen[: len(told)]
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    again, other_log = moody_run(arrivals, interval, edges, restores)
    assert other_log == log
    assert again.results == got.results
    assert again.late_ids() == got.late_ids()


def test_feedback_of_an_interval_is_what_reached_the_join_before_its_end():
    arrivals = numbered((t % 2, {"ts": t, "k": 0}) for t in range(31))
    _, log = moody_run(arrivals, 10, (), ())
    assert [now for now, _ in log] == [10, 20, 30]
    assert [len(entries) for _, entries in log] == [
        9,
        6,
        6,
    ]  # slack 0, then 4, then 8; one waits for its partner
    assert all(ts < now for now, entries in log for _, ts, *_ in entries)


class Cheapest(SheddingStrategy):
    """Keeps rows with a large v."""

    name: ClassVar[str] = "cheapest"
    memory: int
    decays: bool = False

    def build(self, setting, snapshot=None):
        return CheapestLogic(self.memory, self.decays)


def shedding_run(arrivals, memory, decays, *cuts_and_restores, slack="3ms", window="40ms"):
    plan = plan_of(
        SCHEMA,
        window=window,
        where="a.k = b.k AND a.v + b.v >= 0",
        disorder={"strategy": "fixed", "slack": slack},
    )
    return run(
        dataclasses.replace(plan, shedding=Cheapest(memory=memory, decays=decays)),
        arrivals,
        *cuts_and_restores,
    )


@settings(max_examples=25 * EFFORT)
@given(streams(2, 90, 60), st.sampled_from([1, 7, 32, 48]), st.booleans(), st.data())
def test_shedding_keeps_the_limit_accounts_and_does_not_see_chunks(arrivals, memory, decays, data):
    whole = shedding_run(arrivals, memory, decays, (), ())
    assert all(entry.live <= memory for entry in whole.log)
    assert max(whole.late_ids().values(), default=1) == 1, "a row is in the late output twice"
    accounting = whole.operator.accounting
    assert all(accounting.balanced(i) for i in range(2))
    for reason in ("shed", "too_late"):
        counted = Counter({i: accounting.late[i, reason] for i in range(2)})
        assert +counted == Counter(which for which, _ in whole.late_ids(reason).elements())
    joined_or_expired = sum(
        part["joined_or_expired"] for part in accounting.summary(10**6)["accounting"].values()
    )
    assert joined_or_expired + len(whole.late) == len(arrivals)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    for again in (
        shedding_run(arrivals, memory, decays, edges, restores),
        shedding_run(arrivals, memory, decays, range(len(arrivals)), ()),
    ):
        assert again.results == whole.results
        assert again.late_ids("shed") == whole.late_ids("shed")
        assert again.late_ids("too_late") == whole.late_ids("too_late")


@pytest.mark.parametrize(("decays", "kept"), [(False, [2, 3]), (True, [3, 4])])
def test_the_lowest_score_goes_first(decays, kept):
    """Three rows of one input, room for two beside the one that waits for its turn; with decay an old valuable
    row is worth less than a new one. The row that has just been joined is the next to go."""
    values = {2: 9, 3: 8, 4: 7} if decays else {2: 9, 3: 8, 4: 1}
    arrivals = [(0, {"ts": t, "k": 1, "v": v}) for t, v in values.items()]
    arrivals += [(1, {"ts": 10, "k": 1, "v": 0}), (0, {"ts": 30}), (1, {"ts": 30})]
    got = shedding_run(numbered(arrivals), 3, decays, (), (), slack="0s", window="9ms")
    assert sorted(row["a_ts"] for row in got.rows) == kept
    gone = (set(values) - set(kept)).pop()
    assert [(row["reason"], row["input"], row["ts"]) for row in got.late][:2] == [
        ("shed", "a", gone),
        ("shed", "b", 10),
    ]


def test_a_late_row_that_is_shed_is_reported_once_as_late():
    arrivals = [(which, {"ts": t, "k": 1, "v": 5}) for t in (1, 8) for which in (0, 1)]
    arrivals += [(0, {"ts": 6, "k": 1, "v": 0})] + [(which, {"ts": 9, "k": 1, "v": 5}) for which in (0, 1)]
    got = shedding_run(numbered(arrivals), 4, False, (), (), slack="0s", window="9ms")
    assert got.late_ids("too_late") == Counter([(0, 2)])
    assert (0, 2) not in got.late_ids("shed")
