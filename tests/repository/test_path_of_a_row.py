"""The walk: the files that rows of the demo pass from its source to its sinks are those that ARCHITECTURE lists.

Rows pass a file where a function of it is given rows and hands them on: it returns or yields them, or calls a
function of another file with them. Rows are Arrow batches and tables that are not empty, alone or in tuples.
Functions that only look at rows are not on the path. Between arrival and delivery the stages of a join see tuples
of numbers instead, by which rows are found again; "The operator of a join" in ARCHITECTURE describes that.
"""

import re
import sys
import threading
from pathlib import Path

import pyarrow as pa

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template

ROOT = Path(__file__).parents[2]
MOST = 20
FOLDERS = tuple(f"{ROOT / folder}/" for folder in ("pipelines", "plugins", "transforms"))


def holds_rows(value, depth=0):
    if isinstance(value, pa.RecordBatch | pa.Table):
        return value.num_rows > 0
    return depth < 3 and isinstance(value, tuple | list) and any(holds_rows(part, depth + 1) for part in value)


class Walk:
    """Notes the files that hand rows on, as a profiler of every thread."""

    def __init__(self):
        self.files = set()
        self._given = {}
        """Whether each call was given rows, with its frame, so that none takes the place of another."""

    def __call__(self, frame, event, value):
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(FOLDERS):
            return
        if event == "return":
            if holds_rows(value) and self._has_rows(frame):
                self.files.add(file)
        elif id(frame) not in self._given:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            rows = any(holds_rows(frame.f_locals.get(name)) for name in names if name != "self")
            self._given[id(frame)] = frame, rows
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(FOLDERS):
                caller = caller.f_back
            if rows and caller is not None and caller.f_code.co_filename != file and self._has_rows(caller):
                self.files.add(caller.f_code.co_filename)

    def _has_rows(self, frame):
        return self._given.get(id(frame), (None, False))[1]


def walked(template, out):
    walk, pipeline = Walk(), read_template(template, {"out": str(out)})
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        local.run(pipeline)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(file).relative_to(ROOT)) for file in walk.files}


def listed():
    """Files of the table in ARCHITECTURE, each with a line of its own."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("\n## The path of a row\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \| \S.*\|$", section, re.MULTILINE)


def test_rows_of_the_demo_pass_the_files_that_architecture_lists(tmp_path):
    found = walked("demo", tmp_path)
    assert (tmp_path / "demo-joined.jsonl").read_text().count("\n") == 9
    assert (tmp_path / "demo-late.jsonl").read_text()
    assert found == set(listed())
    assert len(found) == len(listed()) <= MOST
