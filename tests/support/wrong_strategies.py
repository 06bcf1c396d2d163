"""Strategies that are wrong in one way each: for every check of the conformance suite, those that fail it.

``WRONG`` says which by stage and check, each with what the check must say about it.
"""

import itertools
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict, field_serializer
from wrong_frame import Wrong
from wrong_joins import JOIN

from slackwater.plugins import SheddingStrategy
from slackwater.plugins.disorder.max import MaxSlack

COUNTER = itertools.count()


class BadName(MaxSlack):
    """Has a name that no template can hold."""

    name: ClassVar[str] = "Bad Name"


class Purposeless(MaxSlack):
    name: ClassVar[str] = "purposeless"


class Undecided(MaxSlack):
    """Says something else than yes or no."""

    name: ClassVar[str] = "undecided"
    shares: ClassVar[Any] = "always"


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


def hoards(self, arrivals):
    self.__dict__.setdefault("delays", []).extend(arrivals.delay.tolist())
    return self.logic.bounds(arrivals)


def spends_its_state(self):
    kept = self.logic.snapshot()
    self.logic._slack += 1
    return kept


DISORDER = {
    "check_disorder_logic_keeps_to_the_contract": [
        (wrong_disorder("x", lacks="bounds"), "build returned WrongLogic, which lacks bounds"),
        (wrong_disorder("x", interval=0), "interval is 0, must be None or a positive int"),
    ],
    "check_bounds_shape_and_dtype": [
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress.tolist()),
            "bounds returned list, must be",
        ),
        (wrong_disorder("x", bounds=lambda self, a: a.progress * 1.0), "bounds returned float64, must be int64"),
        (wrong_disorder("x", bounds=lambda self, a: a.progress[:-1]), "of shape (299,), must be (300,)"),
        (wrong_disorder("x", bounds=scribble), "bounds raised ValueError: assignment destination is read-only"),
    ],
    "check_bounds_are_not_ahead": [
        (wrong_disorder("x", bounds=lambda self, a: a.progress + 1), "arrival 0 has the bound "),
    ],
    "check_bounds_far_from_zero": [
        (
            wrong_disorder("x", bounds=lambda self, a: np.float64(a.progress).astype(np.int64)),
            "bounds of times from ",
        ),
    ],
    "check_bounds_are_deterministic": [
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress - next(COUNTER)),
            "bounds of a second run differ",
        ),
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress - np.random.randint(9)),
            "bounds of a second run differ",
        ),
    ],
    "check_bounds_are_the_same_elsewhere": [
        (
            wrong_disorder("x", bounds=lambda self, a: a.progress - hash("slack") % 10**6),
            "bounds in another process differ in 300 of 300 places",
        ),
    ],
    "check_chunking_does_not_change_bounds": [
        (wrong_disorder("x", bounds=by_number_of_calls), "bounds by 1 differ in"),
        (wrong_disorder("x", bounds=lambda self, a: a.ts * 0 - a.ts.size), "bounds by 1 differ in"),
    ],
    "check_disorder_survives_empty_chunk": [
        (wrong_disorder("x", bounds=toggled), "bounds after empty chunks differ in 300 of 300 places"),
    ],
    "check_disorder_snapshot_resumes_identically": [
        (wrong_disorder("x", snapshot=lambda self: {}), "bounds after a restart differ"),
        (
            wrong_disorder("x", snapshot=lambda self: {"a": [object()]}),
            "snapshot returned object at ['a'][0], must be arrays, numbers, text or bytes",
        ),
        (wrong_disorder("x", snapshot=lambda self: {1: 2}), "snapshot returned the key 1, must be text"),
        (wrong_disorder("x", snapshot=lambda self: [1]), "snapshot returned list, must be a mapping"),
        (
            wrong_disorder("x", snapshot=lambda self: {"a": np.array([None])}),
            "snapshot returned an array of object at ['a'], must be numbers or texts",
        ),
    ],
    "check_disorder_snapshot_changes_nothing": [
        (wrong_disorder("x", snapshot=spends_its_state), "bounds after snapshots differ"),
    ],
    "check_disorder_state_is_bounded": [
        (wrong_disorder("x", bounds=hoards), "memory grows with the stream: by "),
    ],
}


class Flat(SheddingStrategy):
    """Gives every tuple the number of those that came before."""

    name: ClassVar[str] = "flat"

    def build(self, setting, snapshot=None):
        return FlatLogic(snapshot["rows"] if snapshot else 0)


class FlatLogic:
    decays = False
    memory = 10

    def __init__(self, rows):
        self.rows = rows

    def scores(self, tuples):
        return np.full(tuples.ts.size, float(self.rows))

    def observe(self, tuples):
        first, self.rows = self.rows, self.rows + tuples.ts.size
        return np.arange(first, self.rows, dtype=np.float64)

    def snapshot(self):
        return {"rows": self.rows}


def wrong_shedding(name, **members):
    return Wrong(Flat(), name, **members)


def scribble_on_tuples(self, tuples):
    tuples.lifetime[:] = 0
    return self.logic.scores(tuples)


def by_calls(self, tuples):
    self.logic.rows += 1
    return self.logic.scores(tuples)


def spends_its_rows(self):
    self.logic.rows += 1
    return {"rows": self.logic.rows - 1}


def every_row(self, tuples):
    self.__dict__.setdefault("rows_seen", set()).update(tuples.seq.tolist())
    return self.logic.observe(tuples)


SHEDDING = {
    "check_shedding_logic_keeps_to_the_contract": [
        (wrong_shedding("x", lacks="scores"), "build returned WrongLogic, which lacks scores"),
        (wrong_shedding("x", memory=0), "memory is 0, must be None, a positive int, a Memory or a MemoryLimit"),
        (wrong_shedding("x", decays=1), "decays is 1, must be True or False"),
    ],
    "check_scores_are_finite_numbers": [
        (wrong_shedding("x", scores=lambda self, t: [1.0] * t.ts.size), "scores returned list, must be an array"),
        (wrong_shedding("x", scores=lambda self, t: t.ts), "scores returned int64, must be float64"),
        (wrong_shedding("x", scores=lambda self, t: np.ones(3)), "scores returned an array of shape (3,)"),
        (
            wrong_shedding("x", scores=lambda self, t: np.full(t.ts.size, np.nan)),
            "returned a score of nan",
        ),
        (wrong_shedding("x", observe=scribble_on_tuples), "observe raised ValueError: assignment destination is"),
    ],
    "check_scores_are_of_each_tuple": [
        (wrong_shedding("x", scores=by_calls), "scores, asked for again, differ"),
        (
            wrong_shedding("x", scores=lambda self, t: np.arange(t.ts.size) * 1.0),
            "in another order differ",
        ),
    ],
    "check_chunking_does_not_change_scores": [
        (
            wrong_shedding("x", observe=lambda self, t: np.arange(t.ts.size) * 1.0),
            "of arrivals by 1 differ",
        ),
    ],
    "check_scores_are_deterministic": [
        (
            wrong_shedding("x", scores=lambda self, t: np.full(t.ts.size, float(next(COUNTER)))),
            "scores of held tuples of a second run differ",
        ),
    ],
    "check_scores_are_the_same_elsewhere": [
        (
            wrong_shedding("x", scores=lambda self, t: np.full(t.ts.size, float(hash("score")))),
            "scores of held tuples in another process differ",
        ),
    ],
    "check_shedding_snapshot_resumes_identically": [
        (wrong_shedding("x", snapshot=lambda self: {}), "scores of held tuples after a restart differ"),
    ],
    "check_shedding_snapshot_changes_nothing": [
        (wrong_shedding("x", snapshot=spends_its_rows), "after snapshots differ"),
    ],
    "check_shedding_state_is_bounded": [
        (wrong_shedding("x", observe=every_row), "memory grows with the stream: by "),
    ],
}
ANY = {
    "check_has_name_and_purpose": [
        (BadName(), "the name 'Bad Name' must be lower_case"),
        (Purposeless(), "the class has no docstring"),
    ],
    "check_declarations_have_their_types": [
        (Undecided(), "shares is 'always', which is of another type"),
    ],
    "check_options_are_frozen": [(Thawed(), "option 'slack' can be changed")],
    "check_options_survive_a_template": [(Forgetful(), "options read back: Forgetful(slack=2)")],
    "check_options_travel_to_workers": [(Rooted(), "TypeError: cannot leave the process")],
}
WRONG = {"any": ANY, "disorder": DISORDER, "join": JOIN, "shedding": SHEDDING}
