"""Every shipped template on Beam's runners, its own YAML runner and Spark: what the embedded runner gives.

On each runner of Beam all of them are one job, as starting an engine takes longest.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slackwater.pipelines import generate
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Flatten
from slackwater.pipelines.template.reader import read_template, shipped
from slackwater.pipelines.template.text import providers
from slackwater.transforms.settings.models import OperatorConfig

ROWS_PER_BATCH = {"auctions": 1500, "congestion-toll": 80, "demo": 5, "sensor-proxy": 3, "speeding": 80}
"""For several micro-batches, but not many; by default 400. Some templates bring their few rows along."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("shipped")
    generate.generate("nexmark", path, rows=4000, seed=3)
    generate.generate("news", path, rows=1000)
    generate.generate("syn3", path, rows=500)
    return path


def variables(data, out):
    files = {name: f"{data}/{name}.parquet" for name in ("auctions", "bids", "news", "accesses")}
    pair = {"left": f"{data}/s1.parquet", "right": f"{data}/s2.parquet"}
    return {**files, **pair, "dir": str(data), "out": str(out), "window": "1m", "slack": "1s"}


def everything(data, out):
    """All templates in one pipeline, each with a folder of its own."""
    nodes = []
    for name in shipped():
        part = read_template(name, variables(data, out / name))
        for node in part.nodes:
            inputs = {label: replace(port, node=f"{name} {port.node}") for label, port in node.inputs.items()}
            nodes.append(replace(node, name=f"{name} {node.name}", inputs=inputs))
    return replace(part, nodes=tuple(nodes))


def rows_in(folder):
    """Rows of every output as a multiset; an output may be a file, or several whose names go on."""
    found = {}
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        name = file.name.split(".")[0].partition("-0000")[0]
        if ".parquet" in file.name or file.read_bytes()[:4] == b"PAR1":
            rows = pq.read_table(file).to_pylist()
        else:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
        found.setdefault(name, Counter()).update(json.dumps(plain(row), sort_keys=True) for row in rows)
    return found


def plain(row):
    """Numbers alike, also in rows within late rows: Beam writes ten digits, and whole ones without a point."""
    out = {}
    for key, value in row.items():
        nested = isinstance(value, str) and value.startswith("{")
        number = isinstance(value, int | float)
        out[key] = plain(json.loads(value)) if nested else round(value, 7) + 0.0 if number else value
    return out


@pytest.fixture(scope="module")
def expected(data):
    local.run(everything(data, data / "local"))
    found = {name: rows_in(data / "local" / name) for name in shipped()}
    for name, outputs in found.items():
        assert all(rows or "late" in output for output, rows in outputs.items()), name
    late = [rows for outputs in found.values() for output, rows in outputs.items() if "late" in output]
    assert sum(map(bool, late)) > 3
    return found


def check(data, expected, runner, **options):
    from slackwater.pipelines.runners.beam import runner as run_beam

    run_beam.run(everything(data, data / runner), **options)
    for name in expected:
        assert rows_in(data / runner / name) == expected[name], name


@pytest.mark.beam
@pytest.mark.parametrize("runner", ["FnApiRunner", "DirectRunner"])
def test_on_beam(data, expected, runner):
    check(data, expected, runner, options={"runner": runner})


@pytest.mark.beam_spark
def test_on_beams_spark_runner(data, expected):
    check(data, expected, "beam-spark", spark=True)


@pytest.mark.spark
@pytest.mark.parametrize("several", [False, True], ids=["one batch", "several batches"])
def test_on_spark(data, expected, spark, several):
    from slackwater.pipelines.runners.spark import runner as run_spark

    out = data / f"spark {several}"

    def run(name):
        pipeline, batches = read_template(name, variables(data, out / name)), Batches()
        rows = ROWS_PER_BATCH.get(name, 400) if several else 1 << 20
        run_spark.run(pipeline, session=spark, rows_per_batch=rows, progress=batches)
        least = sum(calls_of(node) for node in pipeline.nodes)
        assert (batches.seen > least) == several, name
        assert rows_in(out / name) == expected[name], name

    # Two at a time, as most of a query is the start of processes.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, shipped()))


class Batches:
    """Counts micro-batches, and inputs that Flatten has read."""

    seen = 0

    def total(self, rows):
        """What there is to read."""

    def advance(self, rows):
        self.seen += 1


def calls_of(node):
    """Calls of ``Batches.advance`` that a node of a pipeline costs, at least."""
    return len(node.inputs) if isinstance(node.config, Flatten) else isinstance(node.config, OperatorConfig)


@pytest.mark.beam
@pytest.mark.parametrize("name", shipped())
def test_under_beams_own_yaml_runner_unchanged(data, expected, name):
    from apache_beam.yaml import main

    given = json.dumps(variables(data, data / "yaml" / name))
    file = Path(providers()).parent / f"{name}.yaml"
    main.run([f"--yaml_pipeline_file={file}", f"--jinja_variables={given}", "--runner=FnApiRunner"])
    found = rows_in(data / "yaml" / name)
    for output, rows in expected[name].items():
        assert found.get(output, Counter()) == rows, output


@pytest.mark.beam
def test_a_copy_elsewhere_is_told_where_the_providers_are(data, expected, tmp_path):
    from apache_beam.yaml import main

    copy = tmp_path / "mine.yaml"
    copy.write_text(shipped()["demo"])
    given = json.dumps({**variables(data, tmp_path / "out"), "providers": providers()})
    main.run([f"--yaml_pipeline_file={copy}", f"--jinja_variables={given}", "--runner=FnApiRunner"])
    assert rows_in(tmp_path / "out") == expected["demo"]
