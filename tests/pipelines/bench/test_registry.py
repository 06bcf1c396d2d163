"""The list of benchmarks: common options, a small run of each, and one way to report."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pytest
from cli_calls import call
from plotly.graph_objects import Figure

from slackwater.pipelines.bench import benchmark, registry, report
from slackwater.pipelines.bench.benchmark import Benchmark, option, rows
from slackwater.pipelines.bench.registry import BENCHMARKS, run_bench
from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.transforms.errors import SlackwaterError

CHEAP = {
    "local": ("--rows", "4000", "--reference-rows", "1000"),
    "reconcile": ("--rows", "4000"),
    "aggregate": ("--rows", "4000"),
    "group_close": ("--rows", "4000"),
    "disorder": ("--rows", "1500", "--strategies", "none", "--recall", "0.9"),
    "quality_driven": (
        "--rows",
        "7200",
    ),
    "drop_ratio": ("--rows", "250", "--long-rows", "500", "--speed-rows", "5000"),
    "fuzz_templates": ("--rows", "5"),
    "fuzz_snapshots": ("--rows", "5"),
    "fuzz": ("--rows", "5", "--cases", "2"),
}
"""Benchmarks that need no Java, no Beam and no minutes, and what makes them smaller still."""


def test_the_command_lists_all_benchmarks() -> None:
    listed = call("bench")
    assert listed.exit_code == 0
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)
    assert all(
        each.purpose in line and each.takes in line for each, line in zip(BENCHMARKS.values(), lines, strict=True)
    )
    assert "--rows N" in call("bench", "--help").stdout


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_the_common_options_and_a_function(name: str, tmp_path: Path) -> None:
    each = BENCHMARKS[name]
    options = each.parse(["--rows", "7", "--seed", "3", "--out", str(tmp_path), "--quick"])
    assert options.rows in (7, [7])
    assert (options.seed, options.out, options.quick) == (3, tmp_path, True)
    assert callable(each.load())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_quick_makes_it_smaller(name: str) -> None:
    """Sections have small arguments of their own; all others become smaller by their options."""
    each = BENCHMARKS[name]
    if name in ("joins", "shedding"):
        sections = __import__(f"slackwater.pipelines.bench.{name}.papers", fromlist=["SECTIONS"]).SECTIONS
        assert all(section.quick for section in sections.values())
        return
    usual, quick = (vars(each.parse(arguments)) for arguments in ([], ["--quick"]))
    assert each.quick.keys() <= usual.keys()
    assert all(quick[key] == value != usual[key] for key, value in each.quick.items())
    assert "rows" in each.quick


@pytest.mark.parametrize("name", CHEAP)
def test_a_small_run_writes_its_tables(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_bench(name, "--quick", *CHEAP[name], "--out", str(tmp_path))
    files = sorted(tmp_path.glob("*.csv"))
    assert tmp_path / f"{name}.csv" in files
    for file in files:
        with file.open(newline="", encoding="utf-8") as stream:
            headings, *lines = csv.reader(stream)
        assert len(set(headings)) == len(headings) > 1
        assert lines and all(len(line) == len(headings) for line in lines)
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8").count("| --") >= len(files)
    assert headings[0] in capfd.readouterr().out


def test_what_is_given_goes_before_what_quick_asks_for() -> None:
    assert BENCHMARKS["local"].parse(["--quick", "--repeat", "2"]).repeat == 2
    assert BENCHMARKS["local"].parse(["--quick"]).repeat == 1
    assert BENCHMARKS["local"].parse([]).repeat == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", "0"), "--rows: must be at least 1, got 0."),
        (("--rows", "many"), "--rows: must be a whole number, got 'many'."),
        (("--out", __file__), "is not a folder. Name a folder, or one to be made."),
        (
            ("--out", "/no/such/folder/x.md"),
            "--out: there is no folder /no/such/folder; make it, or name another",
        ),
        (("--quik",), "unrecognized arguments: --quik"),
    ],
)
def test_bad_options_are_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run_bench("local", *arguments)
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_unknown_benchmark_and_a_missing_package_are_told() -> None:
    with pytest.raises(SlackwaterError, match="no benchmark named 'speed'; known are local: "):
        run_bench("speed")
    lacking = Benchmark("x", "nothing", "0 s", "local.memory:run", rows(1, "rows"), needs=("no_such_module",))
    fault = (
        "bench x needs the package no_such_module, which is not installed; install it with: pip install no_such"
    )
    with pytest.raises(SlackwaterError, match=fault):
        lacking.load()


def reporting(options: argparse.Namespace, report: Report) -> None:
    table = Table("case", Column("share", ".1%", "share_of_all"), "rows", "met", title="One", name="one")
    table.add("a", 0.12345, 12_345, True)
    table.add("b", None, options.rows, False, bold=True)
    report.add(table)
    report.add(Table.of({"speed": 1.23456, "seed": options.seed}))
    report.plot(lambda: [Figure(), Figure()])
    report.say("done")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark from outside: a function and one line."""
    toy = Benchmark("toy", "itself", "0 s", "toy:run", rows(9, "rows"), options=(option("--more", default=1),))
    monkeypatch.setattr(benchmark.Benchmark, "load", lambda self: reporting)
    monkeypatch.setitem(registry.BENCHMARKS, "toy", toy)


@pytest.mark.usefixtures("toy")
def test_tables_are_printed_and_written_and_plots_need_no_network(tmp_path: Path) -> None:
    done = call("bench", "toy", "--rows", "5", "--out", tmp_path / "made")
    assert done.exit_code == 0, done.output
    for text in ("One", "12.3%", "12,345", "yes", "NO", "1.23", "done"):
        assert text in done.stdout
    assert "1.23456" not in done.stdout
    assert (tmp_path / "made" / "toy_one.csv").read_text() == (
        "case,share_of_all,rows,met\na,0.12345,12345,True\nb,,5,False\n"
    )
    assert (tmp_path / "made" / "toy.csv").read_text() == "figure,value\nspeed,1.23456\nseed,1\n"
    text = (tmp_path / "made" / "toy.md").read_text()
    assert (
        "## One\n\n| case | share | rows | met |\n| ---- | ----- | ---- | --- |\n| a | 12.3% | 12,345 | yes |"
        in text
    )
    page = (tmp_path / "made" / "toy.html").read_text()
    assert page.count('class="plotly-graph-div"') == 2
    assert "<script src=" not in page


@pytest.mark.usefixtures("toy")
def test_a_markdown_file_has_the_tables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("bench", "toy", "--out", tmp_path / "toy.md")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "toy.md").read_text().startswith("# slackwater bench toy\n\n## One\n\n| case | share |")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.md"]
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    done = call("bench", "toy", "--out", tmp_path / "more")
    assert "no plots: they need plotly; install it with: pip install 'slackwater[report]'" in done.stderr
    assert not list((tmp_path / "more").glob("*.html"))


def test_a_row_has_a_value_for_every_column() -> None:
    with pytest.raises(ValueError, match="1 values for 2 columns"):
        Table("a", "b").add(1)
