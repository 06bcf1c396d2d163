"""How inputs are linked by keys and predicates: tables for the kernels of frequencies and expectations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import Int64s, Setting
from slackwater.transforms.kernels.expressions.predicate import BLOCK, cells_read
from slackwater.transforms.kernels.shedding import expectations
from slackwater.transforms.kernels.shedding import frequencies as counting

BINS = 1 << 12
"""Bins in which the productivity of similar tuples is kept."""
_KINDS = {"text": expectations.EXACT, "float": expectations.FLOAT}


class Keys(NamedTuple):
    """``[input, key, columns]``; KEYS is 0 where there is none."""

    own: Int64s
    """The keys of its tuples that others may match."""
    partners: Int64s
    """Whose keys its tuples match, and by which of their own cells."""


def linked(setting: Setting, i: int, j: int) -> bool:
    """Whether a key or a predicate speaks of both inputs."""
    condition = setting.condition
    return bool(condition.shared(i, j)) or any({i, j} <= p.inputs for p in condition.predicates)


def beyond(setting: Setting, viewer: int, j: int) -> int:
    """Return the inputs that ``j`` is linked to and the viewer is not, as bits."""
    others = [p for p in range(len(setting.inputs)) if p not in (viewer, j)]
    return sum(1 << p for p in others if linked(setting, j, p) and not linked(setting, viewer, p))


def keys_of(setting: Setting) -> Keys:
    """Return the keys of all inputs. Given frequencies say nothing of what lies beyond."""
    classes, m = setting.condition.classes, len(setting.inputs)
    own: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    partners: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    for i in range(m):
        for j in range(m):
            shared = setting.condition.shared(i, j)
            if i != j and shared:
                past = 0 if setting.frequencies else beyond(setting, i, j)
                key = (j, len(shared), sum(1 << c for c in shared), past)
                seed = counting.seed_of(j, key[counting.CLASSES], past)
                known = [k for k, entry in enumerate(own[j]) if entry[: counting.OWN] == key]
                place = known[0] if known else len(own[j])
                if not known:
                    own[j].append((*key, place, seed, *(classes[c][j] for c in shared)))
                partners[i].append((*key, place, seed, *(classes[c][i] for c in shared)))
    width = counting.CELLS + max(1, len(classes))
    return Keys(_table(own, width), _table(partners, width))


def samples_of(setting: Setting) -> expectations.Samples:
    """Return empty samples, with all that is tested on them; of no records where nothing is."""
    condition, m = setting.condition, len(setting.inputs)
    program: list[Int64s] = []

    def add(own: int, trees: Sequence[Any], number: bool = False) -> tuple[int, int]:
        first = sum(map(len, program))
        program.append(condition.program_for(own, trees, number) if trees else np.empty((0, 4), np.int64))
        return first, first + len(program[-1])

    tests: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    inputs = np.zeros((m, expectations.VIEWS + m), np.int64)
    for i in range(m):
        predicates = [p for p in condition.predicates if i in p.inputs]
        own = add(i, [p.tree for p in predicates if len(p.inputs) == 1])
        worth = add(i, [] if condition.weight is None else [condition.weight], True)
        inputs[i] = (*own, *worth, *(beyond(setting, viewer, i) for viewer in range(m)))
        for j in range(m):
            # A predicate on several others at once is taken for a chance of the tuple's own.
            mine = [
                p
                for p in predicates
                if len(p.inputs) > 1 and (p.inputs == {i, j} if i != j else len(p.inputs) > 2)
            ]
            if mine:
                span = add(i, [p.tree for p in mine])
                needs = sum(1 << p for p in frozenset().union(*(p.inputs for p in mine)) - {i})
                weighted = i != j and not condition.shared(i, j)
                tests[i].append((*span, needs, j, weighted, _bits_read(program[-1], i)))
    code = np.concatenate(program)
    records = m * expectations.SAMPLE + 1 if len(code) else 0
    width = condition.width
    kinds = np.zeros((m, width), np.int64)
    for i, cells in enumerate(condition.columns):
        kinds[i, : len(cells)] = [_KINDS.get(cell.kind, expectations.INTEGER) for cell in cells]
    rows = np.arange(m)[None, :, None] * expectations.SAMPLE + np.arange(expectations.SAMPLE)[None, None, :]
    rows = np.repeat(rows, m, axis=0)
    rows[np.arange(m), np.arange(m)] = records - 1
    registers = int(code[:, 1].max(initial=0)) + 1
    tested = any(tests)
    return expectations.Samples(
        records=np.zeros((records, 1 + width), np.int64),
        beyond=np.zeros((records, m)),
        seen=np.zeros(m, np.int64),
        factor=np.zeros((m, width)),
        bins=np.zeros(BINS if tested else 0, np.uint64),
        found=np.zeros((BINS if tested else 0, 2)),
        rows=rows,
        program=code,
        inputs=inputs,
        tests=_table(tests, 6),
        kinds=kinds,
        scratch=np.zeros((3, registers, BLOCK), np.int64),
    )


def _bits_read(program: Int64s, own: int) -> int:
    bits = sum(1 << c for c in cells_read(program, own))
    return bits - (1 << 64) if bits >> 63 else bits


def _table(entries: list[list[tuple[int, ...]]], width: int) -> Int64s:
    table = np.zeros((len(entries), max(1, *map(len, entries)), width), np.int64)
    for i, mine in enumerate(entries):
        for n, entry in enumerate(mine):
            table[i, n, : len(entry)] = entry
    return table
