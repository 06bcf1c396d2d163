"""pjoin with a memory limit, where punctuations name columns that are not joined on."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("g", pa.int64()), ("done", pa.bool_())])


def results(join, key, seed):
    punctuations = {"input": "b", "when": "b.done", "key": key}
    config = {
        "time": "ts",
        "where": "a.k = b.k",
        "join": {"strategy": "pjoin", **join},
        "punctuations": punctuations,
    }
    plan = bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})
    rng, n = np.random.default_rng(seed), 60
    which = rng.integers(0, 2, n).astype(np.int8)
    columns = {
        "ts": np.arange(n),
        "k": rng.integers(0, 3, n),
        "g": rng.integers(0, 3, n),
        "done": rng.random(n) < 0.2,
    }
    rows = pa.RecordBatch.from_pydict(columns, schema=SCHEMA)
    operator = Operator(plan)
    batches = [rows.filter(pa.array(which == i)) for i in (0, 1)]
    outputs = [operator.push(Chunk(which, np.arange(n), batches)), operator.finish()]
    operator.close()
    return Counter(tuple(row.values()) for out in outputs for batch in out.results for row in batch.to_pylist())


@pytest.mark.parametrize("key", ["g", ["k", "g"], "k"])
@pytest.mark.parametrize("memory", [1, 5])
def test_a_limit_changes_no_result_whatever_is_punctuated(key, memory):
    for seed in range(2):
        whole = results({}, key, seed)
        assert whole and results({"memory": memory}, key, seed) == whole
