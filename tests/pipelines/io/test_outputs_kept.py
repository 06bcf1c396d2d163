"""Outputs of a run appear together or not at all, and never where they would destroy something."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call

from slackwater.pipelines.io.partial_files import PartialFile
from slackwater.pipelines.io.sinks import Sink, close_all
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Write
from slackwater.pipelines.template.reader import TemplateError, read_template_text
from slackwater.transforms.errors import SlackwaterError

ROWS = pa.record_batch({"a": [1, 2]})


def sink(file, format="json"):
    found = Sink(Write(format, str(file)), ROWS.schema)
    found.write(ROWS)
    return found


def files(folder):
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()
    )


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_old_files_stay_if_one_of_several_cannot_be_placed(tmp_path, monkeypatch, format):
    names = [f"{name}.{format}" for name in ("x", "y", "z")]
    for name in names[:2]:
        (tmp_path / name).write_text("old")
    sinks = [sink(tmp_path / name, format) for name in names]
    (tmp_path / names[2]).mkdir()
    with pytest.raises(SlackwaterError, match=rf"cannot write '.*z\.{format}': Is a directory"):
        close_all(sinks)
    assert [(tmp_path / name).read_text() for name in names[:2]] == ["old", "old"]
    assert files(tmp_path) == names[:2]


def test_a_file_that_was_not_there_is_gone_again_if_another_cannot_be_placed(tmp_path):
    sinks = [sink(tmp_path / "x.jsonl"), sink(tmp_path / "y.jsonl")]
    (tmp_path / "y.jsonl").mkdir()
    with pytest.raises(SlackwaterError):
        close_all(sinks)
    assert files(tmp_path) == []


def test_every_file_is_on_disk_before_the_first_gets_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("name"), replace(*paths)))
    close_all([sink(tmp_path / "x.jsonl"), sink(tmp_path / "y.parquet", "parquet")])
    assert done == ["sync", "sync", "name", "name", "sync"]
    assert files(tmp_path) == ["x.jsonl", "y.parquet"]
    assert pq.read_table(tmp_path / "y.parquet").num_rows == 2


def test_partial_files_of_dead_runs_are_removed_and_those_of_live_ones_stay(tmp_path):
    child = (
        "import os, sys; from pathlib import Path; "
        "from slackwater.pipelines.io.partial_files import PartialFile; "
        "PartialFile(Path(sys.argv[1])); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", child, tmp_path / "x.csv"], check=False).returncode == 9
    (tmp_path / ".x.csv.123.partial").write_text("")
    (tmp_path / ".other.csv.123.partial").write_text("")
    assert len(files(tmp_path)) == 3
    first = PartialFile(tmp_path / "x.csv")
    live = [name for name in files(tmp_path) if "other" not in name]
    assert len(live) == 1
    second = PartialFile(tmp_path / "x.csv")
    assert live[0] in files(tmp_path)
    first.discard()
    second.discard()
    assert files(tmp_path) == [".other.csv.123.partial"]


def test_no_link_is_followed_when_a_partial_file_is_made(tmp_path, monkeypatch):
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr("slackwater.pipelines.io.partial_files.secrets.token_hex", lambda n: "t")
    (tmp_path / f".x.csv.{os.getpid()}-t.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(SlackwaterError, match=r"cannot write '.*x\.csv': File exists"):
        PartialFile(tmp_path / "x.csv")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_full_disk_names_the_file_and_leaves_the_old_ones(tmp_path):
    for name in ("joined.parquet", "late.jsonl"):
        (tmp_path / name).write_text("old")
    n = 300_000
    for name in "ab":
        table = pa.table({"ts": range(n), "k": [f"{k * 7919:x}" for k in range(n)]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    child = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "
        "from slackwater.pipelines.cli.commands import main; main()"
    )
    (tmp_path / "t.yaml").write_text(template(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", child, "run", str(tmp_path / "t.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "joined.parquet': File too large; the files of earlier runs are as they were; make room" in done.stderr
    assert "Traceback" not in done.stderr
    assert [(tmp_path / name).read_text() for name in ("joined.parquet", "late.jsonl")] == ["old", "old"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 1)])
def test_a_run_that_is_told_to_end_leaves_nothing_behind(tmp_path, number, code):
    (tmp_path / "joined.parquet").write_text("old")
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")
    (tmp_path / "t.yaml").write_text(template(tmp_path))
    # The run waits in the middle of its work, with its sinks open.
    child = (
        "import threading; from slackwater.pipelines.runners.local import runner as local; "
        "local.LocalRun._read_all = lambda self: (print('here', flush=True), threading.Event().wait()); "
        "from slackwater.pipelines.cli.commands import main; main()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", child, "run", str(tmp_path / "t.yaml")],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup would have it ignored
    )
    assert run.stdout.readline() == "here\n"
    assert len(list(tmp_path.glob(".*.partial"))) == 2
    run.send_signal(number)
    assert run.wait(10) == code
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "joined.parquet").read_text() == "old"


def template(folder, a="a.parquet", out="joined.parquet", late="late", more=""):
    return f"""\
pipeline:
  transforms:
    - {{type: ReadFromParquet, name: A, config: {{path: "{folder}/{a}"}}}}
    - {{type: ReadFromParquet, name: B, config: {{path: "{folder}/b.parquet"}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: A, b: B}}
      config: {{time: ts, window: 5ms, where: a.k = b.k{more}}}
    - {{type: WriteToParquet, name: W, input: joined, config: {{path: "{folder}/{out}"}}}}
    - {{type: WriteToJson, name: L, input: joined.late, config: {{path: "{folder}/{late}"}}}}
"""


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ({"out": "a.parquet"}, "W.path: '{}/a.parquet' is among the files that 'A' reads; write elsewhere"),
        ({"out": "link.parquet"}, "W.path: '{}/a.parquet' is among the files that 'A' reads; write elsewhere"),
        ({"out": "door/b.parquet"}, "W.path: '{}/b.parquet' is among the files that 'B' reads; write elsewhere"),
        ({"a": "in", "out": "in/new.pq"}, "W.path: '{}/in/new.pq' is among the files that 'A' reads"),
        ({"a": "in/*.parquet", "out": "in/new"}, "W.path: '{}/in/new.parquet' is among the files that 'A' reads"),
        (
            {"out": "x.jsonl", "late": "./x"},
            "L.path: 'W' writes '{}/x.jsonl' too; give each sink a file of its own",
        ),
        ({"out": "door/x.jsonl", "late": "x"}, "L.path: 'W' writes '{}/x.jsonl' too"),
    ],
)
def test_outputs_over_inputs_and_over_each_other_are_refused(tmp_path, how, fault):
    folder = tmp_path / "real"
    (folder / "in").mkdir(parents=True)
    for name in ("a.parquet", "b.parquet", "in/1.parquet"):
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), folder / name)
    (folder / "link.parquet").symlink_to(folder / "a.parquet")
    (folder / "door").symlink_to(folder)
    before = files(folder)
    text = template(folder, **how)
    with pytest.raises(TemplateError) as error:
        local.run(read_template_text("t.yaml", text))
    assert fault.format(folder) in str(error.value)
    (tmp_path / "t.yaml").write_text(text)
    done = call("check", tmp_path / "t.yaml")
    assert done.exit_code == 2
    assert fault.format(folder) in done.stderr
    assert files(folder) == before


@pytest.mark.parametrize(("file", "name"), [("a.parquet", "A"), ("late.jsonl", "L")])
@pytest.mark.parametrize("option", ["--summary", "--metrics"])
def test_reports_over_inputs_and_outputs_are_refused(tmp_path, option, file, name):
    for letter in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{letter}.parquet")
    (tmp_path / "t.yaml").write_text(template(tmp_path))
    done = call("run", tmp_path / "t.yaml", option, tmp_path / file)
    assert done.exit_code == 2
    assert f"{option}: '{tmp_path}/{file}' is a file of '{name}'; choose another" in done.stderr


def test_a_sink_beside_the_files_of_a_source_is_fine(tmp_path):
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")
    local.run(read_template_text("t.yaml", template(tmp_path, a="[a]*.parquet", late="a-late.csv")))
    assert "joined.parquet" in files(tmp_path)


def test_two_runs_cannot_write_one_archive(tmp_path, monkeypatch):
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")
    (tmp_path / "archive").mkdir()
    (tmp_path / "same").symlink_to(tmp_path / "archive")
    pipelines = [
        read_template_text(
            "t.yaml", template(tmp_path, out=f"{k}.parquet", late=f"{k}", more=f', archive: "{path}"')
        )
        for k, path in enumerate((tmp_path / "archive", tmp_path / "same"))
    ]
    inside, leave = threading.Event(), threading.Event()
    read_all = local.LocalRun._read_all

    def waiting(self):
        inside.set()
        assert leave.wait(30)
        read_all(self)

    monkeypatch.setattr(local.LocalRun, "_read_all", waiting)
    first = threading.Thread(target=local.run, args=(pipelines[0],))
    first.start()
    assert inside.wait(30)
    with pytest.raises(TemplateError, match=r"joined\.archive: another run is writing '.*same'; name another"):
        local.run(pipelines[1])
    (tmp_path / "t.yaml").write_text(template(tmp_path, more=f', archive: "{tmp_path}/archive"'))
    assert "another run is writing" in call("check", tmp_path / "t.yaml").stderr
    leave.set()
    first.join()
    with pytest.raises(TemplateError, match=r"directory '.*same' is not empty"):
        local.run(pipelines[1])


def test_the_lock_of_a_run_that_was_killed_does_not_hinder_the_next(tmp_path):
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")
    (tmp_path / "t.yaml").write_text(template(tmp_path, more=f', archive: "{tmp_path}/archive"'))
    child = (
        "import os; from slackwater.pipelines.runners.local import runner as local; "
        "local.LocalRun._read_all = lambda self: os._exit(9); "
        "from slackwater.pipelines.cli.commands import main; main()"
    )
    command = [sys.executable, "-c", child, "run", str(tmp_path / "t.yaml")]
    assert subprocess.run(command, check=False).returncode == 9
    assert (tmp_path / "archive" / "unfinished").exists()
    done = call("run", tmp_path / "t.yaml")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "archive" / "finished").exists()


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("pipe", "said"),
    [
        ("a.parquet", "a.parquet' is no regular file, and a source is read twice"),
        (
            "late.jsonl",
            "late.jsonl' is no regular file, and an output replaces what is in its place; write to a file",
        ),
    ],
)
def test_a_pipe_is_refused_at_once(tmp_path, command, pipe, said):
    """As a source it would be waited for, and Ctrl-C ignored; as a sink it would be replaced."""
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")
    (tmp_path / "t.yaml").write_text(template(tmp_path))
    (tmp_path / pipe).unlink(missing_ok=True)
    os.mkfifo(tmp_path / pipe)
    start = "from slackwater.pipelines.cli.commands import main; main()"
    arguments = [sys.executable, "-c", start, command, str(tmp_path / "t.yaml")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert (tmp_path / pipe).is_fifo()


def test_a_failed_run_is_no_finished_archive(tmp_path, monkeypatch):
    for name in "ab":
        pq.write_table(pa.table({"ts": [1], "k": ["x"]}), tmp_path / f"{name}.parquet")

    def full(sinks):
        raise SlackwaterError("no room")

    monkeypatch.setattr(local, "close_all", full)
    archive = tmp_path / "archive"
    with pytest.raises(SlackwaterError, match="no room"):
        local.run(read_template_text("t.yaml", template(tmp_path, more=f', archive: "{archive}"')))
    assert (archive / "unfinished").exists()
    assert not list(Path(tmp_path).glob(".*"))
    assert json.loads((archive / "join.json").read_text())["version"] == 1
