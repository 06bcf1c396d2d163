"""Whether what a template writes is apart from what it reads, and from what else it writes."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from slackwater.pipelines.graph import Node, Pipeline, Read, Write
from slackwater.pipelines.sinks import sink_file
from slackwater.pipelines.source_files import ENDINGS, list_files
from slackwater.pipelines.template_text import TemplateError


def check_paths(pipeline: Pipeline) -> None:
    """Raise TemplateError if a sink would write over an input, among the files of one, or where another writes.

    Links are followed: what counts is where a file really is.
    """
    written: dict[str, Node] = {}
    for node in pipeline.nodes:
        if not isinstance(node.config, Write):
            continue
        place = os.path.realpath(sink_file(node.config))
        if place in written:
            raise _fault(node, f"{written[place].name!r} writes {place!r} too; give each sink a file of its own")
        written[place] = node
        for source in pipeline.nodes:
            if isinstance(source.config, Read) and _reads(source.config, place):
                raise _fault(node, f"{place!r} is among the files that {source.name!r} reads; write elsewhere")


def taken_by(pipeline: Pipeline, file: Path) -> str | None:
    """Return the name of the source or sink that a file belongs to, or None."""
    place = os.path.realpath(file)
    for node in pipeline.nodes:
        if isinstance(node.config, Read) and _reads(node.config, place):
            return node.name
        if isinstance(node.config, Write) and os.path.realpath(sink_file(node.config)) == place:
            return node.name
    return None


def _reads(config: Read, place: str) -> bool:
    """Whether a source reads a file, or would if it were there."""
    if place in map(os.path.realpath, list_files(config).taken):
        return True
    path, folder = Path(config.path), os.path.dirname(place)
    if path.is_dir():
        fits = os.path.basename(place).lower().endswith(ENDINGS[config.format])
        return fits and os.path.realpath(path) == folder
    if not glob.has_magic(config.path):
        return os.path.realpath(path) == place
    parent = path.parent.absolute()
    pattern = (parent if glob.has_magic(str(parent)) else parent.resolve()) / path.name
    return Path(place).match(str(pattern)) and not os.path.basename(place).startswith((".", "_"))


def _fault(node: Node, fault: str) -> TemplateError:
    line = node.lines.get(("path",), node.location.line)
    return TemplateError(node.location.file, line, fault, node.name, "path")
