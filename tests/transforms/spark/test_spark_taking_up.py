"""Queries that are started again take up files as planned, whatever a killed driver noted of the next."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
import spark_cases as cases

from slackwater.transforms.spark import sliding_window_join
from slackwater.transforms.spark.file_offsets import forget_unplanned

pytestmark = pytest.mark.spark

FILES = 4
TABLES = [cases.stream(1), cases.stream(2)]
SCHEMA = "id long, ts long, k string, v long, arrived long"


def bring(folder: Path, numbers: range) -> None:
    """Let these files of both inputs come, one after the other."""
    size = cases.ROWS // FILES
    for name, table in zip(cases.NAMES, TABLES, strict=False):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for k in numbers:
            file = folder / name / f"{k}.parquet"
            pq.write_table(table.slice(k * size, size), file)
            os.utime(file, (1_700_000_000 + k,) * 2)


def join(spark: Any, folder: Path) -> list[tuple[int, ...]]:
    """Join the files that are there with a file of each input per micro-batch; return the rows each took."""
    streams = {
        name: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name in "ab"
    }
    settings = cases.settings(where=cases.star(2), arrival="arrived", shards=2)
    query = (
        sliding_window_join(streams, **settings)
        .results.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [tuple(source["numInputRows"] for source in step["sources"]) for step in query.recentProgress]


def note(folder: Path, source: int, number: int) -> None:
    """Note a file as Spark does: in one of ten notes all before it are told again."""
    notes = folder / "checkpoint" / "sources" / str(source)
    notes.mkdir(parents=True, exist_ok=True)
    file = folder / cases.NAMES[source] / f"{number}.parquet"
    entry = {"path": file.as_uri(), "timestamp": 1000 * (1_700_000_000 + number), "batchId": number}
    (notes / str(number)).write_text(f"v1\n{json.dumps(entry)}")


def results(folder: Path) -> Any:
    return cases.rows_of([pq.read_table(file) for file in (folder / "out").glob("*.parquet")])


@pytest.fixture(scope="module")
def undisturbed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("alone")
    bring(folder, range(FILES))
    assert join(spark, folder) == [(100, 100)] * FILES
    found = results(folder)
    assert found.total() > 100
    return found


@pytest.mark.parametrize(("before", "ahead"), [(0, [0, 1]), (2, [0])])
def test_files_that_were_noted_but_not_planned_are_planned_again(
    spark: Any, tmp_path: Path, undisturbed: Any, before: int, ahead: list[int]
) -> None:
    """The driver was killed after so many micro-batches, when these inputs had noted another file."""
    if before:
        bring(tmp_path, range(before))
        join(spark, tmp_path)
    bring(tmp_path, range(before, FILES))
    for source in ahead:
        note(tmp_path, source, before)
    assert join(spark, tmp_path) == [(100, 100)] * (FILES - before)
    assert results(tmp_path) == undisturbed


def test_nothing_else_in_a_checkpoint_is_touched(spark: Any, tmp_path: Path) -> None:
    """Planned notes stay, also where a later one tells them again, and so does what other sources keep."""
    bring(tmp_path, range(2))
    join(spark, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    start = 'v1\n{"topic":{"0":7}}'
    for number in ("2", "3"):
        (checkpoint / "sources" / number).mkdir()
        (checkpoint / "sources" / number / "0").write_text(start)
    offsets = checkpoint / "offsets" / "1"
    offsets.write_text(offsets.read_text() + '\n-\n{"topic":{"0":9}}')
    (checkpoint / "offsets" / ".1.crc").unlink()
    note(tmp_path, 1, 2)
    shutil.move(checkpoint / "sources" / "1" / "2", checkpoint / "sources" / "1" / "2.compact")
    before = {path for path in checkpoint.rglob("*") if path.name != "2.compact"}
    assert forget_unplanned(spark, str(checkpoint)) == {1: 1}
    assert set(checkpoint.rglob("*")) == before
    assert forget_unplanned(spark, str(checkpoint)) == {}


@pytest.mark.parametrize("content", ["v2\n{}\n", "v1\n{}\n5\n5"])
def test_of_offsets_that_it_cannot_read_nothing_is_concluded(spark: Any, tmp_path: Path, content: str) -> None:
    note(tmp_path, 0, 0)
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(content)
    assert forget_unplanned(spark, str(tmp_path / "checkpoint")) == {}
    assert (tmp_path / "checkpoint" / "sources" / "0" / "0").exists()


def test_a_query_without_a_checkpoint_has_nothing_to_forget(spark: Any, tmp_path: Path) -> None:
    assert forget_unplanned(spark, str(tmp_path / "none")) == {}


def test_a_source_without_rows_of_the_killed_driver(spark: Any, tmp_path: Path) -> None:
    """Notes without any plan are all too many."""
    note(tmp_path, 0, 0)
    note(tmp_path, 1, 0)
    assert forget_unplanned(spark, str(tmp_path / "checkpoint")) == {0: 1, 1: 1}
