"""Punctuations that the input supplies, in a column of watermarks."""

from typing import Any, ClassVar

import numpy as np
from pydantic import field_validator

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Int64s,
    Setting,
    Snapshot,
)
from slackwater.plugins.disorder.clocks import running_max


class ExternalWatermarks(DisorderStrategy):
    """Hold every row until its input says that nothing older will follow.

    A column of the input holds its watermarks: w in a row says that, on this input, no later row has an event
    time at or before w. Rows up to the largest watermark so far are released in order; a row without a value
    says nothing new, and nothing is released before the first one. A row that breaks the promise goes straight
    on, out of order. What is held, and for how long, is up to the source: an input that never brings a
    watermark is held to its end. With several shards, each sees the watermarks of its own rows only, which may
    hold rows longer and never releases one too early; on live streams on Spark, it sees those of all.
    """

    name: ClassVar[str] = "external"
    shares: ClassVar[bool] = True
    watermark: str | dict[str, str]
    """column with the watermarks, one name for all inputs or {input: column}: same kind of values as ``time``"""

    @field_validator("watermark", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        named = list(value.values()) if isinstance(value, dict) else [value]
        if not named or not all(isinstance(column, str) for column in named):
            raise ValueError(f"must be a column, or {{input: column}}, got {value!r}")
        return value

    @property
    def watermark_columns(self) -> str | dict[str, str]:
        return self.watermark

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "ExternalLogic":
        return ExternalLogic(len(setting.inputs), snapshot)


class ExternalLogic(DisorderLogic):
    """The largest watermark of every input."""

    def __init__(self, inputs: int, snapshot: Snapshot | None = None) -> None:
        self._watermark = np.full(inputs, NEVER, np.int64)
        if snapshot:
            self._watermark[:] = snapshot["watermark"]

    def bounds(self, arrivals: Arrivals) -> Int64s:
        said = arrivals.watermark
        if said is None:
            said = np.full(arrivals.ts.size, NEVER, np.int64)
        return running_max(arrivals.input, said, self._watermark)

    def snapshot(self) -> Snapshot:
        return {"watermark": self._watermark.copy()}
