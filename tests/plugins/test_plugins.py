"""Finding strategies: good plugins are listed with their source, bad ones are named and take nothing down."""

import sys
from importlib import metadata
from types import ModuleType
from typing import ClassVar

import pytest
from pydantic import Field, model_validator

from slackwater.plugins import DisorderStrategy, Duration, SheddingStrategy, hookimpl
from slackwater.plugins.disorder.fixed import FixedSlack
from slackwater.plugins.registry import builtin
from slackwater.plugins.registry.manager import STAGES, OptionError, PluginError, StrategyManager

BUILT_IN = {
    (stage, strategy.name)
    for stage in STAGES
    for strategy in getattr(builtin, f"slackwater_{stage}_strategies")()
}
INSTALLED = ", ".join(sorted({"picky", *(name for stage, name in BUILT_IN if stage == "disorder")}))


class Picky(DisorderStrategy):
    """Has an option of every kind."""

    name: ClassVar[str] = "picky"
    level: float = Field(default=0.5, gt=0, lt=1)
    rows: int = 10
    wait: Duration = Duration.parse("1s")
    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _ordered(self):
        if self.low > self.high:
            raise ValueError("low must be at most high")
        return self

    def build(self, setting, snapshot=None):
        raise NotImplementedError


class AnotherFixed(DisorderStrategy):
    """Takes the name of a built-in strategy."""

    name: ClassVar[str] = "fixed"


class AnotherPicky(Picky):
    """Takes the name of its neighbour."""


class Nameless(DisorderStrategy):
    """Has no name."""


class Shedder(SheddingStrategy):
    """Is of another stage."""

    name: ClassVar[str] = "shedder"


@pytest.fixture
def plugin(monkeypatch):
    """Make a module with a hook that returns ``strategies``, importable by name."""

    def make(name, strategies, hook="slackwater_disorder_strategies"):
        module = ModuleType(name)

        def provide():
            if isinstance(strategies, Exception):
                raise strategies
            return strategies

        provide.__name__ = hook
        setattr(module, hook, hookimpl(provide))
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


@pytest.fixture
def installed(monkeypatch):
    """Make a manager that sees these modules as installed plugins, besides the built-in one."""

    def make(*names):
        entries = [metadata.EntryPoint("builtin", "slackwater.plugins.registry.builtin", "slackwater")]
        entries += [metadata.EntryPoint(name, name, "slackwater") for name in names]
        monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
        return StrategyManager()

    return make


def known(manager):
    return {(p.strategy.stage, p.strategy.name) for p in manager.strategies()}


def test_built_in_strategies_come_through_the_same_door():
    found = [p for p in StrategyManager().strategies() if p.plugin == "builtin"]
    assert {(p.strategy.stage, p.strategy.name) for p in found} >= BUILT_IN
    assert {p.distribution.split()[0] for p in found} == {"slackwater"}
    assert all(issubclass(p.strategy, STAGES[p.strategy.stage]) for p in found)


def test_an_installed_plugin_is_found(plugin, installed):
    plugin("good_plugin", [Picky])
    manager = installed("good_plugin")
    assert ("disorder", "picky") in known(manager)
    assert ", ".join(manager.names("disorder")) == INSTALLED
    assert [p.strategy.name for p in manager.strategies("join")] == [
        "mswj",
        "pwjoin",
        "wjoin",
        "pjoin",
        "mjoin",
        "symmetric_hash",
        "xjoin",
    ]
    assert manager.broken == {}


@pytest.mark.parametrize(
    ("strategies", "hook", "fault"),
    [
        (RuntimeError("no luck"), "slackwater_disorder_strategies", "RuntimeError: no luck"),
        ([5], "slackwater_disorder_strategies", "returned 5, which must be a subclass of DisorderStrategy"),
        (
            5,
            "slackwater_disorder_strategies",
            "slackwater_disorder_strategies returned 5, which must be a list of strategies",
        ),
        ([Picky()], "slackwater_disorder_strategies", "which must be a subclass of DisorderStrategy"),
        ([Shedder], "slackwater_disorder_strategies", "which must be a subclass of DisorderStrategy"),
        ([Picky], "slackwater_join_strategies", "which must be a subclass of JoinStrategy"),
        (
            [Nameless],
            "slackwater_disorder_strategies",
            "which must have a class attribute name: ClassVar[str]",
        ),
        (
            [AnotherFixed],
            "slackwater_disorder_strategies",
            "disorder strategy 'fixed' is already provided by ",
        ),
        (
            [Picky, AnotherPicky],
            "slackwater_disorder_strategies",
            "disorder strategy 'picky' is already provided by ",
        ),
        ([Picky], "slackwater_sorting_strategies", "unknown hook 'slackwater_sorting_strategies'"),
    ],
)
def test_a_broken_plugin_is_named_and_the_rest_goes_on(plugin, installed, strategies, hook, fault):
    plugin("bad_plugin", strategies, hook)
    plugin("good_plugin", [])
    manager = installed("bad_plugin", "good_plugin")
    assert list(manager.broken) == ["bad_plugin"]
    assert fault in manager.broken["bad_plugin"]
    assert known(manager) == BUILT_IN
    with pytest.raises(OptionError, match=r"Plugin 'bad_plugin' could not be loaded \(unknown: "):
        manager.create("disorder", {"strategy": "picky"})
    assert manager.create("disorder", {"strategy": "fixed", "slack": "1s"}) == FixedSlack(slack="1s")


def test_a_plugin_that_cannot_be_imported_is_named(installed):
    manager = installed("no_such_plugin")
    assert manager.broken == {"no_such_plugin": "unknown: ModuleNotFoundError: No module named 'no_such_plugin'"}
    assert known(manager) == BUILT_IN


def test_a_plugin_that_ends_the_process_is_survived(tmp_path, monkeypatch, installed):
    (tmp_path / "quitting_plugin.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed("quitting_plugin").broken == {"quitting_plugin": "unknown: SystemExit: 3"}


def test_a_module_may_have_hooks_of_several_stages(plugin, installed):
    module = plugin("both_stages", [Shedder], "slackwater_shedding_strategies")
    module.slackwater_disorder_strategies = hookimpl(lambda: [Picky])
    assert known(installed("both_stages")) == BUILT_IN | {("disorder", "picky"), ("shedding", "shedder")}


def test_a_module_can_be_added_by_name(plugin, installed):
    plugin("my_module", [Picky])
    manager = installed()
    manager.add_module("my_module")
    manager.add_module("my_module")
    (found,) = [p for p in manager.strategies() if p.strategy is Picky]
    assert (found.distribution, found.plugin) == ("--plugin my_module", "my_module")


def test_a_plugin_may_be_installed_and_named_as_well(plugin, installed):
    plugin("good_plugin", [Picky])
    manager = installed("good_plugin")
    manager.add_module("good_plugin")
    assert [p.distribution for p in manager.strategies() if p.strategy is Picky] == ["unknown"]


@pytest.mark.parametrize(
    ("strategies", "fault"),
    [
        (
            None,
            "--plugin nowhere: ModuleNotFoundError: No module named 'nowhere'. Check the module's name and",
        ),
        ([5], "--plugin nowhere: PluginError: slackwater_disorder_strategies returned 5, which must be"),
        ([AnotherFixed], "--plugin nowhere: PluginError: disorder strategy 'fixed' is already provided by"),
    ],
)
def test_a_module_that_cannot_be_used_stops_the_command(plugin, installed, strategies, fault):
    if strategies is not None:
        plugin("nowhere", strategies)
    with pytest.raises(PluginError) as caught:
        installed().add_module("nowhere")
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("options", "option", "fault"),
    [
        (
            {"strategy": "piky"},
            None,
            f"no strategy named 'piky'; installed: {INSTALLED}. Check the spelling",
        ),
        ({}, None, f"no strategy is named; installed: {INSTALLED}."),
        (
            {"strategy": "picky", "lvel": 1},
            "lvel",
            "strategy 'picky' has no option 'lvel'; its options are level, rows, wait, low, high.",
        ),
        (
            {"strategy": "picky", "level": 2},
            "level",
            "option 'level' of strategy 'picky': input should be less than 1, got 2.",
        ),
        ({"strategy": "picky", "rows": "many"}, "rows", "got 'many'."),
        (
            {"strategy": "picky", "wait": 3},
            "wait",
            "option 'wait' of strategy 'picky': must be a duration such as",
        ),
        ({"strategy": "picky", "low": 5}, None, "strategy 'picky': low must be at most high."),
        ({"strategy": "fixed"}, "slack", "strategy 'fixed' needs the option 'slack'; add it."),
        (
            {"strategy": "none", "slack": 1},
            "slack",
            "strategy 'none' has no option 'slack'; it has no options.",
        ),
    ],
)
def test_wrong_options_are_refused_with_the_fault(plugin, installed, options, option, fault):
    plugin("good_plugin", [Picky])
    with pytest.raises(OptionError) as caught:
        installed("good_plugin").create("disorder", options)
    assert fault in str(caught.value)
    assert caught.value.option == option


def test_options_are_read_with_their_units(plugin, installed):
    plugin("good_plugin", [Picky])
    made = installed("good_plugin").create("disorder", {"strategy": "picky", "wait": "250ms", "level": 0.9})
    assert (made.wait, made.level, made.rows) == (250_000_000, 0.9, 10)
