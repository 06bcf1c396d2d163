"""The join on Spark through Beam's own job server, which takes seconds to start: few and full jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from beam_cases import DISORDER, cases, check_cases

from slackwater.pipelines.runners.beam import job_server as jobserver
from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.runners.beam.options import spark_runner
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import AccountError, SlackwaterError

pytestmark = [
    pytest.mark.beam_spark,
    # Workers of a job that has ended find their channels closed, and say so from their threads.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.mark.parametrize("disorder", DISORDER)
def test_results_and_late_rows_are_those_of_the_operator(disorder: str) -> None:
    """In Spark rows come in any order, so every case has an arrival column."""
    runner, options, _ = spark_runner()
    with TestPipeline(runner=runner, options=options) as p:
        check_cases(p, cases(disorder, arrival=("at",)))


BROKEN = """
pipeline:
  transforms:
    - {type: ReadFromJson, name: A, config: {path: "%(dir)s/a.jsonl"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: A}
      config: {time: ts, window: 1s, where: a.id = b.id, shards: 3}
    - {type: WriteToParquet, input: joined, config: {path: "%(dir)s/out/joined.parquet"}}
    - {type: WriteToJson, name: Copy, input: A, config: {path: "%(dir)s/out/copy"}}
"""


def test_an_error_in_a_worker_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ts": 5}\n' * 20 + "{nonsense\n")
    with pytest.raises(SlackwaterError, match=r"a.jsonl' line 21: no JSON") as caught:
        run_beam.run(read_template_text("t.yaml", BROKEN % {"dir": tmp_path}), spark=True)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("out/*"))


def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SlackwaterError, match="beam-spark needs Java, and there is none on the path; install"):
        jobserver.java()


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jobserver.java() == str(launcher)


@pytest.fixture
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jobserver.VARIABLE, raising=False)


def refuse(version: str, jar: Path) -> None:
    raise OSError("no network. And more")


def test_a_jar_in_the_cache_is_used_without_fetching(nothing_named: None, tmp_path: Path) -> None:
    jar = tmp_path / "beam-runners-spark-3-job-server-9.9.9.jar"
    jar.touch()
    assert jobserver.job_server_jar("9.9.9", tmp_path) == jar


def test_maven_is_tried_when_beam_cannot_fetch(
    nothing_named: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobserver, "_fetch_by_beam", refuse)
    monkeypatch.setattr(jobserver, "_fetch_by_maven", lambda version, jar: jar.touch())
    assert jobserver.job_server_jar("9.9.9", tmp_path).name == "beam-runners-spark-3-job-server-9.9.9.jar"


def test_a_jar_that_cannot_be_had_is_said_with_the_ways_out(
    nothing_named: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobserver, "_fetch_by_beam", refuse)
    monkeypatch.setattr(jobserver.shutil, "which", lambda name: None)
    with pytest.raises(SlackwaterError) as caught:
        jobserver.job_server_jar("9.9.9", tmp_path)
    assert str(caught.value) == (
        "beam-spark needs the job server org.apache.beam:beam-runners-spark-3-job-server:9.9.9, and it could "
        "not be fetched (Beam: no network; mvn: it is not installed; modules 9.9.9: it is not installed; "
        f"modules 2.62.0: it is not installed); put the jar into {tmp_path}, or name one in "
        "SLACKWATER_SPARK_JOB_SERVER"
    )


def test_a_server_is_made_of_modules_when_there_is_no_jar(
    nothing_named: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def assemble(version: str, cache: Path) -> None:
        if version != jobserver.FALLBACK_VERSION:
            raise OSError("not published")
        (cache / f"slackwater-job-server-{version}.jar").touch()

    monkeypatch.setattr(jobserver, "_fetch_by_beam", refuse)
    monkeypatch.setattr(jobserver, "_fetch_by_maven", refuse)
    monkeypatch.setattr(jobserver, "assemble", assemble)
    assert jobserver.job_server_jar("9.9.9", tmp_path).name == "slackwater-job-server-2.62.0.jar"
    monkeypatch.undo()
    assert jobserver.job_server_jar("9.9.9", tmp_path).name == "slackwater-job-server-2.62.0.jar"


def test_what_maven_says_is_passed_on(
    nothing_named: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "[ERROR] Unable to find artifact. Could not find it -> [Help 1]\n[ERROR] more"
    failed = subprocess.CompletedProcess([], 1, stdout=said, stderr="")
    monkeypatch.setattr(jobserver, "_fetch_by_beam", refuse)
    monkeypatch.setattr(jobserver.shutil, "which", lambda name: "mvn")
    monkeypatch.setattr(jobserver.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(SlackwaterError, match=r"\(Beam: no network; mvn: Unable to find artifact;"):
        jobserver.job_server_jar("9.9.9", tmp_path)


def test_a_named_jar_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(jobserver.VARIABLE, str(tmp_path / "no.jar"))
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SPARK_JOB_SERVER names '.*no.jar', which is no file"):
        jobserver.job_server_jar("9.9.9", tmp_path)


LOSING = """
pipeline:
  transforms:
    - {type: ReadFromJson, name: A, config: {path: "%(dir)s/a.jsonl"}}
    - {type: MapToFields, name: Mapped, input: A, config: {fields: {id: id, ts: ts}}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: Mapped, b: A}
      config: {time: ts, window: 1s, where: a.id = b.id}
    - {type: WriteToJson, name: Late, input: joined.late, config: {path: "%(dir)s/out/late.jsonl"}}
"""


def test_a_row_that_is_lost_on_its_way_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is in this process: MapToFields gives a row less than it gets."""
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {k}, "ts": {k}}}\n' for k in range(30)))
    apply = run_beam.apply
    monkeypatch.setattr(run_beam, "apply", lambda config, batch: apply(config, batch).slice(1))
    text = "joined: of input 'a', 30 rows were read, 0 filtered out, 29 received and 29 accounted for; rows"
    with pytest.raises(AccountError, match=text):
        run_beam.run(read_template_text("t.yaml", LOSING % {"dir": tmp_path}), spark=True)
    assert not list(tmp_path.glob("out/*")), "nothing is published"
