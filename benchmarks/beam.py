"""SlidingWindowJoin on Beam against a join that looks at every element, and a large join on Beam's Spark runner.

    python benchmarks/beam.py [--rows N] [--reference-rows N] [--rounds N]
    python benchmarks/beam.py spark [--rows N] [--shards N]

The first joins two inputs on FnApiRunner, in one run with the same rows: a thousand ids, about one partner for
every other row, a fifth of the rows up to a second late. The other join (``beam_by_element.py``) is what a Beam
user writes: a stateful DoFn with a bag for each side of a key and a timer that clears them. Both start from the
same Arrow batches, which the DoFn's pipeline has to take apart; ours is shown with batches as its input and with
rows, and gives rows out. All count the same results. The DoFn gets fewer rows, as it takes minutes for a million,
and gets slower the more there are: on bounded input, timers fire at the end, and bags grow until then.

The second runs a template with 16 shards through the job server at local[2] with the default memory, and prints
the largest size of the Java process and of this one, which is also where the workers run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from beam_by_element import BLOCK, SCHEMA, WINDOW, block, timed

from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.beam import SlidingWindowJoin


class Order(NamedTuple):
    id: int
    ts: int
    at: int
    price: float


class Unpack(beam.DoFn):
    def process(self, element: pa.RecordBatch) -> Iterator[Order]:
        return map(Order._make, zip(*(column.to_pylist() for column in element.columns), strict=True))


def by_batch(p: beam.Pipeline, inputs: dict[str, Any]) -> None:
    inputs | _join().with_schemas(dict.fromkeys(inputs, SCHEMA))


def by_row(p: beam.Pipeline, inputs: dict[str, Any]) -> None:
    unpacked = beam.ParDo(Unpack()).with_output_types(Order)
    {name: rows | f"Unpack {name}" >> unpacked for name, rows in inputs.items()} | _join()


def _join() -> SlidingWindowJoin:
    return SlidingWindowJoin(
        time="ts",
        arrival="at",
        window=f"{WINDOW}ms",
        where="a.id = b.id",
        disorder={"strategy": "fixed", "slack": "1s"},
    )


def in_other_process(rows: int) -> tuple[float, int]:
    """Return what ``timed`` does, of the join by element."""
    program = Path(__file__).with_name("beam_by_element.py")
    done = subprocess.run([sys.executable, program, str(rows)], capture_output=True, text=True, check=True)
    speed, results = json.loads(done.stdout)
    return speed, results


def compare(rows: int, reference_rows: int, rounds: int) -> None:
    ways: dict[str, Any] = {
        "Arrow batches in": partial(timed, by_batch),
        "rows in": partial(timed, by_row),
        "by element": in_other_process,
    }
    sizes = dict.fromkeys(ways, rows) | {"by element": reference_rows}
    best = dict.fromkeys(ways, 0.0)
    same = {name: way(min(reference_rows, 4 * BLOCK))[1] for name, way in ways.items()}
    if len(set(same.values())) != 1:
        raise SystemExit(f"the joins disagree: {same}")
    for number in range(rounds):
        for name, way in ways.items():
            speed, results = way(sizes[name])
            best[name] = max(best[name], speed)
            shown = f"{sizes[name]:>9,} rows {speed:>11,.0f} rows/s {results:>9,} results"
            print(f"{number}: {name:18} {shown}", flush=True)
    for name in list(ways)[:2]:
        print(f"{name}: {best[name] / best['by element']:.1f} times as fast as by element")


TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "%(dir)s/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config:
        time: ts
        arrival: at
        window: 5s
        where: a.id = b.id
        disorder: {strategy: fixed, slack: 1s}
        shards: %(shards)s
    - {type: WriteToParquet, input: joined, config: {path: "%(dir)s/joined"}}
"""


class Peak(threading.Thread):
    """Follows how large this process and the Java processes below it get."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = {"python": 0, "java": 0}
        self._over = threading.Event()

    def run(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._over.wait(0.2):
            for process in (me, *me.children(recursive=True)):
                try:
                    name = "java" if "java" in process.name() else "python"
                    self.largest[name] = max(self.largest[name], process.memory_info().rss)
                except psutil.Error:
                    continue

    def stop(self) -> None:
        self._over.set()
        self.join()


def on_spark(rows: int, shards: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed, name in enumerate("ab"):
            whole = pa.Table.from_batches(block(number, seed) for number in range(rows // 2 // BLOCK))
            pq.write_table(whole, Path(folder, f"{name}.parquet"))
        peak = Peak()
        peak.start()
        summary = run_beam.run(
            read_template_text("t.yaml", TEMPLATE % {"dir": folder, "shards": shards}), spark=True
        )
        peak.stop()
    sizes = ", ".join(f"{name} {size / 2**20:,.0f} MB" for name, size in peak.largest.items())
    shown = {key: summary[key] for key in ("input", "results", "elapsed_s", "rows_per_s")}
    print(f"{json.dumps(shown)}\npeak memory: {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["compare", "spark"], default="compare")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--reference-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=16)
    given = parser.parse_args()
    if given.what == "spark":
        on_spark(given.rows or 5_000_000, given.shards)
    else:
        compare(given.rows or 1_000_000, given.reference_rows, given.rounds)


if __name__ == "__main__":
    main()
