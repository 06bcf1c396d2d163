"""The outputs of a transform with one main output and several others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import apache_beam as beam

from slackwater.transforms.errors import ConfigError

MAIN: Final = "out"
"""Tag of the main output."""
ACCOUNTING: Final = "accounting"
"""Tag of the internal output with one account per shard, as bytes."""
_MAIN_ALIASES: Final = frozenset({"output", "main", "results", "good"})


class JoinOutputs(dict[str, beam.PCollection]):
    """PCollections by tag, of which one is the main one.

    ``items`` and ``keys`` give all of them, so that Beam knows each as an output of the transform. Where a
    single output is asked for there is one: ``len`` is 1 and ``values`` gives the main output. This is what
    Beam YAML looks at to read ``input: joined`` as the main output, next to ``input: joined.late``.

    Args:
        outputs: the PCollections, late rows under ``late``.
        late: what their output is called.
    """

    def __init__(self, outputs: Mapping[str, beam.PCollection], late: str = "late") -> None:
        super().__init__({late if tag == "late" else tag: rows for tag, rows in outputs.items()})
        self._late = late

    def __len__(self) -> int:
        return 1

    def __contains__(self, tag: object) -> bool:
        return super().__contains__(tag) or tag in _MAIN_ALIASES

    def __missing__(self, tag: str) -> beam.PCollection:
        if tag in _MAIN_ALIASES:
            return self[MAIN]
        raise KeyError(f"there is no output {tag!r}; there are {', '.join(self)}")

    def __getattr__(self, name: str) -> beam.PCollection:
        """An output by its name, also by that which ``error_handling`` gave it."""
        if name.startswith("_") or name not in self:
            raise AttributeError(f"there is no output {name!r}; there are {', '.join(self)}")
        return self[name]

    def __or__(self, other: Any) -> Any:
        """Say that one output is to be named: a step does not apply to all of them."""
        raise ConfigError(
            f"these are several outputs, {', '.join(self)}, and a step takes one of them; write outputs.main | … "
            f"or outputs[{self._late!r}] | …",
            "input",
        )

    def values(self) -> Any:
        """The main output alone."""
        return {MAIN: self[MAIN]}.values()

    @property
    def main(self) -> beam.PCollection:
        """Joined rows, counts, or aggregates."""
        return self[MAIN]

    @property
    def late(self) -> beam.PCollection:
        """Rows that were not joined in time, each with its reason, whatever the output is called."""
        return self[self._late]

    @property
    def punctuations(self) -> beam.PCollection:
        """Punctuations that hold for the results."""
        return self["punctuations"]

    @property
    def syncs(self) -> beam.PCollection:
        """Ends of window extents."""
        return self["syncs"]

    @property
    def metrics(self) -> beam.PCollection:
        """Measurements of the join while it runs."""
        return self["metrics"]
