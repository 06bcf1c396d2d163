"""The join that ``slackwater bench beam`` compares with, as a Beam user writes it: state and a timer per key.

It is run by its path, ``python by_element.py ROWS SEED``, and imports nothing of Slackwater: Beam's state cache
looks at all modules that are loaded to know the size of what it holds, so each more would slow it down. For the
same reason it takes milliseconds for each key, and there are few.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

WINDOW = 5_000
BLOCK = 10_000
KEYS = 1_000
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("at", pa.int64()), ("price", pa.float64())])


def block(number: int, seed: int) -> pa.RecordBatch:
    """Rows of a part of an input, one every 10 ms, a fifth of them up to a second late."""
    rng = np.random.default_rng([seed, number])
    at = 10 * np.arange(number * BLOCK, (number + 1) * BLOCK)
    late = rng.integers(0, 1000, BLOCK) * (rng.random(BLOCK) < 0.2)
    columns = {"id": rng.integers(0, KEYS, BLOCK), "ts": at - late, "at": at, "price": rng.random(BLOCK)}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


class JoinElements(beam.DoFn):
    """A window join that looks at every element of the other side."""

    LEFT = BagStateSpec("left", beam.coders.FastPrimitivesCoder())
    RIGHT = BagStateSpec("right", beam.coders.FastPrimitivesCoder())
    CLEAR = TimerSpec("clear", TimeDomain.WATERMARK)

    def __init__(self) -> None:
        self._results = Metrics.counter("reference", "results")

    def process(
        self,
        element: tuple[int, tuple[str, dict[str, Any]]],
        left: Any = beam.DoFn.StateParam(LEFT),  # noqa: B008
        right: Any = beam.DoFn.StateParam(RIGHT),  # noqa: B008
        clear: Any = beam.DoFn.TimerParam(CLEAR),  # noqa: B008
    ) -> Iterator[beam.Row]:
        _, (name, row) = element
        own, other = (left, right) if name == "a" else (right, left)
        for partner in other.read():
            if abs(partner["ts"] - row["ts"]) <= WINDOW:
                a, b = (row, partner) if name == "a" else (partner, row)
                named = {f"a_{k}": v for k, v in a.items()} | {f"b_{k}": v for k, v in b.items()}
                self._results.inc()
                yield beam.Row(**named, ts=max(a["ts"], b["ts"]))
        own.add(row)
        clear.set((row["ts"] + WINDOW) / 1000)

    @on_timer(CLEAR)
    def clear_up(self, left: Any = beam.DoFn.StateParam(LEFT), right: Any = beam.DoFn.StateParam(RIGHT)) -> None:  # noqa: B008
        left.clear()
        right.clear()


def tagged(batch: pa.RecordBatch, name: str) -> Iterator[TimestampedValue]:
    for row in batch.to_pylist():
        yield TimestampedValue((row["id"], (name, row)), row["ts"] / 1000)


def by_element(p: beam.Pipeline, inputs: dict[str, Any]) -> None:
    sides = [
        rows
        | f"Key {name}" >> beam.FlatMap(tagged, name).with_output_types(tuple[int, tuple[str, dict[str, Any]]])
        for name, rows in inputs.items()
    ]
    sides | beam.Flatten() | beam.ParDo(JoinElements())


def inputs_of(p: beam.Pipeline, blocks: int, seed: int) -> dict[str, Any]:
    """Two inputs of so many Arrow batches each."""
    inputs = {}
    for which, name in enumerate("ab"):
        numbers = p | f"Numbers {name}" >> beam.Create(range(blocks), reshuffle=False)
        inputs[name] = numbers | name >> beam.Map(block, seed + which).with_output_types(pa.RecordBatch)
    return inputs


def timed(build: Any, rows: int, seed: int) -> tuple[float, int]:
    """Return rows per second of a join on FnApiRunner, and the number of results."""
    p = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))
    blocks = max(1, rows // 2 // BLOCK)
    build(p, inputs_of(p, blocks, seed))
    started = time.perf_counter()
    done = p.run()
    done.wait_until_finish()
    seconds = time.perf_counter() - started
    found = done.metrics().query(MetricsFilter().with_name("results"))["counters"]
    return 2 * BLOCK * blocks / seconds, sum(counter.committed for counter in found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(timed(by_element, int(sys.argv[1]), int(sys.argv[2]))))
