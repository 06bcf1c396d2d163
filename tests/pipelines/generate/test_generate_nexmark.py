"""The data sets with punctuations: auctions, PWJoin's streams, MJoin's news."""

from __future__ import annotations

import csv
import json
import re
from itertools import groupby
from pathlib import Path

import duckdb
import numpy as np
import pytest

from slackwater.pipelines.generate import DATASETS, GeneratedDataset, generate
from slackwater.pipelines.generate.arrivals import in_arrival_order
from slackwater.pipelines.generate.open_auctions import pick_auctions
from slackwater.pipelines.generate.spec import Columns, Sample
from slackwater.pipelines.generate.syn import START
from slackwater.pipelines.generate.truth import count_equal

MINUTE = 60_000
QUICK = {"rate": 100, "length": 5_000, "window": 5_000, "max_delay": 900}
CASES: list[tuple[str, int, dict[str, object]]] = [
    ("nexmark", 3000, {}),
    ("nexmark", 3000, QUICK),
    ("nexmark", 3000, {**QUICK, "window": 2_000, "length_spread": 0.8, "skew": 0, "group": 40}),
    ("nexmark", 3000, {**QUICK, "length_spread": 0.8, "punctuations": "arrival", "delayed": 0.5}),
    ("nexmark", 900, {**QUICK, "punctuations": "none", "rate": 5000, "group": 7}),
    ("nexmark", 900, {"person_share": 3, "auction_share": 20, "bid_share": 2, "length": 9_000}),
    ("nexmark", 1, {"delayed": 1}),
    ("punct", 4000, {}),
    ("punct", 3000, {"a": "punct-desc-30-40", "b": "punct-random-30-40", "window": 1000, "values": 300}),
    ("punct", 3000, {"a": "uniform", "b": "punct-asc-30-40", "values": 300, "irrelevant": 0.5}),
    ("punct", 3000, {"a": "cluster-random-9", "b": "cluster-asc-1", "window": 15_000, "gap": 0.5}),
    ("punct", 3000, {"punctuations": "a", "ahead": 3, "values": 80}),
    ("punct", 3000, {"punctuations": "none", "irrelevant": 1, "ahead": 1}),
    ("news", 3000, {}),
    ("news", 3000, {"order": "random", "window": 9_000}),
    ("news", 3000, {"arrival": "clustered", "punctuations": "none", "order": "random", "shuffled": 30}),
    ("news", 3000, {"items": 37, "latest": 50, "order": "random"}),
    ("news", 3000, {"per_item": 1, "every": 1, "arrival": "clustered"}),
]
every_case = pytest.mark.parametrize(("dataset", "rows", "knobs"), CASES)


def sample(dataset: str, rows: int, knobs: dict[str, object], seed: int = 7) -> Sample:
    chosen = DATASETS[dataset]
    return chosen.make(rows, seed, chosen.parse(knobs))


def counts_by_duckdb(made: GeneratedDataset) -> list[tuple[int, int]]:
    """Count the results by second, of the streams that the query names, without their punctuations."""
    names = [name for name in made.files if f"{name}." in made.query.where]
    marks = {marks.input: marks.when for marks in made.query.punctuations}
    tables = ", ".join(
        f"(SELECT * FROM read_parquet('{made.files[name]}') WHERE NOT ({marks.get(name, 'false')})) {name}"
        for name in names
    )
    newest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
    inside = " AND ".join(f"{name}.ts >= {newest} - {made.query.window}" for name in names)
    return duckdb.sql(
        f"SELECT floor({newest} / 1000)::BIGINT AS second, count(*) FROM {tables} "
        f"WHERE {made.query.where} {'' if made.query.whole else 'AND ' + inside} GROUP BY second ORDER BY second"
    ).fetchall()


def closings(made: Sample) -> list[tuple[Columns, np.ndarray, str]]:
    """Return, for each stream with punctuations, its columns, which rows they are, and the key."""
    marked = [(made.streams[marks.input], marks.key) for marks in made.query.punctuations]
    return [(columns, columns["kind"] == "closed", key) for columns, key in marked]


def broken(columns: Columns, closed: np.ndarray, key: str, by: str) -> int:
    """Return how many rows have a key that was closed before, in the order of column ``by``."""
    at = dict(zip(columns[key][closed].tolist(), columns[by][closed].tolist(), strict=True))
    rows = zip(columns[key][~closed].tolist(), columns[by][~closed].tolist(), strict=True)
    return sum(value in at and when >= at[value] for value, when in rows)


# --- all three


@every_case
def test_truth_is_what_duckdb_counts_without_the_punctuations(tmp_path, dataset, rows, knobs):
    made = generate(dataset, tmp_path, rows=rows, **knobs)
    with made.truth.open(newline="") as file:
        counted = [(int(row["second"]), int(row["results"])) for row in csv.DictReader(file)]
    assert counted == counts_by_duckdb(made)
    assert made.results > 0 or rows == 1
    assert made.query.where in made.description.read_text()


@every_case
def test_no_row_has_a_closed_value_at_or_after_its_punctuation(dataset, rows, knobs):
    made = sample(dataset, rows, knobs)
    for columns, closed, key in closings(made):
        assert closed.any() or (dataset == "nexmark" and "length" not in knobs)
        assert len(set(columns[key][closed])) == closed.sum()
        assert broken(columns, closed, key, "ts") == 0
    for name, columns in made.streams.items():
        if name not in {marks.input for marks in made.query.punctuations} and "kind" in columns:
            assert "closed" not in columns["kind"]


@every_case
def test_fewer_rows_are_a_prefix_and_all_streams_are_cut_at_one_arrival(dataset, rows, knobs):
    short, long = sample(dataset, rows, knobs).streams, sample(dataset, 2 * rows, knobs).streams
    longest = [max(len(columns["ts"]) for columns in streams.values()) for streams in (short, long)]
    assert longest[0] == min(rows, longest[1])
    end = max(columns["arrived"][-1] for columns in short.values() if len(columns["ts"]))
    for name, columns in short.items():
        assert len(columns["ts"]) == np.searchsorted(long[name]["arrived"], end, side="right")
        for column, values in columns.items():
            np.testing.assert_array_equal(values, long[name][column][: len(values)])


@every_case
def test_no_two_rows_of_any_stream_arrive_at_once_nor_before_their_time(dataset, rows, knobs):
    streams = sample(dataset, rows, knobs).streams
    arrived = np.concatenate([columns["arrived"] for columns in streams.values()])
    assert len(set(arrived.tolist())) == len(arrived)
    for columns in streams.values():
        assert (np.diff(columns["arrived"]) > 0).all()
        if knobs.get("group", 1) == 1:
            assert (columns["arrived"] >= columns["ts"] * 1000).all()


@every_case
def test_promises_hold_in_the_order_of_event_times(dataset, rows, knobs):
    made = sample(dataset, rows, knobs)
    for promise, columns in made.query.promises.items():
        for name in columns:
            stream, column = name.split(".")
            order = np.argsort(made.streams[stream]["ts"], kind="stable")
            values = made.streams[stream][column][order].tolist()
            if promise == "unique":
                assert len(set(values)) == len(values)
            elif promise == "ordered":
                assert values == sorted(values)
            else:
                assert len(list(groupby(values))) == len(set(values))


def test_description_tells_what_a_join_may_know(tmp_path: Path):
    described = json.loads(generate("news", tmp_path, rows=500, arrival="clustered").description.read_text())
    assert described["whole"] is True
    assert described["punctuations"] == [{"input": "accesses", "when": "kind = 'closed'", "key": "sno"}]
    assert described["promises"] == {
        "unique": ["news.sno"],
        "clustered": ["accesses.sno"],
        "ordered": ["news.sno", "accesses.sno"],
    }
    described = json.loads(generate("punct", tmp_path, rows=50, punctuations="none").description.read_text())
    assert not described.keys() & {"whole", "punctuations", "promises"}
    made = generate("nexmark", tmp_path, rows=50)
    assert made.variables["window"] == "43200s"
    assert set(made.files) == set(made.rows) == {"auctions", "bids", "persons"}


def test_a_stream_without_rows_has_no_results():
    none = {"ts": np.zeros(0, np.int64), "key": np.zeros(0, np.int64)}
    one = {"ts": np.zeros(1, np.int64), "key": np.zeros(1, np.int64)}
    assert count_equal("x", [none, one], "key", 5, "both").total == 0
    assert count_equal("x", [none, none], "key", 5, "both").total == 0


def test_rows_of_the_same_ms_arrive_stream_by_stream_a_microsecond_apart():
    one: Columns = {"ts": np.array([9, 1, 2]), "arrived": np.array([5, 2, 5])}
    two: Columns = {"ts": np.array([3, 4, 6]), "arrived": np.array([2, 5, 6])}
    found = in_arrival_order({"one": one, "two": two}, 3)
    assert found["one"]["ts"].tolist() == [1, 9, 2]
    assert found["one"]["arrived"].tolist() == [2000, 5000, 5001]
    assert found["two"]["arrived"].tolist() == [2001]
    many: Columns = {"ts": np.zeros(1500, np.int64), "arrived": np.repeat([0, 1], [1200, 300])}
    assert in_arrival_order({"many": many}, 9999)["many"]["arrived"].tolist() == list(range(1500))


WRONG: list[tuple[str, dict[str, object], str]] = [
    ("nexmark", {"length": 9_000}, "nexmark.length: auctions of 9000 ms may leave bids without an open one; at "
     "this rate and with these shares at least 10001 ms are needed. Raise length or rate, or lower "
     "length_spread."),
    ("nexmark", {"length_spread": 1}, "nexmark.length: auctions of 0 ms may leave bids without an open one"),
    ("nexmark", {"max_delay": 10**8, "rate": 200}, "nexmark.max_delay: 100000000 ms at a rate of 200 are more "
     "than 10,000,000 events on their way at once. Lower the one or the other."),
    ("nexmark", {"rate": 0}, "nexmark.rate: must be a number at least 0.001 and at most 1,000,000,000, got 0."),
    ("nexmark", {"bid_share": 0}, "nexmark.bid_share: must be a whole number at least 1"),
    ("nexmark", {"punctuations": "yes"}, "nexmark.punctuations: must be one of event, arrival, none, got 'yes'."),
    ("punct", {"a": "punct-up-100-40"}, "punct.a: must be punct-ORDER-SIZE-MATCH, cluster-ORDER-SIZE or uniform, "
     "with ORDER asc, desc or random, SIZE 1 to 999999 and MATCH 0 to 100, got 'punct-up-100-40'. "
     "Change it, or leave it out for punct-asc-100-40."),
    ("punct", {"b": "punct-asc-100-101"}, "punct.b: must be punct-ORDER-SIZE-MATCH"),
    ("punct", {"b": 7}, "punct.b: must be punct-ORDER-SIZE-MATCH"),
    ("punct", {"values": 3, "b": "cluster-asc-1", "a": "uniform"}, "punct.values: all 3 values of stream b are "
     "over after 6 rows. Raise values or the size of segments, or ask for fewer rows."),
    ("news", {"per_item": 0.5}, "news.per_item: must be a number at least 1"),
    ("news", {"items": 0}, "news.items: must be a whole number at least 1 and at most 100,000,000, or none"),
    ("news", {"order": "reverse"}, "news.order: must be one of ordered, random, got 'reverse'."),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "knobs", "message"), WRONG)
def test_bad_knobs_are_refused_by_place_fault_and_remedy(tmp_path, dataset, knobs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        generate(dataset, tmp_path / "out", rows=500, **knobs)
    assert not (tmp_path / "out").exists()


# --- nexmark


def test_streams_have_their_shares_and_their_rate():
    streams = sample("nexmark", 46_000, {"punctuations": "none", "delayed": 0}).streams
    assert [len(streams[name]["ts"]) for name in ("persons", "auctions", "bids")] == [1000, 3000, 46_000]
    ts = np.sort(np.concatenate([columns["ts"] for columns in streams.values()]))
    assert (np.diff(ts) == 200).all()
    assert streams["persons"]["id"].tolist() == list(range(1, 1001))


def test_bids_come_while_their_auction_is_open_and_one_row_closes_it_at_its_end():
    made = sample("nexmark", 20_000, {**QUICK, "length_spread": 0.8, "delayed": 0}).streams
    auctions, persons, bids = made["auctions"], made["persons"], made["bids"]
    closed, opened = bids["kind"] == "closed", auctions["ts"][bids["auction"] - 1]
    end = opened + auctions["length"][bids["auction"] - 1]
    assert ((opened <= bids["ts"]) & (bids["ts"] < end))[~closed].all()
    assert (bids["ts"] == end)[closed].all()
    ended = auctions["ts"] + auctions["length"] <= bids["ts"].max()
    assert sorted(bids["auction"][closed]) == auctions["id"][ended].tolist()
    assert (persons["ts"][bids["bidder"] - 1] < bids["ts"])[~closed].all()
    assert (persons["ts"][auctions["seller"] - 1] < auctions["ts"]).all()
    assert (auctions["length"].min(), auctions["length"].max()) == pytest.approx((1000, 9000), abs=90)
    assert set(bids["bidder"][closed]) == set(bids["price"][closed]) == {0}
    assert bids["price"][~closed].min() >= 100


def test_half_a_day_is_the_default_and_auctions_close_after_it():
    streams = sample("nexmark", 300_000, {}).streams
    bids = streams["bids"]
    closed = bids["kind"] == "closed"
    assert bids["ts"][closed].min() == streams["auctions"]["ts"].min() + 12 * 60 * MINUTE
    assert closed.mean() == pytest.approx(0.06 * (1 - 216_000 / 320_000), rel=0.2)


def test_closing_rows_are_true_in_order_of_arrival_only_if_asked():
    for mode, late in (("event", True), ("arrival", False)):
        made = sample("nexmark", 40_000, {**QUICK, "delayed": 0.4, "punctuations": mode, "group": 20})
        ((columns, closed, key),) = closings(made)
        assert (broken(columns, closed, key, "arrived") > 10) == late
        assert closed.sum() > 1000


def test_delays_and_groups_keep_their_bounds_and_shares():
    late = {"delayed": 0.3, "max_delay": 5_000, "rate": 50, "length": MINUTE}
    streams = sample("nexmark", 30_000, late).streams
    for columns in streams.values():
        delay = columns["arrived"] // 1000 - columns["ts"]
        assert delay.min() == 0 and delay.max() <= 5_000
        assert np.mean(delay > 0) == pytest.approx(0.3, abs=0.05)
    streams = sample("nexmark", 9_200, {"delayed": 0, "group": 50, "punctuations": "none"}).streams
    rows = {name: np.concatenate([columns[name] for columns in streams.values()]) for name in ("ts", "arrived")}
    event, place = ((rows["ts"] - START) // 200, (rows["arrived"] // 1000 - START) // 200)
    assert len(set(place.tolist())) == len(place) and (event // 50 == place // 50).all()
    assert np.mean(event != place) > 0.9


def test_bids_are_zipf_distributed_over_the_open_auctions():
    knobs = {"person_share": 1, "auction_share": 200, "bid_share": 200_000, "rate": 10**6, "delayed": 0}
    shares = {}
    for skew in (0.0, 1.0, 2.0):
        made = sample("nexmark", 200_000, {**knobs, "skew": skew, "length": 1_000, "punctuations": "none"})
        shares[skew] = np.sort(np.bincount(made.streams["bids"]["auction"])[1:])[::-1] / 200_000
    assert len(shares[0.0]) == 200 and shares[0.0].max() < 1.3 / 200
    assert 0.05 < shares[1.0][0] < 0.5 < shares[2.0][:3].sum()
    slope = np.polyfit(np.log(np.arange(1, 101)), np.log(shares[1.0][:100]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.25)


def test_picks_follow_the_weights_of_what_is_open():
    rng = np.random.default_rng(1)
    opened, end = np.arange(0, 300, 30), np.array([100, 45, 400, 120, 130, 400, 190, 400, 400, 280])
    weight = rng.integers(1, 9, 10)
    ts = np.sort(rng.integers(0, 300, 200_000))
    before = np.searchsorted(opened, ts, side="right")
    picked = pick_auctions(ts, before, end, np.argsort(end, kind="stable"), weight, rng.random(len(ts)))
    assert (opened[picked] <= ts).all() and (ts < end[picked]).all()
    for start in range(0, 300, 30):
        during = picked[(ts >= start) & (ts < start + 10)]
        usable = np.where((opened <= start) & (end > start), weight, 0)
        assert np.bincount(during, minlength=10) / len(during) == pytest.approx(usable / usable.sum(), abs=0.03)


# --- punct


def segments(columns: Columns) -> list[np.ndarray]:
    """Return the values of each whole segment, its punctuation last."""
    ends = np.flatnonzero(columns["kind"] == "closed") + 1
    return np.split(columns["value"], ends)[:-1]


def test_a_segment_has_its_size_and_its_share_of_matching_rows():
    names = ("punct-asc-100-40", 100, 0.4), ("punct-random-30-10", 30, 0.1), ("cluster-desc-50", 50, 1)
    for pattern, size, share in names:
        parts = segments(sample("punct", 50_000, {"a": pattern}).streams["a"])
        sizes = np.array([len(part) - 1 for part in parts])
        matching = np.array([np.mean(part[:-1] == part[-1]) for part in parts])
        assert sizes.mean() == pytest.approx(size, rel=0.03)
        assert sizes.std() == pytest.approx(np.sqrt(size), rel=0.2)
        assert matching.mean() == pytest.approx(share, rel=0.1)
        assert all(part[-2] == part[-1] for part in parts)


def test_values_are_punctuated_in_the_order_asked_for():
    def closed(pattern: str) -> list[int]:
        columns = sample("punct", 9_000, {"b": pattern}).streams["b"]
        return columns["value"][columns["kind"] == "closed"].tolist()

    assert closed("punct-asc-100-40") == list(range(len(closed("punct-asc-100-40"))))
    assert closed("cluster-desc-9")[:50] == list(range(14_999, 14_949, -1))
    assert np.mean(np.diff(closed("punct-random-30-40")) > 0) == pytest.approx(0.5, abs=0.1)


def test_rows_come_in_order_every_10_ms_and_punctuations_1_ms_after_the_row_before():
    for columns in sample("punct", 20_000, {}).streams.values():
        assert (columns["arrived"] // 1000 == columns["ts"]).mean() > 0.9
        rows = columns["ts"][columns["kind"] == "row"]
        assert np.diff(rows).mean() == pytest.approx(10, rel=0.02)
        assert np.diff(rows).std() == pytest.approx(np.sqrt(10), rel=0.05)
        at = np.flatnonzero(columns["kind"] == "closed")
        assert (columns["ts"][at] - columns["ts"][at - 1] == 1).all()


def test_other_rows_have_values_that_are_over_later_and_no_further_ahead_than_asked():
    for ahead in (None, 5):
        parts = segments(sample("punct", 20_000, {"ahead": ahead}).streams["a"])
        off = np.concatenate([part[:-1] - part[-1] for part in parts])
        assert off.min() == 0
        assert off.max() == 5 if ahead else off.max() > 14_000
    assert np.bincount(off)[1:] / np.count_nonzero(off) == pytest.approx([0.2] * 5, abs=0.03)


def test_a_stream_without_its_punctuations_has_the_same_rows():
    both = sample("punct", 5_000, {}).streams["a"]
    without = sample("punct", 5_000, {"punctuations": "b"})
    assert [marks.input for marks in without.query.punctuations] == ["b"]
    rows = both["kind"] == "row"
    for name in ("ts", "value"):
        np.testing.assert_array_equal(both[name][rows], without.streams["a"][name][: rows.sum()])
    uniform = sample("punct", 30_000, {"a": "uniform"}).streams["a"]["value"]
    assert np.bincount(uniform // 1500) / len(uniform) == pytest.approx([0.1] * 10, abs=0.01)


def test_irrelevant_punctuations_name_values_that_no_row_has_and_change_nothing_else():
    plain, half, all_ = (sample("punct", 9_000, {"irrelevant": share}) for share in (0, 0.5, 1))
    for name in ("a", "b"):
        rows = plain.streams[name]["kind"] == "row"
        for made, share in ((half, 0.5), (all_, 1)):
            value = made.streams[name]["value"]
            np.testing.assert_array_equal(value[rows], plain.streams[name]["value"][rows])
            named = ~np.isin(value[~rows], plain.streams[name]["value"])
            assert named.mean() == pytest.approx(share, abs=0.15)
    assert plain.truth.total == all_.truth.total


# --- news


def test_an_item_is_read_from_its_posting_until_ten_newer_ones_are_there():
    made = sample("news", 20_000, {})
    posted, accesses = made.streams["news"]["ts"], made.streams["accesses"]
    closed = accesses["kind"] == "closed"
    assert accesses["sno"][closed].tolist() == list(range(1, closed.sum() + 1))
    np.testing.assert_array_equal(accesses["ts"][closed], posted[accesses["sno"][closed] - 1 + 10])
    newest = np.searchsorted(posted, accesses["ts"][~closed], side="left")
    assert set((newest - accesses["sno"][~closed]).tolist()) == set(range(10))
    each = np.bincount(accesses["sno"][~closed])[1 : closed.sum() + 1]
    assert each.min() >= 1 and each.mean() == pytest.approx(20, rel=0.03)
    assert set(accesses["ipaddr"][closed]) == {"*"}
    assert len(set(accesses["ipaddr"])) == pytest.approx(1001, abs=10)
    assert np.diff(posted).mean() == pytest.approx(1000, rel=0.1)
    assert made.truth.total == (~closed).sum()


def test_descriptions_in_random_order_may_come_after_records_about_them():
    made = sample("news", 20_000, {"order": "random", "shuffled": 40}).streams
    news, accesses = made["news"], made["accesses"]
    assert (np.diff(news["ts"]) > 0).all()
    assert ((news["sno"] - 1) // 40 == np.arange(len(news["sno"])) // 40).all()
    when = dict(zip(news["sno"].tolist(), news["ts"].tolist(), strict=True))
    pairs = zip(accesses["sno"].tolist(), accesses["ts"].tolist(), strict=True)
    assert 0.2 < np.mean([ts < when.get(sno, ts + 1) for sno, ts in pairs]) < 0.8


def test_a_number_of_items_gives_a_whole_that_ends():
    made = sample("news", 100_000, {"items": 50, "per_item": 4})
    accesses = made.streams["accesses"]
    assert len(made.streams["news"]["ts"]) == 50
    assert sorted(accesses["sno"][accesses["kind"] == "closed"]) == list(range(1, 51))
    assert made.truth.total == (accesses["kind"] == "record").sum() == pytest.approx(200, abs=40)
