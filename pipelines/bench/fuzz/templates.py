"""Mutates the shipped templates, and sees that each is checked, or refused with a clear error, in time.

A case changes the text (characters, lines, Jinja, unicode) or the values (other types, huge numbers, deletions,
copies, deep nesting) of a shipped template, and does with it what ``slackwater check`` does. That has to end
well, or with a TemplateError, within SECONDS of the processor.
"""

from __future__ import annotations

import argparse
import copy
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import yaml

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.bench.report import Report, Table
from slackwater.pipelines.generate import generate
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.runners.archives import check_archives
from slackwater.pipelines.template.graph import Create, Node, Read
from slackwater.pipelines.template.reader import read_template_text
from slackwater.pipelines.template.text import TemplateError, read_document, shipped
from slackwater.transforms.errors import SlackwaterError

SECONDS: Final = 2.0
SNIPPETS: Final = (
    *(
        "{{ 9**(9**9) }}",
        "{{ 'x' * 10**9 }}",
        "{{ lipsum(n=10**9) }}",
        "{{ [0] * 10**9 }}",
        "{{ '%9999999999d' % 1 }}",
    ),
    *(
        "{{ 'x'|center(10**9) }}",
        "{{ nope }}",
        "{{",
        "{%",
        "{% for i in range(99999) %}",
        "{% endfor %}",
        "{# ",
        "#}",
    ),
    *(
        "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
        "{{ out ~ out }}",
        "{{ 1/0 }}",
    ),
    *(
        "!!int x",
        "!!timestamp 2024-02-30",
        "2024-02-30",
        "!!binary '%'",
        "!!python/object:os.system x",
        "!!set {a}",
    ),
    *(
        "&a [*a]",
        "*b",
        "<<: {a: 1}",
        "? [1, 2]\n: 3",
        "- - - -",
        "\t",
        "\u2028",
        "\ufeff",
        "\ud83d\ude00",
        "\x00",
        "%TAG",
    ),
    *("[" * 600, "{a: " * 600, "- " * 600, "(" * 3000),
    *(
        "'",
        '"',
        "|",
        ">",
        ":",
        "{",
        "}",
        "[",
        "]",
        ",",
        "#",
        "\n",
        "---\n",
        "...\n",
        "0x",
        "1e400",
        ".inf",
        "~",
        "''",
    ),
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, float("inf")),
    *(
        float("nan"),
        "",
        " ",
        "x",
        "ts",
        "a.b",
        "a.b.c",
        "*",
        "5s",
        "-5s",
        "99999999999999999999d",
        "1e9h",
        "5 rows",
    ),
    *(
        "0 rows",
        "count(*)",
        "sum(x)",
        "'",
        '"',
        "a = ",
        "a = b AND",
        "1 = 1",
        "NOT",
        "x" * 5000,
        "é\u202e\U0001f600",
    ),
    *(
        "(" * 300 + ")" * 300,
        "a = b" + " AND a = b" * 300,
        "1" + "+1" * 300,
        "NULL",
        "a IN (1, 2)",
        "CASE WHEN",
        "\x07",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        {"": None},
        {"strategy": "nope"},
        {"strategy": None},
        {"strategy": ["fixed"]},
        [1, "x", None],
    ),
    *(
        {"strategy": "fixed", "slack": -1},
        {"strategy": "quality_driven", "recall": 7},
        {"a": {"b": {"c": {"d": 1}}}},
    ),
    *(
        {"strategy": "prob", "memory": 10**30},
        {"strategy": "xjoin"},
        {"strategy": "pjoin", "memory": 1},
        ["a", "a"],
    ),
)


class Late(BaseException):
    """The time is over."""


@cache
def subjects(folder: str) -> list[tuple[str, dict[str, str], Any]]:
    """Return the text, the variables and the values of every shipped template, over data in a folder."""
    for name, rows in (("nexmark", 400), ("news", 100), ("syn3", 100)):
        generate(name, Path(folder), rows=rows)
    files = {name: f"{folder}/{name}.parquet" for name in ("auctions", "bids", "news", "accesses")}
    variables = {**files, "left": f"{folder}/s1.parquet", "right": f"{folder}/s2.parquet", "dir": folder}
    variables |= {"out": f"{folder}/out", "window": "1m", "slack": "1s"}
    return [(text, variables, read_document("t", text, variables).value) for text in shipped().values()]


def mutated_text(rng: np.random.Generator, text: str) -> str:
    """Return a text with a few things wrong."""
    for _ in range(rng.integers(1, 4)):
        at, lines = int(rng.integers(len(text) + 1)), text.split("\n")
        line, other = rng.integers(len(lines), size=2)
        match rng.integers(8):
            case 0:
                text = text[:at] + text[at + int(rng.integers(1, 9)) :]
            case 1 | 2 | 3:
                text = text[:at] + SNIPPETS[rng.integers(len(SNIPPETS))] + text[at:]
            case 4:
                text = text[:at] + chr(int(rng.integers(1, 0xD7FF))) + text[at + 1 :]
            case 5:
                text = "\n".join(lines[:line] + lines[line + 1 :])
            case 6:
                text = "\n".join([*lines[:line], lines[other], *lines[line:]])
            case _:
                text = "\n".join([*lines[:line], " " * int(rng.integers(1, 5)) + lines[line], *lines[line + 1 :]])
    return text


def mutated_values(rng: np.random.Generator, value: Any) -> Any:
    """Return the values of a template with a few of them changed."""
    value = copy.deepcopy(value)
    for _ in range(rng.integers(1, 4)):
        places = list(_places(value))
        inside, key = places[rng.integers(len(places))]
        other, from_ = places[rng.integers(len(places))]
        if (isinstance(inside, list) and key >= len(inside)) or (isinstance(inside, dict) and key not in inside):
            continue
        match rng.integers(8):
            case 0 | 1 | 2:
                inside[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
            case 3:
                del inside[key]
            case 4:
                inside[key] = copy.deepcopy(other[from_])
            case 5 if isinstance(inside, list):
                inside.insert(key, copy.deepcopy(inside[key]))
            case 5 if isinstance(inside, dict):
                inside[str(VALUES[rng.integers(len(VALUES))])[:50]] = inside.pop(key)
            case 6:
                for _ in range(int(rng.choice([1, 3, 40, 80]))):
                    inside[key] = [inside[key]] if rng.random() < 0.5 else {"x": inside[key]}
            case _:
                inside[key] = str(inside[key])[: int(rng.integers(40))]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a value, as what it is in and its key there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _schema(node: Node) -> pa.Schema:
    assert isinstance(node.config, Read | Create)
    return source_schema(node.config)


def check(text: str, variables: dict[str, str]) -> str:
    """Return what checking a template ends in: ``passes`` and ``refused`` are as it should be."""
    try:
        with _within(SECONDS):
            check_archives(assemble(read_template_text("t.yaml", text, variables), _schema))
    except TemplateError:
        return "refused"
    except SlackwaterError as error:
        return f"refused without a place: {error}"
    except Late as late:
        return f"more than {SECONDS} s: {_place(late)}"
    except BaseException as error:
        return f"{type(error).__name__} at {_place(error)}: {str(error)[:60]}"
    return "passes"


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "bench" not in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[:-4:-1])


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise Late when the processor has worked for so long; others may use it too."""

    def over(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(cases: int, seed: int, told: Callable[[str, str], None] = lambda outcome, text: None) -> Counter[str]:
    """Return how many cases ended in what; tell of each that did not end as it should, with its template."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="slackwater-fuzz-") as folder:
        known = subjects(folder)
        for _ in range(cases):
            text, variables, value = known[rng.integers(len(known))]
            if rng.random() < 0.5:
                text = mutated_text(rng, text)
            else:
                text, variables = yaml.dump(mutated_values(rng, value), Dumper=_Dumper, allow_unicode=True), {}
            outcome = check(text, variables)
            found[outcome] += 1
            if outcome not in ("passes", "refused"):
                told(outcome, text)
    return found


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def run(options: argparse.Namespace, report: Report) -> None:
    """Mutate, check and count; raise unless all went well."""
    kept: Counter[str] = Counter()

    def keep(outcome: str, text: str) -> None:
        kept[outcome] += 1
        if options.keep and kept[outcome] == 1:
            file = Path(options.keep, f"{len(kept)}.yaml")
            file.write_text(f"# {outcome!r}\n{text}", encoding="utf-8", errors="backslashreplace")

    started = time.perf_counter()
    found = fuzz(options.rows, options.seed, keep)
    seconds = time.perf_counter() - started
    title = f"{found.total():,} templates in {seconds:.0f} s ({found.total() / seconds:.0f} a second)"
    table = Table("outcome", "templates", title=title)
    for outcome in ("passes", "refused"):
        table.add(outcome, found.pop(outcome, 0))
    for outcome, n in found.most_common(40):
        table.add(outcome, n)
    report.add(table)
    if found:
        told = "; ".join(f"{n} × {outcome}" for outcome, n in found.most_common(40))
        raise SlackwaterError(f"templates did not end as they should: {told}")
