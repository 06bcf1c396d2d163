"""Files are read as they are written: no value changes, no row is lost, and what cannot be read says so."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.io.source_files import list_files, source_files
from slackwater.pipelines.io.sources import read_batches, source_schema
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Read
from slackwater.pipelines.template.reader import TemplateError, read_template_text
from slackwater.transforms.arrival.bad_rows import BAD
from slackwater.transforms.errors import SlackwaterError


def rows_of(config, **how):
    """What a source gives: its types, the good rows, and text and fault of the bad ones."""
    schema = source_schema(config)
    good, bad = [], []
    for batch in read_batches(config, schema, **how):
        for row in batch.to_pylist():
            said = row.pop(BAD, None)
            row.pop("__arrival")
            if said is None:
                good.append(row)
            else:
                assert all(value is None for value in row.values())
                bad.append(json.loads(said))
    return {field.name: str(field.type) for field in schema}, good, bad


def csv(folder, text, **options):
    (folder / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return rows_of(Read("csv", str(folder / "x.csv"), **options))


def lines(folder, *texts, **options):
    (folder / "x.jsonl").write_text("\n".join(texts) + "\n")
    return rows_of(Read("json", str(folder / "x.jsonl"), **options))


def test_only_an_empty_field_without_quotes_is_null(tmp_path):
    types, rows, bad = csv(tmp_path, 'k,v\nNA,1\n"NULL",2\nnan,3\nN/A,\n,4\n"",5\n')
    assert [row["k"] for row in rows] == ["NA", "NULL", "nan", "N/A", None, ""]
    assert [row["v"] for row in rows] == [1, 2, 3, None, 4, 5]
    assert not bad
    assert types == {"k": "string", "v": "int64"}


def test_listed_texts_are_null_with_and_without_quotes(tmp_path):
    types, rows, _ = csv(tmp_path, 'k,v\nNA,1\n"-",-\nx,"NA"\n', null_values=("NA", "-"))
    assert rows == [{"k": None, "v": 1}, {"k": None, "v": None}, {"k": "x", "v": None}]
    assert types["v"] == "int64"


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["12345678901234567890", "7"], "string"),
        (["007", "7"], "string"),
        (["0", "-5", "9223372036854775807"], "int64"),
        (["-0"], "string"),
        (["0x10", "16"], "string"),
        (["+5"], "string"),
        (["1.5", "2", "1e3"], "double"),
        (["0.30000000000000004", "0.10000000000000001"], "double"),
        (["1.0000000000000000001", "1"], "string"),
        (["1.0000000000000001"], "string"),
        (["12345678901234567", "0.5"], "string"),
        (["007.5"], "string"),
        (["1e999", "0.5"], "string"),
        (["nan", "1.5"], "string"),
        (["true", "False"], "bool"),
        (["true", "1"], "string"),
        (["2024-01-01 10:00:00"], "timestamp[s]"),
        (["2024-01-01"], "date32[day]"),
        (["", ""], "string"),
    ],
)
def test_a_type_is_inferred_only_if_it_changes_no_value(tmp_path, texts, type_):
    types, rows, bad = csv(tmp_path, "k,x\n" + "".join(f"{text},\n" for text in texts))
    assert types["k"] == type_
    assert len(rows) == len(texts)
    assert not bad
    if type_ == "string":
        assert [row["k"] for row in rows] == [text or None for text in texts]


def test_a_later_value_that_the_type_would_change_is_a_bad_record(tmp_path):
    text = (
        "k,v\n" + "".join(f"{k},0.5\n" for k in range(500_000)) + "007,1.5\n8,1.0000000000000001\n9,nan\n10,2\n"
    )
    types, rows, bad = csv(tmp_path, text)
    assert types == {"k": "int64", "v": "double"}
    assert rows[-1] == {"k": 10, "v": 2.0}
    assert len(rows) == 500_001
    assert [row["raw"] for row in bad] == ["007,1.5", "8,1.0000000000000001", "9,nan"]
    assert "x.csv' row 500002: column 'k': '007' is not an integer" in bad[0]["fault"]
    assert "column 'v': 'nan' is not a number" in bad[2]["fault"]


def test_stated_types_are_used_and_what_does_not_fit_is_a_bad_record(tmp_path):
    schema = {"id": pa.string(), "n": pa.int64(), "t": pa.timestamp("us"), "ok": pa.bool_(), "x": pa.float64()}
    text = "id,n,t,ok,x\n007,007,2024-01-01T00:00:00Z,true,nan\n8,x,2024-01-01 00:00:00,no,1\n9,1,2024-02-30,,2\n"
    types, rows, bad = csv(tmp_path, text, schema=schema)
    assert types == {name: str(type_) for name, type_ in schema.items()}
    assert (rows[0]["id"], rows[0]["n"], rows[0]["t"].isoformat()) == ("007", 7, "2024-01-01T00:00:00")
    assert [row["raw"].split(",")[0] for row in bad] == ["8", "9"]
    assert "row 3: column 'n': 'x' is not an integer, which schema says it is" in bad[0]["fault"]
    assert "row 4: column 't': '2024-02-30' is not a timestamp" in bad[1]["fault"]


def test_malformed_csv_rows_keep_their_place_and_text(tmp_path):
    text = b'a,b\n1,2\n3\n4,5,6\n"x\ny",7\n8,\xff\n9,10\n11\n'
    _, rows, bad = csv(tmp_path, text)
    assert [row["a"] for row in rows] == ["1", "x\ny", "9"]
    assert [row["raw"] for row in bad] == ["3", "4,5,6", "8,\\xff", "11"]
    assert [row["fault"].split("x.csv' ")[1] for row in bad] == [
        "row 3: 1 fields instead of 2", "row 4: 3 fields instead of 2", "row 6: not UTF-8",
        "row 8: 1 fields instead of 2",
    ]  # fmt: skip
    config = Read("csv", str(tmp_path / "x.csv"))
    (batch,) = read_batches(config, source_schema(config))
    assert batch.column("a").to_pylist() == ["1", None, None, "x\ny", None, "9", None]
    assert batch.column("__arrival").to_pylist() == list(range(7))
    small = pa.Table.from_batches(read_batches(config, source_schema(config), batch_rows=2))
    assert small.combine_chunks().to_batches()[0] == batch


def test_a_quote_that_is_not_closed_swallows_nothing(tmp_path):
    _, rows, bad = csv(tmp_path, 'a,b\n1,2\n3,"4\n5,6\n7,8\n')
    assert rows == [{"a": 1, "b": "2"}]
    assert bad[0]["fault"].endswith('row 3: a quote (") is not closed before the end of the file')
    assert "5,6\n7,8" in bad[0]["raw"]


def test_fields_may_be_delimited_by_another_character_and_hold_line_breaks(tmp_path):
    long = "x" * 3_000_000
    _, rows, bad = csv(tmp_path, f'a;b\n1;"p\nq"\n2;"{long}\n{long[:10]}"\n3;"r,s"\n', delimiter=";")
    assert [row["a"] for row in rows] == [1, 2, 3]
    assert (rows[0]["b"], rows[2]["b"]) == ("p\nq", "r,s")
    assert not bad


def test_a_bad_row_is_an_error_where_a_sink_reads_the_source(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    text = f"""
pipeline:
  type: chain
  transforms:
    - {{type: ReadFromCsv, config: {{path: "{tmp_path}/a.csv"}}}}
    - {{type: Filter, config: {{keep: a > 0}}}}
    - {{type: WriteToJson, config: {{path: "{tmp_path}/out"}}}}
"""
    with pytest.raises(
        SlackwaterError, match=r"row 3: 1 fields instead of 2; a sink reads these rows without a join"
    ):
        local.run(read_template_text("t.yaml", text))
    assert not (tmp_path / "out.jsonl").exists()


def test_a_json_field_is_found_wherever_it_comes_first(tmp_path):
    many = [f'{{"a": {k}, "text": "{"x" * 40}"}}' for k in range(100_000)]
    types, rows, bad = lines(tmp_path, *many, '{"a": 1, "late": "here"}')
    assert types["late"] == "string"
    assert rows[-1]["late"] == "here"
    assert len(rows) == 100_001
    assert not bad


def test_json_values_of_mixed_types_do_not_change(tmp_path):
    types, rows, bad = lines(
        tmp_path,
        '{"n": 1, "m": 1, "id": 12345678901234567890, "d": 1.5, "t": "2024-01-01"}',
        '{"n": 2.5, "m": "1", "id": 7, "d": 9007199254740993, "t": "soon"}',
        '{"n": 3, "m": 2, "id": 8, "d": 2, "t": "2024-01-01T00:00:00"}',
    )
    assert types == {"n": "double", "m": "int64", "id": "string", "d": "double", "t": "string"}
    assert rows[0] == {"n": 1.0, "m": 1, "id": "12345678901234567890", "d": 1.5, "t": "2024-01-01"}
    assert rows[1] == {"n": 3.0, "m": 2, "id": "8", "d": 2.0, "t": "2024-01-01T00:00:00"}
    assert json.loads(bad[0]["raw"])["m"] == "1"
    assert "x.jsonl' line 2: column 'm' is integer, and \"1\" is not" in bad[0]["fault"]


def test_json_lines_that_cannot_be_read_are_bad_records(tmp_path):
    good = '{"a": "x"}'
    broken = [
        '{"a": "\\ud800"}', '{"a": 1', "[1]", '{"a": "x"}{"a": "y"}', '{"a": "x", "a": "y"}', "[" * 10_000
    ]  # fmt: skip
    _, rows, bad = lines(tmp_path, good, *broken, "", good)
    assert rows == [{"a": "x"}] * 2
    assert [row["raw"] for row in bad] == broken
    assert "line 2: text with half a surrogate pair, which is no character" in bad[0]["fault"]
    assert "line 4: no JSON object" in bad[2]["fault"]
    assert "line 5: no JSON: Extra data" in bad[3]["fault"]
    assert "line 6: no JSON: 'a' occurs twice in an object" in bad[4]["fault"]
    assert "line 7: nested too deeply" in bad[5]["fault"]
    (tmp_path / "x.jsonl").write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n')
    _, rows, bad = rows_of(Read("json", str(tmp_path / "x.jsonl")))
    assert (rows, bad[0]["raw"]) == ([{"a": "x"}], '{"a": "\\xff"}')


def test_stated_types_of_json(tmp_path):
    schema = {"id": pa.string(), "n": pa.float64(), "d": pa.date32(), "new": pa.int64()}
    types, rows, bad = lines(
        tmp_path, '{"id": 1.50, "n": 2, "d": "2024-01-01"}', '{"id": "x", "d": 5}', schema=schema
    )
    assert types == {"id": "string", "n": "double", "d": "date32[day]", "new": "int64"}
    assert (rows[0]["id"], rows[0]["n"], str(rows[0]["d"]), rows[0]["new"]) == ("1.50", 2.0, "2024-01-01", None)
    assert "line 2: column 'd' is date, and \"5\" is not" in bad[0]["fault"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("prix_é,b\n1,2\n".encode("latin1"), "x.csv': its names of columns are not UTF-8; save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "x.csv': its names of columns are not UTF-8; save it as UTF-8"),
        (b"a,b,a\n1,2,3\n", "x.csv' has several columns called 'a'; rename one"),
        (b"a,b\0\n1,2\n", "x.csv' has a column whose name has NUL in it; rename it"),
    ],
)
def test_headers_that_cannot_be_used_are_refused(tmp_path, data, fault):
    with pytest.raises(SlackwaterError) as error:
        csv(tmp_path, data)
    assert fault in str(error.value)


LONG = b"".join(b"%d,%s\n" % (n, b"long" * 10) for n in range(17_000))
"""Rows after which Arrow parses long values in words of 8 bytes, in which it overlooks what follows NUL."""


def test_delimiters_and_line_ends_after_nul_are_seen(tmp_path):
    ends = b'\0,1\nlong enough,2\n"\0","b"\nx\0\0\0,\0\n\0\n\0,1,2\nend,3\n'
    types, rows, bad = csv(tmp_path, b"k,v\n" + LONG + ends)
    assert types == {"k": "string", "v": "string"}
    assert len(rows) == 17_005
    found = [(row["k"], row["v"]) for row in rows[17_000:]]
    assert found == [("\0", "1"), ("long enough", "2"), ("\0", "b"), ("x\0\0\0", "\0"), ("end", "3")]
    assert [row["raw"] for row in bad] == ["\0", "\0,1,2"]


def test_nul_is_a_part_of_text_and_no_number(tmp_path):
    types, rows, bad = csv(tmp_path, b"k,v\n\0,1\n,2\n", schema={"v": pa.int64()})
    assert (types["k"], rows, bad) == ("string", [{"k": "\0", "v": 1}, {"k": None, "v": 2}], [])
    _, rows, bad = csv(tmp_path, b"k,v\na,1\nb,2\0\n", schema={"v": pa.int64()})
    assert (rows, bad[0]["raw"]) == ([{"k": "a", "v": 1}], "b,2\0")


@pytest.mark.parametrize("data", [b"k\nx\0\n\x16\n", b"k\n\x16\n" + b"x" * (5 << 20) + b"\n\0\n"])
def test_nul_beside_its_stand_in_is_refused(tmp_path, data):
    fault = r"x\.csv' has both bytes 0x00 and 0x16, which cannot be told apart; remove one of them"
    with pytest.raises(SlackwaterError, match=fault):
        csv(tmp_path, data)
    assert csv(tmp_path, data.replace(b"\0", b""))[1][-2]["k"].strip("x") in ("", "\x16")


def test_a_json_number_with_more_digits_than_a_double_is_a_bad_record(tmp_path):
    _, rows, bad = lines(tmp_path, '{"x": 1.0000000000000000001}', '{"x": 0.30000000000000004}', '{"x": 2.50}')
    assert rows == [{"x": 0.30000000000000004}, {"x": 2.5}]
    assert [row["raw"] for row in bad] == ['{"x": 1.0000000000000000001}']
    schema = {"x": pa.string()}
    _, rows, bad = lines(tmp_path, '{"x": 1.0000000000000000001}', schema=schema)
    assert rows == [{"x": "1.0000000000000000001"}]


def test_gzip_files_of_several_parts_and_marks_of_encoding_are_read(tmp_path):
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"\xef\xbb\xbfk\n1\n") + gzip.compress(b"2\n"))
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"k": 1}\r\n{"k": 2}')
    for format, ending in (("csv", "csv"), ("json", "jsonl")):
        assert rows_of(Read(format, str(tmp_path / f"a.{ending}")))[1] == [{"k": 1}, {"k": 2}]


def test_a_file_without_a_json_object_is_refused(tmp_path):
    with pytest.raises(SlackwaterError, match=r"no line of .* is a JSON object; write each row as an object"):
        lines(tmp_path, "[", '{"a": 1},', "]")


def test_folders_take_all_endings_of_a_format_in_natural_order(tmp_path):
    for name in (
        "part-10.csv",
        "part-2.csv",
        "part-1.CSV.gz",
        "_SUCCESS",
        ".hidden.csv",
        "n.txt",
        "b.parquet",
    ):
        data = f"k\n{name}\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (tmp_path / "sub.csv").mkdir()
    config = Read("csv", str(tmp_path))
    _, rows, _ = rows_of(config)
    assert [row["k"] for row in rows] == ["part-1.CSV.gz", "part-2.csv", "part-10.csv"]
    skipped = {skipped.file.rsplit("/", 1)[1]: skipped for skipped in list_files(config).skipped}
    assert {name: found.why for name, found in skipped.items()} == {
        ".hidden.csv": "hidden", "_SUCCESS": "hidden", "b.parquet": "another ending", "n.txt": "another ending",
        "sub.csv": "a folder",
    }  # fmt: skip
    assert {name for name, found in skipped.items() if found.looks_like_data} == {
        "b.parquet", "n.txt", "sub.csv"
    }  # fmt: skip


@pytest.mark.parametrize("ending", ["json", "jsonl", "ndjson", "json.gz", "jsonl.gz", "ndjson.gz"])
def test_folders_take_all_endings_of_json(tmp_path, ending):
    data = b'{"k": 1}\n'
    (tmp_path / f"x.{ending}").write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    assert rows_of(Read("json", str(tmp_path)))[1] == [{"k": 1}]


def test_a_truncated_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress(("k\n" + "".join(f"{k * k}\n" for k in range(50_000))).encode())
    (tmp_path / "x.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SlackwaterError, match=r"cannot read .*x\.csv\.gz"):
        rows_of(Read("csv", str(tmp_path / "x.csv.gz")))


def test_empty_files_among_others_have_no_rows(tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("k\n1\n")
    assert rows_of(Read("csv", str(tmp_path)))[1] == [{"k": 1}]


def test_csv_files_of_one_source_get_a_type_that_takes_all(tmp_path):
    (tmp_path / "a.csv").write_text("k,v,w\n7,1,1\n")
    (tmp_path / "b.csv").write_text("v,k,w\n1.5,007,x\n")
    types, rows, bad = rows_of(Read("csv", str(tmp_path)))
    assert types == {"k": "string", "v": "double", "w": "string"}
    assert rows == [{"k": "7", "v": 1.0, "w": "1"}, {"k": "007", "v": 1.5, "w": "x"}]
    assert not bad


def test_parquet_files_of_one_source_are_cast_only_exactly(tmp_path):
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [1.5], "k": [1 << 40]}), tmp_path / "b.pq")
    config = Read("parquet", str(tmp_path))
    types, rows, _ = rows_of(config)
    assert types == {"k": "int64", "v": "double"}
    assert rows == [{"k": 1, "v": 1.0}, {"k": 1 << 40, "v": 1.5}]
    pq.write_table(pa.table({"k": [1], "v": [(1 << 53) + 1]}), tmp_path / "c.parquet")
    with pytest.raises(SlackwaterError, match=r"c\.parquet': column 'v' is int64 here and double in other files"):
        rows_of(config)
    pq.write_table(pa.table({"k": ["1"], "v": [1]}), tmp_path / "c.parquet")
    with pytest.raises(SlackwaterError, match=r"column 'k' is int32 in .*a\.parquet', but int64 in"):
        rows_of(config)


def test_a_folder_without_a_file_of_the_format_says_what_is_there(tmp_path):
    (tmp_path / "x.tsv").write_text("k\n1\n")
    with pytest.raises(SlackwaterError, match=r"there are x\.tsv, but no file that ends in \.csv or \.csv\.gz"):
        source_files(Read("csv", str(tmp_path)))


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("delimiter: ';;'", "delimiter: string should have at most 1 character, got ';;'"),
        ("delimiter: '\"'", "delimiter: must not be '\"', which has a meaning of its own in CSV"),
        ('delimiter: "\\0"', r"delimiter: must not be '\x00', which has a meaning of its own in CSV"),
        (
            "schema: {a: decimal}",
            "schema.a: input should be 'integer', 'number', 'string', 'boolean', 'timestamp'",
        ),
        ("dtype: {a: int7}", "dtype.a: must be one of str, object"),
        ("schema: {a: string}, dtype: {a: str}", "dtype.a: is in schema too; keep one"),
        ("keep_default_na: true", "keep_default_na: input should be False, got True"),
    ],
)
def test_faults_of_reader_settings(config, fault):
    text = f"pipeline:\n  transforms:\n    - {{type: ReadFromCsv, name: A, config: {{path: x, {config}}}}}\n"
    with pytest.raises(TemplateError) as error:
        read_template_text("t.yaml", text)
    assert fault in str(error.value)


def test_a_stated_column_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SlackwaterError, match=r"schema names column 'b', but .* has a; check the name"):
        csv(tmp_path, "a\n1\n", schema={"b": pa.string()})
