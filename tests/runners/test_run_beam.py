"""Templates on the beam runner."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from beam_cases import TEMPLATE, write_inputs

from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import SlackwaterError

pytestmark = pytest.mark.beam


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_inputs(tmp_path)
    return tmp_path


def test_a_join_of_what_several_shards_wrote_is_refused(data: Path) -> None:
    text = TEMPLATE % {"dir": data, "out": data / "out", "shards": 4}
    with pytest.raises(
        SlackwaterError, match=r"chained.input: input 'j' comes from 'joined', which has several shards"
    ):
        run_beam.run(read_template_text("t.yaml", text))
    assert not (data / "out").exists()


SIMPLE = """
pipeline:
  transforms:
    - {type: ReadFromJson, name: A, config: {path: "%(dir)s/a.jsonl"}}
    - {type: Filter, name: Some, input: A, config: {keep: "id < %(below)s"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: Some, b: A}
      config: {time: ts, window: 1s, where: a.id = b.id, shards: 3}
    - {type: WriteToParquet, input: joined, config: {path: "%(dir)s/out/joined.parquet"}}
"""


def test_a_run_without_rows_writes_files_with_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ts": 5}\n')
    summary = run_beam.run(read_template_text("t.yaml", SIMPLE % {"dir": tmp_path, "below": 0}))
    assert summary["results"] == 0 and summary["input"] == {"a": 0, "b": 1}
    assert pq.read_schema(tmp_path / "out/joined.parquet").names == ["a_id", "a_ts", "b_id", "b_ts", "ts"]


def test_results_of_shards_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {i % 50}, "ts": {i}}}\n' for i in range(500)))
    run_beam.run(read_template_text("t.yaml", SIMPLE % {"dir": tmp_path, "below": 99}))
    ts = pq.read_table(tmp_path / "out/joined.parquet")["ts"].to_pylist()
    assert len(ts) == 5000 and sum(later < earlier for earlier, later in pairwise(ts)) == 2


def test_an_error_in_a_worker_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ts": 5}\n' * 10 + '{"id": "x" "ts"}\n')
    copy = '    - {type: WriteToJson, name: Copy, input: A, config: {path: "%(dir)s/out/copy"}}\n'
    template = read_template_text("t.yaml", (SIMPLE + copy) % {"dir": tmp_path, "below": 9})
    with pytest.raises(SlackwaterError) as caught:
        run_beam.run(template)
    assert "\n" not in str(caught.value) and "a.jsonl' line 11: no JSON" in str(caught.value)
    assert not list((tmp_path).glob("out/*"))
