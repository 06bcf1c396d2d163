"""Rows that cannot be read, from the files of a template to its late outputs, on every runner."""

import gzip

from cli_calls import call

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text


def test_check_lists_files_and_a_run_warns_of_those_it_skipped(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a-1.csv", "b.tsv", "_SUCCESS"):
        (tmp_path / "in" / name).write_text("ts,k,n\n1,x,1\n")
    mixed(tmp_path)
    path = tmp_path / "t.yaml"
    path.write_text(joined(tmp_path, f"{tmp_path}/in"))
    done = call("check", path)
    assert done.exit_code == 0, done.output
    assert "    files: 1: a-1.csv; skipped: _SUCCESS (hidden), b.tsv (another ending)" in done.stdout
    done = call("run", path)
    assert "in': skipped b.tsv, as only files that end in .csv or .csv.gz are read" in done.stderr


def joined(folder, path, more=""):
    return f"""
pipeline:
  transforms:
    - {{type: ReadFromCsv, name: A, config: {{path: "{path}", na_values: [NA], keep_default_na: false}}}}
    - {{type: ReadFromJson, name: B, config: {{path: "{folder}/b.jsonl.gz", schema: {{k: string}}}}}}
    - {{type: Filter, name: AF, input: A, config: {{keep: k <> 'y'}}}}
    - {{type: MapToFields, name: BM, input: B, config: {{append: true, fields: {{n: ts + 1}}}}}}
    - {{type: Flatten, name: F, input: [AF]}}
    - type: SlidingWindowJoin
      name: j
      input: {{a: AF, b: BM}}
      config: {{time: ts, window: 5ms, where: a.k = b.k{more}}}
    - {{type: Reorder, name: r, input: F, config: {{time: ts, arrival: n}}}}
    - {{type: WriteToJson, name: W, input: j, config: {{path: "{folder}/out"}}}}
    - {{type: WriteToJson, name: WR, input: r, config: {{path: "{folder}/sorted"}}}}
    - {{type: WriteToJson, name: L, input: j.late, config: {{path: "{folder}/late"}}}}
    - {{type: WriteToJson, name: LR, input: r.late, config: {{path: "{folder}/late-sorted"}}}}
"""


def mixed(folder):
    (folder / "a.csv").write_text('ts,k,n\n1,x,1\n2,007,2\n3\n4,y,4\nfive,x,5\n6,"a ""b""",6,7\n2,NA,7\n')
    bad = '{"ts": 2, "k": "\\ud800"}\nnope\n'
    (folder / "b.jsonl.gz").write_bytes(
        gzip.compress(f'{{"ts": 1, "k": "x"}}\n{bad}{{"ts": 2, "k": 7}}\n'.encode())
    )
    return read_template_text("t.yaml", joined(folder, f"{folder}/a.csv", ", shards: 2"))


def outcome(folder, summary):
    files = ("out", "sorted", "late", "late-sorted")
    found = [sorted((folder / f"{name}.jsonl").read_text().splitlines()) for name in files]
    return [line.replace(str(folder), "") for lines in found for line in lines], summary["late"], summary["input"]


def test_bad_rows_reach_the_late_output_on_every_runner(tmp_path, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam
    from slackwater.pipelines.runners.spark import runner as run_spark

    found = []
    for run, how in ((local.run, {}), (run_beam.run, {}), (run_spark.run, {"session": spark})):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        found.append(outcome(folder, run(mixed(folder), **how)))
    (rows, late, received), *others = found
    assert others == [(rows, late, received)] * 2
    assert late == {"bad_record": 3 + 2 + 3}
    assert received == {"j.a": 5, "j.b": 4, "r.input": 5}
    assert any('\\\\"raw\\\\": \\\\"3\\\\"' in line or '{\\"raw\\": \\"3\\"' in line for line in rows)
    assert sum("1 fields instead of 3" in line for line in rows) == 2
    assert sum("half a surrogate pair" in line for line in rows) == 1
