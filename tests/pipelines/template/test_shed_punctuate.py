"""Shed and Punctuate in templates: what is refused, where they stand, and what ``check`` says of them."""

import pytest
from cli_calls import call

from slackwater.pipelines.template.reader import read_template_text

WRONG = [
    ("{type: Shed, input: A, config: {time: ts, rate: 1, error_handling: {output: bad}}}",
     r"t.yaml:\d+: Shed.error_handling: nothing reads Shed.bad; write it to a file, or leave this out"),
    ("{type: Shed, input: {rows: A, other: A}, config: {time: ts, rate: 1}}",
     r"Shed.input: must be a transform, or {rows: transform, partners: transform}"),
    ("{type: Shed, config: {time: ts, rate: 1}}", "Shed.input: has no input; add input: with the name"),
    ("{type: Punctuate, input: A, config: {time: ts, progress: x}}", "Punctuate.progress: must be a duration"),
    ("{type: Filter, input: A.late, config: {keep: x > 1}}", "'A' has no output 'late'"),
    ("{type: Filter, input: told.late, config: {keep: x > 1}}", "'told' has no output 'late'; it has told, "),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), WRONG)
def test_a_wrong_template_is_refused(node, message):
    text = f"""
pipeline:
  transforms:
    - {{type: Create, name: A, config: {{elements: [{{ts: 1, x: 2}}]}}}}
    - {{type: Punctuate, name: told, input: A, config: {{time: ts, unique: x, error_handling: {{output: bad}}}}}}
    - {{type: WriteToJson, name: Bad, input: told.bad, config: {{path: out/bad}}}}
    - {node}
"""
    with pytest.raises(Exception, match=message.replace("{", r"\{")):
        read_template_text("t.yaml", text)


CHAIN = """
pipeline:
  type: chain
  transforms:
    - {type: Create, config: {elements: [{ts: 1, x: 2}]}}
    - {type: Shed, config: {time: ts, rate: 10}}
    - {type: Punctuate, config: {time: ts, unique: x}}
    - {type: WriteToJson, config: {path: out}}
"""


def test_both_stand_in_chains():
    assert [node.type for node in read_template_text("t.yaml", CHAIN).nodes][1:3] == ["Shed", "Punctuate"]


def test_check_shows_what_is_shed_and_said(tmp_path):
    (tmp_path / "t.yaml").write_text(CHAIN)
    done = call("check", tmp_path / "t.yaml")
    assert done.exit_code == 0, done.output
    for line in ("time: rows.ts (in ms)", "shedding: random (", "disorder: max", "punctuations: ts, pattern, x"):
        assert line in done.output
