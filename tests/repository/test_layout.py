"""The shape of the repository: packages, the direction of imports, sizes, documented hooks."""

import ast
import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from slackwater.plugins import hookspecs
from slackwater.plugins.checks import check_strategy
from slackwater.plugins.registry.manager import StrategyManager

ROOT = Path(__file__).parents[2]
FOLDERS = ("pipelines", "plugins", "templates", "transforms")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

HOOKS = [name for name in vars(hookspecs) if name.startswith("slackwater_")]


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("slackwater", *(part for part in parts if part != "__init__")))


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path):
    """Yield every module that a file imports, but for type checkers only."""
    queue = [tree_of(path)]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            queue += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        queue += ast.iter_child_nodes(node)


def layer_of(module):
    """Which layer a module belongs to; longer prefixes first."""
    for layer in LAYERS:
        if module == layer or module.startswith(f"{layer}."):
            return layer
    return None


LAYERS = {
    "slackwater.transforms.kernels": set(),
    "slackwater.transforms.expressions.opcodes": set(),
    "slackwater.transforms.errors": {"slackwater.plugins"},
    "slackwater.transforms.beam": {
        "slackwater.transforms",
        "slackwater.plugins",
        "slackwater.transforms.kernels",
        "slackwater.transforms.errors",
    },
    "slackwater.transforms.spark": {
        "slackwater.transforms",
        "slackwater.plugins",
        "slackwater.transforms.kernels",
        "slackwater.transforms.errors",
    },
    "slackwater.plugins": {"slackwater.transforms.kernels"},
    "slackwater.transforms": {
        "slackwater.plugins",
        "slackwater.transforms.kernels",
        "slackwater.transforms.expressions.opcodes",
        "slackwater.transforms.errors",
    },
    "slackwater.templates": set(),
    "slackwater.pipelines": {
        "slackwater.transforms.beam",
        "slackwater.transforms.spark",
        "slackwater.transforms",
        "slackwater.transforms.kernels",
        "slackwater.transforms.errors",
        "slackwater.plugins",
        "slackwater.templates",
    },
}
"""What the modules of each layer may import besides their own layer."""

EXCEPTIONS = {
    # The machine and its assembler share the numbers of the instructions.
    ("slackwater.transforms.kernels.expressions.predicate", "slackwater.transforms.expressions.opcodes"),
    ("slackwater.transforms.kernels.expressions.mixed_types", "slackwater.transforms.expressions.opcodes"),
    # The conformance suite runs strategies on real conditions; a function imports them, no strategy does.
    ("slackwater.plugins.checks.frame", "slackwater.transforms"),
}
ENGINES = ("apache_beam", "pyspark", "pyarrow", "pandas", "duckdb")
ENGINE_LAYERS = {
    "apache_beam": ("slackwater.transforms.beam", "slackwater.pipelines"),
    "pyspark": ("slackwater.transforms.spark", "slackwater.pipelines"),
}


def test_the_packages_of_the_distribution_are_the_folders():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(module_of(path) for path in FILES if path.name == "__init__.py")
    folders = {path.parent for path in FILES}
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_imports_point_one_way():
    wrong = []
    for path in FILES:
        module = module_of(path)
        layer = layer_of(module)
        for imported in imports_of(path):
            target = layer_of(imported)
            if target in (None, layer) or target in LAYERS[layer] or (module, target) in EXCEPTIONS:
                continue
            wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_kernels_know_arrays_only():
    for path in FILES:
        if layer_of(module_of(path)) == "slackwater.transforms.kernels" and path.name != "compiler.py":
            roots = {imported.split(".")[0] for imported in imports_of(path)}
            assert roots <= {"numpy", "numba", "typing", "slackwater", "math"}, path


def test_engines_stay_in_their_adapters():
    for path in FILES:
        for imported in imports_of(path):
            allowed = ENGINE_LAYERS.get(imported.split(".")[0])
            assert allowed is None or layer_of(module_of(path)) in allowed, f"{path} imports {imported}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_cannot_be_imported_by_its_bare_name(folder):
    spec = importlib.util.spec_from_file_location(folder, ROOT / folder / "__init__.py")
    with pytest.raises(
        ImportError, match=f"import slackwater.{folder}, not {folder}: the folder is not a top-level"
    ):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_nothing_executes_text():
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "yaml.load", "yaml.unsafe_load", "pickle.load"), (
                    f"{path}: {called}"
                )


def test_every_module_says_what_it_is_for():
    assert [str(path) for path in FILES if not ast.get_docstring(tree_of(path))] == []


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_tested(hook):
    assert hook in (ROOT / "docs" / "plugins.md").read_text()
    assert (getattr(hookspecs, hook).__doc__ or "").strip()
    here = Path(__file__)
    assert any(hook in path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != here)


def test_every_stage_has_a_hook():
    assert sorted(HOOKS) == sorted(f"slackwater_{stage}_strategies" for stage in ("disorder", "join", "shedding"))


def test_the_plugin_in_the_docstring_works(tmp_path, monkeypatch):
    import slackwater.plugins

    text = (slackwater.plugins.__doc__ or "").split("::\n", 1)[1].split("\nName the module")[0]
    (tmp_path / "my_slack.py").write_text(re.sub("^    ", "", text, flags=re.MULTILINE))
    monkeypatch.syspath_prepend(tmp_path)
    manager = StrategyManager()
    manager.add_module("my_slack")
    for cap in ("1s", "7ms"):
        check_strategy(manager.create("disorder", {"strategy": "twice_max", "cap": cap}))


def test_nothing_mentions_the_machine_it_was_written_on():
    texts = [*FILES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    texts += [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".md", ".toml", ".yaml")]
    assert [str(path) for path in texts if re.search(r"/(work|home|root|Users)/", path.read_text())] == []
