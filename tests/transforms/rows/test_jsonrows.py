"""Rows as JSON text: what json.loads gives back is what was in the batch."""

import datetime as dt
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.pipelines.io.sinks import Sink
from slackwater.pipelines.template.graph import Write
from slackwater.transforms.rows.json_text import integers_to_json, rows_to_json

ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(codec="utf-8")),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.booleans(),
    ),
    max_size=20,
)


def batch_of(rows):
    types = [pa.string(), pa.int64(), pa.float64(), pa.bool_()]
    columns = [pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names=["text", 'a "name"', "x", "flag"])


@settings(deadline=None)
@given(ROWS, st.integers(0, 3))
def test_rows_come_back_from_json(rows, skipped):
    batch = batch_of(rows).slice(skipped)
    assert [json.loads(line) for line in rows_to_json(batch).to_pylist()] == batch.to_pylist()


POWERS = st.sampled_from([n for e in range(20) for n in (10**e - 1, 10**e, -(10**e)) if abs(n) < 2**63])


@settings(deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4, unique=True).flatmap(
        lambda names: st.tuples(
            st.just(names),
            st.lists(
                st.lists(POWERS | st.integers(-(2**63), 2**63 - 1), min_size=len(names), max_size=len(names)),
                min_size=1,
            ),
        )
    )
)
def test_whole_numbers_are_written_as_they_are(table):
    names, rows = table
    texts = integers_to_json(names, np.array(rows, np.int64)).to_pylist()
    assert texts == [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]


@settings(deadline=None, max_examples=30)
@given(ROWS.filter(bool))
def test_json_lines_are_one_row_a_line(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("lines") / "rows.jsonl"
    sink = Sink(Write("json", str(path)), batch_of(rows).schema)
    sink.write(batch_of(rows))
    sink.write(batch_of(rows).slice(1))
    sink.close()
    lines = path.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == batch_of(rows + rows[1:]).to_pylist()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([math.nan, math.inf, 2.0]), ["null", "null", "2.0"]),
        (pa.array([dt.datetime(2024, 1, 2, 3, 4)], pa.timestamp("ms")), ['"2024-01-02 03:04:00.000"']),
        (pa.array([b"\x00\xff"]), ['"00ff"']),
        (pa.array(["a", None, "a"]).dictionary_encode(), ['"a"', "null", '"a"']),
        (pa.array([[1, None]]), ["[1, null]"]),
        (pa.array(["\x01\n\x7fü"]), ['"\\u0001\\u000a\x7fü"']),
        (pa.nulls(1), ["null"]),
    ],
)
def test_unusual_values(values, text):
    batch = pa.RecordBatch.from_arrays([values], names=["v"])
    assert rows_to_json(batch).to_pylist() == [f'{{"v": {t}}}' for t in text]
