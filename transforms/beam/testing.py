"""For tests of live joins in Beam: scripts of what arrives, how clocks go on, and when to look at what came out.

    from slackwater.transforms.beam.testing import LOOK, Clock, Rows, play

    order, click = {"id": 1, "ts": 1000}, {"id": 1, "ts": 1500}
    script = [Rows("orders", [order]), Rows("clicks", [click]), LOOK, Clock(60), LOOK]
    join = SlidingWindowJoin(time="ts", window="5s", where="orders.id = clicks.id", idle_timeout="1m")
    first, idle, end = play(script, join.with_schemas({"orders": SCHEMA, "clicks": SCHEMA}), ("orders", "clicks"))
    assert not first["out"] and len(idle["out"]) == 1

A script runs on BundleBasedDirectRunner with TestStream and waits for nothing: ``Clock`` moves the clock by which
inputs fall idle, ``Watermark`` Beam's event time. ``docs/beam.md`` says more.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from slackwater.plugins import clock

Row = dict[str, Any]

END: Final = Timestamp(micros=GlobalWindow().max_timestamp().micros // 1000 * 1000 + 1000)
"""In milliseconds, after the end of the last window there is, and before the end of time."""
_LOOK = "look"
_START = 1000.0
_NOW: dict[str, float] = {}
"""What the clock of every script shows."""
_HEARD: defaultdict[str, list[tuple[str, Any, Any]]] = defaultdict(list)
"""What the recorders of every script have heard, in order: the runner has done with an event before the next."""


class Rows(NamedTuple):
    """Rows arrive on an input, in one bundle."""

    input: str
    rows: Sequence[Row]


class Clock(NamedTuple):
    """So many seconds go by on the clock of the workers."""

    seconds: float


class Watermark(NamedTuple):
    """No row with an earlier event time, in seconds, is to come on any input."""

    seconds: float


LOOK = Watermark(-1.0)
"""Here somebody looks at what has come out since the last time."""


class Record(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Notes elements in the order in which they come."""

    def __init__(self, script: str, name: str) -> None:
        self._script, self._name = script, name

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        if self._name == _LOOK and isinstance(element, Clock):
            _NOW[self._script] += element.seconds
        else:
            _HEARD[self._script].append((self._name, element, window))


class Seen(dict[str, list[Row]]):
    """Rows of every output that came between two looks."""

    windows: list[Any]
    """Beam window of each row of the main output."""

    @property
    def ids(self) -> list[tuple[Any, ...]]:
        """Ids of the members of results, in order."""
        return [tuple(v for k, v in row.items() if k.endswith("id")) for row in self["out"]]


def _millis(row: Row) -> float:
    return float(row["ts"] or 0) / 1000


def events_of(events: Sequence[Any], names: Sequence[str], stamp: Callable[[Row], float] = _millis) -> TestStream:
    """Return the script as a stream with an output for every input, and one for looks and the clock."""
    stream = TestStream(output_tags=[*names, _LOOK]).advance_processing_time(_START)
    for event in events:
        if event is LOOK:
            stream.add_elements([TimestampedValue(LOOK, 0)], tag=_LOOK)
        elif isinstance(event, Rows):
            stamped = [TimestampedValue(r, stamp(r)) for r in event.rows]
            stream.add_elements(stamped, tag=event.input)
        elif isinstance(event, Clock):
            stream.add_elements([TimestampedValue(event, 0)], tag=_LOOK)
            stream.advance_processing_time(event.seconds)
        else:
            for name in names:
                stream.advance_watermark_to(event.seconds, tag=name)
    for name in (*names, _LOOK):
        if stream.watermarks.get(name, 0) < END:
            stream.advance_watermark_to(END, tag=name)
    stream.add_elements([TimestampedValue(LOOK, END)], tag=_LOOK)
    for name in (*names, _LOOK):
        stream.advance_watermark_to_infinity(tag=name)
    return stream


def play(
    events: Sequence[Any],
    transform: beam.PTransform,
    names: Sequence[str] = ("a", "b"),
    prepare: Callable[[str, Any], Any] = lambda name, rows: rows,
    stamp: Callable[[Row], float] = _millis,
) -> list[Seen]:
    """Run a script; return what came out before each look, and at last what was left at the end of the stream.

    Args:
        events: the script: ``Rows``, ``Clock``, ``Watermark`` and ``LOOK``.
        transform: takes the inputs by name, or the only one; elements are dicts, so give it ``with_schemas``.
        names: of the inputs.
        prepare: makes the elements of an input of dicts, such as rows of another type.
        stamp: Beam's timestamp of a row, in seconds; default is the column ``ts`` in milliseconds.
    """
    script = uuid.uuid4().hex
    _NOW[script] = _START
    options = PipelineOptions(flags=[])
    options.view_as(StandardOptions).streaming = True
    pipeline = TestPipeline(runner="BundleBasedDirectRunner", options=options)
    stream = pipeline | events_of(events, names, stamp)
    inputs = {name: prepare(name, stream[name]) for name in names}
    outputs: Mapping[str, Any] = (inputs if len(names) > 1 else inputs[names[0]]) | "Join" >> transform
    for name in list(outputs.keys()):
        outputs[name] | f"Record {name}" >> beam.ParDo(Record(script, name))
    stream[_LOOK] | "Look" >> beam.ParDo(Record(script, _LOOK))
    with _clock_of(script):
        pipeline.run().wait_until_finish()
    return _by_look(_HEARD.pop(script))


@contextmanager
def _clock_of(script: str) -> Iterator[None]:
    """Let joins read the clock of a script: a DoFn cannot ask a runner for the time that its timers go by."""
    module: Any = clock
    real, module.time = module.time, SimpleNamespace(time_ns=lambda: int(_NOW[script] * 1e9))
    try:
        yield
    finally:
        module.time = real


def _by_look(heard: Sequence[tuple[str, Any, Any]]) -> list[Seen]:
    seen, at = [], defaultdict[str, list[Any]](list)
    for name, element, window in heard:
        if name == _LOOK:
            seen.append(_seen(at))
            at = defaultdict(list)
        else:
            at[name].append((element._asdict(), window))
    return [*seen[:-1], _merged(seen[-1], _seen(at))]


def _seen(at: Mapping[str, list[Any]]) -> Seen:
    outputs = ("out", "late", "punctuations", "metrics", "syncs")
    found = Seen({name: [row for row, _ in at.get(name, ())] for name in outputs})
    found.windows = [window for _, window in at.get("out", ())]
    return found


def _merged(one: Seen, other: Seen) -> Seen:
    both = Seen({name: one[name] + other[name] for name in one})
    both.windows = one.windows + other.windows
    return both
