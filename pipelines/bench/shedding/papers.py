"""``slackwater bench shedding``: SAJ's experiments in shape, with the offline optimum as the ceiling.

Strategies run through the operator that every runner drives.
"""

from __future__ import annotations

import argparse

from slackwater.pipelines.bench import experiments
from slackwater.pipelines.bench.experiments import Section
from slackwater.pipelines.bench.report import Report

SECTIONS = {
    "figures": Section(
        "Window joins within a memory (SAJ 5.2): results by memory, skew, correlation, allocation, domain",
        "shedding.figures",
        {"rows": 4_000, "windows": (200,), "skews": (0.0, 1.0, 2.0)},
    ),
    "real": Section("Flights and auctions: shares of the exact results", "shedding.real", {"rows": 3_000}),
    "static": Section(
        "Stored relations (SAJ 5.1): the greedy choice beside the optimum", "shedding.static", {"skews": (0.5,)}
    ),
    "throughput": Section("What shedding costs", "shedding.throughput", {"rows": 500_000, "rounds": 3}),
}


def run(options: argparse.Namespace, report: Report) -> None:
    """Run the sections."""
    experiments.run(SECTIONS, options, report)
