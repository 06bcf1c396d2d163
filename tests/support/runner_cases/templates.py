"""Every shipped template."""

from runner_contract import BEAM, SPARK, Case, merged

from slackwater.pipelines import generate
from slackwater.pipelines.template.reader import read_template, shipped

ROWS_PER_BATCH = {"auctions": 1500, "congestion-toll": 80, "demo": 5, "sensor-proxy": 3, "speeding": 80}
"""For several micro-batches, but not many. Some templates bring their few rows along."""


def write(folder):
    generate.generate("nexmark", folder, rows=4000, seed=3)
    generate.generate("news", folder, rows=1000)
    generate.generate("syn3", folder, rows=500)


def variables(data, out):
    files = {name: f"{data}/{name}.parquet" for name in ("auctions", "bids", "news", "accesses")}
    pair = {"left": f"{data}/s1.parquet", "right": f"{data}/s2.parquet"}
    return {**files, **pair, "dir": str(data), "out": str(out), "window": "1m", "slack": "1s"}


def build(data, out, parts):
    """Each with a folder of its own."""
    return merged({name: read_template(name, variables(data, out / name)) for name in parts})


def check(ran):
    assert all(lines or "late" in output for output, lines in ran.files.items())
    assert sum(bool(lines) for output, lines in ran.files.items() if "late" in output) > 3


CASES = [
    Case(
        "templates",
        write,
        build,
        check,
        dict.fromkeys((BEAM[0], "DirectRunner", "beam-spark", *SPARK)),
        parts=tuple(shipped()),
        jobs=lambda parts: [[name] for name in parts],
        rows_per_batch=ROWS_PER_BATCH,
        plain=True,
    )
]
