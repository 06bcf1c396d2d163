"""Templates that would hang, fill the memory or end in a raw exception: each is refused in time."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from template_texts import fault

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.bench.fuzz import templates as fuzz_templates
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.template.reader import TemplateError, read_template_text
from slackwater.pipelines.template.text import read_document

DEEP = "".join(f"{{% set {b} = [{', '.join([a] * 10)}] %}}" for a, b in pairwise("abcdefgh"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ 9**(9**9) }}", "make a whole number of more than 4096 bits"),
        ("{{ 10**600 * 10**700 }}", "make a whole number of more than 4096 bits"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
            "take so much time or space",
        ),
        (
            "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
            "take so much time or space",
        ),
        ("{{ 'x' * 10**9 }}", "take so much time or space"),
        ("{{ 10**9 * [1] }}", "take so much time or space"),
        (
            "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "take so much time or space",
        ),
        (
            "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "take so much time or space",
        ),
        ("{{ ('x' * 9999)|replace('x', 'y' * 9999) }}", "take so much time or space"),
        ("{{ ('x' * 9999).replace('x', 'y' * 9999) }}", "take so much time or space"),
        ("{{ range(9999)|join('x' * 9999) }}", "take so much time or space"),
        ("{% set a = [0] %}" + DEEP + "{{ h }}", "take so much time or space"),
        ("{{ 'x'|indent(10**9, true) }}", "indent by more than 1,000 characters"),
        ("{{ '%999999999d' % 3 }}", "format text with %"),
        ("{{ '{:999999999}'.format(3) }}", "access to attribute 'format' of 'str' object is unsafe"),
        ("{{ 'x'.center(10**9) }}", "access to attribute 'center' of 'str' object is unsafe"),
        ("{{ (2).to_bytes(10**9) }}", "access to attribute 'to_bytes' of 'int' object is unsafe"),
        ("{{ [[1], [2]]|sum(start=[]) }}", "add up what is no number"),
    ],
)
def test_jinja_works_within_bounds(text: str, expected: str) -> None:
    started = time.process_time()
    assert fault(f"a: |\n  {text}") == f"t.yaml:2: Jinja may not do this: {expected}; use plain variables"
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ lipsum(n=10**9) }}", "t.yaml:1: variable 'lipsum' is not set; add --set lipsum=VALUE"),
        ("{{ 'x'|center(10**9) }}", "t.yaml:1: is not valid Jinja: No filter named 'center'; mend it"),
        ("{{ [1]|batch(10**9, 0) }}", "t.yaml:1: is not valid Jinja: No filter named 'batch'; mend it"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "t.yaml: Jinja is nested too deeply; write it flatter"),
        (
            "{% set x = 'x' * 90000 %}{% for i in range(9) %}{{ x }}{% endfor %}",
            "t.yaml: Jinja may not do this: make a text of more than 400,000 characters; use plain variables",
        ),
        ("{{ 1 }}" * 3001, "t.yaml: has more than 3,000 expressions of Jinja; use a loop, or a file"),
    ],
)
def test_what_jinja_does_not_have(text: str, expected: str) -> None:
    assert fault(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% for i in [3, 1]|sort %}{{ loop.index }}/{{ loop.length }}:{{ i }},{% endfor %}", "1/2:1,2/2:3,"),
        ("{{ 'a-b'|replace('-', '_') ~ 'c' ~ 1 }}", "a_bc1"),
        ("{{ [1, 2]|join(', ') }} {{ [1, 2]|sum }} {{ [1] * 2 }} {{ 2**9 }}", "1, 2 3 [1, 1] 512"),
        ("{{ 'x'.replace('x', 'y').upper() }}{{ '-'.join(['a', 'b']) }}", "Ya-b"),
        ("{{ [{'a': 1}]|map(attribute='a')|list }} {{ u|default(4) }}", "[1] 4"),
        ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
    ],
)
def test_what_templates_do_with_jinja_goes_on_working(text: str, expected: str) -> None:
    from slackwater.pipelines.template.jinja import Environment

    environment = Environment()
    assert environment.rendered(environment.parse(text), {}, len(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a:\n  b: 2024-02-30",
            "t.yaml:2: a.b: '2024-02-30' is no timestamp (day is out of range for month); mend",
        ),
        (
            "a: !!int x",
            "t.yaml:1: a: 'x' is no int (invalid literal for int() with base 10: 'x'); mend it, or put it",
        ),
        ("a: !!float x", "t.yaml:1: a: 'x' is no float (could not convert string to float: 'x'); mend it"),
        ("a: " + "9" * 5000, f"t.yaml:1: a: '{'9' * 40}…' is no int (Exceeds the limit"),
        ("? [1, 2]\n: 3", "t.yaml:1: key a list or mapping is not text; put it in quotes"),
        ("? 2024-02-30\n: 3", "t.yaml:1: '2024-02-30' is no timestamp"),
        ("a: {<<: 3}", "t.yaml:1: a: << takes a mapping, or a list of them; give it one"),
        ("pipeline: {transforms: [{type: {a: 1}}]}", "t.yaml:1: pipeline.transforms.0.type: no transform named"),
    ],
)
def test_values_that_yaml_cannot_read(text: str, expected: str) -> None:
    assert fault(text).startswith(expected)


def test_merged_mappings_do_not_explode_and_own_keys_win() -> None:
    lines = ["a: &a {x: 1, y: 2}"]
    lines += [f"{c}: &{c} {{<<: [{', '.join(['*' + p] * 10)}], {c}: 1}}" for p, c in pairwise("abcdefghijkl")]
    lines += ["z: {<<: [{x: 5, q: 6}, *a], y: 7}"]
    value = read_document("t.yaml", "\n".join(lines), {}).value
    assert value["l"].keys() == {"x", "y", *"bcdefghijkl"}
    assert value["z"] == {"x": 5, "q": 6, "y": 7}


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1])
def test_whole_numbers_that_64_bits_cannot_hold(number: int) -> None:
    text = (
        f"pipeline: {{transforms: [{{type: Create, config: {{elements: [{{a: 1, x: {number}}}, {{x: -1}}]}}}}]}}"
    )
    with pytest.raises(TemplateError, match=r"Create: .*column 'x'"):
        assemble(read_template_text("t.yaml", text), lambda node: source_schema(node.config))


def _check(text: str) -> float:
    started = time.process_time()
    assemble(read_template_text("t.yaml", text), lambda node: source_schema(node.config))
    return time.process_time() - started


def test_many_transforms_take_linear_time() -> None:
    def template(n: int) -> str:
        line = "    - {{type: {}, name: {}{}, {} config: {{{}}}}}\n"
        text = "pipeline:\n  transforms:\n"
        for i in range(n):
            text += line.format("Create", "c", i, "", "elements: [{x: 1}]")
            text += line.format("Flatten", "f", i, f"input: [c{i}],", "")
            text += line.format("WriteToJson", "w", i, f"input: f{i},", f"path: /nowhere/{i}")
        return text

    _check(template(2))
    small, large = _check(template(50)), _check(template(500))
    assert large < 30 * small, "ten times as many, and not a hundred times as long"


def test_long_chains_and_diamonds_are_assembled() -> None:
    chain = "\n".join(f"    - {{type: Flatten, name: f{i}, input: [f{i - 1}]}}" for i in range(1, 600))
    diamonds = "\n".join(
        f"    - {{type: Flatten, name: a{i}, input: [b{i - 1}]}}\n"
        f"    - {{type: Flatten, name: c{i}, input: [b{i - 1}]}}\n"
        f"    - {{type: Flatten, name: b{i}, input: [a{i}, c{i}]}}"
        for i in range(1, 40)
    )
    head = "pipeline:\n  transforms:\n    - {type: Create, name: f0, config: {elements: [{x: 1, ts: 1}]}}\n"
    middle = "    - {type: Flatten, name: b0, input: [f599]}\n"
    tail = "\n    - {type: Reorder, name: r, input: b39, config: {time: ts, arrival: x}}"
    assert _check(f"{head}{chain}\n{middle}{diamonds}{tail}") < 10


def test_mutated_templates_pass_or_are_refused() -> None:
    """A part of ``slackwater bench fuzz_templates``."""
    found = fuzz_templates.fuzz(150, 4)
    assert found.keys() == {"passes", "refused"}, found
