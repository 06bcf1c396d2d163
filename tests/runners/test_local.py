"""The embedded runner: files in, files out, and what happens to input that is not as it should be."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from cli_calls import call

from slackwater.pipelines.io.sources import read_batches
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template_text

TEMPLATE = """\
pipeline:
  type: composite
  transforms:
    - type: ReadFrom{kind}
      name: A
      config: {{path: "{folder}/a.{ending}"}}
    - type: ReadFrom{kind}
      name: B
      config: {{path: "{folder}/b.{ending}"}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: A, b: B}}
      config: {{time: ts, window: 5ms, where: a.k = b.k, disorder: {{strategy: none}}{more}}}
    - {{type: WriteToParquet, name: Results, input: joined, config: {{path: "{folder}/joined"}}}}
    - {{type: WriteToJson, name: Late, input: joined.late, config: {{path: "{folder}/late"}}}}
"""


def template(folder, kind="Parquet", more=""):
    ending = {"Parquet": "parquet", "Csv": "csv", "Json": "jsonl"}[kind]
    path = folder / "t.yaml"
    path.write_text(TEMPLATE.format(kind=kind, folder=folder, ending=ending, more=more and f", {more}"))
    return path


def write_parquet(folder, **tables):
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def results(folder):
    return pq.read_table(folder / "joined.parquet").to_pylist()


def late(folder):
    return [json.loads(line) for line in (folder / "late.jsonl").read_text().splitlines()]


GOOD = {"ts": [1, 2, 3], "k": ["x", "y", "x"]}


def test_results_and_late_rows_are_written_and_the_summary_balances(tmp_path):
    a = {"ts": [1, 9, 20, 2], "k": ["x", "y", "w", "x"]}
    write_parquet(tmp_path, a=a, b={"ts": [1, 9, 30], "k": ["x", "y", "z"]})
    summary = tmp_path / "summary.json"
    done = call("run", template(tmp_path), "--summary", summary)
    assert done.exit_code == 0, done.output
    assert [(row["a_ts"], row["b_ts"], row["ts"]) for row in results(tmp_path)] == [(1, 1, 1), (9, 9, 9)]
    assert late(tmp_path) == [
        {"input": "a", "reason": "too_late", "ts": 2, "arrival": 20, "row": '{"ts": 2, "k": "x"}'}
    ]
    numbers = json.loads(summary.read_text())
    assert set(numbers) >= {
        "runner", "input", "results", "late", "slack_ms", "recall_estimate", "elapsed_s", "rows_per_s", "state",
    }  # fmt: skip
    assert numbers["input"] == {"a": 4, "b": 3}
    assert numbers["late"] == {"too_late": 1}
    for account in numbers["accounting"].values():
        assert account["balanced"]
        assert account["input"] == account["joined_or_expired"] + sum(account["late"].values())


@pytest.mark.parametrize("kind", ["Parquet", "Csv", "Json"])
def test_every_format_gives_the_same_results(tmp_path, kind):
    rng = np.random.default_rng(3)
    times = np.arange(500)
    tables = {
        name: pa.table({"ts": times - rng.integers(0, 4, 500), "k": rng.integers(0, 5, 500)}) for name in "ab"
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        pa_csv.write_csv(table, tmp_path / f"{name}.csv")
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    expected = run(read_template_text("t", template(tmp_path).read_text()))
    rows = results(tmp_path)
    got = run(read_template_text("t", template(tmp_path, kind).read_text()))
    assert results(tmp_path) == rows
    assert len(rows) > 100
    assert {k: got[k] for k in ("input", "results", "late")} == {
        k: expected[k] for k in ("input", "results", "late")
    }


def test_rows_without_a_readable_time_go_to_late_and_the_run_goes_on(tmp_path):
    (tmp_path / "a.csv").write_text("ts,k\n1,x\noops,y\n,z\n3,x\n")
    (tmp_path / "b.csv").write_text("ts,k\n1,x\n2,y\n3,x\n")
    done = call("run", template(tmp_path, "Csv"))
    assert done.exit_code == 0, done.output
    assert [(row["input"], row["reason"], row["arrival"]) for row in late(tmp_path)] == [
        ("a", "bad_record", 1),
        ("a", "bad_record", 1),
    ]
    assert len(results(tmp_path)) == 4


def test_json_rows_without_a_readable_time_go_to_late(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "k": "x"}\n{"ts": "soon", "k": "x"}\n{"k": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"ts": 1, "k": "x"}\n')
    done = call("run", template(tmp_path, "Json"))
    assert done.exit_code == 0, done.output
    assert [(row["reason"], row["arrival"]) for row in late(tmp_path)] == [
        ("bad_record", 1),
        ("bad_record", 1),
    ]
    assert len(results(tmp_path)) == 1


def test_a_missing_file_is_named(tmp_path):
    write_parquet(tmp_path, a=GOOD)
    done = call("run", template(tmp_path))
    assert done.exit_code == 2
    assert f"no parquet file at '{tmp_path}/b.parquet'; check the path" in done.stderr


def test_an_input_without_rows_is_no_error_but_is_said(tmp_path):
    write_parquet(tmp_path, a=GOOD, b={"ts": pa.array([], pa.int64()), "k": pa.array([], pa.string())})
    done = call("run", template(tmp_path))
    assert done.exit_code == 0
    assert "warning: joined: input 'b' has no rows, so nothing can be joined" in done.stderr
    assert results(tmp_path) == []


def test_an_empty_text_file_has_no_columns(tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("ts,k\n1,x\n")
    done = call("run", template(tmp_path, "Csv"))
    assert done.exit_code == 2
    assert "a.csv' is empty: it has no columns; a file without rows needs a header" in done.stderr


def test_a_time_column_of_nulls_is_said(tmp_path):
    write_parquet(tmp_path, a=GOOD, b={"ts": pa.array([None, None], pa.int64()), "k": ["x", "y"]})
    done = call("run", template(tmp_path))
    assert done.exit_code == 0
    assert "joined: no row of input 'b' has a time in column 'ts' that can be read" in done.stderr
    assert [row["reason"] for row in late(tmp_path)] == ["bad_record", "bad_record"]


def test_time_that_goes_back_years_is_said_and_the_rows_are_late(tmp_path):
    day = 86_400_000
    write_parquet(
        tmp_path,
        a={"ts": [9000 * day, 9001 * day, 10 * day], "k": ["x"] * 3},
        b={"ts": [9000 * day, 9001 * day], "k": ["x"] * 2},
    )
    done = call("run", template(tmp_path))
    assert done.exit_code == 0
    assert (
        "joined: rows of input 'a' are more than five years older than the others, and in the late output as "
        "too_late; if their times are right, set guard: {past: none}" in done.stderr
    )
    assert [(row["input"], row["reason"]) for row in late(tmp_path)] == [("a", "too_late")]


def test_the_guard_keeps_an_old_row_from_stretching_the_slack(tmp_path):
    day = 86_400_000
    write_parquet(
        tmp_path,
        a={"ts": [9000 * day, 10 * day], "k": ["x", "x"]},
        b={"ts": [9000 * day] * 2, "k": ["x", "x"]},
    )
    path = template(tmp_path, more="guard: {past: 1d}")
    path.write_text(path.read_text().replace("strategy: none", "strategy: max"))
    summary = tmp_path / "summary.json"
    assert call("run", path, "--summary", summary).exit_code == 0
    numbers = json.loads(summary.read_text())
    assert numbers["late"] == {"too_late": 1}
    assert numbers["slack_ms"]["max"] == 0


def test_mixed_time_types_are_refused(tmp_path):
    write_parquet(tmp_path, a=GOOD, b={"ts": pa.array([1, 2], pa.timestamp("ms")), "k": ["x", "y"]})
    done = call("run", template(tmp_path))
    assert done.exit_code == 2
    assert "input 'a' has integer times and input 'b' has timestamps; store both the same way" in done.stderr


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    write_parquet(tmp_path, a=GOOD)
    (tmp_path / "b.parquet").write_text("hello")
    done = call("run", template(tmp_path))
    assert done.exit_code == 2
    assert "b.parquet' as parquet:" in done.stderr
    assert "check that the file has this format" in done.stderr


def test_a_csv_value_that_does_not_fit_its_column_is_a_bad_record_with_file_and_row(tmp_path):
    lines = "".join(f"{k},7\n" for k in range(600_000))
    (tmp_path / "a.csv").write_text("ts,k\n" + lines + "600000,seven\n")
    (tmp_path / "b.csv").write_text("ts,k\n1,7\n")
    done = call("run", template(tmp_path, "Csv"))
    assert done.exit_code == 0, done.stderr
    (bad,) = [row for row in late(tmp_path) if row["reason"] == "bad_record"]
    assert json.loads(bad["row"])["raw"] == "600000,seven"
    fault = (
        "row 600002: column 'k': 'seven' is not an integer, which the values before are; set schema: {k: string}"
    )
    assert fault in json.loads(bad["row"])["fault"]
    assert "warning: joined: input 'a' has rows that cannot be read, which are bad_record" in done.stderr
    assert fault in done.stderr


def test_a_json_line_that_is_no_object_is_a_bad_record_with_its_number(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "k": "x"}\n[1, 2]\nnope\n')
    (tmp_path / "b.jsonl").write_text('{"ts": 1, "k": "x"}\n')
    assert call("run", template(tmp_path, "Json")).exit_code == 0
    first, second = [json.loads(row["row"]) for row in late(tmp_path) if row["reason"] == "bad_record"]
    assert (first["raw"], second["raw"]) == ("[1, 2]", "nope")
    assert "a.jsonl' line 2: no JSON object" in first["fault"]
    assert "a.jsonl' line 3: no JSON: Expecting value" in second["fault"]
    assert len(results(tmp_path)) == 1


def test_files_of_one_source_must_have_the_same_columns(tmp_path):
    write_parquet(tmp_path, a1=GOOD, a2={"ts": [1], "other": ["x"]}, b=GOOD)
    path = template(tmp_path)
    path.write_text(path.read_text().replace("a.parquet", "a*.parquet"))
    done = call("run", path)
    assert done.exit_code == 2
    assert "a2.parquet' has columns ts, other, but" in done.stderr


def test_files_are_read_in_the_order_of_their_names(tmp_path):
    write_parquet(tmp_path, a1={"ts": [1, 2], "k": ["x", "y"]}, a2={"ts": [3, 4], "k": ["x", "y"]}, b=GOOD)
    path = template(tmp_path)
    path.write_text(path.read_text().replace("a.parquet", "a*.parquet"))
    assert call("run", path).exit_code == 0
    assert late(tmp_path) == []
    assert len(results(tmp_path)) == 6


def test_a_sink_that_cannot_be_written_is_named(tmp_path):
    write_parquet(tmp_path, a=GOOD, b=GOOD)
    (tmp_path / "block").write_text("")
    path = template(tmp_path)
    path.write_text(path.read_text().replace(f"{tmp_path}/joined", f"{tmp_path}/block/joined"))
    done = call("run", path)
    assert done.exit_code == 1
    assert f"cannot write '{tmp_path}/block/joined.parquet'" in done.stderr


def test_a_file_that_is_not_in_arrival_order_is_sorted_by_it(tmp_path):
    a = {"ts": [3, 1, 2], "k": ["x"] * 3, "n": [4, 0, 2]}
    write_parquet(tmp_path, a=a, b={"ts": [1, 2, 3], "k": ["x"] * 3, "n": [1, 3, 5]})
    assert call("run", template(tmp_path, more="arrival: n")).exit_code == 0
    assert late(tmp_path) == []
    assert len(results(tmp_path)) == 9


def test_arrival_numbers_that_repeat_across_batches_go_in_input_order(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    n = np.sort(rng.integers(0, 40, 300))
    for name in "ab":
        table = pa.table({"ts": rng.integers(0, 60, 300), "k": rng.integers(0, 4, 300), "n": n})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
    path = template(tmp_path, more="arrival: n")
    assert call("run", path).exit_code == 0
    whole = (results(tmp_path), late(tmp_path))
    monkeypatch.setitem(read_batches.__kwdefaults__, "batch_rows", 7)
    assert call("run", path).exit_code == 0
    assert (results(tmp_path), sorted(map(str, late(tmp_path)))) == (whole[0], sorted(map(str, whole[1])))


def test_joins_can_be_chained_and_filtered(tmp_path):
    write_parquet(tmp_path, a=GOOD, b=GOOD)
    text = f"""
pipeline:
  type: composite
  transforms:
    - {{type: ReadFromParquet, name: A, config: {{path: "{tmp_path}/a.parquet"}}}}
    - {{type: ReadFromParquet, name: B, config: {{path: "{tmp_path}/b.parquet"}}}}
    - {{type: Filter, name: OnlyX, input: A, config: {{language: python, keep: "k == 'x'"}}}}
    - type: SlidingWindowJoin
      name: first
      input: {{a: OnlyX, b: B}}
      config: {{time: ts, window: 5ms, where: a.k = b.k}}
    - type: SlidingWindowJoin
      name: second
      input: {{pair: first, b: B}}
      config: {{time: ts, window: 5ms, where: pair.a_k = b.k}}
    - {{type: WriteToJson, name: Out, input: second, config: {{path: "{tmp_path}/out"}}}}
"""
    summary = run(read_template_text("t", text))
    assert summary["joins"]["first"]["results"] == 4
    assert summary["joins"]["second"]["results"] == 8 == len((tmp_path / "out.jsonl").read_text().splitlines())


def test_shards_change_nothing_when_disorder_is_handled_completely(tmp_path):
    rng = np.random.default_rng(8)
    for name in "ab":
        table = {"ts": rng.integers(0, 900, 800), "k": [f"key{v}" for v in rng.integers(0, 30, 800)]}
        write_parquet(tmp_path, **{name: table})
    path = template(tmp_path)
    path.write_text(path.read_text().replace("strategy: none", "strategy: fixed, slack: 1s"))
    assert call("run", path).exit_code == 0
    expected = sorted(map(str, results(tmp_path)))
    path.write_text(path.read_text().replace("slack: 1s}", "slack: 1s}, shards: 4"))
    assert call("run", path).exit_code == 0
    assert sorted(map(str, results(tmp_path))) == expected
    assert late(tmp_path) == []


def test_memory_does_not_grow_with_the_input(tmp_path):
    """A small version of the 2 against 20 million rows of ``slackwater bench memory``."""
    peaks = []
    for rows in (300_000, 1_200_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        ts = np.arange(rows)
        for name in "ab":
            table = pa.table({"ts": ts, "k": ts % 1000})
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=100_000)
        code = (
            "import re, sys; from slackwater.pipelines.runners.local.runner import run; "
            "from slackwater.pipelines.template.reader import read_template as r; run(r(sys.argv[1], {})); "
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(template(folder))], capture_output=True, text=True, check=True,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )  # fmt: skip
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.3 * peaks[0]
