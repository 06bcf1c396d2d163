"""Punctuate: rows in order of event time, and punctuations that follow from them."""

from __future__ import annotations

from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.settings.models import PunctuateConfig
from slackwater.transforms.settings.plan import INPUT


class Punctuate(OperatorTransform):
    """Puts rows in order of event time and emits punctuations: values that no later row will have.

    Takes a PCollection of rows with a schema. The main output has the same columns, in order, without the rows
    that are punctuations themselves. The output ``punctuations`` has ``ts``, ``pattern``, such as {"item": 7} or
    {"day": {"to": 3}}, and what it names in columns of its own, ``item`` or ``day_to``: no row after ``ts``
    matches. GroupClose reads this output, or a join as a source of punctuations. Rows that come too late for the
    order, or contradict a punctuation, are in the output ``late``.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = PunctuateConfig
    passes_on = INPUT
