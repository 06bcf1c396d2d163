"""Streams for ``result_slack``, and the slack that it chooses over time."""

import numpy as np
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.transforms.operators.join import Operator

OPTIONS = {"strategy": "result_slack", "recall": 0.9, "period": "1s", "interval": "100ms", "granularity": "1ms"}


def stream(n, late, delay, keys=5, seed=3):
    """Two streams, a row per ms each, of which a share is late by a fixed delay."""
    rng = np.random.default_rng(seed)
    for k in range(n):
        for which in (0, 1):
            behind = delay if rng.random() < late else 0
            yield which, {"ts": k - behind, "k": int(rng.integers(keys)), "v": 0}


def slack_over_time(arrivals, where="a.k = b.k", **options):
    disorder = {**OPTIONS, **options}
    plan = plan_of(SCHEMA, window="20ms", where=where, disorder=disorder, output="counts")
    operator = Operator(plan)
    out = operator.push(chunk_of(plan, numbered(arrivals)))
    return [row["slack_ms"] for batch in out.metrics for row in batch.to_pylist()], operator
