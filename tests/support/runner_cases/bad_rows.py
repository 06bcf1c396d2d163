"""Rows that cannot be read, from the files of a template to its late outputs."""

import gzip

from runner_contract import BEAM, SPARK, Case

from slackwater.pipelines.template.reader import read_template_text

TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromCsv, name: A, config: {path: "%(dir)s/a.csv", na_values: [NA], keep_default_na: false}}
    - {type: ReadFromJson, name: B, config: {path: "%(dir)s/b.jsonl.gz", schema: {k: string}}}
    - {type: Filter, name: AF, input: A, config: {keep: k <> 'y'}}
    - {type: MapToFields, name: BM, input: B, config: {append: true, fields: {n: ts + 1}}}
    - {type: Flatten, name: F, input: [AF]}
    - type: SlidingWindowJoin
      name: j
      input: {a: AF, b: BM}
      config: {time: ts, window: 5ms, where: a.k = b.k, shards: 2}
    - {type: Reorder, name: r, input: F, config: {time: ts, arrival: n}}
    - {type: WriteToJson, name: W, input: j, config: {path: "%(out)s/out"}}
    - {type: WriteToJson, name: WR, input: r, config: {path: "%(out)s/sorted"}}
    - {type: WriteToJson, name: L, input: j.late, config: {path: "%(out)s/late"}}
    - {type: WriteToJson, name: LR, input: r.late, config: {path: "%(out)s/late-sorted"}}
"""


def write(folder):
    (folder / "a.csv").write_text('ts,k,n\n1,x,1\n2,007,2\n3\n4,y,4\nfive,x,5\n6,"a ""b""",6,7\n2,NA,7\n')
    bad = '{"ts": 2, "k": "\\ud800"}\nnope\n'
    lines = f'{{"ts": 1, "k": "x"}}\n{bad}{{"ts": 2, "k": 7}}\n'
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def build(data, out, parts):
    return read_template_text("t.yaml", TEMPLATE % {"dir": data, "out": out})


def check(ran):
    assert ran.joins["j"]["late"]["bad_record"] + ran.joins["r"]["late"]["bad_record"] == 3 + 2 + 3
    assert (ran.joins["j"]["input"], ran.joins["r"]["input"]) == ({"a": 5, "b": 4}, {"input": 5})
    assert all(set(join["late"]) == {"bad_record"} for join in ran.joins.values())
    rows = [line for lines in ran.files.values() for line in lines]
    assert any('\\\\"raw\\\\": \\\\"3\\\\"' in line or '{\\"raw\\": \\"3\\"' in line for line in rows)
    assert sum("1 fields instead of 3" in line for line in rows) == 2
    assert sum("half a surrogate pair" in line for line in rows) == 1


CASES = [Case("bad rows", write, build, check, dict.fromkeys((BEAM[0], SPARK[1])))]
