"""The guard finds nothing in generated data: results are as without it."""

import json

import pytest

from slackwater.pipelines.generate import DATASETS, generate
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text


def template(files, folder, settings):
    nodes = [
        {"type": "ReadFromParquet", "name": name.title(), "config": {"path": str(path)}}
        for name, path in files.items()
    ]
    nodes += [
        {"type": "SlidingWindowJoin", "name": "j", "input": {n: n.title() for n in files}, "config": settings},
        {"type": "WriteToParquet", "name": "Out", "input": "j", "config": {"path": f"{folder}/out"}},
        {"type": "WriteToJson", "name": "Late", "input": "j.late", "config": {"path": f"{folder}/late"}},
    ]
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.mark.parametrize("name", [name for name in DATASETS if not name.startswith("flights")])
def test_generated_data_are_as_without_the_guard(name, tmp_path):
    made = generate(name, tmp_path / "data", rows=1500)
    settings = {
        "time": "ts",
        "arrival": made.variables["arrival"],
        "window": made.query.duration,
        "where": made.query.where,
        "disorder": {"strategy": "fixed", "slack": "20ms"},
        "output": "counts",
    }
    written = []
    for folder, guard in (("with", {}), ("without", {"guard": "none"})):
        (tmp_path / folder).mkdir()
        summary = local.run(template(made.files, tmp_path / folder, settings | guard))
        numbers = {
            key: summary[key] for key in ("input", "results", "late", "slack_ms", "latency_ms", "accounting")
        }
        files = sorted(path for path in (tmp_path / folder).iterdir())
        written.append(([(path.name, path.read_bytes()) for path in files], numbers))
    assert written[0] == written[1]
    assert written[0][1]["results"]
