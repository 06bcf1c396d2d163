"""``slackwater bench joins``: the experiments of PWJoin, MJoin and XJoin, in shape.

Each paper is a section. Strategies that are compared run on the same chunks, in turns; where time decides, the
figure is the median of their ratios.
"""

from __future__ import annotations

import argparse

from slackwater.pipelines.bench import experiments
from slackwater.pipelines.bench.experiments import Section
from slackwater.pipelines.bench.report import Report

SECTIONS = {
    "pwjoin": Section(
        "PWJoin: state, output and punctuations of joins with windows and punctuations",
        "joins.pwjoin",
        {"rows": 20_000, "repeat": 0},
    ),
    "mjoin": Section(
        "MJoin: scheduling, state and purging of a one-to-many join without a window",
        "joins.mjoin",
        {"rows": 12_000, "rounds": 1},
    ),
    "xjoin": Section(
        "XJoin: a state of ten times the memory; each run a process of its own", "joins.xjoin", {"rows": 20_000}
    ),
}


def run(options: argparse.Namespace, report: Report) -> None:
    """Run the sections."""
    experiments.run(SECTIONS, options, report)
