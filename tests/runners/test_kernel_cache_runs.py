"""Whole runs, from outside, where kernels cannot be kept or what was kept is damaged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.transforms.kernels import compiler

DAMAGED = "slackwater.transforms.kernels.arrival.guard-"
"""Entries of a module whose kernels every run loads and that are compiled quickly."""


@pytest.fixture
def kept(tmp_path):
    """A copy of the compiled kernels, so that the runs here need not compile them all."""
    folder = tmp_path / "temporary" / f"slackwater-{os.getuid()}" / "kernels"
    source = compiler.directory()
    assert source is not None
    folder.parent.mkdir(parents=True, mode=0o700)
    shutil.copytree(source, folder, copy_function=os.link, ignore=shutil.ignore_patterns(".*"))
    return folder


def demo(folder: Path, **environment: str) -> tuple[list[str], dict[str, bytes]]:
    """Run the demo in a folder; return what it said on standard error, and its files."""
    folder.mkdir()
    env = {k: v for k, v in os.environ.items() if k not in ("SLACKWATER_CACHE", "XDG_CACHE_HOME")}
    code = "from slackwater.pipelines.cli.commands import main; main()"
    command = [sys.executable, "-c", code, "run", "demo", "--summary", "summary.json"]
    done = subprocess.run(
        command, cwd=folder, env={**env, **environment}, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["results"] == 9
    assert not any("compile" in warning or "cache" in warning for warning in summary["warnings"])
    files = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    assert len(files) == 2
    return done.stderr.splitlines(), files


def test_a_home_that_cannot_be_written_costs_one_line(tmp_path, kept):
    """Root may write anywhere but into /proc, so that is the home."""
    temporary = str(tmp_path / "temporary")
    said, files = demo(tmp_path / "away", HOME="/proc/nowhere", TMPDIR=temporary)
    told = [line for line in said if "cannot be written" in line]
    assert told == [
        f"warning: /proc/nowhere/.cache/slackwater cannot be written; kernels are kept in {kept}. "
        "SLACKWATER_CACHE names another folder"
    ]
    at_home, expected = demo(tmp_path / "home", SLACKWATER_CACHE=str(kept.parent))
    assert files == expected
    assert [line for line in said if line not in told] == at_home


def test_a_run_on_damaged_entries_ends_right_and_mends_them(tmp_path, kept):
    cache = {"SLACKWATER_CACHE": str(kept.parent)}
    said, expected = demo(tmp_path / "before", **cache)
    entries = [entry for folder in kept.glob(f"{DAMAGED}*") for entry in folder.glob("*.kernel")]
    assert entries
    for entry in entries:
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.unlink()
        entry.write_bytes(content)
    damaged = {entry: entry.read_bytes() for entry in entries}
    assert demo(tmp_path / "after", **cache) == (said, expected)
    assert any(entry.read_bytes() != content for entry, content in damaged.items())
