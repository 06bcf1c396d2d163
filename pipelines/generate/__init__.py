"""Seeded data sets of the papers, with their exact result counts.

``DATASETS`` lists what there is, with every knob; :func:`generate` writes one. Listing is cheap: Numba and
PyArrow are loaded only when something is generated. A new data set is one file that offers a
:class:`Dataset`, and one line in the registry below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.pipelines.generate.flights import FLIGHTS, FLIGHTS_WEATHER
from slackwater.pipelines.generate.news import NEWS
from slackwater.pipelines.generate.nexmark import NEXMARK
from slackwater.pipelines.generate.punct import PUNCT
from slackwater.pipelines.generate.soccer import SOCCER
from slackwater.pipelines.generate.spec import Dataset, Knob, Marks, Query
from slackwater.pipelines.generate.syn import SYN2, SYN3, SYN4
from slackwater.pipelines.generate.write import FORMATS, write_counts, write_rows
from slackwater.pipelines.generate.zipf import ZIPF

__all__ = ["DATASETS", "FORMATS", "Dataset", "GeneratedDataset", "Knob", "Marks", "Query", "generate"]

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (SYN2, SYN3, SYN4, SOCCER, FLIGHTS, FLIGHTS_WEATHER, ZIPF, NEXMARK, PUNCT, NEWS)
}


@dataclass(frozen=True)
class GeneratedDataset:
    """What :func:`generate` wrote, and what a template needs to run on it."""

    dataset: str
    files: dict[str, Path]
    """Stream name to file, in arrival order of the streams."""
    rows: dict[str, int]
    truth: Path
    """``second,results``: one line for every second of event time that has results."""
    description: Path
    """``dataset.json``: data set, seed, knobs, rows, query and total results."""
    results: int
    """Results of the query on complete, sorted data."""
    query: Query
    variables: dict[str, str]
    """Template variables: each stream's file by the stream's name, then ``time``, ``arrival``, ``window``,
    ``closed`` and ``where``."""


def generate(
    dataset: str,
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 7,
    format: str = "parquet",
    **knobs: Any,
) -> GeneratedDataset:
    """Write a data set, its exact result counts and its description into a directory.

    The directory is made if need be; files of the same names in it are replaced, others are left alone.
    The same data set, seed, rows and knobs give the same data; fewer rows give a prefix of it, file by file.
    All rows are held in memory while they are generated: some 100 bytes for each.

    Args:
        dataset: A name in ``DATASETS``.
        out: The directory to write into.
        rows: Rows per stream, or of the longest one where they differ; the data set's own number when left out.
        seed: Not negative.
        format: ``parquet``, ``csv`` or ``json`` (one object per line, in files ending in ``.jsonl``).
        knobs: Values by knob name; text is read as the knob's type, as on the command line.

    Raises:
        ValueError: A name or value is not acceptable. Nothing has been written then.
    """
    if dataset not in DATASETS:
        known = ", ".join(sorted(DATASETS))
        raise ValueError(f"dataset '{dataset}' is not known; known: {known}. Check the spelling.")
    chosen = DATASETS[dataset]
    values = chosen.parse(knobs)
    if format not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise ValueError(f"{dataset}.format: no format named '{format}'; known: {known}. Name one of these.")
    count = chosen.default_rows if rows is None else rows
    if count < 1:
        raise ValueError(
            f"{dataset}.rows: must be at least 1, got {count}. Leave it out for {chosen.default_rows}."
        )
    if seed < 0:
        raise ValueError(f"{dataset}.seed: must be at least 0, got {seed}. Use any whole number from 0 on.")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{dataset}.out: '{out}' is not a directory. Name a directory, or one to be made.")

    sample = chosen.make(count, seed, values)
    out.mkdir(parents=True, exist_ok=True)
    files = {name: out / f"{name}.{FORMATS[format]}" for name in sample.streams}
    for name, columns in sample.streams.items():
        write_rows(files[name], columns, format)
    truth = out / "truth.csv"
    write_counts(truth, sample.truth)
    rows_by_stream = {name: len(columns["ts"]) for name, columns in sample.streams.items()}
    described = {
        "dataset": dataset,
        "seed": seed,
        "knobs": values,
        "rows": rows_by_stream,
        "files": {name: path.name for name, path in files.items()},
        "query": sample.query.where,
        "window": sample.query.duration,
        "closed": sample.query.closed,
        "results": sample.truth.total,
        **_told(sample.query),
    }
    description = out / "dataset.json"
    description.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return GeneratedDataset(
        dataset=dataset,
        files=files,
        rows=rows_by_stream,
        truth=truth,
        description=description,
        results=sample.truth.total,
        query=sample.query,
        variables={
            **{name: str(path) for name, path in files.items()},
            "time": "ts",
            "arrival": "arrived",
            "window": sample.query.duration,
            "closed": sample.query.closed,
            "where": sample.query.where,
        },
    )


def _told(query: Query) -> dict[str, Any]:
    """Return what a join may know of the rows beforehand, leaving out what does not apply."""
    told = {
        "whole": query.whole,
        "punctuations": [marks._asdict() for marks in query.punctuations],
        "promises": {promise: list(columns) for promise, columns in query.promises.items()},
    }
    return {name: value for name, value in told.items() if value}
