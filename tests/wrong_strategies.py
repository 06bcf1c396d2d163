"""Strategies that are wrong in one way each: for every check of the conformance suite, those that fail it.

``WRONG`` says which by stage and check, each with what the check must say about it.
"""

import itertools
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict, field_serializer

from slackwater.plugins import SheddingStrategy
from slackwater.plugins.contract import Matches, Punctuations
from slackwater.plugins.disorder.max import MaxSlack
from slackwater.plugins.join.mswj import SlidingWindowJoinStrategy
from slackwater.plugins.join.pwjoin import PunctuatedWindowJoin

COUNTER = itertools.count()


class BadName(MaxSlack):
    """Has a name that no template can hold."""

    name: ClassVar[str] = "Bad Name"


class Purposeless(MaxSlack):
    name: ClassVar[str] = "purposeless"


class Thawed(MaxSlack):
    """Lets anybody change its options."""

    model_config = ConfigDict(frozen=False)
    name: ClassVar[str] = "thawed"
    slack: int = 1


class Forgetful(MaxSlack):
    """Writes another option than it has."""

    name: ClassVar[str] = "forgetful"
    slack: int = 1

    @field_serializer("slack")
    def _double(self, value):
        return 2 * value


class Rooted(MaxSlack):
    """Holds something that cannot leave the process."""

    name: ClassVar[str] = "rooted"
    function: Any = None

    def __getstate__(self):
        raise TypeError("cannot leave the process")


class Wrong:
    """Builds the logic of a good strategy with some members replaced."""

    def __init__(self, strategy, name, **members):
        self._strategy, self.name, self.stage, self._members = strategy, name, strategy.stage, members

    def build(self, setting, snapshot=None):
        logic = self._strategy.build(setting, snapshot)
        members = {"__init__": _keep, "__getattr__": _delegate, "lacks": None, **self._members}
        return type("WrongLogic", (), members)(logic, setting)


def _keep(self, logic, setting):
    self.__dict__.update(logic=logic, setting=setting)


def _delegate(self, name):
    if name == self.lacks:
        raise AttributeError(name)
    return getattr(self.__dict__["logic"], name)


def wrong_disorder(name, **members):
    return Wrong(MaxSlack(), name, **members)


def scribble(self, arrivals):
    arrivals.ts[:] = 0
    return arrivals.progress


def toggled(self, arrivals):
    if not arrivals.ts.size:
        self.offset = 1
    return self.logic.bounds(arrivals) - getattr(self, "offset", 0)


def by_number_of_calls(self, arrivals):
    self.calls = getattr(self, "calls", 0) + 1
    return arrivals.progress - self.calls


DISORDER = {
    "check_disorder_logic_keeps_to_the_contract": [
        (wrong_disorder("x", lacks="adapt"), "lacks adapt"),
        (wrong_disorder("x", interval=0), "interval must be None or a positive int, got 0"),
    ],
    "check_bounds_shape_and_dtype": [
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress.tolist()),
            "bounds must be an array, got list",
        ),
        (wrong_disorder("x", bounds=lambda self, a: a.progress * 1.0), "type of bounds: dtype('float64')"),
        (wrong_disorder("x", bounds=lambda self, a: a.progress[:-1]), "shape of bounds: (299,)"),
    ],
    "check_arrivals_are_left_alone": [
        (wrong_disorder("x", bounds=scribble), "arrivals.ts after the call differ in"),
    ],
    "check_bounds_are_deterministic": [
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress - next(COUNTER)),
            "bounds of a second run differ",
        ),
    ],
    "check_chunking_does_not_change_bounds": [
        (wrong_disorder("x", bounds=by_number_of_calls), "bounds by 1 differ in"),
        (
            wrong_disorder("x", bounds=lambda self, a: np.full(a.ts.size, a.ts.size)),
            "first at 0: 1 instead of 300",
        ),
    ],
    "check_disorder_survives_empty_chunk": [
        (wrong_disorder("x", bounds=toggled), "bounds after an empty chunk differ in 300 of 300 places"),
    ],
    "check_disorder_snapshot_resumes_identically": [
        (wrong_disorder("x", snapshot=lambda self: {}), "bounds after a restart differ"),
        (
            wrong_disorder("x", snapshot=lambda self: {"a": [object()]}),
            "snapshot['a'][0]: object cannot be stored",
        ),
        (wrong_disorder("x", snapshot=lambda self: {1: 2}), "the key 1 must be text"),
        (wrong_disorder("x", snapshot=lambda self: [1]), "a snapshot must be a mapping, got list"),
        (
            wrong_disorder("x", snapshot=lambda self: {"a": np.array([None])}),
            "an array of object cannot be stored",
        ),
    ],
}


def wrong_join(name, **members):
    return Wrong(SlidingWindowJoinStrategy(), name, **members)


def changed(change):
    """A step that changes every run of the good one."""

    def step(self, released):
        for run in self.logic.step(released):
            yield change(run, released)

    return step


def lose_a_row(run, released):
    return run._replace(rows=run.rows[1:], probe=run.probe[1:])


def count_one_more(run, released):
    return run._replace(join_size=run.join_size + 1)


def no_cross(run, released):
    return run._replace(cross_size=run.cross_size * 0)


def last_left_out(self, released):
    for run in self.logic.step(released):
        if run.stop < released.ts.size or run.stop == 1:
            yield run
        else:
            kept = run.probe < run.stop - 1
            sizes = run.join_size[:-1], run.cross_size[:-1]
            yield Matches(run.start, run.stop - 1, run.rows[kept], run.probe[kept], *sizes)


def always_rows(run, released):
    m = len(released.cells.shape)
    n = int(run.join_size.sum())
    at = np.repeat(np.arange(run.start, run.stop), run.join_size)
    return run._replace(rows=np.zeros((n, m), np.int64), probe=at)


def from_scratch(self, released):
    self.__dict__["logic"] = SlidingWindowJoinStrategy().build(self.setting)
    return self.logic.step(released)


def wrong_punctuated(name, **members):
    return Wrong(PunctuatedWindowJoin(), name, **members)


def too_early(self, released, punctuations):
    return self.logic.punctuated_step(released, punctuations._replace(at=punctuations.at // 2))


def finishes_another(self, released, punctuations):
    for run in self.logic.punctuated_step(released, punctuations):
        told = run.finished
        yield run if told is None else run._replace(finished=told._replace(values=told.values + 1))


def deaf_to_the_first(self, released, punctuations):
    return self.logic.punctuated_step(released, Punctuations._make(a[punctuations.at > 0] for a in punctuations))


def lets_them_pass(self, released, punctuations):
    for run in self.logic.punctuated_step(released, punctuations):
        yield run._replace(contradicts=None)


def holds_all(self):
    return self.logic.held()._replace(seq=self.logic.held().seq + 1000)


def without_values(self):
    kept = self.logic.snapshot()
    return {**kept, **{name: kept[name][:0] for name in ("masks", "done", "keys")}}


JOIN = {
    "check_punctuated_logic_keeps_to_the_contract": [
        (wrong_punctuated("x", lacks="held_cells"), "lacks held_cells"),
    ],
    "check_punctuations_change_no_result": [
        (wrong_punctuated("x", punctuated_step=too_early), "with punctuations, tuple "),
        (wrong_punctuated("x", held=holds_all), "tuples held that no window holds: [("),
    ],
    "check_finished_values_are_in_no_later_result": [
        (wrong_punctuated("x", punctuated_step=finishes_another), "but is in a result of tuple "),
    ],
    "check_tuples_that_contradict_are_told": [
        (
            wrong_punctuated("x", punctuated_step=lets_them_pass),
            "is told: False instead of True",
        ),
    ],
    "check_chunking_does_not_change_what_punctuations_do": [
        (wrong_punctuated("x", punctuated_step=deaf_to_the_first), "with punctuations, by 1: finished values: "),
    ],
    "check_punctuated_snapshot_resumes_identically": [
        (wrong_punctuated("x", snapshot=without_values), "after a restart: finished values: "),
    ],
    "check_join_logic_keeps_to_the_contract": [
        (wrong_join("x", lacks="evict"), "lacks evict"),
    ],
    "check_join_matches_brute_force": [
        (wrong_join("x", step=changed(lose_a_row)), "results: Counter()"),
        (wrong_join("x", step=changed(count_one_more)), "join size and cross size: (1, "),
        (wrong_join("x", step=changed(no_cross)), "join size and cross size: (0, 0.0)"),
        (wrong_join("x", step=last_left_out), "tuples covered by the runs of a chunk: 119 instead of 120"),
        (wrong_join("x", step=changed(lambda r, _: r._replace(start=1))), "start of a run: 1 instead of 0"),
        (wrong_join("x", step=changed(lambda r, _: r._replace(stop=0))), "a run from 0 to 0 covers nothing"),
        (wrong_join("x", step=changed(lambda r, _: r._replace(probe=r.probe[1:]))), "length of probe"),
        (
            wrong_join("x", step=changed(lambda r, _: r._replace(probe=r.probe[::-1]))),
            "probe must be non-decreasing",
        ),
        (
            wrong_join("x", step=changed(lambda r, _: r._replace(cross_size=r.cross_size[1:]))),
            "length of cross_size",
        ),
    ],
    "check_counts_match_rows": [
        (wrong_join("x", step=changed(always_rows)), "rows although only counts are wanted"),
        (wrong_join("x", step=changed(count_one_more)), "join sizes differ in 120 of 120 places"),
    ],
    "check_chunking_does_not_change_results": [(wrong_join("x", step=from_scratch), "results by 1: ")],
    "check_held_and_evict": [
        (
            wrong_join("x", held=lambda self: type(h := self.logic.held())(*(a[1:] for a in h))),
            "tuples held: ",
        ),
        (wrong_join("x", live=lambda self: 0), "live(): 0 instead of"),
        (wrong_join("x", evict=lambda self, victims: None), "live() after evict"),
        (wrong_join("x", evict=lambda self, victims: self.logic.evict(~victims)), "after evict"),
    ],
    "check_join_snapshot_resumes_identically": [
        (wrong_join("x", snapshot=lambda self: {}), "results after a restart: "),
    ],
}


class Flat(SheddingStrategy):
    """Gives every tuple the same score."""

    name: ClassVar[str] = "flat"

    def build(self, setting, snapshot=None):
        return FlatLogic(snapshot["calls"] if snapshot else 0)


class FlatLogic:
    decays = False
    memory = 10

    def __init__(self, calls):
        self.calls = calls

    def scores(self, tuples):
        self.calls += 1
        return np.full(tuples.ts.size, float(self.calls))

    def snapshot(self):
        return {"calls": self.calls}


def wrong_shedding(name, **members):
    return Wrong(Flat(), name, **members)


def scribble_on_tuples(self, tuples):
    tuples.lifetime[:] = 0
    return self.logic.scores(tuples)


SHEDDING = {
    "check_shedding_logic_keeps_to_the_contract": [
        (wrong_shedding("x", lacks="scores"), "lacks scores"),
        (wrong_shedding("x", memory=0), "memory must be None, a positive int, a Memory or a MemoryLimit, got 0"),
        (wrong_shedding("x", decays=1), "decays must be True or False, got 1"),
    ],
    "check_scores_are_finite_numbers": [
        (wrong_shedding("x", scores=lambda self, t: [1.0] * t.ts.size), "scores must be an array, got list"),
        (
            wrong_shedding("x", scores=lambda self, t: t.ts),
            "type and shape of scores: (dtype('int64'), (50,))",
        ),
        (wrong_shedding("x", scores=lambda self, t: np.ones(3)), "type and shape of scores"),
        (wrong_shedding("x", scores=lambda self, t: np.full(t.ts.size, np.nan)), "scores must be finite"),
        (wrong_shedding("x", scores=scribble_on_tuples), "tuples.lifetime after the call differ"),
    ],
    "check_scores_are_deterministic": [
        (
            wrong_shedding("x", scores=lambda self, t: np.full(t.ts.size, float(next(COUNTER)))),
            "scores differ",
        ),
    ],
    "check_shedding_snapshot_resumes_identically": [
        (wrong_shedding("x", snapshot=lambda self: {}), "scores after a restart differ"),
    ],
}
ANY = {
    "check_has_name_and_purpose": [
        (BadName(), "the name 'Bad Name' must be lower_case"),
        (Purposeless(), "the class has no docstring"),
    ],
    "check_options_are_frozen": [(Thawed(), "option 'slack' can be changed")],
    "check_options_survive_a_template": [(Forgetful(), "options read back: Forgetful(slack=2)")],
    "check_options_travel_to_workers": [(Rooted(), "TypeError: cannot leave the process")],
}
WRONG = {"any": ANY, "disorder": DISORDER, "join": JOIN, "shedding": SHEDDING}
