"""Checks that a template writes no file that it reads, and no file twice."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from slackwater.pipelines.io.sink_files import sink_file
from slackwater.pipelines.io.source_files import ENDINGS, list_files
from slackwater.pipelines.template.graph import Node, Pipeline, Read, Write
from slackwater.pipelines.template.text import TemplateError


def check_paths(pipeline: Pipeline) -> None:
    """Raise TemplateError if a sink would write over an input, among the files of one, or where another writes.

    A pipe or a device is no place for an output either.

    Links are followed: what counts is where a file really is.
    """
    written: dict[str, Node] = {}
    sources = _Sources(pipeline)
    for node in pipeline.nodes:
        if not isinstance(node.config, Write):
            continue
        try:
            place = os.path.realpath(sink_file(node.config))
        except (OSError, ValueError) as error:
            raise _fault(node, f"cannot be a path ({error}); choose another") from None
        if place in written:
            raise _fault(node, f"{written[place].name!r} writes {place!r} too; give each sink a file of its own")
        written[place] = node
        if os.path.lexists(place) and not os.path.isfile(place) and not os.path.isdir(place):
            fault = "is no regular file, and an output replaces what is in its place; write to a file"
            raise _fault(node, f"{place!r} {fault}")
        source = sources.reader(place)
        if source is not None:
            raise _fault(node, f"{place!r} is among the files that {source.name!r} reads; write elsewhere")


def taken_by(pipeline: Pipeline, file: Path) -> str | None:
    """Return the name of the source or sink that a file belongs to, or None."""
    place = os.path.realpath(file)
    source = _Sources(pipeline).reader(place)
    if source is not None:
        return source.name
    for node in pipeline.nodes:
        if isinstance(node.config, Write) and os.path.realpath(sink_file(node.config)) == place:
            return node.name
    return None


class _Sources:
    """Which source of a pipeline reads a file, or would if it were there; every source is looked at once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._files: dict[str, Node] = {}
        self._folders: dict[str, list[tuple[Node, tuple[str, ...]]]] = {}
        self._patterns: list[tuple[Node, str]] = []
        for node in pipeline.nodes:
            if isinstance(node.config, Read):
                self._add(node, node.config)

    def _add(self, node: Node, config: Read) -> None:
        for file in (*list_files(config).taken, config.path):
            self._files.setdefault(os.path.realpath(file), node)
        path = Path(config.path)
        if path.is_dir():
            self._folders.setdefault(os.path.realpath(path), []).append((node, ENDINGS[config.format]))
        elif glob.has_magic(config.path):
            parent = path.parent.absolute()
            pattern = (parent if glob.has_magic(str(parent)) else parent.resolve()) / path.name
            self._patterns.append((node, str(pattern)))

    def reader(self, place: str) -> Node | None:
        """The source that reads a file; None if there is none."""
        if place in self._files:
            return self._files[place]
        folder, name = os.path.split(place)
        for node, endings in self._folders.get(folder, ()):
            if name.lower().endswith(endings):
                return node
        if not name.startswith((".", "_")):
            return next((node for node, pattern in self._patterns if Path(place).match(pattern)), None)
        return None


def _fault(node: Node, fault: str) -> TemplateError:
    line = node.lines.get(("path",), node.location.line)
    return TemplateError(node.location.file, line, fault, node.name, "path")
