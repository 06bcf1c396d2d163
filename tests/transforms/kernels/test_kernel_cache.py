"""Compiled kernels are kept by content: never stale, shared, and no run depends on the cache."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HELPER = """
from slackwater.transforms.kernels.compiler import kernel

{constant}

@kernel{how}
def helper(x):
    return x + {added}
"""
CALLER = """
from slackwater.transforms.kernels.compiler import kernel
from {package}.helper import ADDED, helper

@kernel
def caller(x):
    return helper(x) * 100 + ADDED
"""
CALL = """
import sys; sys.path.insert(0, {root!r})
from {package}.caller import caller
print(caller(1), sum(caller.stats.cache_hits.values()), caller.stats.cache_path)
"""


def write_package(root, added, constant=7, how=""):
    package = root / "tidekernels"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    text = HELPER.format(added=added, how=how, constant=f"ADDED = {constant}")
    (package / "helper.py").write_text(text)
    (package / "caller.py").write_text(CALLER.format(package="tidekernels"))


def call(root, cache, **environment):
    """Return what the kernel gives in a process of its own, how often the cache had it, and what was said."""
    code = CALL.format(root=str(root), package="tidekernels")
    env = {**os.environ, "SLACKWATER_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    value, hits, *path = done.stdout.split()
    return int(value), int(hits), done.stderr, path


@pytest.mark.parametrize("how", ["", "(inline=True)"])
def test_a_changed_helper_is_seen_in_its_caller(tmp_path, how):
    cache = tmp_path / "cache"
    write_package(tmp_path, 1, how=how)
    assert call(tmp_path, cache)[:2] == (207, 0)
    assert call(tmp_path, cache)[:2] == (207, 1)
    write_package(tmp_path, 2, how=how)
    assert call(tmp_path, cache)[:2] == (307, 0)


def test_a_changed_constant_is_seen_in_its_caller(tmp_path):
    write_package(tmp_path, 1)
    assert call(tmp_path, tmp_path / "cache")[0] == 207
    write_package(tmp_path, 1, constant=8)
    assert call(tmp_path, tmp_path / "cache")[0] == 208


def test_two_checkouts_share_what_is_compiled(tmp_path):
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        write_package(tmp_path / place, 1)
    assert call(tmp_path / "one", tmp_path / "cache")[:2] == (207, 0)
    assert call(tmp_path / "other", tmp_path / "cache")[:2] == (207, 1)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_entry_is_compiled_again(tmp_path, damage):
    write_package(tmp_path, 1)
    call(tmp_path, tmp_path / "cache")
    entries = list((tmp_path / "cache").rglob("*.kernel"))
    assert len(entries) == 2
    for entry in entries:
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        damaged = {"cut": content[:50], "flipped": content, "empty": b"", "other": b"SLKWK1\n" + bytes(40)}
        entry.write_bytes(damaged[damage])
    assert call(tmp_path, tmp_path / "cache")[:2] == (207, 0)
    assert call(tmp_path, tmp_path / "cache")[:2] == (207, 1)


def test_a_cache_that_cannot_be_written_is_said_and_a_temporary_one_used(tmp_path):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "temporary").mkdir()
    write_package(tmp_path, 1)
    value, _, said, (path,) = call(tmp_path, tmp_path / "file" / "cache", TMPDIR=str(tmp_path / "temporary"))
    assert value == 207
    assert said.count("cannot be written; kernels are kept in") == 1
    assert "SLACKWATER_CACHE names another folder" in said
    assert Path(path).is_relative_to(tmp_path / "temporary")


def test_a_temporary_folder_that_others_may_write_is_not_used(tmp_path):
    (tmp_path / "file").write_text("no folder")
    shared = tmp_path / "temporary" / f"slackwater-{os.getuid()}"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    write_package(tmp_path, 1)
    value, hits, said, path = call(tmp_path, tmp_path / "file", TMPDIR=str(tmp_path / "temporary"))
    assert (value, hits, path) == (207, 0, [])
    assert "every run compiles kernels" in said
    assert not list(shared.iterdir())


def test_two_processes_on_an_empty_cache_both_end_right(tmp_path):
    write_package(tmp_path, 1)
    code = CALL.format(root=str(tmp_path), package="tidekernels")
    env = {**os.environ, "SLACKWATER_CACHE": str(tmp_path / "cache")}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0].split()[0] for process in both] == ["207", "207"]
    assert call(tmp_path, tmp_path / "cache")[:2] == (207, 1)


def test_the_command_says_in_one_line_that_the_cache_cannot_be_written(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    code = (
        "from slackwater.pipelines.cli import commands as cli\n"
        "from slackwater.transforms.kernels import compiler\n"
        "cli.app = compiler.directory; cli.main()"
    )
    away = {"XDG_CACHE_HOME": str(in_the_way), "HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    away = {**{k: v for k, v in os.environ.items() if k != "SLACKWATER_CACHE"}, **away}
    done = subprocess.run([sys.executable, "-c", code], env=away, capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1, done.stderr
    assert re.match(r"warning: \S+ cannot be written; kernels are kept in \S+", done.stderr)
