"""In which order rows of different inputs are taken: columns of any type, and what stands in for them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from cli_calls import call

from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.arrival.order import Numbering, Reached, numbers_of
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

NEVER = -(1 << 63)
TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {{type: ReadFrom{a}, name: A, config: {{path: "{folder}/a*"}}}}
    - {{type: ReadFrom{b}, name: B, config: {{path: "{folder}/b*"}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: A, b: B}}
      config: {{time: ts, window: 5ms, where: a.k = b.k, {more}}}
    - {{type: WriteToParquet, name: Results, input: joined, config: {{path: "{folder}/joined"}}}}
    - {{type: WriteToJson, name: Late, input: joined.late, config: {{path: "{folder}/late"}}}}
"""


def template(folder, more, a="Parquet", b="Parquet"):
    return read_template_text("t.yaml", TEMPLATE.format(folder=folder, more=more, a=a, b=b))


def late(folder):
    return [json.loads(line) for line in (folder / "late.jsonl").read_text().splitlines()]


def plan_of(*types, arrival="at", **more):
    schemas = {name: pa.schema([("ts", pa.int64()), ("at", t)]) for name, t in zip("ab", types, strict=True)}
    return bind(JoinConfig.read({"time": "ts", "window": "5ms", "arrival": arrival, **more}), schemas)


def numbers(plan, which, values):
    column = pa.array(values, plan.schemas[plan.inputs[which]].field("at").type)
    batch = pa.RecordBatch.from_pydict({"ts": pa.array(range(len(values)), pa.int64()), "at": column})
    return numbers_of(plan, which, batch).values.tolist()


def test_times_of_any_unit_date_or_text_are_compared_in_one_unit():
    stamp = np.datetime64("2024-01-01T00:00:00", "ns").astype(int)
    plan = plan_of(pa.timestamp("us"), pa.timestamp("s", "UTC"))
    assert numbers(plan, 0, [5]) == [5]
    assert numbers(plan, 1, [5, None, 4]) == [5_000_000, 5_000_000, 4_000_000]
    plan = plan_of(pa.date32(), pa.timestamp("s"))
    assert numbers(plan, 0, [1]) == [86_400_000]
    assert numbers(plan, 1, [1]) == [1000]
    plan = plan_of(pa.timestamp("ms"), pa.string(), time_unit="us")
    assert numbers(plan, 0, [7]) == [7_000_000]
    texts = ["2024-01-01", "2024-01-01T01:00:00Z", " 2024-01-01 02:00:00.000000001+02:00 ", None, "+7"]
    hour = 3_600_000_000_000
    assert numbers(plan, 1, texts) == [stamp, stamp + hour, stamp + 1, stamp + hour, 7000]
    assert plan.setting.arrival_nanos == 1


def test_integers_are_compared_as_they_are():
    plan = plan_of(pa.int64(), pa.uint64())
    edges = [NEVER, -1, 0, 1 << 62, (1 << 63) - 1]
    assert numbers(plan, 0, edges) == edges
    assert numbers(plan, 1, [3, (1 << 63) - 1]) == [3, (1 << 63) - 1]
    assert plan.setting.arrival_nanos is None


@pytest.mark.parametrize(
    ("types", "fault"),
    [
        (
            (pa.int64(), pa.timestamp("us")),
            r"arrival: column 'at' of input 'a', int64, cannot be compared with column 'at' of input 'b', "
            r"timestamp\[us\]; store both the same way, or name columns that agree",
        ),
        ((pa.float64(), pa.int64()), "arrival: column 'at' of input 'a' must be an integer, a timestamp, a date"),
    ],
)
def test_columns_that_cannot_be_compared_are_refused(types, fault):
    with pytest.raises(ConfigError, match=fault):
        plan_of(*types)


@pytest.mark.parametrize(
    ("types", "value", "fault"),
    [
        ((pa.uint64(), pa.uint64()), (1 << 64) - 1, "Integer value 18446744073709551615 not in range"),
        ((pa.timestamp("s"), pa.timestamp("ns")), 1 << 40, "out of bounds timestamp: 1099511627776"),
        ((pa.string(), pa.string()), "", "Failed to parse string: ''"),
        ((pa.string(), pa.string()), "soon", "Failed to parse string: 'soon'"),
        ((pa.string(), pa.string()), "2500-01-01", "Failed to parse string: '2500-01-01'"),
        ((pa.string(), pa.string()), "9" * 19, "Failed to parse string: '9999999999999999999'"),
        ((pa.string(), pa.string()), "9" * 18, "overflow"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_compared_is_refused_by_name(types, value, fault):
    text = "^arrival: column 'at' of input 'a' has a value that cannot be compared: "
    with pytest.raises(SlackwaterError, match=f"{text}.*{fault}.*; correct the value, or filter its row out$"):
        numbers(plan_of(*types), 0, [value])


def test_a_row_without_arrival_comes_with_the_latest_before_it_wherever_batches_are_cut():
    plan = plan_of(pa.int64(), pa.int64())
    values = [None, 4, None, 2, None, None, 9, None]
    whole = numbers(plan, 0, values)
    assert whole == [NEVER, 4, 4, 2, 4, 4, 9, 9]
    numbering, got = Numbering(plan, 0), []
    for value in values:
        batch = pa.RecordBatch.from_pydict({"ts": pa.array([0]), "at": pa.array([value], pa.int64())})
        got += numbering.number(batch).tolist()
    assert got == whole


def test_without_a_column_progress_is_the_number():
    plan = plan_of(pa.int64(), pa.int64(), arrival=None)
    batch = pa.RecordBatch.from_pydict({"ts": pa.array([None, 5, 3, None, 8, 1]), "at": pa.array([0] * 6)})
    assert numbers_of(plan, 0, batch).values.tolist() == [NEVER, 5, 5, 5, 8, 8]
    reached = Reached([(20, 3), (0, 7), (10, 9)])
    assert [reached.before(place) for place in (0, 9, 10, 25)] == [NEVER, NEVER, 7, 9]
    assert reached.last == 9


def test_microseconds_from_parquet_and_text_from_csv_are_one_order(tmp_path):
    """The two inputs arrive alike: nothing is late, whatever unit a reader finds."""
    n, start = 400, np.datetime64("2024-03-01T00:00:00", "us")
    ts = np.arange(n) * 10
    at = start + ts * 1000
    pq.write_table(pa.table({"ts": ts, "k": ts, "at": at}), tmp_path / "a.parquet")
    texts = [f"{stamp}Z".replace("T", " ") for stamp in at.astype("datetime64[ms]")]
    pa_csv.write_csv(pa.table({"ts": ts, "k": ts, "at": texts}), tmp_path / "b.csv")
    summary = run(template(tmp_path, "arrival: at, disorder: {strategy: none}", b="Csv"))
    assert (summary["results"], summary["late"]) == (n, {})
    whole = summary["state"]["max_tuples"]
    assert whole < 50, "no input is taken before the other"


@pytest.mark.parametrize("last", [1 << 62, (1 << 63) - 1])
def test_rows_with_the_largest_arrival_are_joined(tmp_path, last):
    for name in "ab":
        table = pa.table({"ts": [1, 2, 3, 4], "k": [1, 2, 3, 4], "n": [NEVER, 0, last - 1, last]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1)
    summary = run(template(tmp_path, "arrival: n, disorder: {strategy: none}"))
    assert (summary["results"], summary["input"], summary["late"]) == (4, {"a": 4, "b": 4}, {})


def test_inputs_of_unequal_rates_are_merged_without_disorder(tmp_path):
    """Thirty rows against two hundred over the same time: taken by turns, one would be far ahead of the other."""
    few, many = np.arange(30) * 1000, np.arange(200) * 150
    pq.write_table(pa.table({"ts": few, "k": few // 300}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": many, "k": many // 300}), tmp_path / "b.parquet")
    summary = run(template(tmp_path, "disorder: {strategy: none}, metrics: 100ms"))
    assert summary["late"] == {}
    assert summary["state"]["max_tuples"] <= 12


def test_progress_is_that_of_the_input_over_files_batches_and_filters(tmp_path):
    """Wherever files and batches are cut, the same rows are late."""
    rng = np.random.default_rng(3)
    ts = np.arange(600) * 3 - rng.integers(0, 60, 600) * (rng.random(600) < 0.3)
    table = pa.table({"ts": ts, "k": rng.integers(0, 5, 600)})
    found = []
    for parts in (1, 4):
        folder = tmp_path / str(parts)
        folder.mkdir()
        for name in "ab":
            for k in range(parts):
                size = 600 // parts
                pq.write_table(table.slice(k * size, size), folder / f"{name}{k}.parquet", row_group_size=50)
        assert run(template(folder, "disorder: {strategy: none}"))["late"]["too_late"] > 50
        found.append((pq.read_table(folder / "joined.parquet").to_pylist(), sorted(map(str, late(folder)))))
    assert found[0] == found[1]


def test_an_input_without_any_time_is_read_and_told_row_by_row(tmp_path):
    pq.write_table(pa.table({"ts": pa.nulls(5, pa.int64()), "k": [1] * 5}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": [1, 2, 3], "k": [1] * 3}), tmp_path / "b.parquet")
    assert run(template(tmp_path, "disorder: {strategy: none}"))["late"] == {"bad_record": 5}
    assert [row["arrival"] for row in late(tmp_path)] == [None] * 5


def test_the_command_line_tells_of_a_value_that_cannot_be_compared(tmp_path):
    for name in "ab":
        table = pa.table({"ts": [1], "k": [1], "n": pa.array([(1 << 64) - 1], pa.uint64())})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    path = tmp_path / "t.yaml"
    path.write_text(TEMPLATE.format(folder=tmp_path, more="arrival: n", a="Parquet", b="Parquet"))
    done = call("run", path)
    assert done.exit_code == 1
    assert "column 'n' of input 'a' has a value that cannot be compared: Integer value" in done.stderr
    assert not (tmp_path / "joined.parquet").exists()
