"""Punctuate: rows in order, and what they say of later ones."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.operators.punctuate import bind_punctuate
from slackwater.transforms.operators.reorder import INPUT
from slackwater.transforms.settings.models import PunctuateConfig
from slackwater.transforms.settings.plan import JoinPlan


class Punctuate(OperatorTransform):
    """Puts rows in order of event time and says, as punctuations, what no later row will have.

    Takes a PCollection of rows with a schema. The main output has the same columns, in order, without the rows
    that are punctuations themselves. The output ``punctuations`` has ``ts``, ``pattern``, such as {"item": 7} or
    {"day": {"to": 3}}, and what it names in columns of its own, ``item`` or ``day_to``: no row after ``ts``
    matches. It can be read by GroupClose, or by a join as a source of punctuations. Rows that come too late for
    the order, or contradict what was said, are in the output ``late``.

    Args:
        time: Event-time column; integer, timestamp or date.
        when: SQL condition that tells rows that are punctuations from the others, such as kind = 'closed'.
        key: Column or columns whose value in such a row is over.
        unique: Column of which no value comes twice, or a list; a value is over when it has come.
        clustered: Column whose equal values follow each other, or a list; a value is over when another comes.
        ordered: Column whose values never fall in order of event time, or a list; all below one that has come are
            over. With desc after it, values never rise.
        progress: Say how far event time has come, once per so much of it at most, such as 10s.
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

    settings = PunctuateConfig
    passes_on = INPUT

    def __init__(
        self,
        *,
        time: str,
        when: str | None = None,
        key: Any = None,
        unique: Any = None,
        clustered: Any = None,
        ordered: Any = None,
        progress: str | None = None,
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
        return bind_punctuate(self._config, schemas)

    def result_types(self, plan: JoinPlan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        return schemas[INPUT].types
