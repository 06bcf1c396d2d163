"""The runner contract: whatever runs a template, its results, late rows and accounts are the same.

Cases are in ``support/runner_cases``, one module for each concern, and the one way to run and compare them is in
``support/runner_contract.py``. The embedded runner comes first; what a case must show holds of every runner.
"""

import json
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from runner_cases import CASES, algorithms, joins, promises, strategies, templates
from runner_contract import BEAM, SPARK, lines_in

from slackwater.pipelines.template.reader import shipped
from slackwater.pipelines.template.text import providers
from slackwater.plugins.registry.manager import manager

MARKS = {
    **dict.fromkeys((*BEAM, "DirectRunner"), pytest.mark.beam),
    **dict.fromkeys(SPARK, pytest.mark.spark),
    "beam-spark": pytest.mark.beam_spark,
    "local": pytest.mark.embedded,
}
RUNS = [
    pytest.param(name, runner, id=f"{name}-{runner}", marks=MARKS.get(runner, ()))
    for name, case in CASES.items()
    for runner in ("local", *case.runners)
]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """Runs a case on the embedded runner, once, over data of its own."""

    @cache
    def run(name):
        data = tmp_path_factory.mktemp(name.replace(" ", "-"))
        CASES[name].write(data)
        return CASES[name].run("local", data)

    return run


# Workers of a job that has ended find their channels closed, and say so from their threads.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("name", "runner"), RUNS)
def test_a_runner_gives_what_the_embedded_one_gives(name, runner, embedded, request):
    case, expected = CASES[name], embedded(name)
    if runner != "local":
        session = request.getfixturevalue("spark") if runner in SPARK else None
        case.compare(case.run(runner, expected.data, session), expected)


def test_every_built_in_strategy_is_a_case():
    tested = {
        "disorder": set(strategies.DISORDER),
        "shedding": {"none", *strategies.shedding(1)},
        "join": {"mswj", *joins.JOINS, *(join.strategy for join in promises.JOINS.values())},
    }
    for stage, names in tested.items():
        assert {p.strategy.name for p in manager().strategies(stage) if p.plugin == "builtin"} == names


def test_the_cases_of_the_reference_show_the_differences():
    """Too little slack loses results and makes rows late, enough does not: no case is there for nothing."""
    truth = algorithms.truth()
    for m, kind, order in product((2, 3, 4), ("equi", "theta"), algorithms.ORDERS):
        joined = [algorithms.Join(m, kind, slack, order) for slack in algorithms.SLACKS[order]]
        none, fixed, enough, most = map(truth.get, joined)
        assert none.results < fixed.results < enough.results
        assert none.results < most.results < enough.results
        assert most.results != fixed.results
        assert none.late and fixed.late and most.late and not enough.late
    for table in algorithms.streams():
        ts = table["ts"].to_numpy()
        assert len(set(ts)) < algorithms.ROWS and 40 < (np.maximum.accumulate(ts) - ts).max() < 100


@pytest.mark.spark
def test_functions_of_spark_give_what_the_template_gives(embedded, spark):
    from slackwater.transforms.spark import punctuate, shed

    expected = embedded("sheds")
    bids, items = (spark.read.parquet(str(expected.data / f"{name}.parquet")) for name in ("bids", "items"))
    limits = {"time": "ts", "arrival": "at", "rate": 400, "queue": 20}
    wanted = shed(bids, items, **limits, where="rows.item = partners.item", shedding={"strategy": "prob"})
    assert wanted.late.count() == len(expected.files["dropped.jsonl"])
    told = punctuate(wanted.results, time="ts", arrival="at", when="kind = 'closed'", key="item", ordered="day",
                     progress="100ms", disorder={"strategy": "fixed", "slack": "30ms"})  # fmt: skip
    rows = [row.asDict() for row in told.punctuations.collect()]
    assert sorted(map(json.dumps, rows)) == sorted(map(json.dumps, expected.rows("told.jsonl")))


@pytest.mark.beam
@pytest.mark.parametrize("name", shipped())
def test_under_beams_own_yaml_runner_unchanged(embedded, name, tmp_path):
    file = Path(providers()).parent / f"{name}.yaml"
    compare_beam_yaml(embedded("templates"), name, file, tmp_path)


@pytest.mark.beam
def test_a_copy_elsewhere_is_told_where_the_providers_are(embedded, tmp_path):
    copy = tmp_path / "mine.yaml"
    copy.write_text(shipped()["demo"])
    compare_beam_yaml(embedded("templates"), "demo", copy, tmp_path, providers=providers())


def compare_beam_yaml(expected, name, file, folder, **more):
    from apache_beam.yaml import main

    given = json.dumps({**templates.variables(expected.data, folder / "out" / name), **more})
    main.run([f"--yaml_pipeline_file={file}", f"--jinja_variables={given}", "--runner=FnApiRunner"])
    found = lines_in(folder / "out", plain=True)
    wanted = {output: lines for output, lines in expected.files.items() if output.startswith(f"{name}/")}
    assert wanted and set(found) <= set(wanted)
    for output, lines in wanted.items():
        assert sorted(found.get(output, [])) == sorted(lines), output
