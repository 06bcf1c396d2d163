"""``slackwater bench shedding``: SAJ's experiments in shape, with the offline optimum as the ceiling.

Each section is a module ``shedding_NAME`` with ``section() -> list[Row]``, small by arguments of its own.
Strategies run through the operator that every runner drives. A row says what was run, what it gave, which shape
the paper leads to expect, and whether it was met.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from rich.console import Console

from slackwater.pipelines.bench.joins import Row, figures_of, show
from slackwater.transforms.errors import SlackwaterError

SECTIONS = {
    "figures": "Window joins within a memory (SAJ 5.2): results by memory, skew, correlation, allocation, domain",
    "real": "Flights and auctions: shares of the exact results",
    "static": "Stored relations (SAJ 5.1): the greedy choice beside the optimum",
    "throughput": "What shedding costs",
}
"""Name to title; the rows come from the module ``shedding_NAME``."""
QUICK: dict[str, dict[str, Any]] = {
    "figures": {"rows": 4_000, "windows": (200,), "skews": (0.0, 1.0, 2.0)},
    "real": {"rows": 3_000},
    "static": {"skews": (0.5,)},
    "throughput": {"rows": 500_000, "rounds": 3},
}


def main(arguments: list[str]) -> None:
    """Run the sections, print their tables, and write them down if a file is named."""
    parser = argparse.ArgumentParser(prog="slackwater bench shedding", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, help="run one section only")
    parser.add_argument("--quick", action="store_true", help="shorter streams: two minutes instead of four")
    parser.add_argument("--out", type=Path, help="file for the tables, as Markdown")
    options = parser.parse_args(arguments)
    if options.out is not None and not options.out.parent.is_dir():
        raise SlackwaterError(f"--out: there is no folder {options.out.parent}; make it, or name another file")
    console = Console(highlight=False)
    if not console.is_terminal:
        # A file has no width, and 80 columns are too few.
        console = Console(highlight=False, width=150)
    written = []
    for name in [options.only] if options.only else SECTIONS:
        module = importlib.import_module(f"slackwater.pipelines.bench.shedding_{name}")
        rows = module.section(**(QUICK[name] if options.quick else {}))
        show(console, SECTIONS[name], rows)
        written.append(markdown(SECTIONS[name], rows))
    if options.out is not None:
        options.out.write_text("# slackwater bench shedding\n\n" + "\n".join(written), encoding="utf-8")


def markdown(title: str, rows: list[Row]) -> str:
    """Return a section as a Markdown table."""
    lines = [f"## {title}", "", "| case | measured | expected | met |", "| --- | --- | --- | --- |"]
    met = {None: "", True: "yes", False: "**no**"}
    lines += [f"| {row.case} | {figures_of(row)} | {row.shape} | {met[row.met]} |" for row in rows]
    return "\n".join(lines) + "\n"
