"""The command line: what it prints, what it exits with, and what it loads."""

import datetime as dt
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call, edit, write_template

from slackwater.pipelines.cli import commands as cli
from slackwater.pipelines.cli import tables as cli_show
from slackwater.pipelines.cli.progress import Bar, Silent, show_progress
from slackwater.pipelines.runners.local import runner as local
from slackwater.transforms.errors import SlackwaterError


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return write_template(tmp_path)


# --- run


def test_run_prints_a_summary_and_writes_it_as_json(template: Path, tmp_path: Path) -> None:
    result = call("run", template, "--set", "slack=1s", "--summary", tmp_path / "summary.json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["runner"] == "local"
    assert summary["input"] == {"orders": 3, "clicks": 3}
    assert summary["results"] == 3
    assert "input orders" in result.stdout and "3 rows" in result.stdout


def test_summary_of_several_joins_shows_each(capsys: pytest.CaptureFixture[str]) -> None:
    part = {
        "input": {"a": 1},
        "results": 2,
        "late": {"too_late": 3, "shed": 0},
        "slack_ms": {"mean": 1.5, "p50": None},
    }
    whole = part | {
        "runner": "local",
        "elapsed_s": 2.0,
        "rows_per_s": 1000.0,
        "recall_estimate": 0.5,
        "joins": {"j": part},
    }
    cli_show.show_summary(whole | {"state": {"max_tuples": 1, "max_bytes": 2_000_000}})
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    shown = {what: value.strip() for what, value in lines}
    assert shown["late"] == shown["j: late"] == "3 too_late"
    assert shown["slack"] == "mean 1.5 ms"
    assert shown["recall (estimated)"] == "0.5000"
    assert shown["state"] == "at most 1 tuples, 2.0 MB"
    assert shown["throughput"] == "1,000 rows/s"


def test_warnings_go_to_standard_error(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        local, "run", lambda pipeline, progress: {"runner": "local", "warnings": ["mind the gap"]}
    )
    result = call("run", template, "--set", "slack=1s")
    assert result.exit_code == 0
    assert result.stderr == "warning: mind the gap\n"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (SlackwaterError("the disk is full; make room"), "error: the disk is full; make room\n"),
        (
            KeyError("x"),
            "error: unexpected KeyError, at PLACE: 'x'; please report it, with what --debug shows\n",
        ),
        (MemoryError(), "error: there is not enough memory (no more is known); give it more, or set a limit\n"),
        (
            OSError(28, "No space left on device", "out"),
            "error: the system refuses 'out': No space left on device; mend that, or run again with --debug to "
            "see where\n",
        ),
        (KeyboardInterrupt(), "error: interrupted\n"),
    ],
)
def test_a_run_that_fails_exits_1_with_one_line(
    template: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException, message: str
) -> None:
    def broken(pipeline: Any, progress: Any) -> Any:
        raise fault

    monkeypatch.setattr(local, "run", broken)
    result = call("run", template, "--set", "slack=1s")
    assert (result.exit_code, re.sub(r"\w+\.py:\d+", "PLACE", result.stderr)) == (1, message)


def test_debug_shows_the_traceback(template: Path) -> None:
    result = call("check", template, "--debug")
    assert isinstance(result.exception, SlackwaterError)


@pytest.mark.parametrize(
    ("runner", "package", "extra"),
    [("beam", "apache_beam", "beam"), ("beam-spark", "apache_beam", "beam"), ("spark", "pyspark", "spark")],
)
def test_a_runner_that_is_not_installed_says_how_to_get_it(
    template: Path, monkeypatch: pytest.MonkeyPatch, runner: str, package: str, extra: str
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    result = call("run", template, "--set", "slack=1s", "--runner", runner)
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"error: this runner needs {package}; install it with: pip install 'slackwater[{extra}]'\n"
    )


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with show_progress("t") as progress:
        assert isinstance(progress, Silent)
        progress.total(5)
        progress.advance(5)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_progress("t") as progress:
        assert isinstance(progress, Bar)
        progress.total(5)
        progress.advance(5)


# --- check


def test_check_shows_what_it_found(template: Path) -> None:
    result = call("check", template, "--set", "slack=1s")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"ok: {template}: 4 transforms\n")
    for line in (
        "    columns: id int64, v int64, ts int64",
        "  joined: SlidingWindowJoin (orders = Orders, clicks = Clicks)",
        "    window: orders 5s, clicks 5s",
        "    keys: orders.id = clicks.id",
        "    predicates: abs(orders.v - clicks.v) < 3",
        "    disorder: fixed (slack 1s)",
        "    join: mswj",
    ):
        assert line in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("orders.parquet", "gone.parquet", ":5: Orders.path: no parquet file at '"),
        ("time: ts", "time: when", ":13: joined.time: input 'orders' has no column 'when'; it has id, v, ts"),
        (
            "type: SlidingWindowJoin",
            "type: Join",
            ":9: pipeline.transforms.2.type: no transform named 'Join'; known:",
        ),
        (
            "strategy: fixed",
            "strategy: kslak",
            ":16: joined.disorder: no strategy named 'kslak'; installed: drop_ratio, external, fixed, ",
        ),
        (
            "{{ slack }}",
            "[1]",
            ":16: joined.disorder.slack: option 'slack' of strategy 'fixed': must be a duration such as",
        ),
        (
            "{{ slack }}",
            "-1s",
            ":16: joined.disorder.slack: option 'slack' of strategy 'fixed': must be a duration such as",
        ),
        (
            "window: 5s",
            "window: -5s",
            ":14: joined.window: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '-5s'",
        ),
        ("window: 5s", "window: 0s", ":14: joined.window: must be longer than 0, got 0s"),
        (
            "= clicks.id",
            "= click.id",
            ":15: joined.where: 'click.id' names no input; the inputs are orders, clicks",
        ),
        (
            "= clicks.id",
            "= clicks.no",
            ":15: joined.where: input 'clicks' has no column 'no'; it has id, v, ts",
        ),
        (
            "window: 5s",
            "window: 5s\n        shards: four",
            ":15: joined.shards: input should be a valid integer",
        ),
        (
            "name: Clicks",
            "name: Orders",
            ":7: pipeline.transforms.1.name: two transforms are named 'Orders' (the first",
        ),
        ("clicks: Clicks", "orders: Clicks", ":11: pipeline.transforms.2.input: key 'orders' is given twice"),
        ("slack }}", "slak }}", ":16: variable 'slak' is not set; add --set slak=VALUE"),
        ("path:", "pth:", ":5: Orders.pth: is not a setting; known settings: path"),
    ],
)
def test_bad_templates_exit_2_with_file_line_key_fault_and_remedy(
    template: Path, old: str, new: str, message: str
) -> None:
    edit(template, old, new)
    for command in ("check", "run"):
        result = call(command, template, "--set", "slack=1s")
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith(f"error: {template}{message}")
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


def test_times_without_a_zone_beside_zoned_ones_are_said_by_check_and_run(template: Path) -> None:
    for name, type_ in (("orders", pa.timestamp("ms", "UTC")), ("clicks", pa.timestamp("ms"))):
        table = pa.table({"id": [1, 2, 3], "v": [1, 2, 30], "ts": pa.array([1000, 2000, 3000], type_)})
        pq.write_table(table, template.parent / f"{name}.parquet")
    said = (
        "warning: joined: time: column 'ts' of input 'clicks' (timestamp[ms]) has no time zone and is read as "
        "UTC, beside column 'ts' of input 'orders' (timestamp[ms, tz=UTC]); if it is in local time, store it in "
        "UTC\n"
    )
    for command in ("check", "run"):
        result = call(command, template, "--set", "slack=1s")
        assert (result.exit_code, result.stderr) == (0, said)


def test_mixed_time_types_are_refused(template: Path) -> None:
    times = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ms"))
    pq.write_table(pa.table({"id": [1], "v": [1], "ts": times}), template.parent / "clicks.parquet")
    result = call("check", template, "--set", "slack=1s")
    assert result.exit_code == 2
    assert (
        f"{template}:13: joined.time: input 'orders' has integer times and input 'clicks' has timestamps"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nope"], "error: nope: no such file, and no shipped template has this name; shipped:"),
        (["check", "x", "--set", "slack"], "error: --set slack: must be NAME=VALUE"),
        (["check", "x", "--set", "a=1", "--set", "a=2"], "error: --set a: is given twice; keep one"),
        (["check", "x", "--plugin", "no_such_module"], "error: --plugin no_such_module: ModuleNotFoundError"),
        (
            ["run", "x", "--summary", "/no/such/folder/s.json"],
            "error: --summary: there is no folder /no/such/folder",
        ),
        (["strategies", "nope"], "error: no strategy named 'nope'; installed: none, fixed, max, "),
        (["bench", "nope"], "error: no benchmark named 'nope'; known: local"),
        (["generate", "syn2"], "error: generate needs --out DIR; name the folder to write into"),
        (["generate", "nope", "--out", "x"], "error: dataset 'nope' is not known; known: "),
        (
            ["generate", "syn2", "--out", "x", "--set", "rows=5"],
            "error: --set rows: is no knob of a data set; use --rows",
        ),
        (["generate", "syn2", "--out", "x", "--set", "nope=5"], "error: syn2: knob 'nope' is not known"),
    ],
)
def test_bad_usage_exits_2_with_one_line(arguments: list[str], message: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_unknown_commands_and_options_exit_2() -> None:
    assert call("nope").exit_code == 2
    assert call("check").exit_code == 2
    assert call("check", "x", "--nope").exit_code == 2
    assert call("run", "x", "--runner", "flink").exit_code == 2
