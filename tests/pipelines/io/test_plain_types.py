"""Columns of types that Arrow can hardly work with: read as others that hold the same, or refused by name."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.io.plain_types import plain_type
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.graph import Read
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import SlackwaterError

TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "%(dir)s/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config: {time: ts, window: 1s, where: a.k = b.k}
    - {type: %(sink)s, name: Out, input: joined, config: {path: "%(dir)s/out"}}
"""
ROWS = [(1, "x", "ä"), (2, "y", None), (3, "x", "")]


def joined(folder, carried, sink="WriteToParquet", key=None):
    """Join two files on ``k``; ``carried`` is a column of the first one."""
    for name in "ab":
        table = pa.table(
            {
                "ts": [ts for ts, _, _ in ROWS],
                "k": pa.array([k for _, k, _ in ROWS], key or pa.string()),
                "v": carried if name == "a" else pa.array([1, 2, 3]),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet")
    return run(read_template_text("t.yaml", TEMPLATE % {"dir": folder, "sink": sink}))


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
def test_views_are_read_as_what_they_show(tmp_path, type_):
    values = [None if v is None else v.encode() if type_ == pa.binary_view() else v for _, _, v in ROWS]
    summary = joined(tmp_path, pa.array(values, type_), key=pa.string_view())
    assert summary["results"] == 5
    out = pq.read_table(tmp_path / "out.parquet")
    assert out["a_v"].type == plain_type(type_)
    expected = dict(zip([ts for ts, _, _ in ROWS], values, strict=True))
    assert all(expected[row["a_ts"]] == row["a_v"] for row in out.to_pylist())


def test_views_within_lists_and_structs_too():
    nested = pa.struct([("x", pa.list_(pa.string_view())), ("n", pa.int64())])
    assert plain_type(nested) == pa.struct([("x", pa.list_(pa.large_string())), ("n", pa.int64())])
    assert plain_type(pa.large_list(pa.binary_view())) == pa.large_list(pa.large_binary())


def test_a_nested_column_in_csv_is_refused_by_name(tmp_path):
    said = "column 'a_v' has the type list<.*>, which CSV cannot hold; write Parquet or JSON, or leave the column"
    with pytest.raises(SlackwaterError, match=said):
        joined(tmp_path, pa.array([[1], None, []]), sink="WriteToCsv")
    assert not list(tmp_path.glob("out*"))
    assert not list(tmp_path.glob(".out*")), "no partial file is left"


def test_a_csv_file_without_values_says_nothing_of_types(tmp_path):
    (tmp_path / "part-1.csv").write_text("ts,k,only\n1,7,\n2,,\n")
    (tmp_path / "part-2.csv").write_text("ts,k,only\n")
    (tmp_path / "part-3.csv").write_text("ts,k,only\n3,,\n")
    schema = source_schema(Read("csv", str(tmp_path)))
    assert schema == pa.schema({"ts": pa.int64(), "k": pa.int64(), "only": pa.string()})
