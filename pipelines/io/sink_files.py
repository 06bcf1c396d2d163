"""Where sinks write: paths alone, without what writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slackwater.pipelines.template.graph import Write

ENDINGS: Final = {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl"}


def sink_file(config: Write) -> Path:
    """Return the file a sink writes: the path itself if it has an ending, else the path plus one."""
    path = Path(config.path)
    return path if path.suffix else path.with_name(path.name + ENDINGS[config.format])
