"""The contract is declared: every capability has a default, a check and a line in the documents."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from running import SCHEMA, plan_of

from slackwater.plugins import contract
from slackwater.plugins.checks import CHECKS
from slackwater.plugins.checks.coverage import COVERAGE
from slackwater.plugins.contract import DisorderLogic, DisorderStrategy, JoinLogic, Strategy
from slackwater.plugins.errors import StrategyError
from slackwater.plugins.guard.calls import GUARDS, guarded
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy
from slackwater.plugins.registry.manager import manager

ROOT = Path(__file__).parents[2]
STAGES = ("disorder", "join", "shedding")
DOCUMENT = (ROOT / "docs" / "plugins.md").read_text()
BASES = [contract.__dict__[name] for name in COVERAGE]
CODE = [path for folder in ("plugins", "transforms", "pipelines") for path in (ROOT / folder).rglob("*.py")]
APART = {ROOT / "pipelines" / "bench", ROOT / "pipelines" / "generate", *(ROOT / "plugins" / s for s in STAGES)}
"""Folders of code that may name strategies."""


def members_of(base):
    """Every public member that a base class of the contract declares."""
    declaring = [cls for cls in base.__mro__ if cls.__module__.startswith("slackwater.plugins.contract")]
    names = {name for cls in declaring if cls is not Strategy for name in vars(cls)}
    return {name for name in names if not name.startswith(("_", "model_"))}


def test_the_base_classes_are_all_in_the_table():
    found = {name for name in contract.__all__ if re.fullmatch("(Disorder|Join|Shedding)(Logic|Strategy)", name)}
    assert found == set(COVERAGE)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_every_capability_has_a_check(base):
    assert members_of(base) == set(COVERAGE[base.__name__])
    known = {check.__name__ for checks in CHECKS.values() for check in checks}
    for member, checks in COVERAGE[base.__name__].items():
        assert checks, member
        assert set(checks) <= known, member


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_every_capability_has_a_line_in_the_documents(base):
    named = set(re.findall(r"`(?:\w+\.)?(\w+)(?:\([^`]*\))?`", DOCUMENT))
    assert members_of(base) - named == set()


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_every_capability_has_a_docstring(base):
    tree = ast.parse(Path(__import__(base.__module__, fromlist=["x"]).__file__).read_text())
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == base.__name__]
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node), node.name
        elif isinstance(node, ast.AnnAssign) and node.target.id != "stage":
            assert isinstance(following, ast.Expr), node.target.id


@pytest.mark.parametrize("guard", GUARDS.values(), ids=lambda guard: guard.__name__)
def test_the_guard_passes_every_capability_on(guard):
    logic = type("Logic", (guard.base,), {})()
    source = (ROOT / "plugins" / "guard" / "calls.py").read_text()
    for member in members_of(guard.base):
        assert f"self.logic.{member}" in source, member
    assert not [name for name in members_of(guard.base) if name in vars(logic)]


ASKED = (
    "strategy",
    "logic",
    "disorder",
    "join",
    "shedding",
    "_inner",
    "_logic",
    "_join",
    "_disorder",
    "_shedding",
)


def test_no_code_asks_a_strategy_by_getattr():
    found = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                asked = ast.unparse(node.args[0]).rpartition(".")[2]
                if node.func.id in ("getattr", "hasattr") and asked in ASKED:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    allowed = (
        "plugins/checks/observer.py",  # calls any method by its name, as operators do
        "transforms/settings/explanation.py",  # shows every option, by the names of the fields
    )
    assert [place for place in found if not place.startswith((*allowed, "pipelines/bench/"))] == []


def test_strategies_know_of_the_layers_above_only_kernels():
    found = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.startswith("slackwater.transforms") and not name.startswith(
                    "slackwater.transforms.kernels"
                ):
                    found.add((str(path.relative_to(ROOT)), name))
    # The conformance suite runs strategies on real conditions, and stores snapshots as runs do.
    assert found == {
        ("plugins/checks/frame.py", "slackwater.transforms.expressions.condition"),
        ("plugins/checks/frame.py", "slackwater.transforms.state.snapshot"),
    }


def texts_of(path):
    """Every text in a file that is no docstring, with the dictionary key or comparison that it belongs to."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_no_strategy_is_named_outside_its_package():
    names = {p.strategy.name for p in manager().strategies() if p.plugin == "builtin"}
    plain = {"none", "fixed", "max", "random", "life", "external", "prob", "heartbeat"}
    own = re.compile(rf"\b({'|'.join(sorted(names - plain))})\b")
    settings = re.compile(rf"strategy (max|random|fixed)\b|^\{{strategy: ({'|'.join(sorted(names))})")
    found = []
    for path in CODE:
        if APART & set(path.parents) or path.name == "builtin.py":
            continue
        found += [
            (str(path.relative_to(ROOT)), line, text)
            for line, text in texts_of(path)
            if own.search(text) or settings.search(text)
        ]
        source = path.read_text()
        found += [
            (str(path.relative_to(ROOT)), match[0])
            for match in re.finditer(r"\"strategy\": \"\w+\"|\.name [!=]= \"\w+\"", source)
            if match[0].split('"')[-2] in names
        ]
    allowed = {
        "pipelines/runners/verdict.py",  # drop_ratio is a key of the summary and an option here
        "pipelines/cli/tables.py",
        "pipelines/cli/transforms_page.py",  # examples of the reference page
    }
    assert [place for place in found if place[0] not in allowed] == []


class Duck(DisorderStrategy):
    """Builds whatever it is told to."""

    name = "duck"
    makes: object = None

    def build(self, setting, snapshot=None):
        return self.makes()


def setting():
    return plan_of(SCHEMA, window="9ms", where="a.k = b.k").setting


def built(makes):
    return guarded(Duck.model_construct(makes=makes), setting())


class Plain:
    def bounds(self, arrivals):
        return arrivals.progress

    def snapshot(self):
        return {}


class Slotted(Plain):
    __slots__ = ("interval", "slack")

    def __init__(self):
        self.interval, self.slack = 7, 3

    def bounds_at(self, progress):
        return progress - self.slack


def test_a_logic_without_the_base_gets_what_the_base_declares():
    guard = built(Plain)
    assert isinstance(guard.logic, DisorderLogic) and isinstance(guard.logic, Plain)
    assert type(guard.logic).__name__ == "Plain"
    assert guard.interval is None and guard.needs_cells is False
    assert guard.bounds_at(np.zeros(2, np.int64)) is None and guard.report() == {}


def test_what_a_logic_without_the_base_has_itself_is_its_own():
    guard = built(Slotted)
    assert guard.interval == 7
    assert guard.bounds_at(np.array([5, 6])).tolist() == [2, 3]

    class Set(Plain):
        def __init__(self):
            self.interval, self.report = 5, lambda: {"slack": 2.0}

    guard = built(Set)
    assert guard.interval == 5 and guard.report() == {"slack": 2.0}


def test_what_a_logic_passes_on_is_its_own_but_not_the_default_of_another():
    class Around:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    class Wrapped(SlidingWindowJoinStrategy):
        """A window join behind an object that passes everything on."""

        def build(self, setting, snapshot=None):
            return Around(super().build(setting, snapshot))

    guard = guarded(Wrapped(), setting())
    assert guard.keeps_limit and not guard.uses_disk and not guard.uses_punctuations
    assert guard.nbytes == guard.logic.inner.nbytes > 0
    assert isinstance(guard.logic, JoinLogic)


def test_a_logic_whose_class_cannot_be_extended_is_refused():
    class Fixed(tuple):
        __slots__ = ()
        bounds, snapshot = Plain.bounds, Plain.snapshot

        def __init_subclass__(cls):
            raise TypeError("this class is final")

    text = (
        f"disorder strategy 'duck' of module {__name__}: build returned Fixed, whose class cannot be extended; "
        "derive it from slackwater.plugins.DisorderLogic; mend the strategy, or use another"
    )
    with pytest.raises(StrategyError) as caught:
        built(Fixed)
    assert str(caught.value) == text


def test_what_lacks_members_is_refused_by_their_names():
    for makes, kind in ((lambda: None, "None"), (object, "object"), (dict, "dict")):
        with pytest.raises(StrategyError, match=f"build returned {kind}, which lacks bounds, snapshot; "):
            built(makes)
