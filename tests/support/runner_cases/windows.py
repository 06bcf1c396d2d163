"""SlidingWindowAggregate, joins of its results and marks, Flatten, and the templates about them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, merged, parquet, pipeline_of, sink

from slackwater.pipelines.template.reader import read_template

AGGREGATES = {"n": "count(*)", "s": "sum(v)", "a": "avg(x)", "lo": "min(x)", "hi": "max(v + 1)"}
WINDOWS = {
    "ratio": {
        "group_by": "k", "range": "70ms", "slide": "30ms", "having": "n > 1 AND k <> 'key 3'", "metrics": "100ms",
        "disorder": {"strategy": "drop_ratio", "drop_ratio": 0.05},
    },
    "sharded": {
        "group_by": ["k", "j"], "range": "60ms", "slide": "30ms", "shards": 3, "aggregates": {"n": "count(*)"},
    },
    "sampled": {"time": "t", "range": "20ms", "slide": "50ms", "disorder": {"strategy": "none"}},
}  # fmt: skip
JOINS = {
    "synced": ({"r": "Ratio and syncs", "s": "Sharded and syncs"}, {"arrival": "extent", "window": "1ms"}),
    "direct": ({"r": "ratio", "s": "ratio"}, {"window": "40ms"}),
}
OF_SEVERAL_SHARDS = ("sharded", "synced", "direct", "Ratio and", "congestion-toll")


def write(folder):
    rng = np.random.default_rng(8)
    n = 500
    ts = 3 * np.arange(n) - rng.integers(0, 90, n) * (rng.random(n) < 0.3)
    columns = {
        "ts": ts,
        "t": pa.array(ts, pa.timestamp("ms")),
        "at": 3 * np.arange(n),
        "k": [None if k == 5 else f"key {k}" for k in rng.integers(0, 6, n)],
        "j": pa.array([None if j == 2 else int(j) for j in rng.integers(0, 3, n)], pa.int32()),
        "v": pa.array([None if v == 9 else int(v) for v in rng.integers(-9, 10, n)], pa.int64()),
        "x": rng.normal(0, 1, n),
    }
    table = pa.table(columns)
    pq.write_table(table.slice(0, 200), folder / "rows1.parquet")
    pq.write_table(table.slice(200), folder / "rows2.parquet")


def windows(data, out):
    nodes = [parquet("Rows", data / "rows*.parquet")]
    for name, settings in WINDOWS.items():
        config = {"time": "ts", "arrival": "at", "aggregates": AGGREGATES, **settings}
        nodes.append({"type": "SlidingWindowAggregate", "name": name, "input": "Rows", "config": config})
    for name in ("ratio", "sharded"):
        nodes.append({"type": "Flatten", "name": f"{name.title()} and syncs", "input": [name, f"{name}.syncs"]})
    for name, (inputs, settings) in JOINS.items():
        config = {"time": "ts", "where": "r.k = s.k", "disorder": {"strategy": "none"}, **settings}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": config})
    ports = [f"{name}{output}" for name in WINDOWS for output in ("", ".late", ".syncs", ".metrics")]
    nodes += [sink(port, f"{out}/{port}.jsonl") for port in [*ports, *JOINS, "Ratio and syncs"]]
    return pipeline_of(nodes)


def build(data, out, parts):
    shipped = {name: read_template(name, {"out": str(out)}) for name in ("speeding", "congestion-toll")}
    return merged({"windows": windows(data, out), **shipped})


def check(ran):
    empty = {name for name, lines in ran.files.items() if not lines}
    metrics = {f"{name}.metrics.jsonl" for name, settings in WINDOWS.items() if name in ("sharded", "sampled")}
    assert empty <= metrics | {"sharded.late.jsonl", "congestion-late.jsonl"} | {
        f"speeding-Q{k}-late.jsonl" for k in (1, 3, 4)
    }
    assert len(ran.files["synced.jsonl"]) > 50 and len(ran.files["direct.jsonl"]) > 50


CASES = [
    Case(
        "windows",
        write,
        build,
        check,
        dict.fromkeys(("local again", BEAM[0], "beam-spark", SPARK[0])),
        rows_per_batch=300,
        in_order=lambda file: not file.startswith(OF_SEVERAL_SHARDS),
    )
]
