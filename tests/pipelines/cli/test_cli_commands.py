"""The commands besides run and check, and what the command loads as a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import call, edit, write_template

from slackwater.pipelines.bench import registry
from slackwater.plugins.registry import manager as manager_module


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return write_template(tmp_path)


def test_strategies_lists_stage_purpose_options_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(manager_module.manager().broken, "bad", "bad-plugin 1.0: ImportError: no")
    result = call("strategies")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("join: mswj  [slackwater ") for line in lines)
    at = next(i for i, line in enumerate(lines) if line.startswith("disorder: fixed"))
    assert "Hold every row until" in lines[at + 1]
    assert lines[at + 2].startswith("    slack: duration (such as 250ms, 5s, 1m), required - how long")
    assert lines[-1] == "broken: plugin 'bad' could not be loaded (bad-plugin 1.0: ImportError: no)"
    assert [line for line in call("strategies", "none").stdout.splitlines() if line.startswith("shedding: none")]


def test_templates_lists_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    from slackwater.pipelines.template import text as template_text

    monkeypatch.setattr(template_text, "shipped", lambda: {"one": "# First line.\npipeline:", "two": "pipeline:"})
    assert call("templates").stdout == "one  First line.\ntwo\n"


def test_schema_prints_json() -> None:
    assert json.loads(call("schema").stdout)["$schema"].endswith("2020-12/schema")


def test_version() -> None:
    assert call("--version").stdout.startswith("slackwater ")


def test_generate_lists_and_writes_data_sets(tmp_path: Path) -> None:
    listed = call("generate")
    assert "zipf: " in listed.stdout and "    max_delay: a whole number" in listed.stdout
    result = call(
        "generate",
        "syn2",
        "--out",
        tmp_path,
        "--rows",
        "50",
        "--seed",
        "3",
        "--format",
        "csv",
        "--set",
        "max_delay=100",
    )
    assert result.exit_code == 0, result.stderr
    assert f"{tmp_path / 's1.csv'}: 50 rows" in result.stdout
    assert f"variables: --set s1={tmp_path / 's1.csv'}" in result.stdout
    assert (tmp_path / "truth.csv").exists()


def test_bench_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(registry, "run_bench", lambda *arguments: given.append(arguments))
    assert call("bench", "local", "--rows", "5").exit_code == 0
    assert given == [("local", "--rows", "5")]


def test_plugin_modules_are_found_in_the_current_folder(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_test_plugin.py").write_text(
        "from typing import ClassVar\n"
        "from slackwater.plugins import hookimpl\n"
        "from slackwater.plugins.disorder.none import NoSlack\n"
        "class Hasty(NoSlack):\n"
        '    """Release at once."""\n'
        '    name: ClassVar[str] = "hasty"\n'
        "@hookimpl\n"
        "def slackwater_disorder_strategies():\n"
        "    return [Hasty]\n"
    )
    edit(template, "strategy: fixed, slack: {{ slack }}", "strategy: hasty")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "slackwater.pipelines.cli.commands",
            "check",
            str(template),
            "--plugin",
            "cli_test_plugin",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "disorder: hasty" in done.stdout


# --- as a process


def loaded(tmp_path: Path, *arguments: str | Path) -> set[str]:
    """Run a command; return the top-level modules it loaded."""
    listing = tmp_path / "modules"
    code = (
        "import sys; from slackwater.pipelines.cli import commands as cli\n"
        f"listing = {str(listing)!r}\n"
        "try: cli.main()\n"
        "finally: open(listing, 'w').write(' '.join(m for m in sys.modules if '.' not in m))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(listing.read_text().split())


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"numba", "numpy", "pyarrow", "pandas", "pydantic", "sqlglot", "apache_beam", "pyspark", "rich"}
    assert not loaded(tmp_path, "--help") & heavy


def test_check_loads_no_engine(template: Path, tmp_path: Path) -> None:
    found = loaded(tmp_path, "check", template, "--set", "slack=1s")
    assert "pyarrow" in found
    assert not found & {"numba", "llvmlite", "pandas", "apache_beam", "pyspark"}


def test_a_bad_template_exits_2_as_a_process(template: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slackwater.pipelines.cli.commands", "check", str(template)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {template}:16: variable 'slack' is not set; add --set slack=VALUE\n"
