"""Generated data sets: exact counts, distributions, determinism, formats and errors."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from slackwater.pipelines.generate import DATASETS, GeneratedDataset, generate
from slackwater.pipelines.generate.sampling import varying_zipf_ranks, zipf_ranks
from slackwater.pipelines.generate.truth import count_equal, count_star
from slackwater.pipelines.generate.write import BATCH

READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json"}


def rows_of(path: Path) -> list[tuple[int, ...]]:
    return duckdb.sql(f"SELECT * FROM {READERS[path.suffix]}('{path}')").fetchall()


def counts_by_duckdb(made: GeneratedDataset) -> list[tuple[int, int]]:
    """Count results by second with the query text the data set itself gives."""
    names = list(made.files)
    tables = ", ".join(f"read_parquet('{path}') {name}" for name, path in made.files.items())
    newest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
    compare = ">=" if made.query.closed == "both" else ">"
    inside = " AND ".join(f"{name}.ts {compare} {newest} - {made.query.window}" for name in names)
    return duckdb.sql(
        f"SELECT floor({newest} / 1000)::BIGINT AS second, count(*) FROM {tables} "
        f"WHERE {made.query.where} AND {inside} GROUP BY second ORDER BY second"
    ).fetchall()


def counts_of(made: GeneratedDataset) -> list[tuple[int, int]]:
    with made.truth.open(newline="") as file:
        return [(int(row["second"]), int(row["results"])) for row in csv.DictReader(file)]


def streams_of(dataset: str, rows: int, **knobs: object) -> dict[str, dict[str, np.ndarray]]:
    chosen = DATASETS[dataset]
    return chosen.make(rows, 7, chosen.parse(knobs)).streams


@pytest.mark.parametrize(
    ("dataset", "rows", "knobs"),
    [
        ("syn2", 2000, {}),
        ("syn2", 3000, {"delayed": 0.3, "max_delay": 700, "keys": 40, "step": 2.5, "window": 500}),
        ("syn2", 3000, {"start": 0, "step": 0.1, "window": 0}),
        ("syn3", 900, {"value_skew_max": 1.2, "domain": 300, "change_min": 1000, "change_max": 3000}),
        ("syn4", 400, {"domain": 300, "window": 500}),
        ("syn4", 1500, {"keys": 60, "window": 900, "delay_skews": (0.5, 1, 1, 1)}),
        ("zipf", 2500, {}),
        ("zipf", 2500, {"closed": "right", "correlation": "anti", "window": 100}),
    ],
)
def test_truth_is_what_duckdb_counts(tmp_path, dataset, rows, knobs):
    made = generate(dataset, tmp_path, rows=rows, **knobs)
    counted = counts_of(made)
    assert counted == counts_by_duckdb(made)
    assert made.results == sum(results for _, results in counted) > 0


def test_truth_of_the_load_shedding_paper_example():
    r = {"ts": np.arange(5), "value": np.array([1, 1, 1, 3, 2])}
    s = {"ts": np.arange(5), "value": np.array([2, 3, 1, 1, 3])}
    assert count_equal("zipf", [r, s], "value", 3, "right").total == 7


def test_windows_are_closed_at_both_ends_unless_said_otherwise():
    old = {"ts": np.array([0]), "value": np.array([1])}
    new = {"ts": np.array([5]), "value": np.array([1])}
    assert count_equal("x", [old, new], "value", 5, "both").total == 1
    assert count_equal("x", [old, new], "value", 5, "right").total == 0
    assert count_equal("x", [new, old], "value", 4, "both").total == 0
    assert count_star("x", [old, new], ["value"], 5).total == 1
    assert count_star("x", [new, old], ["value"], 4).total == 0


def test_result_counts_before_1970_belong_to_the_second_they_fall_into():
    both = {"ts": np.array([-1]), "value": np.array([1])}
    assert count_equal("x", [both, both], "value", 5, "both").seconds.tolist() == [-1]


@pytest.mark.parametrize("dataset", sorted(name for name in DATASETS if not name.startswith("flights")))
@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path, dataset, format):
    files = [generate(dataset, tmp_path / str(i), rows=150, seed=3, format=format) for i in range(2)]
    other = generate(dataset, tmp_path / "other", rows=150, seed=4, format=format)
    for name in files[0].files:
        assert files[0].files[name].read_bytes() == files[1].files[name].read_bytes()
        assert files[0].files[name].read_bytes() != other.files[name].read_bytes()
    assert files[0].truth.read_bytes() == files[1].truth.read_bytes()
    assert files[0].description.read_bytes() == files[1].description.read_bytes()


@pytest.mark.parametrize(
    ("dataset", "knobs"),
    [
        ("syn2", {"delayed": 0.5, "keys": 9}),
        ("syn3", {"change_min": 900, "change_max": 2000}),
        ("syn4", {}),
        ("soccer", {"change_every": 900, "burst_every": 800, "max_delays": (2000, 3000)}),
        ("zipf", {}),
    ],
)
def test_fewer_rows_are_a_prefix(dataset, knobs):
    short, long = streams_of(dataset, 500, **knobs), streams_of(dataset, 800, **knobs)
    for name, columns in short.items():
        for column, values in columns.items():
            np.testing.assert_array_equal(values, long[name][column][:500])


def test_all_formats_hold_the_same_rows(tmp_path):
    made = [generate("syn4", tmp_path, rows=400, format=format) for format in ("parquet", "csv", "json")]
    for name in ("s1", "s2", "s3", "s4"):
        parquet, comma, lines = (rows_of(one.files[name]) for one in made)
        assert parquet == comma == lines
        assert len(parquet) == 400
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"s{i}.{ending}" for i in range(1, 5) for ending in ("parquet", "csv", "jsonl")),
        *("truth.csv", "dataset.json"),
    }
    first = json.loads(made[2].files["s1"].read_text().splitlines()[0])
    assert list(first) == ["ts", "a1", "a2", "a3", "arrived"]


def test_files_are_written_in_batches_and_arrival_order(tmp_path):
    made = generate("syn2", tmp_path, rows=BATCH + 10, keys=10**6, format="parquet")
    groups = duckdb.sql(
        f"SELECT DISTINCT row_group_num_rows FROM parquet_metadata('{made.files['s1']}')"
    ).fetchall()
    assert sorted(groups) == [(10,), (BATCH,)]
    lines = generate("syn2", tmp_path, rows=BATCH + 10, keys=10**6, format="json").files["s2"]
    assert [row[-1] for row in rows_of(lines)] == list(range(1, 2 * (BATCH + 10), 2))


def test_description_and_variables_say_what_was_made(tmp_path):
    made = generate("syn3", tmp_path / "a" / "b", rows=50, seed=1, delay_skews="2,2,2")
    described = json.loads(made.description.read_text())
    assert described.pop("knobs") == {
        knob.name: [2.0, 2.0, 2.0] if knob.name == "delay_skews" else knob.default
        for knob in DATASETS["syn3"].knobs
    }
    assert described == {
        "dataset": "syn3",
        "seed": 1,
        "rows": {"s1": 50, "s2": 50, "s3": 50},
        "files": {"s1": "s1.parquet", "s2": "s2.parquet", "s3": "s3.parquet"},
        "query": "s1.a1 = s2.a1 AND s2.a1 = s3.a1",
        "window": "5s",
        "closed": "both",
        "results": made.results,
    }
    assert made.variables["s2"] == str(made.files["s2"])
    assert made.variables["window"] == "5s"
    assert generate("zipf", tmp_path, rows=9).variables["window"] == "400ms"
    assert generate("syn4", tmp_path, rows=9).query.where == ("s1.a1 = s2.a1 AND s1.a2 = s3.a2 AND s1.a3 = s4.a3")


def test_delays_follow_their_skews_and_never_exceed_the_maximum():
    streams = streams_of("syn3", 30_000)
    clock = DATASETS["syn3"].parse({})["start"] + 10 * np.arange(1, 30_001)
    for name, undelayed, late in [("s1", 0.61, 0.38), ("s2", 0.83, 0.165), ("s3", 0.83, 0.165)]:
        ts = streams[name]["ts"]
        delay = clock - ts
        assert delay.min() == 0
        assert delay.max() <= 20_000
        assert (delay % 100 == 0).all()
        assert np.mean(delay == 0) == pytest.approx(undelayed, abs=0.015)
        assert np.mean(ts < np.maximum.accumulate(ts)) == pytest.approx(late, abs=0.02)
    assert (clock - streams["s1"]["ts"]).max() > 15_000


def test_skew_of_the_fourth_stream_is_the_highest():
    streams = streams_of("syn4", 20_000)
    clock = DATASETS["syn4"].parse({})["start"] + 10 * np.arange(1, 20_001)
    undelayed = [float(np.mean(stream["ts"] == clock)) for stream in streams.values()]
    assert undelayed == pytest.approx([0.83, 0.83, 0.83, 0.924], abs=0.015)


def test_given_share_of_rows_is_delayed_uniformly():
    streams = streams_of("syn2", 20_000, delayed=0.25, max_delay=1000, start=0)
    delay = 10 * np.arange(1, 20_001) - streams["s2"]["ts"]
    delayed = delay[delay > 0]
    assert len(delayed) / 20_000 == pytest.approx(0.25, abs=0.015)
    assert (delayed.min(), delayed.max()) == (1, 1000)
    assert delayed.mean() == pytest.approx(500, abs=20)
    assert (streams_of("syn2", 99, delayed=1, max_delay=0, start=0)["s1"]["ts"] == 10 * np.arange(1, 100)).all()
    assert (streams_of("syn2", 99, delayed=0, start=0)["s1"]["ts"] == 10 * np.arange(1, 100)).all()


def test_uniform_keys_give_one_result_for_two_rows(tmp_path):
    made = generate("syn2", tmp_path, rows=20_000, keys=1000, delayed=0.2, max_delay=1000)
    assert made.results / sum(made.rows.values()) == pytest.approx(0.5, rel=0.05)


def test_streams_arrive_in_step():
    streams = streams_of("syn3", 4)
    assert [streams[name]["arrived"].tolist() for name in streams] == [
        [0, 3, 6, 9],
        [1, 4, 7, 10],
        [2, 5, 8, 11],
    ]
    assert {values.dtype for columns in streams.values() for values in columns.values()} == {np.dtype("int64")}


def test_value_skew_changes_between_its_bounds():
    clock = np.arange(60_000)
    draws, changes = np.random.default_rng(1).spawn(2)
    ranks = varying_zipf_ranks(
        draws, changes, clock, ranks=100, skew=1.0, max_skew=5.0, interval=(10_000, 10_000)
    )
    top = [float(np.mean(part == 0)) for part in np.split(ranks, 6)]
    assert top[0] == pytest.approx(1 / sum(1 / rank for rank in range(1, 101)), abs=0.02)
    assert max(top) - min(top) > 0.2


def test_zipf_ranks_have_weights_of_their_power():
    ranks = zipf_ranks(np.random.default_rng(1), 100_000, 4, 2.0)
    weights = np.array([1, 1 / 4, 1 / 9, 1 / 16])
    assert np.bincount(ranks) / 100_000 == pytest.approx(weights / weights.sum(), abs=0.01)
    uniform = zipf_ranks(np.random.default_rng(1), 100_000, 4, 0.0)
    assert np.bincount(uniform) / 100_000 == pytest.approx([0.25] * 4, abs=0.01)


def frequencies(stream: dict[str, np.ndarray]) -> np.ndarray:
    return np.bincount(stream["value"], minlength=51)[1:]


def test_correlation_says_which_values_are_frequent():
    correlated = streams_of("zipf", 5600, correlation="correlated")
    anti = streams_of("zipf", 5600, correlation="anti")
    uncorrelated = streams_of("zipf", 5600)

    def agreement(streams: dict[str, dict[str, np.ndarray]]) -> float:
        return float(np.corrcoef(frequencies(streams["r"]), frequencies(streams["s"]))[0, 1])

    assert agreement(correlated) > 0.95
    assert abs(agreement(uncorrelated)) < 0.5
    assert agreement(anti) < 0
    assert frequencies(anti["r"]).argmax() != frequencies(anti["s"]).argmax()
    assert correlated["r"]["ts"].tolist() == list(range(5600))


def test_knobs_are_documented_and_their_defaults_pass_their_own_check():
    for dataset in DATASETS.values():
        assert dataset.purpose.endswith(".")
        for knob in dataset.knobs:
            assert knob.about.endswith(".")
            assert knob.parse(dataset.name, knob.default) == knob.default
            text = ",".join(map(str, knob.default)) if isinstance(knob.default, tuple) else str(knob.default)
            assert knob.parse(dataset.name, text.replace("None", "none")) == knob.default


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"dataset": "syn9"},
            "dataset 'syn9' is not known; known: flights, flights_weather, news, nexmark, punct, soccer, "
            "syn2, syn3, syn4, zipf. Check the spelling.",
        ),
        (
            {"dataset": "zipf", "skew": 1},
            "zipf: knob 'skew' is not known; known: closed, correlation, domain, skew_r, skew_s, window. "
            "Check the spelling.",
        ),
        (
            {"format": "xml"},
            "syn3.format: no format named 'xml'; known: csv, json, parquet. Name one of these.",
        ),
        ({"rows": 0}, "syn3.rows: must be at least 1, got 0. Leave it out for 180000."),
        ({"seed": -1}, "syn3.seed: must be at least 0, got -1. Use any whole number from 0 on."),
        (
            {"step": "fast"},
            "syn3.step: must be a number above 0 and at most 86,400,000, got 'fast'. "
            "Change it, or leave it out for 10.0.",
        ),
        ({"step": 0}, "syn3.step: must be a number above 0"),
        ({"step": "nan"}, "syn3.step: must be a number above 0"),
        ({"step": True}, "syn3.step: must be a number above 0 and at most 86,400,000, got True."),
        ({"domain": 2.5}, "syn3.domain: must be a whole number at least 1 and at most 10,000,000, got 2.5."),
        ({"domain": "1e3"}, "syn3.domain: must be a whole number"),
        ({"domain": float("inf")}, "syn3.domain: must be a whole number"),
        (
            {"keys": 0},
            "syn3.keys: must be a whole number at least 1 and at most 100,000,000, or none, got 0. "
            "Change it, or leave it out for none.",
        ),
        ({"delayed": 1.5}, "syn3.delayed: must be a number at least 0 and at most 1, or none, got 1.5."),
        (
            {"delay_skews": "2,3"},
            "syn3.delay_skews: must be 3 numbers separated by commas, each at least 0 and at most 20, "
            "got '2,3'. Change it, or leave it out for 2.0,3.0,3.0.",
        ),
        ({"delay_skews": 2.0}, "syn3.delay_skews: must be 3 numbers"),
        ({"delay_skews": (1, 2, None)}, "syn3.delay_skews: must be 3 numbers"),
        (
            {"change_min": 5000, "change_max": 4000},
            "syn3.change_min: 5000 is above change_max, 4000. Lower the one or raise the other.",
        ),
        (
            {"delay_unit": 1, "max_delay": 10**9},
            "syn3.delay_unit: 1 cuts max_delay, 1000000000, into more than 10,000,000 ranks. "
            "Raise the one or lower the other.",
        ),
        (
            {"dataset": "zipf", "correlation": "some"},
            "zipf.correlation: must be one of uncorrelated, correlated, anti, got 'some'. "
            "Change it, or leave it out for uncorrelated.",
        ),
    ],
)
def test_bad_values_are_refused_by_place_fault_and_remedy(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        generate(**{"dataset": "syn3", "out": tmp_path / "out", "rows": 5} | arguments)
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_place_for_a_data_set(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    message = f"zipf.out: '{file}' is not a directory. Name a directory, or one to be made."
    with pytest.raises(ValueError, match=re.escape(message)):
        generate("zipf", file)
    assert file.read_text() == "kept"


def test_more_results_than_can_be_counted_are_refused():
    rows = {"ts": np.zeros(40_000, np.int64), **{f"a{i}": np.ones(40_000, np.int64) for i in (1, 2, 3, 4)}}
    message = "x: up to 5e+23 results, more than a 64-bit number can count. Shorten the window, widen the step"
    with pytest.raises(ValueError, match=re.escape(message)):
        count_star("x", [rows] * 5, ["a1", "a2", "a3", "a4"], 5)


def test_listing_data_sets_loads_neither_numba_nor_pyarrow():
    code = (
        "import sys; from slackwater.pipelines.generate import DATASETS; list(DATASETS); "
        "print([name for name in ('numba', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
