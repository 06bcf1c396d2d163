"""Templates that tests start from, and how they read them."""

from typing import Any

import pytest

from slackwater.pipelines.template.reader import TemplateError, read_template_text

JOIN = """\
# Orders meet clicks. {{ not a variable: leading comments are skipped }}
pipeline:
  type: composite
  transforms:
    - type: ReadFromParquet
      name: Orders
      config:
        path: orders.parquet
    - type: ReadFromCsv
      name: Clicks
      config: {path: "{{ clicks }}"}
    - type: SlidingWindowJoin
      name: joined
      input: {orders: Orders, clicks: Clicks}
      config:
        time: ts
        window: {{ window }}
        where: orders.id = clicks.order_id
        disorder:
          strategy: fixed
          slack: 2s
    - {type: WriteToJson, input: joined, config: {path: out}}
    - {type: WriteToJson, input: joined.late, config: {path: late}}
providers:
  - {type: python, config: {}, transforms: {SlidingWindowJoin: slackwater.transforms.beam.SlidingWindowJoin}}
options: {runner: FnApiRunner}
"""
VARIABLES = {"clicks": "clicks.csv", "window": "5s"}
CREATE = "{type: Create, name: A, config: {elements: [{x: 1, ts: 1}]}}"
CREATE_B = "{type: Create, name: B, config: {elements: [{x: 1, ts: 1}]}}"


def read(text: str, **variables: str) -> Any:
    return read_template_text("t.yaml", text, variables)


def transforms(*specs: str, kind: str = "composite") -> str:
    """A template with one transform per line, the first in line 4."""
    return "\n".join(["pipeline:", f"  type: {kind}", "  transforms:", *(f"    - {spec}" for spec in specs)])


def fault(text: str, **variables: str) -> str:
    with pytest.raises(TemplateError) as error:
        read(text, **variables)
    return str(error.value)
