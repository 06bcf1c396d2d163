"""What a run says of itself: asked and reached, what was missed and why; and advice that works when followed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call

from slackwater.pipelines.runners.summary import summarise
from slackwater.plugins.clock import clock_at
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

NOW = 1_700_000_000_000
YEAR = 365 * 86_400_000
TEMPLATE = """\
pipeline:
  type: composite
  transforms:
    - {{type: ReadFromParquet, name: A, config: {{path: "{folder}/a.parquet"}}}}
    - {{type: ReadFromParquet, name: B, config: {{path: "{folder}/b.parquet"}}}}
{more}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: {a}, b: {b}}}
      config: {{time: ts, window: {window}, where: a.k = b.k{settings}}}
    - {{type: WriteToParquet, name: Results, input: joined, config: {{path: "{folder}/joined"}}}}
    - {{type: WriteToJson, name: Late, input: joined.late, config: {{path: "{folder}/late"}}}}
"""


def run(folder, settings="", more="", a="A", b="B", window="200ms"):
    """Run the template; return its summary."""
    path = folder / "t.yaml"
    text = TEMPLATE.format(
        folder=folder, settings=settings and f", {settings}", more=more, a=a, b=b, window=window
    )
    path.write_text(text)
    done = call("run", path, "--summary", folder / "summary.json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    return summary, done


def write(folder, a, b, **columns):
    for name, ts in (("a", a), ("b", b)):
        ts = np.asarray(ts)
        of = {"ts": ts, "k": np.arange(ts.size) % 5, **{c: v[name] for c, v in columns.items()}}
        pq.write_table(pa.table(of), folder / f"{name}.parquet")


def times(n=2000, start=NOW, step=10, seed=0, spread=1):
    random = np.random.default_rng(seed)
    return start + step * np.arange(n) - random.integers(0, spread, n)


def about(summary, text):
    return [warning for warning in summary["warnings"] if text in warning]


def test_a_wrong_clock_is_said_and_the_advice_brings_its_row_back(tmp_path):
    good = times()
    write(tmp_path, np.insert(good, 5, NOW + 10 * YEAR), good)
    summary, done = run(tmp_path)
    assert summary["late"] == {"future_time": 1}
    (said,) = about(summary, "future_time")
    assert said == (
        "joined: 1 row of input 'a' had a time far ahead of all others and went to the late output as "
        "future_time; if it is right, set guard: {future: none}"
    )
    assert said in done.stderr
    summary, _ = run(tmp_path, "guard: {future: none}")
    assert "future_time" not in summary["late"]


def test_old_rows_are_said_and_the_advice_brings_them_back(tmp_path):
    good = times()
    write(tmp_path, np.insert(good, 5, NOW - 10 * YEAR), good)
    summary, _ = run(tmp_path)
    assert summary["late"] == {"too_late": 1}
    assert summary["slack_ms"]["max"] == 0
    assert about(
        summary, "rows of input 'a' are more than five years older than the others, and in the late output"
    )
    summary, _ = run(tmp_path, "guard: {past: none}")
    assert summary["late"] == {} or summary["slack_ms"]["max"] > YEAR
    (said,) = about(summary, "goes back")
    assert said.startswith(
        "joined: time of input 'a' goes back 10.0 years; if such rows are errors, set guard: {past: 1d}"
    )
    summary, _ = run(tmp_path, "guard: {past: 1d}")
    assert (summary["late"], summary["slack_ms"]["max"]) == ({"too_late": 1}, 0)
    assert not about(summary, "goes back")


def test_many_rows_ahead_are_said_and_a_filter_mends_the_run(tmp_path):
    good = times()
    bad = times(100, NOW + 10 * YEAR)
    write(tmp_path, np.concatenate([bad, good]), good)
    summary, _ = run(tmp_path, "disorder: {strategy: none}")
    assert about(
        summary, "time of input 'a' goes back 10.0 years in most of its rows; if the few ahead are errors, "
    )
    keep = f"    - {{type: Filter, name: Kept, input: A, config: {{keep: ts < {NOW + YEAR}}}}}"
    mended, _ = run(tmp_path, "disorder: {strategy: none}", keep, "Kept")
    assert mended["late"] == {} and mended["results"] > summary["results"]
    assert not about(mended, "goes back")


WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@pytest.mark.parametrize(("unit", "read"), [("s", "ms"), ("ms", "s"), ("us", "ms"), ("ns", "ms"), ("ms", "us")])
def test_times_of_another_unit_are_said_and_the_advice_mends_the_run(tmp_path, unit, read):
    write(tmp_path, *[times(400, step=1000) * 10**6 // NANOS[unit]] * 2)
    summary, _ = run(tmp_path, f"time_unit: {read}", window="5s")
    assert about(summary, "look like") == [
        f"joined: times of input {name!r} look like {WORDS[unit]}, and are read as {WORDS[read]}; set time_unit: "
        f"{unit}"
        for name in "ab"
    ]
    mended, _ = run(tmp_path, f"time_unit: {unit}", window="5s")
    assert not about(mended, "look like")
    assert mended["results"] == 400 + 2 * 395
    assert summary["results"] != mended["results"]


@pytest.mark.parametrize(("unit", "mend", "of"), [("s", "a", "ms"), ("us", "b", "us")])
def test_inputs_of_different_units_are_said_and_the_advice_mends_the_run(tmp_path, unit, mend, of):
    good = times(400, step=1000)
    write(tmp_path, good * 10**6 // NANOS[unit], good)
    summary, _ = run(tmp_path, window="5s")
    assert summary["results"] == 0
    said = " ".join(about(summary, "look like"))
    assert (
        f"times of input 'a' look like {WORDS[unit]}, and are read as milliseconds, unlike those of other" in said
    )
    assert f"times of input {mend!r} look like" in said
    assert "unlike those of other inputs; use ts * 1000 instead, by MapToFields" in said
    assert ("set time_unit: us" in said) == (of == "us")
    fields = "{fields: {ts: ts * 1000, k: k}}"
    more = f"    - {{type: MapToFields, name: Mended, input: {mend.upper()}, config: {fields}}}"
    inputs = {"more": more, mend: "Mended"}
    mended, _ = run(tmp_path, f"time_unit: {of}", **inputs, window="5s")
    assert (mended["results"], about(mended, "look like")) == (400 + 2 * 395, [])


def test_small_numbers_are_no_times_of_day(tmp_path):
    write(tmp_path, np.arange(500) * 10**7, np.arange(500) * 10**7)
    assert run(tmp_path)[0]["warnings"] == []


def test_a_run_with_a_recall_says_first_what_it_reached(tmp_path):
    random = np.random.default_rng(5)
    n = 6000
    delay = np.where(random.random(n) < 0.1, random.integers(0, 3000, n), 0)
    ts = NOW + 10 * np.arange(n)
    order = np.argsort(ts + delay, kind="stable")
    write(tmp_path, ts[order], ts[order])
    settings = "disorder: {recall: 0.99, period: 5s, interval: 500ms}"
    summary, done = run(tmp_path, settings)
    recall = summary["recall"]
    assert recall["asked"] == 0.99
    assert recall["reached"] == summary["recall_estimate"]
    assert recall["low"] is None and recall["high"] is None
    assert recall["periods"] == 11 and 8 <= recall["periods_met"] <= 11
    assert done.stdout.splitlines()[0].split(maxsplit=1)[0] == "recall"
    assert "latency added" in done.stdout
    assert bool(about(summary, "joined: recall 0.9")) == (recall["reached"] < 0.99 * 0.99)
    # With a horizon that is too short, that is what kept the rows from waiting.
    capped, done = run(tmp_path, settings.replace("}", ", horizon: 100ms}"))
    assert capped["recall"]["capped_by"] == ["horizon"]
    assert capped["recall"]["reached"] < 0.97
    assert capped["recall"]["periods_met"] < capped["recall"]["periods"]
    (said,) = about(capped, "instead of 0.99")
    assert "rows wait for 100ms at most, the horizon of result_slack: set a larger one" in said
    assert "not met" in done.stdout.splitlines()[0]
    larger, _ = run(tmp_path, settings.replace("}", ", horizon: 5s}"))
    assert larger["recall"]["reached"] > capped["recall"]["reached"] + 0.01
    assert run(tmp_path, "disorder: {strategy: max}")[0]["recall_estimate"] > capped["recall"]["reached"]


def test_of_several_joins_each_says_first_what_it_reached_and_the_worst_stands_for_all(tmp_path):
    random = np.random.default_rng(5)
    delay = np.where(random.random(3000) < 0.1, random.integers(0, 3000, 3000), 0)
    ts = NOW + 10 * np.arange(3000)
    late_first = ts[np.argsort(ts + delay, kind="stable")]
    write(tmp_path, late_first, late_first)
    other = (
        "    - type: SlidingWindowJoin\n      name: capped\n      input: {a: A, b: B}\n"
        "      config: {time: ts, window: 200ms, where: a.k = b.k, "
        "disorder: {recall: 0.9, period: 5s, interval: 500ms, horizon: 20ms}}\n"
        "    - type: SlidingWindowJoin\n      name: plain\n      input: {a: A, b: B}\n"
        "      config: {time: ts, window: 200ms, where: a.k = b.k, disorder: {strategy: max}}"
    )
    summary, done = run(tmp_path, "disorder: {recall: 0.5, period: 5s, interval: 500ms}", more=other)
    joins = summary["joins"]
    assert joins["capped"]["recall"]["reached"] < 0.89
    assert joins["joined"]["recall"]["reached"] > 0.5
    assert "recall" not in joins["plain"]
    assert summary["recall"] == {"join": "capped", **joins["capped"]["recall"]}
    lines = done.stdout.splitlines()
    of = [line.split(": ")[0] for line in lines]
    assert lines[0].startswith("capped: recall") and "not met" in lines[0]
    said = next(line for line in lines if line.startswith("joined: recall"))
    assert "asked 0.5" in said and said.endswith(": met")
    assert sum(": recall " in line and "asked" in line for line in lines) == 2
    assert of.index("joined") < next(k for k, line in enumerate(lines) if line.startswith("runner"))


def test_the_latency_is_how_long_rows_waited_in_stream_time(tmp_path):
    write(tmp_path, times(4000), times(4000))
    summary, _ = run(tmp_path, "disorder: {strategy: fixed, slack: 500ms}")
    assert summary["latency_ms"] == pytest.approx({"p50": 505, "p95": 505, "p99": 505}, rel=0.05)
    # A memory that is too small lets them go before; the slack is what was asked for.
    cut, _ = run(tmp_path, "disorder: {strategy: fixed, slack: 500ms}, shedding: {strategy: random, memory: 40}")
    assert cut["slack_ms"]["p50"] == 500
    assert cut["latency_ms"]["p50"] < 150


def test_an_empty_input_has_no_recall(tmp_path):
    write(tmp_path, times(100), np.empty(0, np.int64))
    summary, done = run(tmp_path, "disorder: {recall: 0.9}")
    assert summary["recall_estimate"] is None
    assert summary["recall"]["reached"] is None
    assert "asked 0.9, reached unknown: nothing to go by" in done.stdout


def test_an_input_that_holds_the_join_back_is_named_and_idle_timeout_helps(tmp_path):
    write(tmp_path, times(30_000), [NOW, NOW + 1], at={"a": times(30_000), "b": [NOW, NOW + 1]})
    summary, _ = run(tmp_path, "arrival: at")
    assert about(summary, "rows had to wait for input 'b', which brought 2 rows; in live runs set idle_timeout")
    bounded, _ = run(tmp_path, "arrival: at, shedding: {strategy: random, memory: 1000}")
    assert not about(bounded, "had to wait")
    assert bounded["state"]["max_tuples"] <= 1000
    # Live, once the silent input is idle, nothing waits.
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    config = JoinConfig.read({"time": "ts", "window": "200ms", "where": "a.k = b.k", "idle_timeout": "1s"})
    plan = bind(config, {"a": schema, "b": schema})
    operator = Operator(plan)
    with clock_at(NOW * 10**6):
        for start in range(0, 30_000, 1000):
            ts = NOW + 10 * np.arange(start, start + 1000)
            rows = [pa.record_batch({"ts": ts, "k": ts % 5}), pa.record_batch({"ts": ts[:1], "k": ts[:1] % 5})]
            which = np.append(np.zeros(1000, np.int8), np.ones(int(start == 0), np.int8))
            operator.push(Chunk(which, np.arange(which.size), [rows[0], rows[1].slice(0, int(start == 0))]))
            operator.idle([1])
    operator.finish()
    live = summarise("local", {"joined": (plan, operator.accounting)}, 1.0)
    assert not about(live, "had to wait")


def test_a_drop_ratio_that_was_exceeded_is_said(tmp_path):
    random = np.random.default_rng(2)
    n = 5000
    ts = NOW + 10 * np.arange(n)
    at = ts + np.where(random.random(n) < 0.02, 3000, random.integers(0, 5, n))
    order = np.argsort(at, kind="stable")
    write(tmp_path, ts[order], ts[order], at={"a": at[order], "b": at[order]})
    summary, done = run(tmp_path, "arrival: at, disorder: {strategy: drop_ratio, drop_ratio: 0.001}")
    found = summary["drop_ratio"]
    assert found["asked"] == 0.001 and found["reached"] > 0.005
    (said,) = about(summary, "came too late instead of 0.10%")
    assert (
        "latencies are not normal, as the strategy takes them to be: state a recall instead, or use max" in said
    )
    assert "asked 0.100% of the rows" in done.stdout and "not met" in done.stdout
    followed, _ = run(tmp_path, "arrival: at, disorder: {strategy: max}")
    assert followed["late"].get("too_late", 0) < summary["late"]["too_late"] / 10


def test_no_more_memory_is_advised_than_there_is(tmp_path):
    write(tmp_path, times(3000), times(3000, seed=1))
    for memory in (10, 50, 100, 150):
        settings = f"disorder: {{recall: 0.9}}, shedding: {{strategy: prob, memory: {memory}}}"
        summary, _ = run(tmp_path, settings)
        for said in about(summary, "is too small; about"):
            advised = int(said.split("about ")[1].split(" tuples")[0].replace(",", ""))
            assert advised > memory
            better, _ = run(tmp_path, settings.replace(f"memory: {memory}", f"memory: {advised}"))
            assert better["recall"]["reached"] > summary["recall"]["reached"]
