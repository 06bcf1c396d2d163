"""Live joins in Beam, on scripted streams: results when the strategy allows them, and not before."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from live_cases import LOOK, SCHEMA, Clock, Rows, Watermark, play, row

from slackwater.plugins.checks import sample_setting
from slackwater.plugins.contract import Arrivals
from slackwater.plugins.disorder.drop_ratio.strategy import DropRatio
from slackwater.transforms.beam import (
    GroupClose,
    Punctuate,
    Reorder,
    Shed,
    SlidingWindowAggregate,
    SlidingWindowJoin,
)

pytestmark = pytest.mark.beam
AHEAD = Rows("b", [row(i, ts, at=ts + 10, w=ts) for i, ts in enumerate(range(0, 900, 100))])
"""An input that has come far: it is the other that results wait for."""


def join(**settings: Any) -> SlidingWindowJoin:
    fixed = {"strategy": "fixed", "slack": "10ms"}
    given = {"time": "ts", "window": "100ms", "where": "a.k = b.k", "disorder": fixed, **settings}
    return SlidingWindowJoin(**given).with_schemas({"a": SCHEMA, "b": SCHEMA})


def one_by_one(rows: list[Any]) -> list[Any]:
    """Rows of the input that results wait for, with a look after each."""
    return [event for r in rows for event in (Rows("a", [r]), LOOK)]


RELEASES: dict[str, tuple[dict[str, Any], list[Any], list[int]]] = {
    "none": ({}, [row(1, 205), row(2, 206)], [1, 2]),
    "fixed": ({"slack": "10ms"}, [row(1, 205), row(2, 214), row(3, 215), row(4, 223)], [0, 0, 1, 1]),
    # 2 is 10 behind: from then on that is K. 3 has to wait for 216.
    "max": ({}, [row(1, 205), row(2, 195), row(3, 206), row(4, 214), row(5, 216)], [1, 1, 1, 1, 2]),
    # The largest latency is 10, of the first row: what is older than the time of arrival less 10 is complete.
    "heartbeat": ({}, [row(1, 205, at=215), row(2, 210, at=215), row(3, 212, at=216)], [0, 0, 1]),
    "external": ({"watermark": "w"}, [row(1, 205, w=204), row(2, 300), row(3, 301, w=205)], [0, 0, 1]),
}
"""Options, rows, and how many of these have joined after each of them."""


@pytest.mark.parametrize("strategy", RELEASES)
def test_a_result_comes_when_its_rows_are_released_and_not_before(strategy: str) -> None:
    options, rows, joined = RELEASES[strategy]
    arrival = "at" if strategy == "heartbeat" else None
    given = join(disorder={"strategy": strategy, **options}, arrival=arrival)
    seen = play([AHEAD, LOOK, *one_by_one(rows)], given)
    assert not seen[0]["out"]
    so_far: set[int] = set()
    for looked, n in zip(seen[1:], joined, strict=False):
        so_far |= {a for a, _ in looked.ids}
        assert len(so_far) == n
    late = {r["row"] for looked in seen for r in looked["late"]}
    assert len(late) == (strategy == "max"), "the row that came behind another, and no other"
    everything = so_far | {a for a, _ in seen[-1].ids}
    assert everything == {r["id"] for r in rows} - ({2} if strategy == "max" else set())


def test_late_rows_come_out_beside_with_their_reasons() -> None:
    rows = [row(1, 205), row(2, 230), row(3, 210), row(4, 10), {**row(5, 0), "ts": None}]
    seen = play([AHEAD, *one_by_one(rows)], join(guard={"past": "100ms"}))
    found = [[(r["reason"], r["input"], r["ts"]) for r in looked["late"]] for looked in seen]
    assert found == [[], [], [], [("too_late", "a", 10)], [("bad_record", "a", None)], []]
    seen = play([AHEAD, *one_by_one(rows[:3])], join(disorder={"strategy": "none"}))
    assert [r["ts"] for r in seen[2]["late"]] == [210], "behind 230, which has joined"


def predicted(rows: list[Any], bounds: list[int]) -> list[set[int]]:
    """Ids of the rows of one input that have left K-slack after each arrival, given the bounds these set."""
    out, gone = [], set()
    for n, bound in enumerate(bounds, 1):
        gone |= {r["id"] for r in rows[:n] if r["ts"] <= bound}
        out.append(set(gone))
    return out


def disordered(n: int) -> list[Any]:
    """Rows 10 ms apart, every fifth 20 ms behind the one before; they arrive 10 ms after they should."""
    return [row(i, 10 * i - (30 if i % 5 == 4 else 0), at=10 * i + 10) for i in range(n)]


@pytest.mark.parametrize("strategy", ["quality_driven", "result_slack"])
def test_a_strategy_that_adapts_releases_by_the_slack_it_reports(strategy: str) -> None:
    rows = disordered(20)
    ahead = [Rows("b", [row(i, 10 * i) for i in range(10)])]
    steps = [(Rows("b", [row(r["id"] + 10, 10 * r["id"] + 100)]), Rows("a", [r]), LOOK) for r in rows]
    script = [event for step in steps for event in step]
    disorder = {"strategy": strategy, "recall": 0.99, "interval": "50ms", "period": "100ms"}
    seen = play([*ahead, *script], join(disorder=disorder, window="40ms"))
    slack, progress, bounds = 0, 0, []
    for r, looked in zip(rows, seen, strict=False):
        # A report is made before the row that opens an interval, and its slack holds from that row on.
        slack = int(looked["metrics"][-1]["slack_ms"]) if looked["metrics"] else slack
        progress = max(progress, r["ts"])
        bounds.append(progress - slack)
    assert slack >= 20, "it has learned how late rows are"
    reached: set[int] = set()
    for looked, expected in zip(seen, predicted(rows, bounds), strict=False):
        reached |= {a for a, _ in looked.ids} | {int(json.loads(r["row"])["id"]) for r in looked["late"]}
        assert reached == expected


def test_drop_ratio_releases_by_its_punctuations() -> None:
    rows = disordered(30)
    strategy = DropRatio(drop_ratio=0.1)
    logic = strategy.build(sample_setting()._replace(nanos_per_tick=1_000_000))
    ts, at = (np.array([r[name] for r in rows]) for name in ("ts", "at"))
    progress = np.maximum.accumulate(ts)
    none = np.zeros(len(rows), np.int8)
    bounds = logic.bounds(Arrivals(none, ts, at, progress, progress - ts, progress)).tolist()
    expected = predicted(rows, bounds)
    seen = play(
        one_by_one(rows),
        Reorder(time="ts", arrival="at", disorder={"strategy": "drop_ratio", "drop_ratio": 0.1}).with_schema(
            SCHEMA
        ),
        names=("a",),
    )
    reached: set[int] = set()
    for looked, gone in zip(seen, expected, strict=False):
        reached |= {r["id"] for r in looked["out"]} | {int(json.loads(r["row"])["id"]) for r in looked["late"]}
        assert reached == gone
    assert 0 < len(expected[-1]) < len(rows)


def test_an_idle_input_stalls_nothing_beyond_its_timeout() -> None:
    hour = 3600
    script = [
        Rows("a", [row(1, 100)]), Rows("b", [row(1, 101)]), Rows("a", [row(2, 150)]), LOOK,
        Clock(hour / 2), Rows("a", [row(3, 170)]), LOOK,
        Clock(hour / 2 - 1), LOOK,
        Clock(1), LOOK,
        Rows("b", [row(2, 120)]), Rows("a", [row(4, 300)]), LOOK,
        Clock(hour - 1), LOOK,
        Clock(1), LOOK,
    ]  # fmt: skip
    seen = play(script, join(idle_timeout="1h"))
    before, half, almost, idle, back, waits, all_idle, end = seen
    assert not before["out"] and not half["out"] and not almost["out"]
    assert idle.ids == [(1, 1), (2, 1)], "b is not waited for; 3 of a waits for its own slack"
    assert not back["out"] and not waits["out"], "b has spoken, and is waited for again"
    assert all_idle.ids == [(3, 1), (3, 2)], "and everything leaves in order of time"
    assert [(r["input"], r["ts"]) for r in all_idle["late"]] == [("b", 120)], "behind 150, which had joined"
    assert not end["out"] and not end["late"]


def test_without_a_timeout_an_input_is_waited_for_until_the_end() -> None:
    rows = [Rows("a", [row(1, 100)]), Rows("b", [row(1, 101)]), Rows("a", [row(2, 500)])]
    waits, end = play([*rows, Clock(1e6), LOOK], join())
    assert not waits["out"]
    assert end.ids == [(1, 1)]


def test_the_watermark_alone_releases_nothing_before_its_window_ends() -> None:
    script = [AHEAD, Rows("a", [row(1, 205)]), Watermark(1000), LOOK, Rows("a", [row(2, 215)]), LOOK]
    jumped, after, end = play(script, join())
    assert not jumped["out"]
    assert after.ids == [(1, 2)], "rows that Beam takes to be late are joined by their own times"
    assert end.ids == [(2, 2), (1, 3), (2, 3)], "what is left, in order of time"


def test_reorder_lets_rows_go_in_order_as_they_come() -> None:
    rows = [row(1, 20), row(2, 10), row(3, 25), row(4, 31), row(5, 11)]
    disorder = {"strategy": "fixed", "slack": "10ms"}
    seen = play(one_by_one(rows), Reorder(time="ts", disorder=disorder).with_schema(SCHEMA), names=("a",))
    assert [[r["id"] for r in looked["out"]] for looked in seen] == [[], [2], [], [1], [], [3, 4]]
    assert [r["ts"] for r in seen[4]["late"]] == [11]


def test_punctuations_leave_with_the_rows_that_they_follow_from() -> None:
    rows = [row(1, 20), row(2, 10), row(3, 25), row(4, 31), row(2, 50)]
    given = Punctuate(time="ts", unique="id", disorder={"strategy": "fixed", "slack": "10ms"}).with_schema(SCHEMA)
    seen = play(one_by_one(rows), given, names=("a",))
    assert [[r["id"] for r in looked["out"]] for looked in seen] == [[], [2], [], [1], [3, 4], []]
    assert [[r["id"] for r in looked["punctuations"]] for looked in seen] == [[], [2], [], [1], [3, 4], []]
    assert [r["reason"] for r in seen[-1]["late"]] == ["punctuation_violated"], "2 was said to be over"


def test_rows_pass_at_their_rate_or_when_nothing_more_comes() -> None:
    rows = [row(1, 0, w=5), row(2, 10, w=1), row(3, 20, w=9), row(4, 1500, w=2)]
    worth = {"strategy": "prob", "weight": "w"}
    given = Shed(time="ts", rate=1, queue=1, shedding=worth, idle_timeout="1h").with_schema(SCHEMA)
    seen = play([*one_by_one(rows), Clock(2 * 3600), LOOK], given, names=("a",))
    assert [[r["id"] for r in looked["out"]] for looked in seen] == [[1], [], [], [3], [4], []]
    assert [[json.loads(r["row"])["id"] for r in looked["late"]] for looked in seen] == [[], [], [2], [], [], []]


def test_an_extent_comes_out_when_the_slack_has_passed_it_or_the_input_is_idle() -> None:
    rows = [row(1, 1), row(2, 12), row(3, 19), row(4, 8), row(5, 20)]
    given = SlidingWindowAggregate(
        time="ts", range="10ms", aggregates={"n": "count(*)"}, idle_timeout="1h",
        disorder={"strategy": "fixed", "slack": "10ms"},
    ).with_schema(SCHEMA)  # fmt: skip
    script = [*one_by_one(rows), Clock(2 * 3600), LOOK]
    *seen, idle, end = play(script, given, names=("a",))
    assert [[(r["extent"], r["n"]) for r in looked["out"]] for looked in seen] == [[], [], [(0, 1)], [], []]
    assert [r["ts"] for r in seen[3]["late"]] == [8]
    assert [(r["extent"], r["n"]) for r in idle["out"]] == [(1, 2)]
    assert [(r["extent"], r["n"]) for r in end["out"]] == [(2, 1)]


class JoinAndClose(beam.PTransform):
    """A join, and a count of the results of each key that leaves when the key is over."""

    def expand(self, inputs: Any) -> Any:
        marks = {"input": "a", "when": "w = 1", "key": "k"}
        joined = inputs | "Joined" >> join(join={"strategy": "pwjoin"}, punctuations=marks, idle_timeout="1m")
        both = {"rows": joined.main, "punctuations": joined.punctuations}
        return both | "Closed" >> GroupClose(time="ts", by="a_k", aggregates={"n": "count(*)"})


def test_live_transforms_follow_each_other() -> None:
    script = [
        Rows("a", [row(1, 100, k=1), row(2, 101, k=2)]),
        Rows("b", [row(1, 102, k=1), row(2, 103, k=2), row(3, 104, k=1)]),
        Rows("a", [row(3, 110, k=1, w=1)]), LOOK,
        Rows("a", [row(4, 300, k=2)]), Rows("b", [row(4, 320, k=2)]), LOOK,
        Clock(60), LOOK,
    ]  # fmt: skip
    seen = play(script, JoinAndClose())
    found = [[(r["a_k"], r["n"], r["closed_by"]) for r in looked["out"]] for looked in seen]
    assert found == [[], [], [(1, 2, "punctuation")], [(2, 2, "end")]], "1 is over when the join has passed it"
