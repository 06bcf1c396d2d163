"""Whatever one wrong clock costs is said, with advice that works: follow it, and the loss is gone."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
ROWS = 1500
AHEAD = {"an hour": HOUR, "a day": DAY, "40 days": 40 * DAY, "400 days": 400 * DAY, "10 years": 3650 * DAY}
PLACES = {
    "amid": [(0, 500)],
    "first": [(0, 0)],
    "first of each": [(0, 0), (1, 0)],
    "twice": [(0, 500), (0, 501)],
    "twice apart": [(0, 500), (0, 900)],
    "in each input": [(0, 500), (1, 510)],
    "often": [(0, 100 + 20 * k) for k in range(40)],
}
STRATEGIES = {
    "fixed": {"strategy": "fixed", "slack": "40ms"},
    "recall": {"recall": 0.99},
    "max": {"strategy": "max"},
}
TO_LATE = r"if the few rows ahead are errors, set guard: (\{future: \w+\}) to send them to the late output"


def written(folder, bad, ahead):
    """Two inputs whose rows come every 10 ms, a little out of order; arrival is a clock that is right."""
    random = np.random.default_rng(1)
    files = {}
    for which, name in enumerate("ab"):
        came = NOW + 10 * np.arange(ROWS)
        ts = came - random.integers(0, 31, ROWS)
        for of, place in bad:
            ts[place] += ahead * (of == which)
        files[name] = folder / f"{name}.parquet"
        table = pa.table({"ts": ts, "k": np.arange(ROWS) % 50, "at": np.arange(ROWS)})
        pq.write_table(table, files[name])
    return files


def run(files, **settings):
    joined = {"time": "ts", "window": "200ms", "where": "a.k = b.k", **settings}
    nodes = [
        {"type": "ReadFromParquet", "name": name.title(), "config": {"path": str(path)}}
        for name, path in files.items()
    ]
    nodes.append(
        {"type": "SlidingWindowJoin", "name": "j", "input": {n: n.title() for n in files}, "config": joined}
    )
    text = json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    return local.run(read_template_text("t.yaml", text))


@pytest.mark.parametrize("arrival", [None, "at"])
@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("places", PLACES)
def test_what_a_wrong_clock_costs_is_said_and_the_advice_works(tmp_path, places, ahead, arrival):
    bad, named = PLACES[places], {"arrival": arrival} if arrival else {}
    good = written(tmp_path, [], 0)
    # Without an arrival column, rows after a wrong clock are merged by it: a strategy that learns from what has
    # come together learns later, and says so by its recall.
    strategies = {name: STRATEGIES[name] for name in STRATEGIES if arrival or name != "recall"}
    clean = {name: run(good, **named, disorder=disorder) for name, disorder in strategies.items()}
    files = written(tmp_path, bad, AHEAD[ahead])
    for name, disorder in strategies.items():
        found = run(files, **named, disorder=disorder)
        if "year" in ahead or "400" in ahead:
            assert found["late"].get("future_time") == len(bad), name
            assert "far ahead of all others" in " ".join(found["warnings"])
        else:
            told = [re.search(TO_LATE, warning) for warning in found["warnings"]]
            advice = {match[1] for match in told if match}
            assert len(advice) == 1, (name, found["warnings"])
            found = run(files, **named, disorder=disorder, guard=yaml.safe_load(advice.pop()))
            assert found["late"].get("future_time") == len(bad), name
        lost = found["late"].get("too_late", 0) - clean[name]["late"].get("too_late", 0)
        # Strategies that learn see a row less, and may choose another slack.
        assert lost <= (0 if name == "fixed" else ROWS // 50), name
        assert found["results"] >= clean[name]["results"] - 5 * len(bad), name
        assert not any(re.search(TO_LATE, warning) for warning in found["warnings"])


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_wrong_clock_in_the_last_row_costs_no_other(tmp_path, ahead):
    clean = run(written(tmp_path, [], 0), arrival="at", disorder={"strategy": "fixed", "slack": "40ms"})
    bad = written(tmp_path, [(0, ROWS - 1)], AHEAD[ahead])
    found = run(bad, arrival="at", disorder={"strategy": "fixed", "slack": "40ms"})
    assert found["late"].get("too_late", 0) == clean["late"].get("too_late", 0)
    assert clean["results"] - found["results"] <= 5


def test_gaps_that_the_rows_after_them_confirm_are_no_reason_for_a_warning(tmp_path):
    files = {}
    for name in "ab":
        days = np.repeat(np.arange(30), 50) * DAY * 3
        ts = NOW + days + 10 * np.tile(np.arange(50), 30)
        files[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"ts": ts, "k": np.arange(ts.size) % 50, "at": np.arange(ts.size)}), files[name])
    assert not run(files, disorder={"strategy": "none"})["warnings"]


def test_sparse_rows_and_archives_in_any_order_are_no_reason_for_a_warning(tmp_path):
    random = np.random.default_rng(2)
    files = {}
    for name, ts in (("a", NOW + DAY * np.arange(300)), ("b", NOW + random.integers(0, 300 * DAY, 300))):
        files[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"ts": ts, "k": np.arange(ts.size) % 50, "at": np.arange(ts.size)}), files[name])
    warnings = run(files, arrival="at", window="40d", disorder={"strategy": "max"})["warnings"]
    assert not any("jumps ahead" in warning for warning in warnings)
