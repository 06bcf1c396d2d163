"""The order in which each input's tuples look up the other inputs, as arrays for ``kernels.join.probe``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from slackwater.plugins.contract import Setting
from slackwater.transforms.kernels.join import probe as kernel
from slackwater.transforms.kernels.join import slots as layout


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

        def rank(i: int, known: set[int] = known, tested: frozenset[int] = frozenset(tested)) -> tuple[int, ...]:
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


def probe_plan(setting: Setting, also: tuple[int, ...] = ()) -> kernel.ProbePlan:
    """Return the plan of a join as tables for the kernel.

    Inputs that take part in all classes of ``also`` get an index over just these, if they have none.
    """
    condition = setting.condition
    m = len(setting.inputs)
    plans = [steps_of(setting, i) for i in range(m)]
    used: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    for step in (step for steps in plans for step in steps):
        if step.classes not in used[step.input]:
            used[step.input].append(step.classes)
    for i, mine in enumerate(used):
        if also and also not in mine and all(i in condition.classes[c] for c in also):
            mine.append(also)
    n_keys = max(1, len(condition.classes))
    inputs = np.zeros((m, 6), np.int64)
    steps = np.zeros((m, m - 1, kernel.SOURCES + 2 * n_keys), np.int64)
    indexes = np.zeros((m, max(1, *map(len, used)), layout.COLUMNS + n_keys), np.int64)
    program = [np.empty((0, 4), np.int64)]

    def add(numbers: Iterable[int]) -> tuple[int, int]:
        first = sum(map(len, program))
        program.append(condition.assemble([condition.predicates[p] for p in numbers]))
        return first, first + len(program[-1])

    for i, plan in enumerate(plans):
        own = add(p for p, predicate in enumerate(condition.predicates) if predicate.inputs == {i})
        start = multiply_from(plan) if setting.counts_only else m
        rows = setting.rows[i] if setting.rows else kernel.NO_ROWS
        inputs[i] = (setting.windows[i], len(used[i]), *own, start, rows)
        for d, step in enumerate(plan):
            sources = [
                x for c, s in zip(step.classes, step.sources, strict=True) for x in (s, condition.classes[c][s])
            ]
            index = used[step.input].index(step.classes)
            steps[i, d, : kernel.SOURCES] = (step.input, index, len(step.classes), *add(step.predicates))
            steps[i, d, kernel.SOURCES : kernel.SOURCES + len(sources)] = sources
        for x, classes in enumerate(used[i]):
            columns = [condition.classes[c][i] for c in classes]
            indexes[i, x, : layout.COLUMNS + len(columns)] = (len(columns), *columns)
    first_cell = layout.LINKS + 3 * indexes.shape[1]
    return kernel.ProbePlan(inputs, steps, indexes, np.concatenate(program), first_cell)
