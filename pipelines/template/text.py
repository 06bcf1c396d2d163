"""The text of a template to plain values: Jinja2 variables, then YAML, with the line of every value kept.

Jinja runs in a sandbox and undefined variables are errors; YAML is read by a safe loader that refuses keys
given twice. Line numbers are those of the file, also where Jinja loops or long values moved the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

from slackwater.transforms.errors import SlackwaterError

PROVIDERS: Final = "providers.yaml"
"""File beside the shipped templates that is none of them."""
MAX_VALUES: Final = 500_000
"""Values that a template may hold once its aliases are expanded."""
_MERGE: Final = "tag:yaml.org,2002:merge"
_SHOWN: Final = 40
"""Characters of a value to show in a message."""
_MARK: Final = "\ue000{}\ue001"
_MARK_SIZE: Final = 12
_MARKS: Final = re.compile("\ue000(\\d+)\ue001")

Path_ = tuple[str, ...]


class TemplateError(SlackwaterError):
    """A template is wrong; the message reads ``file:line: key path: fault; remedy``."""

    def __init__(self, file: str, line: int | None, fault: str, *path: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(filter(None, [place, ".".join(path), fault])))
        self.file = file
        self.line = line
        self.fault = fault
        self.path = path


@dataclass(frozen=True)
class Document:
    """A template's values, and the line of each by its path (list items by their number)."""

    file: str
    value: Any
    lines: dict[Path_, int]

    def line(self, *path: str) -> int:
        """Line of the value at ``path``, or of the closest one around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1

    def error(self, fault: str, *path: str) -> TemplateError:
        """The error that ``fault`` at ``path`` is."""
        return TemplateError(self.file, self.line(*path), fault, *path)


def shipped() -> dict[str, str]:
    """Templates that come with Slackwater: name to text."""
    folder = resources.files("slackwater.templates")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    files = [file for file in files if file.name != PROVIDERS]
    return {f.name.removesuffix(".yaml"): f.read_text(encoding="utf-8") for f in files}


def providers() -> str:
    """Path of the file that tells Beam's own YAML runner of the transforms of ours, for ``include``."""
    return str(resources.files("slackwater.templates") / PROVIDERS)


def find_template(ref: str) -> tuple[str, str]:
    """Return (file, text) of a template given by its path, or by its name if it is a shipped one."""
    path = Path(ref)
    if path.is_file():
        try:
            return str(path), path.read_text(encoding="utf-8")
        except OSError as error:
            raise TemplateError(ref, None, f"cannot be read: {error.strerror}; check its permissions") from None
        except UnicodeDecodeError as error:
            raise TemplateError(ref, None, f"is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    known = shipped()
    if ref in known:
        return f"{ref}.yaml", known[ref]
    raise TemplateError(
        ref,
        None,
        f"no such file, and no shipped template has this name; shipped: {', '.join(known) or 'none'}",
    )


def read_document(file: str, text: str, variables: Mapping[str, str]) -> Document:
    """Fill in the variables, read the YAML, and keep the lines."""
    text, origin = _render(file, _without_leading_comments(text), variables)
    lines = _Lines(origin)
    try:
        loader = yaml.SafeLoader(text)
        return _Reader(file, loader, lines).read(loader.get_single_node())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        fault = " ".join(filter(None, [error.context, error.problem]))
        raise TemplateError(file, lines.at(mark), f"is not valid YAML: {fault}; mend it") from None
    except yaml.reader.ReaderError as error:
        line = origin[text.count("\n", 0, error.position)]
        code = error.character
        raise TemplateError(file, line, f"has a character that YAML forbids (#x{code:04x}); remove it") from None
    except RecursionError:
        raise TemplateError(file, None, "is nested too deeply; write it flatter") from None


class _Lines:
    """Lines of the file by lines of the rendered text."""

    def __init__(self, origin: list[int]) -> None:
        self._origin = origin

    def at(self, mark: Any) -> int:
        line = mark.line if mark is not None else 0
        return self._origin[min(line, len(self._origin) - 1)]


class _Reader:
    """YAML nodes to values. Keys must be text and unique; aliases may not contain themselves."""

    def __init__(self, file: str, loader: yaml.SafeLoader, lines: _Lines) -> None:
        self._file = file
        self._loader = loader
        self._lines = lines
        self._found: dict[Path_, int] = {}
        self._count = 0
        self._open: set[int] = set()
        self._flat: dict[int, list[tuple[yaml.Node, yaml.Node]]] = {}

    def read(self, node: yaml.Node | None) -> Document:
        if node is None:
            raise TemplateError(self._file, 1, "is empty; write a pipeline: with its transforms:")
        self._found[()] = self._lines.at(node.start_mark)
        return Document(self._file, self._value(node, ()), self._found)

    def _value(self, node: yaml.Node, path: Path_) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._error(node, f"holds more than {MAX_VALUES} values; put rows into a file", path)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            raise self._error(node, "an alias contains itself; remove it", path)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self._item(child, (*path, str(i))) for i, child in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            return self._mapping(node, path)
        finally:
            self._open.remove(id(node))

    def _item(self, node: yaml.Node, path: Path_) -> Any:
        self._found.setdefault(path, self._lines.at(node.start_mark))
        return self._value(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in first:
                raise self._error(
                    key,
                    f"key {key.value!r} is given twice (first in line {first[key.value]}); keep one",
                    path,
                )
            first[key.value] = self._lines.at(key.start_mark)
        values: dict[str, Any] = {}
        for key, child in self._merged(node, path):
            name = self._key(key, path)
            self._found[(*path, name)] = self._lines.at(key.start_mark)
            values[name] = self._value(child, (*path, name))
        return values

    def _merged(self, node: yaml.MappingNode, path: Path_) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the entries of a mapping, after those that ``<<`` takes from others and it has not itself.

        Every key is there once: what aliases could make of a merge has no end.
        """
        if id(node) in self._flat:
            return self._flat[id(node)]
        own = [(key, child) for key, child in node.value if key.tag != _MERGE]
        found: dict[Any, tuple[yaml.Node, yaml.Node]] = {}
        for key, child in node.value:
            for source in () if key.tag != _MERGE else child.value if _is_list(child) else (child,):
                if not isinstance(source, yaml.MappingNode):
                    raise self._error(key, "<< takes a mapping, or a list of them; give it one", path)
                for entry in self._merged(source, path):
                    found.setdefault(_identity(entry[0]), entry)
        names = {_identity(key) for key, _ in own}
        self._flat[id(node)] = [*(entry for name, entry in found.items() if name not in names), *own]
        return self._flat[id(node)]

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> Any:
        try:
            return self._loader.construct_object(node)
        except (ValueError, OverflowError, TypeError, AttributeError, KeyError) as error:
            shown = node.value if len(node.value) < _SHOWN else f"{node.value[:_SHOWN]}…"
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            why = f"is no {kind} ({error}); mend it, or put it in quotes to have text"
            raise self._error(node, f"{shown!r} {why}", path) from None

    def _key(self, node: yaml.Node, path: Path_) -> str:
        value = self._scalar(node, path) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, str):
            shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            raise self._error(node, f"key {shown} is not text; put it in quotes", path)
        return value

    def _error(self, node: yaml.Node, fault: str, path: Path_) -> TemplateError:
        return TemplateError(self._file, self._lines.at(node.start_mark), fault, *path)


def _is_list(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode)


def _identity(key: yaml.Node) -> Any:
    return key.value if isinstance(key, yaml.ScalarNode) else id(key)


def _without_leading_comments(text: str) -> str:
    """Blank the comment at the top, as Beam does before Jinja sees it; lines stay where they are."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lines[i] = ""
    return "\n".join(lines)


def _render(file: str, text: str, variables: Mapping[str, str]) -> tuple[str, list[int]]:
    """Return the rendered text, and for each of its lines the line of the file that it comes from."""
    plain = list(range(1, text.count("\n") + 2))
    if not any(mark in text for mark in ("{{", "{%", "{#")):
        return text, plain
    from jinja2 import TemplateSyntaxError, nodes

    from slackwater.pipelines.template.jinja import MOST_TAGS, Environment

    if text.count("{{") + text.count("{%") > MOST_TAGS:
        raise TemplateError(
            file, None, f"has more than {MOST_TAGS:,} expressions of Jinja; use a loop, or a file"
        )
    environment = Environment()
    try:
        rendered = environment.rendered(environment.parse(text), variables, len(text))
    except TemplateSyntaxError as error:
        raise TemplateError(
            file, error.lineno, f"is not valid Jinja: {str(error.message).rstrip('.')}; mend it"
        ) from None
    except Exception as error:
        raise _render_error(file, error) from None
    marked = environment.parse(text)
    for data in marked.find_all(nodes.TemplateData):
        first, *others = data.data.split("\n")
        start = _MARK.format(data.lineno) + first
        data.data = "\n".join([start, *(_MARK.format(data.lineno + i + 1) + o for i, o in enumerate(others))])
    try:
        traced = environment.rendered(marked, variables, (_MARK_SIZE + 1) * len(text))
    except Exception:
        return rendered, list(range(1, rendered.count("\n") + 2))
    if _MARKS.sub("", traced) != rendered:
        return rendered, list(range(1, rendered.count("\n") + 2))
    return rendered, _origins(traced)


def _origins(traced: str) -> list[int]:
    """Return the file's line for every line of a marked text: its first mark, else the last one before."""
    origin: list[int] = []
    last = 1
    for line in traced.split("\n"):
        marks = _MARKS.findall(line)
        origin.append(int(marks[0]) if marks else last)
        last = int(marks[-1]) if marks else last
    return origin


def _render_error(file: str, error: Exception) -> TemplateError:
    from jinja2.exceptions import SecurityError, UndefinedError

    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    missing = re.match(r"'(\w+)' is undefined", str(error)) if isinstance(error, UndefinedError) else None
    if missing:
        name = missing[1]
        return TemplateError(file, line, f"variable {name!r} is not set; add --set {name}=VALUE")
    if isinstance(error, SecurityError):
        return TemplateError(file, line, f"Jinja may not do this: {str(error).rstrip('.')}; use plain variables")
    if isinstance(error, RecursionError):
        return TemplateError(file, line, "Jinja is nested too deeply; write it flatter")
    return TemplateError(file, line, f"Jinja failed: {error or type(error).__name__}; mend the expression")
