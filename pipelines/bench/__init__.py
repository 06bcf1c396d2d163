"""Benchmarks that print ratios measured side by side in one run; absolute seconds are shown, never asserted."""

from __future__ import annotations

import importlib

from slackwater.transforms.errors import SlackwaterError

BENCHES = {
    "local": "the embedded runner against a per-tuple Python join, with the share of each part",
    "disorder": "slack, recall and latency of disorder strategies against the best constant slack",
    "joins": "state, output and punctuations of join strategies in the experiments of their papers",
    "spark": "the join on Structured Streaming against Spark's own, and the bytes of its state",
    "fuzz": "random joins of all Arrow types and file formats against DuckDB, none of which may differ silently",
    "shedding": "results kept within a memory, beside the offline optimum, and what shedding costs",
    "fuzz_templates": "mutated templates: each is checked, or refused with a clear error, in time",
    "fuzz_snapshots": "damaged snapshots and journals: each is refused, or does no harm",
}


def run_bench(name: str, *arguments: str) -> None:
    """Run the benchmark ``name``; ``arguments`` are its options, ``--rows N`` for one."""
    if name not in BENCHES:
        known = "; ".join(f"{known}: {purpose}" for known, purpose in BENCHES.items())
        raise SlackwaterError(f"no benchmark named {name!r}; known are {known}")
    importlib.import_module(f"slackwater.pipelines.bench.{name}").main(list(arguments))
