"""Every runner against the literal reading of the algorithms: one template with all cases, run on each.

Small data with disorder within and between the streams, ties, and missing keys.
"""

import json
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference import reference_join

from slackwater.pipelines import local
from slackwater.pipelines.template import read_template_text

ROWS = 45
WINDOWS = (40, 25, 60, 30)
SLACKS = {"none": "none", "fixed": 15, "fixed_more": 60, "max": "max"}
DISORDER = {
    "none": {"strategy": "none"},
    "fixed": {"strategy": "fixed", "slack": "15ms"},
    "fixed_more": {"strategy": "fixed", "slack": "60ms"},
    "max": {"strategy": "max"},
}
CASES = list(product((2, 3, 4), ("equi", "theta"), SLACKS))


def streams():
    """Four streams of rows that carry their number, time, key, value and place in the order of arrival."""
    rng = np.random.default_rng(11)
    arrived = rng.permutation(4 * ROWS)
    for i in range(4):
        progress = np.cumsum(rng.integers(0, 9, ROWS)) + 7 * i
        late = rng.integers(0, 80, ROWS) * (rng.random(ROWS) < 0.3)
        keys = [None if rng.random() < 0.05 else int(k) for k in rng.integers(0, 4, ROWS)]
        yield pa.table(
            {
                "id": np.arange(ROWS),
                "ts": progress - late,
                "k": pa.array(keys, pa.int64()),
                "v": rng.integers(0, 12, ROWS),
                "arrived": np.sort(arrived[i * ROWS : (i + 1) * ROWS]),
            }
        )


def where(m, kind):
    names = [f"s{i}" for i in range(m)]
    test = "{0}.k = {1}.k" if kind == "equi" else "abs({0}.v - {1}.v) < 2"
    return " AND ".join(test.format(a, b) for a, b in pairwise(names))


def condition(kind):
    def holds(rows):
        ordered = [rows[i] for i in range(len(rows))]
        if kind == "equi":
            return all(a["k"] is not None and a["k"] == b["k"] for a, b in pairwise(ordered))
        return all(abs(a["v"] - b["v"]) < 2 for a, b in pairwise(ordered))

    return holds


def case_name(m, kind, slack):
    return f"{kind}{m}_{slack}"


def template(folder, out, arrival=True, cases=CASES):
    nodes = [
        {"type": "ReadFromParquet", "name": f"S{i}", "config": {"path": f"{folder}/s{i}.parquet"}}
        for i in range(4)
    ]
    for m, kind, slack in cases:
        name = case_name(m, kind, slack)
        config = {
            "time": "ts",
            "window": {f"s{i}": f"{WINDOWS[i]}ms" for i in range(m)},
            "where": where(m, kind),
            "disorder": DISORDER[slack],
            **({"arrival": "arrived"} if arrival else {}),
        }
        inputs = {f"s{i}": f"S{i}" for i in range(m)}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": config})
        for output, port in (("results", name), ("late", f"{name}.late")):
            path = f"{out}/{name}_{output}"
            nodes.append(
                {"type": "WriteToJson", "name": f"{name} {output}", "input": port, "config": {"path": path}}
            )
    return read_template_text(
        "runners.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for i, table in enumerate(streams()):
        pq.write_table(table, folder / f"s{i}.parquet", row_group_size=16)
    return folder


@pytest.fixture(scope="module")
def truth(data):
    tables = [pq.read_table(data / f"s{i}.parquet").to_pylist() for i in range(4)]
    runs = {}
    for arrival in (True, False):
        for m, kind, slack in CASES:
            rows = [(row["arrived"] if arrival else row["id"], i, row) for i in range(m) for row in tables[i]]
            arrivals = [(i, row) for _, i, row in sorted(rows, key=lambda r: r[:2])]
            runs[arrival, case_name(m, kind, slack)] = reference_join(
                arrivals, WINDOWS[:m], condition(kind), SLACKS[slack]
            )
    return runs


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(out, truth, arrival=True, cases=CASES):
    for m, kind, slack in cases:
        name = case_name(m, kind, slack)
        run = truth[arrival, name]
        results = read(out / f"{name}_results.jsonl")
        found = Counter((tuple(row[f"s{i}_id"] for i in range(m)), row["ts"]) for row in results)
        assert found == run.results, name
        late = read(out / f"{name}_late.jsonl")
        ids = Counter((int(row["input"][1:]), json.loads(row["row"])["id"]) for row in late)
        assert ids == Counter(run.late), name
        assert {row["reason"] for row in late} <= {"too_late"}
    assert sum(len(run.results) for run in truth.values()) > 1000


@pytest.mark.parametrize("arrival", [True, False])
def test_local_runner_equals_the_reference(data, truth, tmp_path, arrival):
    local.run(template(data, tmp_path, arrival))
    check(tmp_path, truth, arrival)


@pytest.mark.beam
@pytest.mark.parametrize("arrival", [True, False])
def test_beam_runner_equals_the_reference(data, truth, tmp_path, arrival):
    from slackwater.pipelines import run_beam

    run_beam.run(template(data, tmp_path, arrival))
    check(tmp_path, truth, arrival)


@pytest.mark.beam_spark
def test_beam_spark_runner_equals_the_reference(data, truth, tmp_path):
    from slackwater.pipelines import run_beam

    run_beam.run(template(data, tmp_path), spark=True)
    check(tmp_path, truth)


@pytest.mark.spark
def test_spark_runner_equals_the_reference(data, truth, tmp_path, spark):
    from slackwater.pipelines import run_spark

    run_spark.run(template(data, tmp_path), session=spark)
    check(tmp_path, truth)


@pytest.mark.spark
def test_spark_runner_in_small_batches_without_arrival_column_equals_the_reference(data, truth, tmp_path, spark):
    from slackwater.pipelines import run_spark

    cases = [(2, "equi", "fixed"), (3, "theta", "none"), (4, "equi", "max")]
    run_spark.run(template(data, tmp_path, False, cases), session=spark, rows_per_batch=20)
    check(tmp_path, truth, False, cases)


def test_summaries_account_for_every_row(data, tmp_path):
    summary = local.run(template(data, tmp_path))
    for join in summary["joins"].values():
        for account in join["accounting"].values():
            assert account["balanced"]
            assert account["input"] == ROWS == account["joined_or_expired"] + sum(account["late"].values())
