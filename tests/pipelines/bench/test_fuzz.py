"""``slackwater bench fuzz``: its truths agree, it notices what is wrong, and a part of it finds nothing."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.bench.fuzz import joins as fuzz
from slackwater.pipelines.bench.fuzz.cases import make_case
from slackwater.pipelines.bench.fuzz.judge import Verdict, judge
from slackwater.pipelines.bench.fuzz.truth import by_duckdb, by_trial, duckdb_can, is_meaningless
from slackwater.pipelines.bench.registry import run_bench
from slackwater.pipelines.io.sink_files import sink_file
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Write
from slackwater.transforms.expressions.tree import Col, columns

SEED = 18


def test_duckdb_and_exact_arithmetic_agree_where_both_can_tell():
    results = 0
    cases = [make_case(SEED, number, rows=20) for number in range(300)]
    asked = [case for case in cases if duckdb_can(case) and not is_meaningless(case)]
    for case in asked:
        found = by_duckdb(case, {})
        assert found == by_trial(case, {}), f"case {case.number}: {case.config}"
        results += sum(found.values())
    assert len(asked) > 50
    assert results > 1000


def test_duckdb_is_not_given_columns_that_it_cannot_read():
    case = make_case(11, 39)
    halves = [Col(i.name, c.name) for i in case.inputs for c in i.columns if c.type == pa.float16()]
    assert set(halves) & set(columns(case.tree)), "the condition tests a half float for null"
    assert judge(case, local.run).by == "exact"


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        pytest.param(103, 382, id="NUL in a large result file"),
        pytest.param(103, 756, id="text with bytes"),
        pytest.param(107, 1721, id="texts of digits alone"),
    ],
)
def test_a_case_that_was_judged_wrongly_holds(seed, number):
    verdict = judge(make_case(seed, number), local.run)
    assert (verdict.kind, verdict.text) == ("joined", "")


def test_a_case_is_the_same_every_time(tmp_path):
    one, other = (make_case(SEED, 3) for _ in range(2))
    assert one.template(tmp_path) == other.template(tmp_path)
    assert [i.table for i in one.inputs] == [i.table for i in other.inputs]
    assert make_case(SEED + 1, 3).template(tmp_path) != one.template(tmp_path)


def _plain_case():
    """A case with results in Parquet that the embedded runner gets right."""
    for number in range(200):
        case = make_case(SEED, number, rows=20)
        if case.sink == "WriteToParquet" and not case.counts:
            verdict = judge(case, local.run)
            if verdict.kind == "joined" and verdict.results > 3 and not verdict.late:
                return case
    raise AssertionError("no such case")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda table: table.slice(1), "is missing and none of its rows is late"),
        (lambda table: table.take([0, *range(len(table))]), "results are wrong"),
        (lambda table: table.set_column(0, "a_id", table["a_id"].take([*range(len(table))][::-1])), "results"),
    ],
)
def test_a_wrong_result_is_a_finding(spoil, said):
    def run(pipeline):
        summary = local.run(pipeline)
        (file,) = [
            sink_file(n.config) for n in pipeline.nodes if isinstance(n.config, Write) and n.name == "Results"
        ]
        pq.write_table(spoil(pq.read_table(file)), file)
        return summary

    verdict = judge(_plain_case(), run)
    assert verdict.kind == "finding"
    assert said in verdict.text


def test_a_raw_exception_is_a_finding():
    def run(pipeline):
        raise ZeroDivisionError("by nothing")

    assert judge(make_case(SEED, 0), run).text == "raw ZeroDivisionError: by nothing"


def test_rows_that_are_not_accounted_for_are_a_finding():
    def run(pipeline):
        summary = local.run(pipeline)
        summary["input"] = dict.fromkeys(summary["input"], 0)
        return summary

    assert "the summary says" in judge(_plain_case(), run).text


def test_a_case_that_hangs_is_a_finding():
    def run(pipeline):
        while True:
            pass

    assert fuzz.judged(SEED, 0, run, 10, seconds=1) == Verdict("finding", "the case takes more than 1 s")


def test_joins_of_the_embedded_runner_hold():
    tally = fuzz.Tally()
    for number in range(120):
        tally.add(number, fuzz.judged(SEED, number, local.run, 40))
    assert tally.findings == []
    assert tally.kinds["joined"] > 80
    assert tally.with_results > 50
    assert set(tally.truths) >= {"duckdb", "exact"}


def test_the_command_reports(capsys):
    run_bench("fuzz", "--cases", "3", "--seed", str(SEED), "--rows", "10")
    out = capsys.readouterr().out
    assert out.startswith("3 joins")
    assert "0 findings" in out


@pytest.mark.spark
def test_joins_on_spark_hold(spark):
    from slackwater.pipelines.runners.spark import runner as run_spark

    _holds(lambda pipeline: run_spark.run(pipeline, session=spark), range(3))


@pytest.mark.beam
def test_joins_on_beam_hold():
    from slackwater.pipelines.runners.beam import runner as run_beam

    _holds(run_beam.run, range(12))


def _holds(run, numbers):
    verdicts = [fuzz.judged(SEED, number, run, 20, seconds=120) for number in numbers]
    assert [v.text for v in verdicts if v.kind == "finding"] == []
    assert Counter(v.kind for v in verdicts)["joined"] > len(verdicts) // 2
