"""The guard refuses the same rows everywhere, with 1 and 3 shards."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, Case, parquet, pipeline_of, sink

NOW = 1_700_000_000_000
YEAR = 365 * 86_400_000


def write(folder):
    good = NOW + 10 * np.arange(1200)
    bad = {0: NOW + 10 * YEAR, 1: NOW + 10 * YEAR, 500: NOW - 8 * YEAR, 700: NOW + 3 * YEAR, 701: NOW + 3 * YEAR}
    for name in "ab":
        ts = good.copy()
        ts[list(bad)] = list(bad.values())
        table = pa.table({"ts": ts, "k": np.arange(ts.size) % 7, "at": np.arange(ts.size)})
        pq.write_table(table, folder / f"{name}.parquet")


def build_with(shards):
    def build(data, out, parts):
        config = {
            "time": "ts",
            "arrival": "at",
            "window": "100ms",
            "where": "a.k = b.k",
            "disorder": {"strategy": "none"},
            "shards": shards,
        }
        return pipeline_of(
            [
                *(parquet(name.upper(), data / f"{name}.parquet") for name in "ab"),
                {"type": "SlidingWindowJoin", "name": "j", "input": {"a": "A", "b": "B"}, "config": config},
                {"type": "WriteToParquet", "name": "Out", "input": "j", "config": {"path": f"{out}/out.parquet"}},
                sink("j.late", f"{out}/late.jsonl"),
            ]
        )

    return build


def check(ran):
    assert ran.joins["j"]["late"] == {"future_time": 8, "too_late": 2}
    assert len(ran.files["out.parquet"]) > 1000


CASES = [Case(f"guards in {n}", write, build_with(n), check, {BEAM[0]: None}) for n in (1, 3)]
