"""Templates that are wrong, as far as that shows without their data: the message for every fault."""

from itertools import pairwise

import pytest
from template_texts import CREATE, CREATE_B, JOIN, VARIABLES, fault, transforms

from slackwater.pipelines.template import text as template_text

# --- faults of the text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "t.yaml:1: is empty; write a pipeline: with its transforms:"),
        ("a: [1", "t.yaml:1: is not valid YAML: while parsing a flow sequence expected"),
        ("a: 1\nb: \x01", "t.yaml:2: has a character that YAML forbids (#x0001); remove it"),
        ("a: 1\na: 2", "t.yaml:2: key 'a' is given twice (first in line 1); keep one"),
        ("on: 1", "t.yaml:1: key 'on' is not text; put it in quotes"),
        ("a: &x [*x]", "t.yaml:1: a.0: an alias contains itself; remove it"),
        ("a: !!python/object:os.system x", "t.yaml:1: is not valid YAML: could not determine a constructor"),
        ("\na: {{ gone }}", "t.yaml:2: variable 'gone' is not set; add --set gone=VALUE"),
        ("\n\na: {{ gone.x }}", "t.yaml:3: variable 'gone' is not set; add --set gone=VALUE"),
        ("\na: {% nope %}", "t.yaml:2: is not valid Jinja: Encountered unknown tag 'nope'; mend it"),
        ("a: {{ 1 / 0 }}", "t.yaml:1: Jinja failed: division by zero; mend the expression"),
        ("a: {{ ''.__class__.__mro__ }}", "t.yaml:1: Jinja may not do this: access to attribute '__class__'"),
        ("[" * 600, "t.yaml: is nested too deeply; write it flatter"),
    ],
)
def test_faults_of_the_text(text: str, expected: str) -> None:
    assert fault(text).startswith(expected)


def test_aliases_that_explode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_text, "MAX_VALUES", 1000)
    lines = ["- &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"- &{c} [{', '.join(['*' + p] * 10)}]" for p, c in pairwise("abcdefghij")]
    assert "holds more than 1000 values; put rows into a file" in fault("\n".join(lines))


# --- faults of the structure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- 1", "t.yaml:1: must be a mapping with pipeline, providers, options, tests, got [1]"),
        ("options: {}", "t.yaml:1: has no pipeline; add pipeline: with its transforms:"),
        ("pipelin: {}", "t.yaml:1: pipelin: is not known here; known: pipeline, providers, options, tests"),
        ("pipeline: {}\noptions: 1", "t.yaml:2: options: must be a mapping of option: value"),
        ("pipeline: {}", "t.yaml:1: pipeline: has no transforms; add some"),
        ("pipeline: []", "t.yaml:1: pipeline: must be a mapping with type, transforms, source, sink"),
        ("pipeline:\n  type: tree", "t.yaml:2: pipeline.type: must be chain or composite, got 'tree'"),
        ("pipeline:\n  transforms: 1", "t.yaml:2: pipeline.transforms: must be a list of transforms"),
        (
            "pipeline: {windowing: {type: fixed}}",
            "t.yaml:1: pipeline.windowing: is not supported: joins have windows",
        ),
        (transforms("{name: A}"), "t.yaml:4: pipeline.transforms.0: has no type; add one of ReadFromParquet"),
        (
            transforms("{type: Slide}"),
            "t.yaml:4: pipeline.transforms.0.type: no transform named 'Slide'; known: ReadFromParquet",
        ),
        (transforms("{type: chain}"), "t.yaml:4: pipeline.transforms.0.type: chain within a pipeline is not"),
        (
            transforms("{type: Create, nam: A}"),
            "t.yaml:4: pipeline.transforms.0.nam: is not known here; known: type",
        ),
        (transforms("{type: Create, name: 5}"), "t.yaml:4: pipeline.transforms.0.name: must be text, got 5"),
        (transforms("{type: Create, output: x}"), "t.yaml:4: pipeline.transforms.0.output: is not supported"),
        (
            transforms("{type: Create, windowing: {}}"),
            "t.yaml:4: pipeline.transforms.0.windowing: is not supported",
        ),
        (
            transforms("{type: Create, config: 1}"),
            "t.yaml:4: Create.config: must be a mapping of setting: value, got 1",
        ),
        (
            transforms(CREATE, CREATE),
            "t.yaml:5: pipeline.transforms.1.name: two transforms are named 'A' (the first in line 4);",
        ),
        (transforms("{type: Create, input: A}"), "t.yaml:4: Create.input: takes no input; remove it"),
        (
            transforms("{type: Filter, config: {keep: a}}"),
            "t.yaml:4: Filter.input: has no input; add input: with",
        ),
        (
            transforms(CREATE, "{type: Filter, input: B, config: {keep: x}}"),
            "t.yaml:5: Filter.input: no transform named 'B'; there are A, Filter. Check the name.",
        ),
        (
            transforms(CREATE, "{type: Filter, input: 5}"),
            "t.yaml:5: Filter.input: must be the name of a transform, got 5",
        ),
        (
            transforms(CREATE, CREATE_B, "{type: Filter, input: [A, B]}"),
            "t.yaml:6: Filter.input: takes one transform, not several; put them together with Flatten",
        ),
        (
            transforms(CREATE, CREATE_B, "{type: Filter, input: Create}"),
            "t.yaml:6: Filter.input: several transforms are a Create; name them and say which",
        ),
        (
            transforms(CREATE, "{type: Filter, input: A.late, config: {keep: x}}"),
            "t.yaml:5: Filter.input: 'A' has no output 'late'; it has A",
        ),
        (
            transforms(
                CREATE, "{type: WriteToCsv, input: A, config: {path: o}}", "{type: Filter, input: WriteToCsv}"
            ),
            "t.yaml:6: Filter.input: 'WriteToCsv' writes files and passes no rows on; read before it",
        ),
        (
            transforms(
                "{type: Filter, name: F, input: G, config: {keep: x}}",
                "{type: Filter, name: G, input: F, config: {keep: x}}",
            ),
            "t.yaml:4: F.input: reads from itself: F ← G ← F; break the loop",
        ),
        (
            transforms(CREATE, "{type: Filter, input: A}", kind="chain"),
            "t.yaml:5: pipeline.transforms.1.input: transforms of a chain read from the one before; remove",
        ),
        (
            transforms(CREATE, CREATE_B, kind="chain"),
            "t.yaml:5: B.input: takes no input, so it cannot follow 'A'",
        ),
        (
            transforms(CREATE, "{type: SlidingWindowJoin, config: {}}", kind="chain"),
            "t.yaml:5: SlidingWindowJoin.input: joins several inputs, which a chain cannot; use type",
        ),
        (
            transforms(CREATE, "{type: SlidingWindowJoin, name: j, input: A}"),
            "t.yaml:5: j.input: must be 2 to 8 inputs as {name: transform, …}",
        ),
        (
            transforms(CREATE, "{type: SlidingWindowJoin, name: j, input: {a: A}}"),
            "t.yaml:5: j.input: needs 2 to 8 inputs, got 1",
        ),
        (
            transforms(CREATE, CREATE_B, "{type: SlidingWindowJoin, name: j, input: {a: A, a: B}}"),
            "t.yaml:6: pipeline.transforms.2.input: key 'a' is given twice (first in line 6); keep one",
        ),
    ],
)
def test_faults_of_the_structure(text: str, expected: str) -> None:
    assert fault(text).startswith(expected)


def test_a_join_has_three_other_outputs() -> None:
    text = JOIN.replace("joined.late", "joined.lat")
    assert fault(text, **VARIABLES).endswith(
        "'joined' has no output 'lat'; it has joined, joined.late, joined.punctuations, joined.metrics"
    )


# --- faults of the settings


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            "{path: x, pth: y}",
            "t.yaml:4: ReadFromCsv.pth: is not a setting; known settings: path, "
            "schema, dtype, delimiter, null_values, na_values, keep_default_na; did you mean path?",
        ),
        ("{}", "t.yaml:4: ReadFromCsv.path: is missing; add it"),
        ("{path: 5}", "t.yaml:4: ReadFromCsv.path: input should be a valid string, got 5"),
    ],
)
def test_faults_of_a_source(config: str, expected: str) -> None:
    assert fault(transforms(f"{{type: ReadFromCsv, config: {config}}}")) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            "{keep: {callable: 'lambda r: True'}}",
            "Filter.keep.callable: would run code, and templates are data; write",
        ),
        ("{keep: {path: f.py, name: f}}", "Filter.keep.path: would run code, and templates are data; write"),
        (
            "{keep: {expresion: a}}",
            "Filter.keep.expresion: is not a setting; known settings: expression, output_type",
        ),
        ("{keep: {expression: a >}}", "Filter.keep.expression: cannot read 'a >'"),
        (
            "{keep: a, language: javascript}",
            "Filter.language: must be generic, sql or python, got 'javascript'",
        ),
        (
            "{keep: a, dependencies: [x]}",
            "Filter.dependencies: would install code, and templates are data; remove it",
        ),
        ("{keep: upper(a) > 1}", "Filter.keep: 'UPPER(a)' is not supported; supported are columns"),
        ("{keep: [1]}", "Filter.keep: input should be a valid string, got [1]"),
        ("{kep: a}", "Filter.kep: is not a setting; known settings: keep, language"),
    ],
)
def test_faults_of_a_filter(config: str, expected: str) -> None:
    text = transforms(CREATE, f"{{type: Filter, input: A, config: {config}}}")
    assert fault(text).startswith(f"t.yaml:5: {expected}")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{}", "MapToFields.fields: names no column; add new_column: expression"),
        (
            "{fields: {a: x}, drop: x}",
            "MapToFields.drop: works with append: true only; add that, or remove drop",
        ),
        ("{fields: {a: {callable: f}}}", "MapToFields.fields.a.callable: would run code"),
        ("{fields: {a: 'x +'}}", "MapToFields.fields.a: cannot read 'x +'"),
        ("{fields: {a: x}, append: maybe}", "MapToFields.append: input should be a valid boolean"),
    ],
)
def test_faults_of_map_to_fields(config: str, expected: str) -> None:
    text = transforms(CREATE, f"{{type: MapToFields, input: A, config: {config}}}")
    assert fault(text).startswith(f"t.yaml:5: {expected}")
