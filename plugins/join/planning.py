"""The order in which each input's tuples look up the other inputs, as arrays for ``kernels.windows``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slackwater.plugins.contract import Setting
from slackwater.transforms.kernels.windows import ProbePlan


class Step(NamedTuple):
    """Bind one more input: which, by which classes, from where, and what can be tested then."""

    input: int
    classes: tuple[int, ...]
    sources: tuple[int, ...]
    """For each class, the bound input whose value is looked up."""
    predicates: tuple[int, ...]


def steps_of(setting: Setting, probing: int) -> list[Step]:
    """Order the other inputs for a tuple of ``probing``.

    Inputs that a key reaches come before those that only a cross product reaches; among them, those that
    other inputs depend on, or that a predicate needs, come first, so that what is left at the end is
    independent and can be counted by multiplying.
    """
    condition = setting.condition
    classes, predicates = condition.classes, condition.predicates
    bound = [probing]
    rest = [i for i in range(len(setting.inputs)) if i != probing]
    tested = {p for p, predicate in enumerate(predicates) if len(predicate.inputs) < 2}
    steps: list[Step] = []
    while rest:
        known = {c for c, members in enumerate(classes) if any(i in members for i in bound)}

        def rank(i: int, known: set[int] = known) -> tuple[int, ...]:
            mine = {c for c, members in enumerate(classes) if i in members}
            opens = any(
                not any(j in classes[c] for c in known) and any(j in classes[c] for c in mine - known)
                for j in rest
                if j != i
            )
            tests = any(i in predicate.inputs for p, predicate in enumerate(predicates) if p not in tested)
            return (not mine & known, not (opens or tests), -len(mine & known), i)

        chosen = min(rest, key=rank)
        used = tuple(sorted(c for c in known if chosen in classes[c]))
        sources = tuple(next(i for i in bound if i in classes[c]) for c in used)
        bound.append(chosen)
        rest.remove(chosen)
        ready = tuple(
            p
            for p, predicate in enumerate(predicates)
            if p not in tested and predicate.inputs <= frozenset(bound)
        )
        tested |= set(ready)
        steps.append(Step(chosen, used, sources, ready))
    return steps


def multiply_from(steps: list[Step]) -> int:
    """Return the first step from which on nothing is tested and nothing is looked up from a later step."""
    start = len(steps)
    while start > 0:
        step = steps[start - 1]
        needed = {source for later in steps[start:] for source in later.sources}
        if step.predicates or step.input in needed:
            break
        start -= 1
    return start


def probe_plan(setting: Setting) -> ProbePlan:
    """Return the plan of a join as arrays."""
    condition = setting.condition
    m = len(setting.inputs)
    plans = [steps_of(setting, i) for i in range(m)]
    indexes: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    for steps in plans:
        for step in steps:
            if step.classes not in indexes[step.input]:
                indexes[step.input].append(step.classes)
    n_indexes = max(1, *(len(index) for index in indexes))
    n_keys = max(1, len(condition.classes))
    program: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = [np.empty((0, 4), np.int64)]
    plan = ProbePlan(
        windows=np.array(setting.windows, np.int64),
        step_input=np.zeros((m, m - 1), np.int64),
        step_index=np.zeros((m, m - 1), np.int64),
        step_source=np.zeros((m, m - 1, n_keys, 2), np.int64),
        step_keys=np.zeros((m, m - 1), np.int64),
        step_predicates=np.zeros((m, m - 1, 2), np.int64),
        own_predicates=np.zeros((m, 2), np.int64),
        multiply_from=np.full(m, m, np.int64),
        index_count=np.array([len(index) for index in indexes], np.int64),
        index_keys=np.zeros((m, n_indexes), np.int64),
        index_columns=np.zeros((m, n_indexes, n_keys), np.int64),
        program=None,
    )

    def add(numbers: list[int]) -> tuple[int, int]:
        first = sum(map(len, program))
        code = condition.assemble([condition.predicates[p] for p in numbers])
        program.append(code)
        return first, first + len(code)

    for i, steps in enumerate(plans):
        plan.own_predicates[i] = add([p for p, pr in enumerate(condition.predicates) if pr.inputs == {i}])
        if setting.counts_only:
            plan.multiply_from[i] = multiply_from(steps)
        for d, step in enumerate(steps):
            plan.step_input[i, d] = step.input
            plan.step_index[i, d] = indexes[step.input].index(step.classes)
            plan.step_keys[i, d] = len(step.classes)
            plan.step_predicates[i, d] = add(list(step.predicates))
            for k, (c, source) in enumerate(zip(step.classes, step.sources, strict=True)):
                plan.step_source[i, d, k] = source, condition.classes[c][source]
    for i, index in enumerate(indexes):
        for x, used in enumerate(index):
            plan.index_keys[i, x] = len(used)
            plan.index_columns[i, x, : len(used)] = [condition.classes[c][i] for c in used]
    return plan._replace(program=np.concatenate(program))
