"""Files of joins that use the disk: private, gone at the end and after a crash, and a full disk says so."""

import gc
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.shedding import disk
from slackwater.transforms.shedding.spill import PREFIX, SpillDirectory, remove_stale

TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "{{ dir }}/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "{{ dir }}/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config:
        time: ts
        where: a.k = b.k
        disorder: {strategy: none}
        join: {strategy: xjoin, memory: 2000, partitions: 1, reread: 0, directory: "{{ spill }}"}
    - {type: WriteToJson, input: joined, config: {path: "{{ dir }}/joined.jsonl"}}
"""
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from slackwater.pipelines.cli.commands import main
main()
"""


def joining(directory, n=400, memory=50):
    """An operator in the middle of its input, most of its state on disk."""
    plan = plan_of(
        SCHEMA,
        2,
        where="a.k = b.k",
        disorder={"strategy": "none"},
        join={"strategy": "xjoin", "memory": memory, "directory": str(directory)},
    )
    operator = Operator(plan)
    operator.push(chunk_of(plan, numbered((i % 2, {"ts": i, "k": i % 40, "v": 0}) for i in range(n))))
    return operator


def test_files_are_private_and_go_with_the_end_of_the_input(tmp_path):
    operator = joining(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) > 10
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    operator.finish()
    assert list(tmp_path.iterdir()) == []


def test_files_go_with_an_operator_that_is_thrown_away(tmp_path):
    operator = joining(tmp_path)
    assert list(tmp_path.iterdir()) != []
    del operator
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_made_while_memory_is_enough(tmp_path):
    operator = joining(tmp_path, memory=1_000)
    assert list(tmp_path.iterdir()) == []
    operator.finish()


@pytest.mark.parametrize("last", ["raise SystemExit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_a_process_leaves_behind_is_removed_by_the_next(tmp_path, last):
    code = f"""
import os, signal, sys
from pathlib import Path
from slackwater.transforms.shedding.spill import SpillDirectory
directory = SpillDirectory(Path(sys.argv[1]))
directory.file("x").write_bytes(b"rows")
{last}
"""
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    killed = ended.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == killed
    mine, other = SpillDirectory(tmp_path), tmp_path / "another-thing"
    other.mkdir()
    assert remove_stale(tmp_path) == killed
    # Those in use stay, whoever asks.
    assert remove_stale(tmp_path) == 0
    assert sorted(tmp_path.iterdir()) == sorted([mine.path, other])
    mine.close()
    assert list(tmp_path.iterdir()) == [other]


def test_an_operator_removes_what_a_crash_left(tmp_path):
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    (left / "0-1.arrows").write_bytes(b"rows")
    joining(tmp_path, n=2)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_being_made_or_was_half_removed_is_handled(tmp_path):
    (tmp_path / f"{PREFIX}new").mkdir()
    with_files = tmp_path / f"{PREFIX}odd"
    with_files.mkdir()
    (with_files / "x").touch()
    assert remove_stale(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [with_files]


def test_a_forked_child_does_not_remove_the_files_of_its_parent(tmp_path):
    directory = SpillDirectory(tmp_path)
    child = os.fork()
    if child == 0:
        directory.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list(tmp_path.iterdir()) == [directory.path]
    directory.close()


def test_a_directory_that_cannot_be_used_is_an_error_before_any_row(tmp_path):
    with pytest.raises(
        SlackwaterError, match=r"^join\.directory: .*nowhere' is no directory that can be written to; make"
    ):
        joining(tmp_path / "nowhere")


def test_a_snapshot_of_too_much_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SNAPSHOT_BYTES", 1_000)
    operator = joining(tmp_path)
    with pytest.raises(SlackwaterError, match=r"^join: 0 MB of the state are on disk, and .* local or beam$"):
        operator.snapshot()


@contextmanager
def small_disk(path):
    """A file system of one megabyte, where the system lets us make one."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def write_inputs(folder):
    n = 30_000
    for i, name in enumerate("ab"):
        keys = np.arange(n) * 2 + (np.arange(n) % 10 > i)
        columns = {"ts": np.arange(n), "k": keys, "text": pa.array([f"{k:>60}" for k in keys])}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    (folder / "t.yaml").write_text(TEMPLATE)


def run_limited(folder, spill, size):
    command = [sys.executable, "-c", LIMITED, str(size), "run", str(folder / "t.yaml")]
    variables = ["--set", f"dir={folder}", "--set", f"spill={spill}"]
    return subprocess.run([*command, *variables], capture_output=True, text=True, check=False)


def fails_clearly(done, folder, spill, why):
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    said = " ".join((done.stderr + done.stdout).split())
    assert "join.directory: cannot keep more than " in said
    assert f"{why}; make room there, name another place with directory, or raise memory" in said
    assert list(spill.iterdir()) == []
    assert not (folder / "joined.jsonl").exists()


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path):
    write_inputs(tmp_path)
    with small_disk(tmp_path / "disk") as spill:
        fails_clearly(
            run_limited(tmp_path, spill, resource.RLIM_INFINITY), tmp_path, spill, "No space left on device"
        )


def test_a_file_that_may_not_grow_is_a_clear_error_and_leaves_nothing(tmp_path):
    spill = tmp_path / "disk"
    spill.mkdir()
    write_inputs(tmp_path)
    fails_clearly(run_limited(tmp_path, spill, 2_000_000), tmp_path, spill, "File too large")
    assert run_limited(tmp_path, spill, resource.RLIM_INFINITY).returncode == 0
    assert len((tmp_path / "joined.jsonl").read_text().splitlines()) == 27_000
    assert list(spill.iterdir()) == []
