"""``--metrics FILE``: every join's metrics as JSON lines, on any runner.

The pipeline gets a sink for the metrics of each join in a temporary folder; when the run is done, the lines go
to the file, each with the name of its join.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from slackwater.pipelines.runners.live_run import is_live
from slackwater.pipelines.template.graph import Node, Pipeline, Port, Write
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.settings.models import DisorderConfig

DEFAULT_INTERVAL: Final = Duration.parse("1s")
"""Stream time between rows for strategies that do not adapt, where the template says nothing."""


@contextmanager
def metrics_to(file: Path | None, pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield the pipeline to run; write its metrics to ``file`` once it has run without an error."""
    if file is None or is_live(pipeline):
        # A live run writes them as it goes.
        yield pipeline
        return
    with TemporaryDirectory(prefix="slackwater-metrics-") as folder:
        nodes: list[Node] = []
        for node in pipeline.nodes:
            if isinstance(node.config, DisorderConfig):
                config = node.config
                if config.metrics is None:
                    config = config.model_copy(update={"metrics": DEFAULT_INTERVAL})
                sink = Write("json", str(Path(folder, f"{len(nodes)}.jsonl")))
                nodes.append(replace(node, config=config))
                reads = {"input": Port(node.name, "metrics")}
                nodes.append(Node(f"Metrics of {node.name}", "WriteToJson", reads, sink, node.location))
            else:
                nodes.append(node)
        yield replace(pipeline, nodes=tuple(nodes))
        with file.open("w", encoding="utf-8") as out:
            for node in nodes:
                if isinstance(node.config, Write) and Path(node.config.path).parent == Path(folder):
                    (port,) = node.inputs.values()
                    for line in Path(node.config.path).read_text(encoding="utf-8").splitlines():
                        out.write(json.dumps({"join": port.node, **json.loads(line)}) + "\n")
