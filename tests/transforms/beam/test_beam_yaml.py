"""The same template file under Beam's own YAML runner and under ours: same results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from beam_cases import SCHEMA, rows_of

from slackwater.pipelines.reconcile.local import reconcile
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template
from slackwater.pipelines.template.text import providers

pytestmark = pytest.mark.beam

PROVIDERS = """
providers:
  - include: "{{ providers }}"
options: {runner: FnApiRunner}
"""

PARQUET = (
    """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "{{ dir }}/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "{{ dir }}/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config:
        time: ts
        arrival: at
        window: {{ window }}
        where: a.k = b.k AND a.x < b.x
        disorder: {strategy: fixed, slack: 40ms}
        shards: 4
        archive: "{{ dir }}/{{ out }}/archive"
    - {type: WriteToParquet, input: joined, config: {path: "{{ dir }}/{{ out }}/joined.parquet"}}
    - {type: WriteToJson, input: joined.late, config: {path: "{{ dir }}/{{ out }}/late.jsonl"}}
"""
    + PROVIDERS
)

CSV = (
    """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromCsv, name: A, config: {path: "{{ dir }}/a.csv"}}
    - {type: ReadFromCsv, name: B, config: {path: "{{ dir }}/b.csv"}}
    - {type: Create, name: C, config: {elements: [{k: 1, ts: 20, at: 30}, {k: 2, ts: 60, at: 60}]}}
    - {type: Filter, name: Some, input: A, config: {language: python, keep: x > 1}}
    - type: MapToFields
      name: More
      input: B
      config:
        language: python
        append: true
        drop: [id]
        fields:
          y: {expression: x * 2, output_type: number}
          kk: k
    - type: SlidingWindowJoin
      name: joined
      input: {a: Some, b: More, c: C}
      config:
        time: ts
        arrival: at
        window: {a: {{ window }}, b: 50ms, c: 1s}
        where: a.k = b.k AND b.k = c.k
        disorder: {strategy: none}
        error_handling: {output: bad}
    - {type: WriteToJson, input: joined, config: {path: "{{ dir }}/{{ out }}/joined.jsonl"}}
    - {type: WriteToJson, input: joined.bad, config: {path: "{{ dir }}/{{ out }}/late.jsonl"}}
"""
    + PROVIDERS
)

COUNTS = (
    """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromJson, name: A, config: {path: "{{ dir }}/a.jsonl"}}
    - {type: ReadFromJson, name: B, config: {path: "{{ dir }}/b.jsonl"}}
    - {type: Create, name: Over, config: {elements: [{key: 2, ts: 300, at: 125}, {key: 1, ts: 500, at: 205}]}}
    - type: SlidingWindowJoin
      name: joined
      input: {over: Over, a: A, b: B}
      config:
        time: ts
        arrival: at
        window: {{ window }}
        where: a.k = b.k
        output: counts
        join: {strategy: pwjoin}
        punctuations: {source: over, input: b, key: {k: key}}
        foreign_key: b.id -> a.id
    - {type: WriteToJson, input: joined.punctuations, config: {path: "{{ dir }}/{{ out }}/over.jsonl"}}
    - {type: WriteToCsv, input: joined, config: {path: "{{ dir }}/{{ out }}/joined.csv"}}
    - {type: WriteToJson, input: joined.late, config: {path: "{{ dir }}/{{ out }}/late.jsonl"}}
"""
    + PROVIDERS
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, rows in rows_of(2, 150).items():
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        pq.write_table(table, tmp_path / f"{name}.parquet")
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
        if name == "b":
            lines[5] = lines[5].replace(f"5,{rows[5]['ts']},", "5,,", 1)
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(SCHEMA.names), *lines]) + "\n")
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def rows_in(folder: Path, stem: str) -> Counter[str]:
    """Rows of the file or shards that begin with ``stem``, whatever the format, as a multiset."""
    rows: list[dict[str, Any]] = []
    for file in folder.glob(f"{stem}*"):
        if ".parquet" in file.name:
            rows += pq.read_table(file).to_pylist()
        elif ".json" in file.name:
            rows += [json.loads(line) for line in file.read_text().splitlines()]
        else:
            header, *lines = file.read_text().replace('"', "").splitlines()
            rows += [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    return Counter(json.dumps({k: _plain(v) for k, v in row.items()}, sort_keys=True) for row in rows)


def _plain(value: Any) -> Any:
    """Numbers alike, whether written 2 or 2.0; rows within late rows as they are."""
    if isinstance(value, str) and value.startswith("{"):
        return {k: _plain(v) for k, v in json.loads(value).items()}
    return float(value) if isinstance(value, int) else value


def compare(data: Path, text: str, *more: str) -> None:
    """Run a file under Beam YAML and under the embedded runner and compare all that is written."""
    file = data / "template.yaml"
    file.write_text(text)
    variables = {"dir": str(data), "window": "30ms", "providers": providers()}
    local.run(read_template(str(file), {**variables, "out": "ours"}))
    given = json.dumps({**variables, "out": "beam"})
    command = [sys.executable, "-m", "apache_beam.yaml.main", f"--yaml_pipeline_file={file}"]
    done = subprocess.run([*command, f"--jinja_variables={given}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for stem in ("joined", "late", *more):
        ours = rows_in(data / "ours", stem)
        assert ours, f"{stem} tests nothing"
        assert rows_in(data / "beam", stem) == ours


def test_parquet_in_order_of_arrival_and_in_shards(data: Path) -> None:
    compare(data, PARQUET)
    missed = [reconcile(data / out / "archive")["results"] for out in ("ours", "beam")]
    assert missed[0] == missed[1] > 0
    assert rows_in(data / "beam" / "archive", "reconciled") == rows_in(data / "ours" / "archive", "reconciled")


def test_csv_and_created_rows_with_a_missing_time_in_the_output_for_errors(data: Path) -> None:
    compare(data, CSV)


def test_json_to_counts_with_punctuations_and_metadata(data: Path) -> None:
    compare(data, COUNTS, "over")
    reasons = [json.loads(line)["reason"] for line in (data / "ours" / "late.jsonl").read_text().splitlines()]
    assert set(reasons) == {"too_late", "punctuation_violated"}
