"""The example plugin as a user meets it: built, installed, listed, run; and plugins that are broken."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "third-party-plugin"


def command(*arguments, path, cwd=None):
    """Run Python with ``path`` in front of the import path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def slackwater(*arguments, path=(), cwd=None):
    return command("-m", "slackwater.pipelines.cli.commands", *arguments, path=path, cwd=cwd)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the example plugin installed from a wheel."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for step in (
        ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", wheels, source],
        ["install", "--no-deps", "--no-index", "--target", site, "--find-links", wheels, "slackwater-tidal"],
    ):
        done = subprocess.run([*pip, *map(str, step)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return site


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    done = slackwater("generate", "syn2", "--out", folder, "--rows", "600")
    assert done.returncode == 0, done.stderr
    return folder


def test_its_strategies_are_listed_with_their_distribution(site):
    done = slackwater("strategies", path=[site])
    assert done.returncode == 0, done.stderr
    for line in (
        "disorder: percentile  [slackwater-tidal 1.0.0]",
        "join: nested_loop  [slackwater-tidal 1.0.0]",
        "shedding: oldest_first  [slackwater-tidal 1.0.0]",
        "  Hold every row as long as most rows of the last interval were late.",
        "    level: number, default 0.95 - share of the rows whose delay the slack covers",
        "    memory: whole number, required - rows that the windows of a shard may hold",
    ):
        assert line in done.stdout.splitlines()
    assert "disorder: fixed  [slackwater 0" in done.stdout
    assert "percentile" not in slackwater("strategies").stdout


def run_template(site, data, out, **variables):
    settings = [part for name, value in variables.items() for part in ("--set", f"{name}={value}")]
    summary = out / "summary.json"
    settings += ["--set", f"data={data}", "--set", f"out={out}"]
    done = slackwater("run", EXAMPLE / "join.yaml", "--summary", summary, *settings, path=[site])
    assert done.returncode == 0, done.stderr
    rows = pq.ParquetDataset(sorted(out.glob("joined*"))).read().to_pylist()
    return json.loads(summary.read_text()), sorted(map(str, rows))


def test_a_template_with_all_three_runs_as_with_the_built_in_join(site, data, tmp_path):
    outs = [tmp_path / name for name in ("nested", "mswj", "tight")]
    for out in outs:
        out.mkdir()
    nested, rows = run_template(site, data, outs[0])
    builtin, expected = run_template(site, data, outs[1], join="mswj")
    assert rows == expected
    assert len(rows) == nested["results"] == builtin["results"] > 0
    assert nested["late"] == builtin["late"]
    assert nested["slack_ms"]["max"] > 0, "percentile has not adapted"
    tight, _ = run_template(site, data, outs[2], memory=3)
    assert tight["late"]["shed"] > 0
    assert tight["results"] < nested["results"]


def test_its_own_tests_pass(site):
    done = command("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests", path=[site], cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_can_be_loaded_without_installing_it(data, tmp_path):
    shown = slackwater("strategies", "percentile", "--plugin", "slackwater_tidal", path=[EXAMPLE / "src"])
    assert "disorder: percentile  [--plugin slackwater_tidal]" in shown.stdout
    arguments = ["--set", f"data={data}", "--set", f"out={tmp_path}", "--plugin", "slackwater_tidal"]
    checked = slackwater("check", EXAMPLE / "join.yaml", *arguments, path=[EXAMPLE / "src"])
    assert checked.returncode == 0, checked.stderr
    missing = slackwater("strategies", "--plugin", "slackwater_tidle", path=[EXAMPLE / "src"])
    assert missing.returncode == 2
    assert (
        "error: --plugin slackwater_tidle: ModuleNotFoundError: No module named 'slackwater_tidle'"
        in missing.stderr
    )
    assert "Traceback" not in missing.stderr


BROKEN = {
    "raises": "raise RuntimeError('out of order')",
    "returns_nonsense": (
        "from slackwater.plugins import hookimpl\n"
        "@hookimpl\ndef slackwater_join_strategies():\n    return ['mswj']\n"
    ),
    "clashes": (
        "from slackwater.plugins import DisorderStrategy, hookimpl\n"
        "class Mine(DisorderStrategy):\n    name = 'fixed'\n"
        "@hookimpl\ndef slackwater_disorder_strategies():\n    return [Mine]\n"
    ),
}
FAULTS = {
    "raises": "RuntimeError: out of order",
    "returns_nonsense": "slackwater_join_strategies returned 'mswj', which must be a subclass of",
    "clashes": "disorder strategy 'fixed' is already provided by slackwater",
}


def test_broken_plugins_are_named_and_everything_else_works(site, data, tmp_path):
    for name, code in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(code)
        about = tmp_path / f"{name}-2.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        (about / "entry_points.txt").write_text(f"[slackwater]\n{name} = {name}\n")
    listed = slackwater("strategies", path=[tmp_path, site])
    assert listed.returncode == 0, listed.stderr
    for name, fault in FAULTS.items():
        (line,) = [line for line in listed.stdout.splitlines() if line.startswith(f"broken: plugin {name!r}")]
        assert f"{name} 2.0: " in line
        assert fault in line
    assert "join: nested_loop  [slackwater-tidal 1.0.0]" in listed.stdout
    assert "disorder: fixed  [slackwater 0" in listed.stdout
    arguments = ["--set", f"data={data}", "--set", f"out={tmp_path}"]
    assert slackwater("check", EXAMPLE / "join.yaml", *arguments, path=[tmp_path, site]).returncode == 0
    without = slackwater("check", EXAMPLE / "join.yaml", *arguments, path=[tmp_path])
    assert without.returncode == 2
    assert "no strategy named 'percentile'; installed: drop_ratio, external, fixed, " in without.stderr
    assert "Plugin 'raises' could not be loaded (raises 2.0: RuntimeError: out of order)." in without.stderr
