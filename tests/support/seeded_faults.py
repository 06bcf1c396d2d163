"""Mistakes that authors of plugins make, one in each strategy, by kind: the conformance suite has to find them.

Each is a strategy of ``plain_strategies`` with one step replaced. ``FAULTS`` has them by kind and name.
"""

import random
import sys
import time
from typing import Any, ClassVar

import numpy as np
from plain_strategies import (
    PlainJoin,
    PlainJoinLogic,
    PlainShedding,
    PlainSheddingLogic,
    PlainSlack,
    PlainSlackLogic,
)

FAULTS = {}
LOG, SHARED = [], {}
_BASES = {"slack": (PlainSlack, PlainSlackLogic), "join": (PlainJoin, PlainJoinLogic)}
_BASES["shedding"] = PlainShedding, PlainSheddingLogic


def fault(kind, stage, module=__name__, called=None, **members):
    """Seed a fault: the function below it replaces the method of its name, or ``members`` are replaced."""

    def seed(name, module, replaced):
        options, logic = _BASES[stage]
        found = FAULTS.setdefault(kind, {})
        assert f"{stage} {name}" not in found
        number = sum(map(len, FAULTS.values()))
        wrong = type(f"Logic{number}", (logic,), {**replaced, "__module__": module})
        about = {
            "__doc__": name,
            "__module__": module,
            "__annotations__": {"logic": ClassVar[Any]},
            "logic": wrong,
        }
        made = type(f"Strategy{number}", (options,), about)
        # Other processes find classes by name.
        sys.modules[module].__dict__.update({wrong.__name__: wrong, made.__name__: made})
        found[f"{stage} {name}"] = made()

    if called is not None:
        return seed(called, module, members)

    def take(function):
        method, _, name = function.__name__.partition("__")
        method = "__init__" if method == "init" else method
        seed(f"{method}: {name}", function.__module__, {method: function})

    return take


def slack(kind):
    return fault(kind, "slack")


def join(kind):
    return fault(kind, "join")


def shedding(kind):
    return fault(kind, "shedding")


# Wrong order


@slack("wrong order")
def bounds__sorted(self, arrivals):
    return np.sort(PlainSlackLogic.bounds(self, arrivals))


@slack("wrong order")
def bounds__from_the_end(self, arrivals):
    self.largest = np.maximum(self.largest, arrivals.delay.max(initial=0))
    return arrivals.progress - np.maximum.accumulate(arrivals.delay[::-1])[::-1] - self.slack


@shedding("wrong order")
def scores__sorted(self, tuples):
    return np.sort(PlainSheddingLogic.scores(self, tuples))


@shedding("wrong order")
def observe__newest_first(self, tuples):
    back = type(tuples)._make(array[::-1] for array in tuples)
    return PlainSheddingLogic.observe(self, back)[::-1]


# Lost state


@slack("lost state")
def snapshot__no_slack(self):
    return {"slack": 0, "largest": self.largest.copy()}


@slack("lost state")
def snapshot__one_input(self):
    return {"slack": self.slack, "largest": np.full_like(self.largest, self.largest[0])}


@slack("lost state")
def bounds__reset_by_an_empty_chunk(self, arrivals):
    if not arrivals.ts.size:
        self.slack = 0
    return PlainSlackLogic.bounds(self, arrivals)


@slack("lost state")
def snapshot__moves_the_state_out(self):
    kept = PlainSlackLogic.snapshot(self)
    self.largest = np.zeros_like(self.largest)
    return kept


@shedding("lost state")
def snapshot__nothing_learnt(self):
    return {"values": np.empty(0, np.int64), "counts": np.empty(0, np.int64)}


@shedding("lost state")
def snapshot__counts_of_one(self):
    kept = PlainSheddingLogic.snapshot(self)
    return {**kept, "counts": np.minimum(kept["counts"], 1)}


@shedding("lost state")
def observe__only_the_last_chunk(self, tuples):
    self.counts.clear()
    return PlainSheddingLogic.observe(self, tuples)


# Non-determinism


@slack("non-determinism")
def bounds__dice(self, arrivals):
    return PlainSlackLogic.bounds(self, arrivals) - np.random.randint(0, 2, arrivals.ts.size)


@slack("non-determinism")
def bounds__minute_of_the_day(self, arrivals):
    return PlainSlackLogic.bounds(self, arrivals) - int(time.time() // 60 % 2)


@slack("non-determinism")
def bounds__hash_of_a_name(self, arrivals):
    return PlainSlackLogic.bounds(self, arrivals) - hash(self.setting.inputs[0]) % 1000


@slack("non-determinism")
def adapt__shared_by_all(self, feedback):
    SHARED["slack"] = max(SHARED.get("slack", 0), int(feedback.delay.max(initial=0)))
    self.slack = SHARED["slack"] + len(SHARED)
    SHARED[len(SHARED)] = 0


@slack("non-determinism")
def init__seeds_the_dice_of_all(self, setting, snapshot):
    PlainSlackLogic.__init__(self, setting, snapshot)
    random.seed(1)
    self.bounds = lambda arrivals: PlainSlackLogic.bounds(self, arrivals) - random.randrange(3)


@shedding("non-determinism")
def score__ties_by_dice(self, tuples, k):
    return PlainSheddingLogic.score(self, tuples, k) + random.random() / 1e6


@shedding("non-determinism")
def score__address(self, tuples, k):
    return PlainSheddingLogic.score(self, tuples, k) + id(self) % 4096


# Mutation


@slack("mutation")
def bounds__sorts_delays(self, arrivals):
    arrivals.delay.sort()
    return arrivals.progress - arrivals.delay


@slack("mutation")
def bounds__in_place(self, arrivals):
    progress = arrivals.progress
    progress -= self.slack
    return progress


@slack("mutation")
def adapt__clips_feedback(self, feedback):
    np.clip(feedback.delay, 0, 10, out=feedback.delay)
    PlainSlackLogic.adapt(self, feedback)


@slack("mutation")
def bounds_at__in_place(self, progress):
    progress -= self.slack
    return progress.copy()


@slack("mutation")
def bounds__one_buffer(self, arrivals):
    if getattr(self, "buffer", np.empty(0)).size <= arrivals.ts.size:
        self.buffer = np.empty(400, np.int64)
    out = self.buffer[: arrivals.ts.size]
    out[:] = PlainSlackLogic.bounds(self, arrivals)
    return out


@slack("mutation")
def snapshot__alias(self):
    return {"slack": self.slack, "largest": self.largest}


@slack("mutation")
def init__takes_the_snapshot_as_its_own(self, setting, snapshot):
    PlainSlackLogic.__init__(self, setting, snapshot)
    if snapshot:
        self.largest = snapshot["largest"]


@shedding("mutation")
def observe__marks_tuples(self, tuples):
    tuples.lifetime[:] = 0
    return PlainSheddingLogic.observe(self, tuples)


@shedding("mutation")
def scores__one_buffer(self, tuples):
    if getattr(self, "out", np.empty(0)).size <= tuples.ts.size:
        self.out = np.empty(500)
    self.out[: tuples.ts.size] = PlainSheddingLogic.scores(self, tuples)
    return self.out[: tuples.ts.size]


# Types


@slack("dtype")
def adapt__fraction(self, feedback):
    self.slack = float(np.quantile(feedback.delay, 0.8)) if feedback.delay.size else 0


@slack("dtype")
def bounds__int32(self, arrivals):
    return PlainSlackLogic.bounds(self, arrivals).astype(np.int32)


@slack("dtype")
def bounds__nothing_of_none(self, arrivals):
    return PlainSlackLogic.bounds(self, arrivals) if arrivals.ts.size else np.array([])


@slack("dtype")
def bounds__by_way_of_float(self, arrivals):
    return np.floor(PlainSlackLogic.bounds(self, arrivals).astype(np.float32)).astype(np.int64)


@slack("dtype")
def bounds_at__list(self, progress):
    return PlainSlackLogic.bounds_at(self, progress).tolist()


@slack("dtype")
def report__text(self):
    return {"slack": str(self.slack)}


@shedding("dtype")
def scores__single(self, tuples):
    return PlainSheddingLogic.scores(self, tuples).astype(np.float32)


@shedding("dtype")
def observe__not_a_number(self, tuples):
    out = PlainSheddingLogic.observe(self, tuples)
    return np.where(out == 0, np.nan, out)


@shedding("dtype")
def observe__returns_nothing(self, tuples):
    PlainSheddingLogic.observe(self, tuples)


@shedding("dtype")
def scores__a_column(self, tuples):
    return PlainSheddingLogic.scores(self, tuples).reshape(-1, 1)


# Late tuples


@slack("late")
def bounds__ahead_of_the_input(self, arrivals):
    return np.maximum.accumulate(PlainSlackLogic.bounds(self, arrivals)) + 2 * self.slack


# Leaks


@slack("leak")
def bounds__all_delays(self, arrivals):
    self.delays = [*getattr(self, "delays", ()), *arrivals.delay.tolist()]
    return PlainSlackLogic.bounds(self, arrivals)


@slack("leak")
def adapt__history(self, feedback, history=[]):  # noqa: B006
    PlainSlackLogic.adapt(self, feedback)
    history.append(feedback.delay.copy())


@shedding("leak")
def observe__every_row(self, tuples):
    self.seen = getattr(self, "seen", set()) | set(tuples.seq.tolist())
    return PlainSheddingLogic.observe(self, tuples)


fault("dtype", "slack", called="interval in fractions", interval=20.0)
fault("dtype", "shedding", called="memory in fractions", memory=10.0)
fault("dtype", "shedding", called="decays is a number", decays=0)
