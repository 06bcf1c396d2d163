"""Frequencies of key values that are given with a shedding strategy."""

import datetime
import decimal
import pickle

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from running import SCHEMA, numbered, plan_of, run
from scoring import Scorer

from slackwater.transforms.errors import ConfigError

WHERE = "a.k = b.k"


def prob(frequencies, **options):
    return {"strategy": "prob", "memory": 4, "frequencies": frequencies, **options}


def scorer(schema, frequencies, where=WHERE, m=2):
    plan = plan_of(schema, m, window="9ms", where=where, shedding=prob(frequencies))
    return Scorer(pickle.loads(pickle.dumps(plan)))


DAY = datetime.date(2026, 11, 16)
KEYS = {
    "integers": (pa.int32(), [7, 9, -1]),
    "texts": (pa.string(), ["7", "007", "größer"]),
    "dates": (pa.date32(), [DAY, DAY.replace(day=17), DAY.replace(day=18)]),
    "times": (pa.timestamp("ms"), [datetime.datetime(2026, 11, 16, 12, second) for second in (0, 1, 2)]),
    "floats": (pa.float64(), [0.5, -3.25, 1e300]),
    "decimals": (pa.decimal128(9, 2), [decimal.Decimal(text) for text in ("0.50", "3.25", "7.00")]),
    "codes": (pa.dictionary(pa.int8(), pa.string()), ["x", "y", "z"]),
    "truths": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("form", ["inline", "csv", "parquet"])
def test_a_row_is_worth_the_frequency_of_its_key_on_the_other_input(kind, form, tmp_path):
    type_, (often, seldom, never) = KEYS[kind]
    schema = pa.schema([("ts", pa.int64()), ("k", type_)])
    tables = {"a": {often: 0.5, seldom: 0.125}, "b": {often: 0.25, seldom: 0.5}}
    given = {f"{name}.k": table for name, table in tables.items()}
    if form != "inline":
        given = {name: str(tmp_path / f"{name}.{form}") for name in tables}
        for name, table in tables.items():
            values = pa.array(list(table), type_.value_type if kind == "codes" else type_)
            rows = pa.table({"frequency": list(table.values()), "other": ["?", "?"], "k": values})
            (pc.write_csv if form == "csv" else pq.write_table)(rows, given[name])
    known = scorer(schema, given)
    rows = [{"ts": 0, "k": k} for k in (often, seldom, never, None)]
    assert known.scores(0, rows) == [0.25, 0.5, 0, 0]
    assert known.scores(1, rows) == [0.5, 0.125, 0, 0]
    known.observe([(0, rows[2]), (1, rows[2])] * 50)
    assert known.scores(1, rows) == [0.5, 0.125, 0, 0], "nothing is learnt"


def test_counts_are_divided_by_their_sum_and_values_that_come_twice_are_added_up(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("k,frequency\n1,6\n2,1\n1,3\n,10\n")
    known = scorer(SCHEMA, {"b": str(path), "a.k": {}})
    assert known.scores(0, [{"k": 1}, {"k": 2}]) == [9 / 20, 1 / 20]


def test_keys_of_several_columns_and_parts_of_them_come_from_one_file(tmp_path):
    where = "a.k = b.k AND a.v = b.v AND b.k = c.k"
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("k,v,frequency\n1,1,0.5\n1,2,0.25\n2,1,0.125\n")
    files = {name: str(tmp_path / f"{name}.csv") for name in "ab"}
    known = scorer(SCHEMA, {**files, "c.k": {1: 0.5, 2: 1 / 8}}, where, 3)
    assert known.scores(0, [{"k": 1, "v": 2}, {"k": 2, "v": 2}]) == [0.25 * 0.5, 0]
    assert known.scores(2, [{"k": 1, "v": 9}, {"k": 2, "v": 9}]) == [0.75 * 0.75, 0.125 * 0.125]


def test_rows_go_in_the_order_of_their_frequency_and_of_equal_ones_the_older():
    given = prob({"b.k": {1: 0.5, 2: 0.25}, "a.k": {1: 0.5}})
    settings = {"window": "99ms", "where": WHERE, "disorder": {"strategy": "none"}, "shedding": given}
    # Without the guard, which would let all rows come in one step: late rows of a step are in order of arrival.
    plan = plan_of(SCHEMA, **settings, guard="none")
    keys = [3, 1, 2, 4, 1, 1, 2, 1]
    got = run(plan, numbered((0, {"ts": t, "k": k, "v": 0}) for t, k in enumerate(keys)), range(1, len(keys)))
    gone = [row["ts"] for row in got.late if row["reason"] == "shed"]
    worth = {1: 0.5, 2: 0.25}
    assert gone == sorted(gone, key=lambda t: (worth.get(keys[t], 0), t))
    assert gone[:3] == [0, 3, 2]


FAULTS = {
    "nothing/there.csv": ({"a": "nothing/there.csv"}, "shedding.frequencies.a: there is no file 'nothing/there"),
    "ending": (
        {"a": "{0}/a.txt"},
        "frequencies.a: cannot read .*the name must end in .parquet or .csv; mend the",
    ),
    "column": ({"a": "{0}/v.csv"}, "v.csv' has no column 'k'; it has v, frequency"),
    "frequency": ({"a": "{0}/k.csv"}, "k.csv' has no column 'frequency'; it has k"),
    "type": ({"a": "{0}/text.csv"}, "text.csv' with columns k int64, frequency double: .*mend the file"),
    "parquet": ({"a": "{0}/no.parquet"}, "cannot read '.*no.parquet' with columns k int64"),
    "negative": (
        {"a": "{0}/less.csv"},
        r"frequencies.a: the frequency of k 3 must be a number from 0 on, got -0.5",
    ),
    "inline": ({"a.k": {3: -1}}, "frequencies.a.k: the frequency of k 3 must be a number from 0 on, got -1"),
    "nan": ({"a.k": {3: float("nan")}}, "the frequency of k 3 must be a number from 0 on, got nan"),
    "value": ({"a.k": {"x": 1}}, "frequencies.a.k: values must be of the column's type, int64: .*'x'"),
    "input": ({"z.k": {}}, "frequencies.z.k: names no input; the inputs are a, b"),
    "unknown": ({"a.q": {}}, "input 'a' has no column 'q'; it has id, ts, k, v"),
    "no key": ({"a.v": {}}, "column 'v' of input 'a' is no key of the condition; its keys are k"),
    "file of a column": ({"a.k": "f.csv"}, "frequencies.a.k: a file is for all keys of an input; write a: f.csv"),
    "values of an input": ({"a": {1: 1}}, "values are of one column; write a.COLUMN, or name a file with the c"),
    "missing": (
        {"a.k": {1: 1}},
        r"nothing of the key k of input 'b'; add b: FILE .* or b.k: \{value: frequency\}",
    ),
    "shape": ("a.csv", "option 'frequencies' of strategy 'prob': input should be a valid dictionary"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_cannot_be_used_is_refused_before_anything_runs(case, tmp_path):
    files = {
        "a.txt": "k,frequency\n1,1\n",
        "v.csv": "v,frequency\n1,1\n",
        "k.csv": "k\n1\n",
        "text.csv": "k,frequency\nx,1\n",
        "no.parquet": "PAR2",
        "less.csv": "k,frequency\n1,0.5\n3,-0.5\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given, fault = FAULTS[case]
    if isinstance(given, dict):
        given = {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in given.items()}
    with pytest.raises(ConfigError, match=fault):
        plan_of(SCHEMA, window="9ms", where=WHERE, shedding=prob(given))


def test_frequencies_of_a_join_without_keys_are_refused():
    with pytest.raises(
        ConfigError, match=r"shedding.frequencies: the condition has no key, an equality .* leave it"
    ):
        plan_of(SCHEMA, window="9ms", where="a.k < b.k", shedding=prob({"a.k": {1: 1}}))
    with pytest.raises(
        ConfigError, match="the key k and v of input 'a'; add a: FILE with these columns and freq"
    ):
        plan_of(SCHEMA, window="9ms", where="a.k = b.k AND a.v = b.v", shedding=prob({"a.k": {1: 1}}))
