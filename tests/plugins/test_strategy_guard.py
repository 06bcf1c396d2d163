"""Nothing that a strategy writes or returns gets past its guard: the run ends with a sentence that names it."""

import sys
from typing import Any, ClassVar

import numba
import numpy as np
import pyarrow as pa
import pytest
from built_in import BUILT_IN
from running import SCHEMA, chunk_of, plan_of

from slackwater.plugins import DisorderStrategy, JoinStrategy, SheddingStrategy
from slackwater.plugins.arrays import frozen, frozen_record, opened, whole
from slackwater.plugins.checks import checks_for
from slackwater.plugins.contract import Evicted, Held, Matches
from slackwater.plugins.disorder.max import MaxSlack
from slackwater.plugins.guard.calls import guarded, title
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy
from slackwater.plugins.shedding.prob import ProbShedding
from slackwater.transforms.errors import StrategyError
from slackwater.transforms.operators.join import Operator


class Over:
    """The logic of another strategy with some members replaced."""

    def __init__(self, logic, members):
        self.__dict__.update(logic=logic, members=members)

    def __getattr__(self, name):
        member = self.members.get(name, None)
        if callable(member):
            return lambda *given: member(self.logic, *given)
        return getattr(self.logic, name) if name not in self.members else member


class FaultySlack(DisorderStrategy):
    """Waits, wrongly."""

    name: ClassVar[str] = "faulty"
    members: Any

    def build(self, setting, snapshot=None):
        return Over(MaxSlack().build(setting, snapshot), self.members)


class FaultyJoin(JoinStrategy):
    """Joins, wrongly."""

    name: ClassVar[str] = "faulty"
    members: Any

    def build(self, setting, snapshot=None):
        return Over(SlidingWindowJoinStrategy().build(setting, snapshot), self.members)


class FaultyShedding(SheddingStrategy):
    """Scores, wrongly."""

    name: ClassVar[str] = "faulty"
    members: Any
    queue: Any = None

    def build(self, setting, snapshot=None):
        return Over(ProbShedding(memory=20).build(setting, snapshot), self.members)


def arrivals(n=120):
    rng = np.random.default_rng(4)
    late = rng.choice([0, 0, 0, 9], n)
    return [
        (int(k % 2), {"id": k, "ts": int(k // 2 - late[k]), "k": int(rng.integers(0, 3)), "v": 1})
        for k in range(n)
    ]


def faulty(stage, **members):
    kind = {"disorder": FaultySlack, "join": FaultyJoin, "shedding": FaultyShedding}[stage]
    return kind(members=members)


def run(stage, strategy, memory=None):
    """Run a join with one strategy replaced; return the operator and what it gave."""
    from dataclasses import replace

    limit = {} if memory is None else {"shedding": {"strategy": "prob", "memory": memory}}
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", disorder={"strategy": "none"}, **limit)
    operator = Operator(replace(plan, **{stage: strategy}))
    rows = arrivals()
    for first in range(0, len(rows), 40):
        operator.push(chunk_of(plan, rows[first : first + 40], first))
    operator.snapshot()
    operator.finish()
    return operator


def matches(change):
    def step(logic, *given):
        for found in logic.step(given[0]):
            yield change(found)

    return step


def limited(change):
    def limited_step(logic, released, keep):
        for found in logic.limited_step(released, keep):
            yield change(found)

    return limited_step


def writing(name, value):
    """A step that writes into what it was given."""

    def step(logic, released):
        getattr(released, name)[:] = value
        return logic.step(released)

    return step


WHO = {stage: f"{stage} strategy 'faulty' of module {__name__}: " for stage in ("disorder", "join", "shedding")}
AFTER = "; mend the strategy, or use another"
NAN = np.float64("nan")


def wide(evicted, **fields):
    return None if evicted is None else evicted._replace(**{k: f(getattr(evicted, k)) for k, f in fields.items()})


FAULTS = [
    ("disorder", {"bounds": lambda _, a: a.progress * 1.0}, "bounds returned float64, must be int64"),
    ("disorder", {"bounds": lambda _, a: None}, "bounds returned None, must be an array of int64"),
    ("disorder", {"bounds": lambda _, a: a.progress.tolist()}, "bounds returned list, must be an array of int64"),
    ("disorder", {"bounds": lambda _, a: a.progress.astype(np.int32)}, "bounds returned int32, must be int64"),
    (
        "disorder",
        {"bounds": lambda _, a: a.progress[:-1]},
        "bounds returned an array of shape (39,), must be (40,)",
    ),
    (
        "disorder",
        {"bounds": lambda _, a: np.ma.masked_array(a.progress, a.progress > 5)},
        "bounds returned MaskedArray, must be an array of int64",
    ),
    (
        "disorder",
        {"bounds": lambda _, a: a.delay.sort() or a.progress},
        "bounds raised ValueError: sort array is read-only (at arrivals 0 to 39)",
    ),
    (
        "disorder",
        {"bounds": lambda _, a: 1 // 0},
        "bounds raised ZeroDivisionError: integer division or modulo by zero (at arrivals 0 to 39)",
    ),
    ("disorder", {"interval": 0.5}, "interval is 0.5, must be None or a positive int"),
    ("disorder", {"interval": 5, "adapt": lambda _, f: 3}, "adapt returned int, must return nothing"),
    (
        "disorder",
        {"interval": 5, "adapt": lambda _, f: f.delay.fill(0)},
        "adapt raised ValueError: assignment destination is read-only (at ",
    ),
    (
        "disorder",
        {"snapshot": lambda _: {"a": {1, 2}}},
        "snapshot returned set at ['a'], must be arrays, numbers,",
    ),
    (
        "disorder",
        {"snapshot": lambda _: {"a": np.array([None])}},
        "snapshot returned an array of object at ['a']",
    ),
    ("disorder", {"snapshot": lambda _: [1]}, "snapshot returned list, must be a mapping"),
    (
        "disorder",
        {"interval": 5, "report": lambda _: {"k": NAN}},
        "report returned {'k': np.float64(nan)}, must be",
    ),
    (
        "join",
        {"step": writing("late", False)},
        "step raised ValueError: assignment destination is read-only (at ",
    ),
    ("join", {"step": writing("cells", 0)}, "step raised ValueError: assignment destination is read-only (at "),
    ("join", {"step": lambda _, r: None}, "step returned None, must be an iterable of Matches"),
    ("join", {"step": lambda _, r: [r]}, "step yielded Released, must be Matches"),
    ("join", {"step": lambda _, r: []}, "step yielded runs that cover 0 of "),
    (
        "join",
        {"step": matches(lambda f: f._replace(rows=f.rows + 2**40))},
        " which no row has that is held",
    ),
    (
        "join",
        {"step": matches(lambda f: f._replace(rows=f.rows - 2**62))},
        "step named row -46116860184273",
    ),
    (
        "join",
        {"step": matches(lambda f: f._replace(rows=f.rows.astype(np.int32)))},
        "step returned Matches.rows as int32, must be int64",
    ),
    (
        "join",
        {"step": matches(lambda f: f._replace(rows=f.rows[1:], probe=f.probe[1:]))},
        "Matches.rows and a Matches.join_size of ",
    ),
    (
        "join",
        {"step": matches(lambda f: f._replace(probe=f.probe + 1000))},
        ", must be within 0 and ",
    ),
    ("join", {"step": matches(lambda f: f._replace(probe=f.probe[::-1]))}, "step returned Matches.probe "),
    (
        "join",
        {"step": matches(lambda f: f._replace(join_size=f.join_size * 1.0))},
        "step returned Matches.join_size as float64, must be int64",
    ),
    (
        "join",
        {"step": matches(lambda f: f._replace(cross_size=f.cross_size * NAN))},
        "step returned Matches.cross_size nan in ",
    ),
    ("join", {"step": matches(lambda f: f._replace(start=f.start + 1))}, ": runs cover all of them, each once"),
    (
        "join",
        {"step": matches(lambda f: Matches(f.start, f.stop + 1, *f[2:]))},
        ": runs cover all of them, each once",
    ),
    ("join", {"held": lambda g: g.held()._replace(seq=g.held().seq + 2**40)}, "held named row 10995"),
    (
        "join",
        {"held": lambda g: Held._make(np.repeat(a, 2, axis=0) for a in g.held())},
        "held returned Held.input as an",
    ),
    (
        "join",
        {
            "held": lambda g: Held._make(np.repeat(a[:1], len(a), axis=0) for a in g.held()),
        },
        "held named row ",
    ),
    (
        "join",
        {"held": lambda g: g.held()._replace(input=g.held().input + np.int8(9))},
        "held returned Held.input ",
    ),
    ("join", {"held": lambda g: None}, "held returned None, must be Held"),
    ("join", {"live": lambda g: 1.5}, "live returned float, must be int"),
    ("join", {"live": lambda g: -1}, "live returned -1, must be at least 0"),
    ("join", {"nbytes": "many"}, "nbytes returned str, must be int"),
    ("shedding", {"observe": lambda _, t: None}, "observe returned None, must be an array of float64"),
    ("shedding", {"observe": lambda _, t: np.full(t.ts.size, NAN)}, "observe returned a score of nan in "),
    ("shedding", {"observe": lambda _, t: np.full(t.ts.size, np.inf)}, "observe returned a score of inf in "),
    ("shedding", {"scores": lambda _, t: t.ts}, "scores returned int64, must be float64"),
    ("shedding", {"observe": lambda _, t: np.full(t.ts.size, -1.0)}, "observe returned the chance -1.0, must be"),
    ("shedding", {"memory": 2.5}, "memory is 2.5, must be None, a positive int, a Memory or a MemoryLimit"),
    ("shedding", {"decays": None}, "decays is None, must be True or False"),
    ("shedding", {"renewal": -4}, "renewal returned -4, must be at least 0"),
    ("shedding", {"allocation": "mine"}, "allocation is 'mine', must be 'fixed' or 'variable'"),
    ("shedding", {"nbytes": 1.0}, "nbytes returned float, must be int"),
]


@pytest.mark.parametrize(("stage", "members", "fault"), FAULTS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_run_ends_with_the_strategy_and_what_it_did(stage, members, fault):
    with pytest.raises(StrategyError) as caught:
        run(stage, faulty(stage, **members))
    text = str(caught.value)
    assert text.startswith(WHO[stage]), text
    assert fault in text
    assert text.endswith(AFTER)


SHED = [
    ({"evicted": {"seq": lambda s: s + 2**40}}, "limited_step named row 10995"),
    ({"evicted": {"input": lambda i: i + np.int8(5)}}, "limited_step returned Evicted.input "),
    ({"evicted": {"at": lambda at: at + 10**6}}, "limited_step returned Evicted.at 100"),
    ({"evicted": {"seq": lambda s: s.astype(np.uint64)}}, "limited_step returned Evicted.seq as uint64, must be"),
]


@pytest.mark.parametrize(("fields", "fault"), SHED, ids=[fault for _, fault in SHED])
def test_what_is_evicted_must_be_there(fields, fault):
    step = limited(lambda f: f._replace(evicted=wide(f.evicted, **fields["evicted"])))
    with pytest.raises(StrategyError) as caught:
        run("join", faulty("join", limited_step=step), memory=20)
    assert str(caught.value).startswith(WHO["join"] + fault)


def test_what_was_held_must_be_noted():
    def forgetful(logic, released, keep):
        yield from logic.limited_step(released, keep._replace(live=keep.live.copy()))

    with pytest.raises(StrategyError, match=r"limited_step wrote Keep.live that is not within 0 and Keep.limit"):
        run("join", faulty("join", limited_step=forgetful), memory=20)


def test_a_join_that_evicts_the_wrong_number_is_refused():
    logic = guarded(
        faulty("join", evict=lambda g, victims: None), plan_of(SCHEMA, window="9ms", where="a.k = b.k").setting
    )
    released = frozen_record(next(iter(_released())))
    list(logic.step(released))
    with pytest.raises(StrategyError, match="evict left 4 tuples of 4, must leave 3"):
        logic.evict(np.arange(4) == 1)


def _released():
    from slackwater.plugins.contract import Released

    n = 4
    ones, seq = np.ones((n, 1), np.int64), np.arange(n)
    yield Released((seq % 2).astype(np.int8), seq // 2, seq, seq < 0, ones, np.zeros(n, np.uint64))


def test_strategies_that_delegate_to_built_in_ones_run():
    assert (
        run("join", faulty("join")).accounting.results
        == run("join", SlidingWindowJoinStrategy()).accounting.results
        > 0
    )


def test_strategies_are_named_with_their_distribution():
    assert title(MaxSlack()).startswith("disorder strategy 'max' of slackwater 0")
    assert title(faulty("join")) == f"join strategy 'faulty' of module {__name__}"


def test_arrays_are_handed_out_read_only_and_opened_for_kernels():
    given = np.arange(5)
    seen = frozen(given)
    assert not seen.flags.writeable and given.flags.writeable
    assert opened(seen).flags.writeable and opened(given) is given
    arrow = np.asarray(pa.array([1, 2]))
    assert opened(arrow) is arrow
    assert whole(given) is given and whole(seen).base is not given
    assert whole(np.arange(10)[::2]).flags.c_contiguous


def test_no_kernel_is_compiled_for_read_only_arrays():
    # Tests of other parts, in the same process, may give kernels views of Arrow's buffers.
    before = read_only(kernels_in_use())
    for strategy in BUILT_IN:
        for name, check in checks_for(strategy):
            if name in QUICK:
                check()
    run("join", SlidingWindowJoinStrategy(), memory=20)
    assert len(kernels_in_use()) > 20
    assert read_only(kernels_in_use()) - before == set()


def kernels_in_use():
    return [
        (f"{name}.{member}", value)
        for name, module in list(sys.modules.items())
        if name.startswith("slackwater.transforms.kernels") and name.rpartition(".")[2] not in READ_ONLY
        for member, value in vars(module).items()
        if isinstance(value, numba.core.dispatcher.Dispatcher) and value.signatures
    ]


def read_only(kernels):
    return {(name, str(sig)) for name, value in kernels for sig in value.signatures if _read_only(sig)}


QUICK = (
    "check_bounds_shape_and_dtype", "check_counts_match_rows", "check_punctuations_change_no_result",
    "check_scores_are_finite_numbers",
)  # fmt: skip
"""Checks that call every step of built-in strategies."""
READ_ONLY = ("strings", "json_rows")
"""Kernels that look into Arrow's own buffers, which are."""


def _read_only(signature):
    return any(isinstance(t, numba.types.Array) and not t.mutable for t in signature)


def test_an_evicted_record_is_whole():
    assert all(whole(a).flags.c_contiguous for a in Evicted(*(np.arange(4)[::2] for _ in range(3))))
