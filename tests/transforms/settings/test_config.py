"""Settings of a join: every fault has its place, its words and its remedy."""

import pickle

import pyarrow as pa
import pytest
from running import SCHEMA

from slackwater.plugins.registry.manager import OptionError
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

GOOD = {"time": "ts", "window": "5s", "where": "a.k = b.k"}
TWO = {"a": SCHEMA, "b": SCHEMA}
KNOWN = "time, time_unit, error_handling, arrival, disorder, guard, metrics, idle_timeout, "


def schema(**types):
    return pa.schema([("id", pa.int64()), *types.items()])


@pytest.mark.parametrize(
    ("settings", "path", "fault"),
    [
        ({"windw": "5s"}, ["windw"], f"is not a setting; known settings: {KNOWN}"),
        ({"time": None, "window": "5s", "wnd": 1}, ["wnd"], "is not a setting; known settings: "),
        ({"guard": {"pst": "1s"}}, ["guard", "pst"], "is not a setting; remove it or check the spelling"),
        (
            {"guard": {"past": 5}},
            ["guard", "past"],
            "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5",
        ),
        ({"window": 5}, ["window"], "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5"),
        ({"window": "-5s"}, ["window"], "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '-5s'"),
        ({"output": "row"}, ["output"], "input should be 'rows' or 'counts', got 'row'"),
        ({"shards": 0}, ["shards"], "input should be greater than or equal to 1, got 0"),
        ({"shards": "many"}, ["shards"], "got 'many'"),
        ({"time": 5}, ["time"], "input should be a valid string, got 5"),
        ({"time_unit": "minutes"}, ["time_unit"], "input should be 's', 'ms', 'us' or 'ns', got 'minutes'"),
        ({"where": 5}, ["where"], "input should be a valid string, got 5"),
        ({"disorder": "max"}, ["disorder"], "input should be a valid dictionary, got 'max'"),
    ],
)
def test_settings_of_the_wrong_kind(settings, path, fault):
    with pytest.raises(ConfigError) as caught:
        JoinConfig.read({**GOOD, **settings})
    assert list(caught.value.path) == path
    assert fault in caught.value.fault
    assert str(caught.value) == f"{'.'.join(path)}: {caught.value.fault}"
    assert isinstance(caught.value, SlackwaterError)


def test_settings_that_are_missing():
    with pytest.raises(ConfigError, match=r"^time: is missing; add it$"):
        JoinConfig.read({"window": "5s"})
    with pytest.raises(ConfigError, match=r"^window: is missing; strategy 'mswj' cannot do without, add it$"):
        bind(JoinConfig.read({"time": "ts"}), TWO)


@pytest.mark.parametrize(
    ("settings", "schemas", "path", "fault"),
    [
        ({}, {"a": SCHEMA}, ["input"], "needs 2 to 8 inputs, got 1"),
        ({}, {name: SCHEMA for name in "abcdefghi"}, ["input"], "needs 2 to 8 inputs, got 9"),
        (
            {},
            {"a": pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("k", pa.int64())]), "b": SCHEMA},
            ["input"],
            "input 'a' has several columns called 'k'; rename one",
        ),
        ({"time": "when"}, TWO, ["time"], "input 'a' has no column 'when'; it has id, ts, k, v"),
        ({"time": {"a": "ts"}}, TWO, ["time"], "says nothing of input 'b'; add it"),
        (
            {"time": {"a": "ts", "b": "ts", "c": "ts"}},
            TWO,
            ["time", "c"],
            "names no input; the inputs are a, b",
        ),
        ({"time": {"a": "ts", "b": "t"}}, TWO, ["time"], "input 'b' has no column 't'; it has id, ts, k, v"),
        ({"arrival": "at"}, TWO, ["arrival"], "input 'a' has no column 'at'; it has id, ts, k, v"),
        (
            {"arrival": "at", "where": None},
            {"a": schema(ts=pa.int64(), at=pa.string()), "b": SCHEMA.append(pa.field("at", pa.int64()))},
            ["arrival"],
            "column 'at' of input 'b', int64, cannot be compared with column 'at' of input 'a', string; store ",
        ),
        (
            {"where": None},
            {"a": schema(ts=pa.float64()), "b": SCHEMA},
            ["time"],
            "column 'ts' of input 'a' must be an integer, a timestamp or a date, got double",
        ),
        (
            {"where": None},
            {"a": schema(ts=pa.timestamp("ms")), "b": SCHEMA},
            ["time"],
            "input 'b' has integer times and input 'a' has timestamps; ",
        ),
        ({"window": "0s"}, TWO, ["window"], "must be longer than 0, got 0s"),
        ({"window": {"a": "1s"}}, TWO, ["window"], "says nothing of input 'b'; add it"),
        (
            {"window": {"a": "1s", "b": "1s", "c": "1s"}},
            TWO,
            ["window", "c"],
            "names no input; the inputs are a, b",
        ),
        ({"window": {"a": "1s", "b": 0}}, TWO, ["window", "b"], "must be longer than 0, got 0s"),
        (
            {"window": {"a": "1s", "b": "soon"}},
            TWO,
            ["window", "b"],
            "must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 'soon'",
        ),
        (
            {"window": {"size": "1s", "closed": "left"}},
            TWO,
            ["window", "closed"],
            "must be both or right, got 'left'",
        ),
        (
            {"window": "5us"},
            TWO,
            ["window"],
            "must be a whole number of ms, the unit of the event times, got 5us",
        ),
        ({"where": "a.k = c.k"}, TWO, ["where"], "'c.k' names no input; the inputs are a, b"),
        ({"where": "a.kk = b.k"}, TWO, ["where"], "input 'a' has no column 'kk'; it has id, ts, k, v"),
        (
            {"disorder": {"strategy": "kslak"}},
            TWO,
            ["disorder"],
            "no strategy named 'kslak'; installed: ",
        ),
        ({"disorder": {}}, TWO, ["disorder"], "no strategy is named; installed: "),
        (
            {"disorder": {"strategy": "fixed"}},
            TWO,
            ["disorder", "slack"],
            "strategy 'fixed' needs the option 'slack'; add it.",
        ),
        (
            {"disorder": {"strategy": "fixed", "slack": 5}},
            TWO,
            ["disorder", "slack"],
            "option 'slack' of strategy 'fixed': must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5.",
        ),
        (
            {"disorder": {"strategy": "fixed", "slack": "1s", "k": 2}},
            TWO,
            ["disorder", "k"],
            "strategy 'fixed' has no option 'k'; its options are slack.",
        ),
        (
            {"disorder": {"strategy": "max", "slack": "1s"}},
            TWO,
            ["disorder", "slack"],
            "strategy 'max' has no option 'slack'; it has no options.",
        ),
        (
            {"where": None},
            {"a": SCHEMA.append(pa.field("b_c", pa.int8())), "a_b": SCHEMA.append(pa.field("c", pa.int8()))},
            ["input"],
            "two result columns would be called 'a_b_c'; rename an input or a column",
        ),
    ],
)
def test_settings_that_do_not_fit_the_inputs(settings, schemas, path, fault):
    with pytest.raises(ConfigError) as caught:
        bind(JoinConfig.read({**GOOD, **settings}), schemas)
    assert list(caught.value.path) == path
    assert fault in caught.value.fault


@pytest.mark.parametrize(
    ("window", "unit", "ticks"),
    [
        ("5s", "ms", (5000, 5000)),
        ("5s", "s", (5, 5)),
        ({"a": "1m", "b": "250ms"}, "ms", (60_000, 250)),
        ({"size": "3ms", "closed": "right"}, "ms", (2, 2)),
        ({"a": "3ms", "b": "1ms", "closed": "right"}, "ms", (2, 0)),
        ("1.5s", "us", (1_500_000, 1_500_000)),
        ("1d", "ns", (86_400 * 10**9,) * 2),
    ],
)
def test_windows_in_ticks(window, unit, ticks):
    plan = bind(JoinConfig.read({**GOOD, "window": window, "time_unit": unit}), TWO)
    assert plan.windows == ticks
    assert plan.setting.ticks(Duration.parse("1ns")) == 1  # rounded up


def test_the_finest_unit_of_the_inputs_counts():
    schemas = {
        "a": schema(ts=pa.timestamp("us", "UTC")),
        "b": schema(ts=pa.timestamp("s", "UTC")),
        "c": schema(ts=pa.date32()),
    }
    plan = bind(JoinConfig.read({"time": "ts", "window": "1s"}), schemas)
    assert plan.unit == "us"
    assert plan.result_schema.field("ts").type == pa.timestamp("us", "UTC")


def test_a_plan_travels_by_pickle():
    plan = bind(JoinConfig.read(GOOD), TWO)
    assert plan.setting.inputs == ("a", "b")
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    assert copy.result_schema == plan.result_schema
    Operator(copy)


def test_counts_have_a_schema_of_their_own():
    plan = bind(JoinConfig.read({**GOOD, "output": "counts"}), TWO)
    assert plan.result_schema == pa.schema([("ts", pa.int64()), ("count", pa.int64())])


@pytest.mark.parametrize(
    ("text", "nanos", "shown"),
    [
        ("250ms", 250_000_000, "250ms"),
        ("1.5s", 1_500_000_000, "1500ms"),
        (" 2 h ", 7_200_000_000_000, "2h"),
        ("1d", 86_400 * 10**9, "1d"),
        ("60s", 60 * 10**9, "1m"),
        ("7ns", 7, "7ns"),
        (0, 0, "0s"),
    ],
)
def test_durations(text, nanos, shown):
    duration = Duration.parse(text)
    assert (int(duration), str(duration), repr(duration)) == (nanos, shown, f"Duration.parse({shown!r})")
    assert Duration.parse(shown) == duration


def test_an_option_error_knows_its_option():
    assert OptionError("fault", "slack").option == "slack"
    assert ConfigError("fault").path == ()
    assert str(ConfigError("fault")) == "fault"
