"""Reorder: rows in order of event time."""

from __future__ import annotations

from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.settings.models import ReorderConfig
from slackwater.transforms.settings.plan import INPUT


class Reorder(OperatorTransform):
    """Puts rows in order of event time; rows that come too late go to the output ``late``.

    Takes a PCollection of rows with a schema. The main output has rows of the same type, each with its event
    time as Beam's timestamp; they are emitted in order, which in-process runners keep.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = ReorderConfig
    passes_on = INPUT
