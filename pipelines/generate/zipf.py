"""The synthetic pairs of SAJ: two streams in order, one row per time unit each, with Zipf-distributed values.

The paper draws each value by itself from a Zipf distribution over 50 values, for streams of 5,600 rows and
windows of 400 or 800 units, and varies skew and correlation: which value has which rank on the two streams.
A time unit is 1 ms here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slackwater.pipelines.generate.sampling import zipf_ranks
from slackwater.pipelines.generate.spec import Columns, Dataset, Int64s, Knob, Query, Sample
from slackwater.pipelines.generate.truth import count_equal


def _make(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Generate streams ``r`` and ``s``; row k of each has ``ts`` k, and r's arrives first."""
    ranking, *sources = np.random.default_rng(seed).spawn(3)
    streams: dict[str, Columns] = {}
    for number, (name, values) in enumerate(_values_by_rank(ranking, knobs).items()):
        streams[name] = {
            "ts": np.arange(rows, dtype=np.int64),
            "value": values[zipf_ranks(sources[number], rows, knobs["domain"], knobs[f"skew_{name}"])],
            "arrived": np.arange(rows, dtype=np.int64) * 2 + number,
        }
    query = Query("r.value = s.value", knobs["window"], knobs["closed"])
    truth = count_equal("zipf", list(streams.values()), "value", knobs["window"], knobs["closed"])
    return Sample(streams, query, truth)


def _values_by_rank(ranking: Generator, knobs: Mapping[str, Any]) -> dict[str, Int64s]:
    """Return the values of r and of s, the most frequent one first."""
    of_r = ranking.permutation(knobs["domain"]) + 1
    shuffled = ranking.permutation(knobs["domain"]) + 1
    of_s = {"uncorrelated": shuffled, "correlated": of_r, "anti": of_r[::-1]}
    return {"r": of_r, "s": of_s[knobs["correlation"]]}


def chances(seed: int, knobs: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how likely each value, from 1 on, is on r and on s."""
    ranking = np.random.default_rng(seed).spawn(3)[0]
    found = []
    for name, values in _values_by_rank(ranking, knobs).items():
        weights = np.empty(values.size)
        weights[values - 1] = np.arange(1, values.size + 1) ** -float(knobs[f"skew_{name}"])
        found.append(weights / weights.sum())
    return found[0], found[1]


ZIPF = Dataset(
    "zipf",
    "Two streams in order, for load shedding: skewed values, joined on equality within 400 units (SAJ).",
    ("r", "s"),
    5_600,
    (
        Knob("skew_r", "float", 1.0, "Zipf skew of r's values; 0 is uniform.", maximum=20),
        Knob("skew_s", "float", 1.0, "Zipf skew of s's values; 0 is uniform.", maximum=20),
        Knob("domain", "int", 50, "Number of values; they run from 1 to this.", minimum=1, maximum=10**7),
        Knob(
            "correlation",
            "choice",
            "uncorrelated",
            "Which values are frequent: shuffled apart, the same ones on both, or on s those rare on r.",
            choices=("uncorrelated", "correlated", "anti"),
        ),
        Knob("window", "int", 400, "Window in ms (time units) of the query.", minimum=1, maximum=10**12),
        Knob(
            "closed",
            "choice",
            "both",
            "Whether a row exactly one window old still joins (both), or not (right, as in SAJ).",
            choices=("both", "right"),
        ),
    ),
    _make,
)
