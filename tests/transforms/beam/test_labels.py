"""Names of steps stay as they are: a runner that updates a job finds the state of the old one by them.

After a change that is meant, renew the snapshot with ``SLACKWATER_RENEW=1 pytest -k test_labels``, and say in the
changelog that running jobs cannot be updated to this version.
"""

import os
import pickle
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.template.reader import read_template
from slackwater.transforms.beam import (
    ChooseValues,
    GroupClose,
    Punctuate,
    Reorder,
    Shed,
    SlidingWindowAggregate,
    SlidingWindowJoin,
)
from slackwater.transforms.beam.spool import Spool

pytestmark = pytest.mark.beam
SNAPSHOT = Path(__file__).parent / "labels.txt"


def pipeline():
    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))


def every_transform(p):
    """A pipeline with each transform of ours once."""
    rows = [beam.Row(id=1, ts=1)]
    orders, clicks = (p | name >> beam.Create(rows) for name in ("Orders", "Clicks"))
    summary = p | "Summary" >> beam.Create([beam.Row(value=1, count=2, ts=1)])
    pair = {"orders": orders, "clicks": clicks}
    joined = pair | "joined" >> SlidingWindowJoin(time="ts", window="5s", where="orders.id = clicks.id", shards=4)
    summed = orders | "summed" >> SlidingWindowAggregate(time="ts", range="5s", aggregates={"n": "count(*)"})
    closing = {"rows": joined.main, "punctuations": joined.punctuations}
    closed = closing | "closed" >> GroupClose(time="ts", by="orders_id", aggregates={"n": "count(*)"})
    return {
        "joined": joined,
        "summed": summed,
        "closed": closed,
        "ordered": orders | "ordered" >> Reorder(time="ts"),
        "punctuated": orders | "punctuated" >> Punctuate(time="ts", unique="id"),
        "shed": orders | "shed" >> Shed(time="ts", rate=100),
        "chosen": {"a": summary, "b": summary} | "chosen" >> ChooseValues(time="ts", k=1),
    }


def labels(p):
    found = []

    class Labels(PipelineVisitor):
        def visit_transform(self, node):
            found.append(node.full_label)

        def enter_composite_transform(self, node):
            found.append(node.full_label)

    p.visit(Labels())
    return [label for label in found if label]


def current(folder):
    p = pipeline()
    outputs = every_transform(p)
    ours = [label for label in labels(p) if label.split("/")[0] in outputs]
    template = pipeline()
    assembly = assemble(read_template("congestion-toll", {"out": str(folder)}), run_beam.schema_of_source)
    run_beam.Builder(template, assembly, Spool(folder)).build()
    return "\n".join(["# transforms", *ours, "# template congestion-toll", *labels(template), ""])


def test_labels_stay_as_they_are(tmp_path):
    found = current(tmp_path)
    if os.environ.get("SLACKWATER_RENEW"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text(), __doc__


def test_every_step_has_a_label_of_its_own_and_outputs_have_schemas(tmp_path):
    p = pipeline()
    for name, outputs in every_transform(p).items():
        for tag, rows in outputs.items():
            assert rows.element_type._fields, f"{name}.{tag}"
    found = labels(p)
    assert len(set(found)) == len(found)


def test_a_pipeline_pickles_without_the_main_session():
    """Every step of ours is an object of an importable class, and so is all that it carries."""
    p = pipeline()
    every_transform(p)
    steps = []

    class Steps(PipelineVisitor):
        def visit_transform(self, node):
            fn = getattr(node.transform, "fn", None)
            if type(fn).__module__.startswith("slackwater."):
                steps.append(fn)

    p.visit(Steps())
    assert {type(step).__name__ for step in steps} >= {"GatherRows", "JoinShard", "UnpackRows"}
    for step in steps:
        assert type(pickle.loads(pickle.dumps(step))) is type(step)
    assert not p.options.view_as(SetupOptions).save_main_session
