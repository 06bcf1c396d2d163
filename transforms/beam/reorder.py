"""Reorder: rows out in order of event time."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.operators.reorder import INPUT, bind_reorder
from slackwater.transforms.settings.models import ReorderConfig
from slackwater.transforms.settings.plan import JoinPlan


class Reorder(OperatorTransform):
    """Puts rows in order of event time; rows that come too late for it go to the output ``late``.

    Takes a PCollection of rows with a schema. The main output has rows of the same type, each with its event
    time as Beam's timestamp; they are emitted in order, which in-process runners keep.

    Args:
        time: Event-time column; integer, timestamp or date.
        arrival: Column with the order of arrival, integers or times; default is the order of event time of a
            bounded input, in which nothing is late, and of an unbounded one that in which the runner delivers.
        time_unit: Unit of integer event times: s, ms, us or ns.
        disorder: Disorder strategy and its options, such as {strategy: fixed, slack: 2s}.
        guard: Limits on event times, {past: duration, future: duration}; rows beyond them are late. Or none.
        metrics: Stream time between rows of the output metrics; strategies that adapt report whenever they do.
        idle_timeout: In live runs, how long an input may be silent before nothing is held back for it any more;
            default is for ever.
        error_handling: {output: name} calls the output late by another name, as Beam YAML has it for rows that
            could not be processed; something must read it.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = ReorderConfig
    passes_on = INPUT

    def __init__(
        self,
        *,
        time: str,
        arrival: str | None = None,
        time_unit: str = "ms",
        disorder: dict[str, Any] | None = None,
        guard: Any = None,
        metrics: str | None = None,
        idle_timeout: str | None = None,
        error_handling: dict[str, str] | None = None,
    ) -> None:
        super().__init__(locals())

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        return bind_reorder(self._config, schemas)

    def result_types(self, plan: JoinPlan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        return schemas[INPUT].types
