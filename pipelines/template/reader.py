"""Templates: Beam YAML's dialect to checked nodes, every node after those it reads from.

What stands in a template is checked here as far as that is possible without its data; ``assembly`` does the
rest. Nothing of a template is ever executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slackwater.pipelines.template.graph import Config, Location, Node, Pipeline, Port, in_order
from slackwater.pipelines.template.settings import transforms
from slackwater.pipelines.template.text import Document, TemplateError, find_template, read_document, shipped
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.inputs import FixedInputs, NamedInputs
from slackwater.transforms.settings.models import OperatorConfig

__all__ = ["TemplateError", "node_error", "read_template", "read_template_text", "shipped"]

TOP_LEVEL: Final = ("pipeline", "providers", "options", "tests")
PIPELINE_KEYS: Final = ("type", "transforms", "source", "sink", "extra_transforms")
TRANSFORM_KEYS: Final = ("type", "name", "input", "config")
MAIN_OUTPUTS: Final = ("out", "output", "main", "results", "good")
"""Other ways to write a node's main output."""


def read_template(ref: str, variables: Mapping[str, str]) -> Pipeline:
    """Read a template given by path or, if it is a shipped one, by name.

    Raises:
        TemplateError: It cannot be found or read, or something in it is wrong.
    """
    file, text = find_template(ref)
    return read_template_text(file, text, variables)


def read_template_text(file: str, text: str, variables: Mapping[str, str] | None = None) -> Pipeline:
    """Read a template from its text; ``file`` is only for messages."""
    document = read_document(file, text, variables or {})
    return _Template(document).read()


def node_error(node: Node, error: ConfigError) -> TemplateError:
    """Return the fault of a node's setting with its file, its line, and the key path from the node on."""
    line = node.location.line
    for end in range(len(error.path), 0, -1):
        if error.path[:end] in node.lines:
            line = node.lines[error.path[:end]]
            break
    return TemplateError(node.location.file, line, error.fault, node.name, *error.path)


@dataclass(frozen=True)
class _Draft:
    """A transform as it stands in the template, named, its inputs not yet looked up."""

    name: str
    type: str
    spec: dict[str, Any]
    at: tuple[str, ...]
    before: str | None
    """The transform before it in a chain."""
    chained: bool


def _error_output(draft: _Draft) -> str:
    """What the output with late rows is called."""
    config = draft.spec.get("config")
    handling = config.get("error_handling") if isinstance(config, dict) else None
    return str(handling.get("output", "late")) if isinstance(handling, dict) else "late"


class _Template:
    """One document on its way to a pipeline."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._kinds = transforms()
        self._drafts: dict[str, _Draft] = {}
        self._of_type: dict[str, list[_Draft]] = {}
        self._lines: dict[tuple[str, ...], list[tuple[tuple[str, ...], int]]] = {}
        """Lines of each transform, by where it stands."""
        for path, line in document.lines.items():
            at = path[: 2 if path[1:2] in (("source",), ("sink",)) else 3]
            self._lines.setdefault(at, []).append((path, line))

    def read(self) -> Pipeline:
        document = self._document
        top = self._mapping(document.value, (), TOP_LEVEL)
        if "pipeline" not in top:
            raise document.error("has no pipeline; add pipeline: with its transforms:")
        options = top.get("options") or {}
        if not isinstance(options, dict):
            raise document.error("must be a mapping of option: value", "options")
        for draft in self._name(self._collect(top["pipeline"])):
            self._drafts[draft.name] = draft
            self._of_type.setdefault(draft.type, []).append(draft)
        nodes = {draft.name: self._node(draft) for draft in self._drafts.values()}
        self._check_errors_read(nodes)
        return Pipeline(document.file, tuple(self._ordered(nodes)), options)

    def _collect(self, pipeline: Any) -> list[_Draft]:
        at = ("pipeline",)
        known = (*PIPELINE_KEYS, "windowing", "resource_hints")
        pipeline = self._mapping(pipeline, at, known, listed=PIPELINE_KEYS)
        self._no_windowing(pipeline, at)
        kind = pipeline.get("type", "composite")
        if kind not in ("chain", "composite"):
            raise self._document.error(f"must be chain or composite, got {kind!r}", *at, "type")
        specs: list[tuple[Any, tuple[str, ...]]] = []
        for key in ("transforms", "extra_transforms"):
            listed = pipeline.get(key, [])
            if not isinstance(listed, list):
                raise self._document.error("must be a list of transforms", *at, key)
            specs += [(spec, (*at, key, str(i))) for i, spec in enumerate(listed)]
        chain = sum(1 for _, place in specs if place[1] == "transforms")
        if "source" in pipeline:
            specs.insert(0, (pipeline["source"], (*at, "source")))
            chain += 1
        if "sink" in pipeline:
            specs.insert(chain, (pipeline["sink"], (*at, "sink")))
            chain += 1
        if not specs:
            raise self._document.error("has no transforms; add some", *at)
        drafts: list[_Draft] = []
        for i, (spec, place) in enumerate(specs):
            chained = kind == "chain" and i < chain
            drafts.append(self._draft(spec, place, chained))
        return drafts

    def _draft(self, spec: Any, at: tuple[str, ...], chained: bool) -> _Draft:
        document = self._document
        known = (*TRANSFORM_KEYS, "output", "windowing", "resource_hints")
        spec = self._mapping(spec, at, known, listed=TRANSFORM_KEYS)
        self._no_windowing(spec, at)
        if "output" in spec:
            raise document.error("is not supported: outputs have fixed names; remove it", *at, "output")
        kind = spec.get("type")
        if kind is None:
            raise document.error(f"has no type; add one of {', '.join(self._kinds)}", *at)
        if kind in ("chain", "composite"):
            raise document.error(
                f"{kind} within a pipeline is not supported; list its transforms here", *at, "type"
            )
        if not isinstance(kind, str) or kind not in self._kinds:
            raise document.error(
                f"no transform named {kind!r}; known: {', '.join(self._kinds)}. Check the spelling.",
                *at,
                "type",
            )
        name = spec.get("name", "")
        if not isinstance(name, str) or ("name" in spec and not name.strip()):
            raise document.error(f"must be text, got {name!r}", *at, "name")
        if chained and "input" in spec:
            raise document.error(
                "transforms of a chain read from the one before; remove it, or use type: composite",
                *at,
                "input",
            )
        return _Draft(name, kind, spec, at, None, chained)

    def _name(self, drafts: list[_Draft]) -> list[_Draft]:
        """Give every transform its name: its own, else its type, with the line where that is not enough."""
        document = self._document
        first: dict[str, _Draft] = {}
        for draft in drafts:
            if draft.name in first:
                line = document.line(*first[draft.name].at, "name")
                raise document.error(
                    f"two transforms are named {draft.name!r} (the first in line {line}); rename one",
                    *draft.at,
                    "name",
                )
            if draft.name:
                first[draft.name] = draft
        unnamed = Counter(draft.type for draft in drafts if not draft.name)
        named: list[_Draft] = []
        taken = set(first)
        for draft in drafts:
            name = draft.name or draft.type
            if not draft.name and (unnamed[name] > 1 or name in taken):
                name = f"{draft.type}@{document.line(*draft.at)}"
                while name in taken:
                    name += "'"
            taken.add(name)
            before = named[-1].name if draft.chained and named else None
            named.append(_Draft(name, draft.type, draft.spec, draft.at, before, draft.chained))
        return named

    def _node(self, draft: _Draft) -> Node:
        document = self._document
        lines: dict[tuple[str, ...], int] = {}
        for path, line in self._lines.get(draft.at, ()):
            match path[len(draft.at) :]:
                case ("config", *setting):
                    lines[tuple(setting)] = line
                case ("input", *_) as label:
                    lines[tuple(label)] = line
        node = Node(
            name=draft.name,
            type=draft.type,
            inputs=self._inputs(draft),
            config=self._config(draft, lines),
            location=Location(document.file, document.line(*draft.at)),
            lines=lines,
        )
        return node

    def _config(self, draft: _Draft, lines: dict[tuple[str, ...], int]) -> Config:
        given = draft.spec.get("config")
        place = Location(self._document.file, self._document.line(*draft.at, "config"))
        if given is not None and not isinstance(given, dict):
            raise TemplateError(
                place.file,
                place.line,
                f"must be a mapping of setting: value, got {given!r}",
                draft.name,
                "config",
            )
        try:
            return self._kinds[draft.type].build(given or {})
        except ConfigError as error:
            node = Node(draft.name, draft.type, {}, None, place, lines)  # type: ignore[arg-type]
            raise node_error(node, error) from None
        except RecursionError:
            fault = "is nested too deeply; write it flatter"
            raise TemplateError(place.file, place.line, fault, draft.name, "config") from None

    def _inputs(self, draft: _Draft) -> dict[str, Port]:
        """Look up what a transform reads from."""
        wanted = self._kinds[draft.type].inputs
        given = draft.spec.get("input")
        if draft.before is not None and wanted == "one":
            return {"input": self._port(draft, draft.before)}
        if wanted == "none":
            if given or draft.before is not None:
                fault = (
                    "takes no input; remove it"
                    if given
                    else f"takes no input, so it cannot follow {draft.before!r}"
                )
                raise self._input_error(draft, fault)
            return {}
        if isinstance(wanted, NamedInputs):
            return self._named_inputs(draft, given, wanted)
        if isinstance(wanted, FixedInputs):
            return self._fixed_inputs(draft, given, wanted)
        if wanted == "listed":
            return self._listed_inputs(draft, given)
        if isinstance(given, dict) and len(given) == 1:
            ((label, given),) = given.items()
            return {"input": self._port(draft, given, label)}
        if not given:
            raise self._input_error(draft, "has no input; add input: with the name of a transform")
        return {"input": self._port(draft, given)}

    def _named_inputs(self, draft: _Draft, given: Any, wanted: NamedInputs) -> dict[str, Port]:
        least, most = wanted.least, wanted.most
        if draft.chained:
            raise self._input_error(draft, "joins several inputs, which a chain cannot; use type: composite")
        if not isinstance(given, dict):
            raise self._input_error(draft, f"must be {least} to {most} inputs as {{name: transform, …}}")
        if not least <= len(given) <= most:
            raise self._input_error(draft, f"needs {least} to {most} inputs, got {len(given)}")
        return {label: self._port(draft, value, label) for label, value in given.items()}

    def _fixed_inputs(self, draft: _Draft, given: Any, wanted: FixedInputs) -> dict[str, Port]:
        if len(wanted.required) == 1:
            given = draft.before or given
            given = given if isinstance(given, dict) else {wanted.required[0]: given}
        if not isinstance(given, dict) or not set(wanted.required) <= set(given) <= set(wanted.names):
            names = ", ".join(f"{name}: transform" for name in wanted.names)
            alone = "a transform, or " if len(wanted.required) == 1 else ""
            example = f", such as {wanted.example}" if wanted.example else ""
            raise self._input_error(draft, f"must be {alone}{{{names}}}{example}")
        if len(wanted.required) == 1 and not given[wanted.required[0]]:
            raise self._input_error(draft, "has no input; add input: with the name of a transform")
        return {label: self._port(draft, given[label], label) for label in wanted.names if label in given}

    def _listed_inputs(self, draft: _Draft, given: Any) -> dict[str, Port]:
        if draft.before is not None:
            given = draft.before
        if not given:
            raise self._input_error(draft, "has no input; add input: with a list of transforms")
        if isinstance(given, dict):
            given = list(given.values())
        refs = given if isinstance(given, list) else [given]
        return {str(i): self._port(draft, ref) for i, ref in enumerate(refs)}

    def _port(self, draft: _Draft, ref: Any, *label: str) -> Port:
        if isinstance(ref, list) and len(ref) == 1:
            ref = ref[0]
        if isinstance(ref, list | dict) and ref:
            raise self._input_error(
                draft, "takes one transform, not several; put them together with Flatten", *label
            )
        if not isinstance(ref, str) or not ref:
            raise self._input_error(draft, f"must be the name of a transform, got {ref!r}", *label)
        name, _, output = ref.rpartition(".")
        target = self._find(draft, ref, *label)
        if target is not None:
            name, output = target.name, ""
        else:
            target = self._find(draft, name, *label) if name else None
        if target is None:
            raise self._input_error(
                draft,
                f"no transform named {name or ref!r}; there are {', '.join(self._drafts)}. Check the name.",
                *label,
            )
        kind = self._kinds[target.type]
        if kind.sink:
            raise self._input_error(
                draft, f"{target.name!r} writes files and passes no rows on; read before it", *label
            )
        if output in MAIN_OUTPUTS:
            output = ""
        operator = kind.operator
        sides = () if operator is None else operator.side_outputs
        outputs = {_error_output(target) if o == "late" else o: o for o in sides}
        if output and output not in outputs:
            known = ", ".join([target.name, *(f"{target.name}.{o}" for o in outputs)])
            raise self._input_error(draft, f"{target.name!r} has no output {output!r}; it has {known}", *label)
        return Port(target.name, outputs.get(output, ""))

    def _check_errors_read(self, nodes: dict[str, Node]) -> None:
        """Raise where an output for errors is named and nothing reads it, as Beam YAML does."""
        read = {port for node in nodes.values() for port in node.inputs.values()}
        for node in nodes.values():
            handling = node.config.error_handling if isinstance(node.config, OperatorConfig) else None
            if handling is not None and Port(node.name, "late") not in read:
                fault = f"nothing reads {node.name}.{handling.output}; write it to a file, or leave this out"
                raise node_error(node, ConfigError(fault, "error_handling"))

    def _find(self, draft: _Draft, ref: str, *label: str) -> _Draft | None:
        """The transform with this name, else the only one of this type."""
        if ref in self._drafts:
            return self._drafts[ref]
        typed = self._of_type.get(ref, [])
        if len(typed) > 1:
            raise self._input_error(draft, f"several transforms are a {ref}; name them and say which", *label)
        return typed[0] if typed else None

    def _input_error(self, draft: _Draft, fault: str, *label: str) -> TemplateError:
        document = self._document
        return TemplateError(
            document.file, document.line(*draft.at, "input", *label), fault, draft.name, "input", *label
        )

    def _ordered(self, nodes: dict[str, Node]) -> Iterable[Node]:
        """Nodes after those they read from, else in the template's order."""
        ordered, left = in_order(nodes)
        if left:
            raise self._cycle(left)
        return ordered

    def _cycle(self, nodes: dict[str, Node]) -> TemplateError:
        name = next(iter(nodes))
        seen: dict[str, None] = {}
        while name not in seen:
            seen[name] = None
            name = next(port.node for port in nodes[name].inputs.values() if port.node in nodes)
        loop = [*list(seen)[list(seen).index(name) :], name]
        return self._input_error(self._drafts[name], f"reads from itself: {' ← '.join(loop)}; break the loop")

    def _mapping(
        self, value: Any, at: tuple[str, ...], known: tuple[str, ...], *, listed: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._document.error(f"must be a mapping with {', '.join(listed or known)}, got {value!r}", *at)
        for key in value:
            if key not in known:
                raise self._document.error(f"is not known here; known: {', '.join(listed or known)}", *at, key)
        return value

    def _no_windowing(self, spec: dict[str, Any], at: tuple[str, ...]) -> None:
        if spec.get("windowing") is not None:
            raise self._document.error(
                "is not supported: joins have windows of their own (config.window); remove it",
                *at,
                "windowing",
            )
