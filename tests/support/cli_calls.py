"""Calls of the command line, and a template for it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner, Result

from slackwater.pipelines.cli import commands as cli

TEMPLATE = """\
pipeline:
  transforms:
    - type: ReadFromParquet
      name: Orders
      config: {{path: "{folder}/orders.parquet"}}
    - type: ReadFromParquet
      name: Clicks
      config: {{path: "{folder}/clicks.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {{orders: Orders, clicks: Clicks}}
      config:
        time: ts
        window: 5s
        where: orders.id = clicks.id and abs(orders.v - clicks.v) < 3
        disorder: {{strategy: fixed, slack: {{{{ slack }}}}}}
    - {{type: WriteToParquet, input: joined, config: {{path: "{folder}/out"}}}}
"""


def write_template(folder: Path) -> Path:
    """Write a template that runs, next to its two inputs; return its path."""
    for name in ("orders", "clicks"):
        table = pa.table({"id": [1, 2, 3], "v": [1, 2, 30], "ts": pa.array([1000, 2000, 3000], pa.int64())})
        pq.write_table(table, folder / f"{name}.parquet")
    path = folder / "t.yaml"
    path.write_text(TEMPLATE.format(folder=folder))
    return path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def edit(template: Path, old: str, new: str) -> None:
    text = template.read_text()
    assert old in text
    template.write_text(text.replace(old, new))
