"""The files of a source: which are taken, in what order, which are skipped and why, and how they are opened."""

from __future__ import annotations

import glob
import re
import stat
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from slackwater.pipelines.template.graph import Pipeline, Read
from slackwater.transforms.errors import SlackwaterError

ENDINGS: Final = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz"),
}
"""What the names of files in a folder end in, whatever their case."""
_GZIP: Final = b"\x1f\x8b"
_DATA: Final = re.compile(
    r"\.(parquet|pq|csv|tsv|psv|txt|json|jsonl|ndjson|avro|orc|arrow|feather|log|dat)(\.\w+)?$"
    r"|\.(gz|zst|bz2|xz|lz4|snappy|zip)$",
    re.IGNORECASE,
)


class Skipped(NamedTuple):
    """A file that is not read."""

    file: str
    why: str

    @property
    def looks_like_data(self) -> bool:
        """Whether somebody may miss its rows."""
        name = Path(self.file).name
        return not _hidden(name) and _DATA.search(name) is not None


class Listing(NamedTuple):
    """What stands at the path of a source."""

    taken: list[str]
    skipped: list[Skipped]


def list_files(config: Read) -> Listing:
    """Return the files of a source in natural order of their names (``part-2`` before ``part-10``).

    Of a folder these are the files with an ending of the format; of a glob all that match. Hidden files, those
    whose names begin with ``_``, such as ``_SUCCESS``, and folders are skipped.
    """
    path = config.path
    if Path(path).is_dir():
        found, endings = [str(f) for f in Path(path).iterdir()], ENDINGS[config.format]
    elif glob.has_magic(path) and not Path(path).exists():
        found, endings = glob.glob(path, recursive=True), ("",)
    else:
        return Listing([path] * Path(path).exists(), [])
    listing = Listing([], [])
    for file in sorted(found, key=natural):
        why = _unfit(file, endings)
        if why is None:
            listing.taken.append(file)
        else:
            listing.skipped.append(Skipped(file, why))
    return listing


def source_files(config: Read) -> list[str]:
    """Return the files of a source in natural order of their names; raise if there are none, or one is a pipe."""
    files, skipped = list_files(config)
    if not files:
        beside = ""
        if skipped:
            names = ", ".join(Path(s.file).name for s in skipped[:3])
            endings = " or ".join(ENDINGS[config.format])
            beside = f"; there are {names}, but no file that ends in {endings}"
        raise SlackwaterError(
            f"no {config.format} file at {config.path!r}{beside}; check the path (it is relative to the current "
            "folder)"
        )
    for file in files:
        if not stat.S_ISREG(Path(file).stat().st_mode):
            raise SlackwaterError(
                f"{file!r} is no regular file, and a source is read twice, for its columns and for its rows; "
                "write what comes from a pipe or device to a file first"
            )
    return files


def skipped_data(pipeline: Pipeline) -> list[str]:
    """Return warnings of sources at whose paths there are files that are not read and look like data."""
    found = (_skipped_data(node.config) for node in pipeline.nodes if isinstance(node.config, Read))
    return list(dict.fromkeys(filter(None, found)))


def _skipped_data(config: Read) -> str | None:
    listing = list_files(config)
    missed = [Path(skipped.file).name for skipped in listing.skipped if skipped.looks_like_data]
    if not missed:
        return None
    named = ", ".join(missed[:3]) + (f" and {len(missed) - 3} more" if len(missed) > 3 else "")
    return (
        f"{config.path!r}: skipped {named}, as only files that end in {' or '.join(ENDINGS[config.format])} are "
        "read; name them with a glob, or move them elsewhere"
    )


def open_file(file: str) -> Any:
    """Open a file to read its bytes; one that is compressed with gzip is decompressed, whatever its name."""
    plain = pa.OSFile(file)
    if plain.read(2) == _GZIP:
        plain.seek(0)
        return pa.CompressedInputStream(plain, "gzip")
    plain.seek(0)
    return plain


def natural(file: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers within names by value."""
    parts = re.split(r"([0-9]+)", file)
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _unfit(file: str, endings: tuple[str, ...]) -> str | None:
    """Return why a file is not read, or None."""
    path = Path(file)
    if path.is_dir():
        return "a folder"
    if _hidden(path.name):
        return "hidden"
    if not path.name.lower().endswith(endings):
        return "another ending"
    if not path.is_file():
        return "no regular file"
    return None
