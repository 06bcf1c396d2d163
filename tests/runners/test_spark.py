"""Templates on the Spark runner against the operator fed directly, in arrival order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from spark_cases import NAMES, ROWS, bound, expected, file_rows, settings, star, stream, write

pytest.importorskip("pyspark")

from slackwater.pipelines.runners.spark import runner as run_spark
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.arrival.order import numbers_of
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind


def run(spark: Any, transforms: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    text = json.dumps({"pipeline": {"transforms": transforms}})
    return run_spark.run(read_template_text("test", text), session=spark, **options)


def read(name: str, path: Path, format: str = "Parquet") -> dict[str, Any]:
    return {"type": f"ReadFrom{format}", "name": name, "config": {"path": str(path)}}


def join(name: str, inputs: dict[str, str], **config: Any) -> dict[str, Any]:
    return {"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": settings(**config)}


def sink(name: str, source: str, path: Path, format: str = "Parquet") -> dict[str, Any]:
    return {"type": f"WriteTo{format}", "name": name, "input": source, "config": {"path": str(path)}}


@pytest.mark.spark
def test_results_late_rows_and_accounts_equal_those_of_the_operator(spark: Any, tmp_path: Path) -> None:
    """Two joins and a plain copy in one template: two- and four-way, shards, several micro-batches."""
    tables = [stream(i, sorted_by_arrival=i != 1) for i in range(4)]
    paths = write(tmp_path, tables)
    two = {"where": star(2), "arrival": "arrived", "shards": 4}
    four = {
        "where": "a.k = b.k AND c.k = d.k AND a.v < c.v",
        "disorder": {"strategy": "max"},
        "output": "counts",
    }
    out = tmp_path / "out"
    summary = run(
        spark,
        [
            *(read(name.upper(), path) for name, path in zip(NAMES, paths, strict=True)),
            join("two", {"a": "A", "b": "B"}, **two),
            join("four", {name: name.upper() for name in NAMES}, **four),
            sink("W1", "two", out / "two.parquet"),
            sink("W2", "two.late", out / "late.parquet"),
            sink("W3", "four", out / "four.parquet"),
            sink("W4", "A", out / "copy.parquet"),
            sink("W5", "two.metrics", out / "metrics.jsonl", "Json"),
        ],
        rows_per_batch=250,
    )
    results, late = expected(bound(tables[:2], **two), tables[:2])
    assert (file_rows(out / "two.parquet"), file_rows(out / "late.parquet")) == (results, late)
    assert file_rows(out / "four.parquet") == expected(bound(tables, **four), tables)[0]
    assert pq.read_table(out / "copy.parquet").equals(tables[0])
    assert (out / "metrics.jsonl").read_text() == ""
    body = summary["joins"]["two"]
    assert summary["runner"] == "spark"
    assert body["input"] == {"a": ROWS, "b": ROWS}
    assert body["results"] == results.total()
    assert sum(body["late"].values()) == late.total()
    assert all(account["balanced"] for account in body["accounting"].values())


@pytest.mark.spark
def test_filters_maps_text_files_and_a_join_of_a_join(spark: Any, tmp_path: Path) -> None:
    tables = [stream(i) for i in range(3)]
    for name, table in zip(NAMES, tables[:2], strict=False):
        pa_csv.write_csv(table, tmp_path / f"{name}.csv")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tables[2].to_pylist()))
    first = {"where": "a.k = b.k", "disorder": {"strategy": "none"}}
    second = {"where": "ab.a_k = c.k", "time": {"ab": "ts", "c": "ts"}}
    seen: list[int] = []

    class Watch:
        def total(self, rows: int) -> None:
            seen.append(-rows)

        def advance(self, rows: int) -> None:
            seen.append(rows)

    summary = run(
        spark,
        [
            read("A", tmp_path / "a.csv", "Csv"),
            read("B", tmp_path / "b.csv", "Csv"),
            read("C", tmp_path / "c.jsonl", "Json"),
            {"type": "Filter", "name": "F", "input": "A", "config": {"keep": "v < 70"}},
            {
                "type": "MapToFields",
                "name": "M",
                "input": "B",
                "config": {"fields": {"id": "id", "ts": "ts + 5", "k": "k"}},
            },
            join("ab", {"a": "F", "b": "M"}, **first),
            join("abc", {"ab": "ab", "c": "C"}, **second),
            {"type": "Filter", "name": "G", "input": "abc", "config": {"keep": "c_v >= 50"}},
            sink("W", "ab", tmp_path / "ab.csv", "Csv"),
            sink("X", "G", tmp_path / "abc.parquet"),
        ],
        rows_per_batch=250,
        progress=Watch(),
    )
    a = tables[0].filter(pa.compute.less(tables[0]["v"], 70))
    b = tables[1].set_column(1, "ts", pa.compute.add(tables[1]["ts"], 5)).select(["id", "ts", "k"])
    plan = bound([a, b], **first)
    operator = Operator(plan)
    batches = [t.combine_chunks().to_batches()[0] for t in (a, b)]
    chunk = in_arrival_order(batches, [numbers_of(plan, i, x).values for i, x in enumerate(batches)])
    results = operator.push(chunk).results + operator.finish().results
    assert pa_csv.read_csv(tmp_path / "ab.csv").equals(pa.Table.from_batches(results))
    ab = pa.Table.from_batches(results)
    plan = bind(JoinConfig.read(settings(**second)), {"ab": ab.schema, "c": tables[2].schema})
    want = expected(plan, [ab, tables[2]])[0]
    assert file_rows(tmp_path / "abc.parquet") == Counter({r: n for r, n in want.items() if dict(r)["c_v"] >= 50})
    assert summary["joins"]["abc"]["results"] == want.total() > 0
    assert seen[0] < -3 * ROWS + 1
    assert sum(seen) == 0


@pytest.mark.spark
def test_input_without_rows_gives_files_without_rows(spark: Any, tmp_path: Path) -> None:
    schema = stream(0).schema
    paths = write(tmp_path, [schema.empty_table(), stream(1)])
    summary = run(
        spark,
        [
            read("A", paths[0]),
            read("B", paths[1]),
            join("j", {"a": "A", "b": "B"}, where="a.k = b.k", arrival="arrived"),
            sink("W", "j", tmp_path / "out.parquet"),
        ],
    )
    assert summary["input"] == {"a": 0, "b": ROWS}
    assert summary["results"] == 0
    names = [f"{i}_{field.name}" for i in "ab" for field in schema]
    assert pq.read_schema(tmp_path / "out.parquet").names == [*names, "ts"]


@pytest.mark.spark
def test_fault_on_a_worker_is_one_clean_message_and_leaves_no_file(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "k": 1}\n{"ts": 2, "k": \n')
    (tmp_path / "b.jsonl").write_text('{"ts": 1, "k": 1}\n')
    steps = [
        {"type": "Create", "name": "A", "config": {"elements": [{"ts": 1, "k": 1 << 62}, {"ts": 2, "k": 2}]}},
        {"type": "MapToFields", "name": "M", "input": "A", "config": {"fields": {"ts": "ts", "k": "k * k"}}},
        read("B", tmp_path / "b.jsonl", "Json"),
        join("j", {"a": "M", "b": "B"}, where="a.k = b.k"),
        sink("W", "j", tmp_path / "out" / "j.parquet"),
    ]
    with pytest.raises(SlackwaterError, match=r"^.*k \* k.*overflow; keep the numbers smaller[^\n]*$"):
        run(spark, steps)
    assert list((tmp_path / "out").iterdir()) == []


def test_no_java_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pipeline = read_template_text("t", "pipeline: {transforms: [{type: Create, config: {elements: [{x: 1}]}}]}")
    with pytest.raises(SlackwaterError, match="needs Java 17 or later, and there is none; install a JDK"):
        run_spark.run(pipeline)
