"""Join conditions: SQL text bound to the inputs' columns, split into equality keys and predicates.

Equalities between columns of different inputs form *key classes*: ``a.x = b.y AND b.y = c.z`` is one class with
a column of each input, so any input can be looked up from any other. Everything else is a predicate, compiled
to the register machine of ``expressions.predicate``. The columns that either needs are *cells*: int64 words per
tuple, laid out the same way everywhere (see ``Cell``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Int64s, UInt64s
from slackwater.transforms.expressions.opcodes import Lost
from slackwater.transforms.expressions.program import Assembler
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Lit, Op, columns, conjuncts, parse
from slackwater.transforms.output.step import does_not_fit
from slackwater.transforms.rows.layout import Layout, common_layout, differing, layout_of

MAX_CELLS = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """One int64 word of a tuple: a column of its input in a certain layout (``layouts.Layout``)."""

    column: str
    kind: str
    form: str = ""

    @property
    def layout(self) -> Layout:
        return Layout(self.kind, self.form)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A part of the condition that is no key equality."""

    tree: Expr
    inputs: frozenset[int]


def kind_of(type_: pa.DataType, where: str) -> str:
    """Return the kind of the layout for columns of one type; raise if a condition cannot use them."""
    layout = layout_of(type_, where)
    return "int" if layout.kind == "null" else layout.kind


class Condition:
    """A condition bound to its inputs.

    Args:
        text: SQL text, or None for a cross join.
        schemas: the Arrow schema of each input, by name, in input order.
        also: further columns that must have a cell, as (input, column).
    """

    failures: tuple[type[Exception], ...] = (Lost,)

    def __init__(
        self, text: str | None, schemas: Mapping[str, pa.Schema], also: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.text = text
        self.inputs = tuple(schemas)
        self._schemas = tuple(schemas.values())
        self.texts: list[str] = []
        """Text constants; the k-th one always has code k + 1 in the dictionary."""
        self._codes: dict[str, int] = {}
        self._cells: list[list[Cell]] = [[] for _ in self.inputs]
        parts = [self._resolve(part) for part in conjuncts(parse(text))] if text is not None else []
        parts = [part for part in parts if part != Lit(True)]
        keys = [part for part in parts if self._is_key(part)]
        self.predicates = [self._predicate(part) for part in parts if part not in keys]
        self.classes: list[dict[int, int]] = []
        """For each key class, the cell of each input that takes part."""
        self.weight: Expr | None = None
        """What a result is worth, where ``weigh`` has said so."""
        self._build_classes(keys)
        for predicate in self.predicates:
            self.assemble([predicate])
        for name, column in also:
            if self.cell_of(self.inputs.index(name), column) < 0:
                self._cell_of(Col(name, column))

    @property
    def columns(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of each input."""
        return tuple(map(tuple, self._cells))

    @property
    def width(self) -> int:
        """Cells per tuple, the same for all inputs: the widest one's."""
        return max(1, *(len(cells) for cells in self._cells))

    @property
    def shard_columns(self) -> list[Cell] | None:
        """One column per input that every result agrees on, or None if there is none."""
        for members in self.classes:
            if len(members) == len(self.inputs):
                return [self._cells[i][members[i]] for i in range(len(self.inputs))]
        return None

    @property
    def connected(self) -> bool:
        """Whether keys and predicates link all inputs, directly or through others."""
        groups = [set(members) for members in self.classes] + [set(p.inputs) for p in self.predicates]
        seen = {0}
        while True:
            more = {i for group in groups if group & seen for i in group} - seen
            if not more:
                return len(seen) == len(self.inputs)
            seen |= more

    def cell_of(self, which: int, column: str) -> int:
        """Return the cell of an input that holds a column, or -1; a key's own layout comes first."""
        keys = [members[which] for members in self.classes if which in members]
        order = [*keys, *range(len(self._cells[which]))]
        return next((c for c in order if self._cells[which][c].column == column), -1)

    def assemble(self, predicates: Iterable[Predicate]) -> Int64s:
        """Return the program that tests all of ``predicates``; empty for none."""
        trees = [predicate.tree for predicate in predicates]
        if not trees:
            return np.empty((0, 4), np.int64)
        return Assembler(self._cell_of, self._literal_code, self._type_of).assemble(trees, checked=True)

    def shared(self, i: int, j: int) -> tuple[int, ...]:
        """Return the key classes that two inputs share."""
        return tuple(c for c, members in enumerate(self.classes) if i in members and j in members)

    def weigh(self, text: str) -> None:
        """Take an expression over the inputs for what a result is worth; its columns get cells."""
        if not text.strip():
            raise ExpressionError("the expression is empty; write a number such as a.price * b.quantity")
        tree = self._resolve(parse(text))
        Assembler(self._cell_of, lambda _: 0, self._type_of).number(tree)
        self.weight = tree

    def program_for(self, own: int, trees: Sequence[Expr], number: bool = False) -> Int64s:
        """Return a program for tuples of input ``own`` and any of the others, as if their keys were equal.

        Key columns that an input shares with ``own`` are read from the latter. Texts are hashes, as in
        ``Tuples``. The program tests all of ``trees``, or leaves the number that the only one gives.
        """
        from slackwater.transforms.rows.encoder import lasting_text

        seen = partial(self._as_seen_by, own)
        assembler = Assembler(seen, lasting_text, self._type_of)
        return assembler.number(trees[0]) if number else assembler.assemble(trees)

    def test(self, cells: Sequence[Int64s], nulls: Sequence[UInt64s]) -> Bools:
        """Say which candidates pass; row k of every input's arrays is candidate k.

        For join strategies that find their candidates in their own way: keys and predicates are both tested.
        """
        from slackwater.transforms.kernels.expressions import predicate as machine

        n = len(nulls[0])
        out = np.ones(n, np.bool_)
        for members in self.classes:
            (first, cell), *others = members.items()
            for i, c in others:
                out &= cells[i][:, c] == cells[first][:, cell]
            for i, c in members.items():
                out &= (nulls[i] >> np.uint64(c)) & np.uint64(1) == 0
        program = self._program
        if len(program):
            passed = np.empty(n, np.bool_)
            rows = np.arange(len(self.inputs), dtype=np.int64)[:, None] * n + np.arange(n)
            bits = np.concatenate(nulls).astype(np.int64)
            records = np.column_stack([bits, np.concatenate(cells)])
            ints = np.empty((registers(program), machine.BLOCK), np.int64)
            null = np.empty_like(ints)
            try:
                machine.select(program, records, rows, ints, null, passed)
            except Lost:
                raise does_not_fit(self.text) from None
            out &= passed
        return out

    @cached_property
    def _program(self) -> Int64s:
        return self.assemble(self.predicates)

    def _resolve(self, tree: Expr) -> Expr:
        """Qualify every column by its input, checking that both exist."""
        if isinstance(tree, Op):
            return Op(tree.name, tuple(map(self._resolve, tree.args)))
        if not isinstance(tree, Col):
            return tree
        if tree.table is None:
            owners = [i for i, schema in enumerate(self._schemas) if tree.name in schema.names]
            if len(owners) == 1:
                return Col(self.inputs[owners[0]], tree.name)
            fault = "is in no input" if not owners else "is in several inputs"
            raise ExpressionError(f"column {tree.name!r} {fault}; write it as input.column")
        if tree.table not in self.inputs:
            raise ExpressionError(f"{str(tree)!r} names no input; the inputs are {', '.join(self.inputs)}")
        names = self._schemas[self.inputs.index(tree.table)].names
        if tree.name not in names:
            raise ExpressionError(f"input {tree.table!r} has no column {tree.name!r}; it has {', '.join(names)}")
        return tree

    def type_of(self, name: str, column: str) -> pa.DataType:
        """Return the Arrow type of a column of an input."""
        return self._type_of(Col(name, column))

    def _type_of(self, column: Col) -> pa.DataType:
        return self._schemas[self.inputs.index(str(column.table))].field(column.name).type

    def _cell(self, column: Col, layout: Layout) -> tuple[int, int]:
        """Return (input, cell) of a column in a layout, adding the cell if it is new."""
        i = self.inputs.index(str(column.table))
        cell = Cell(column.name, *layout)
        if cell not in self._cells[i]:
            self._cells[i].append(cell)
            if len(self._cells[i]) > MAX_CELLS:
                raise ExpressionError(f"the condition reads more than {MAX_CELLS} columns of {column.table!r}")
        return i, self._cells[i].index(cell)

    def _cell_of(self, column: Col, layout: Layout | None = None) -> tuple[int, int, Layout]:
        if layout is None:
            layout = layout_of(self._type_of(column), str(column))
        return (*self._cell(column, layout), layout)

    def _as_seen_by(self, own: int, column: Col, layout: Layout | None = None) -> tuple[int, int, Layout]:
        i = self.inputs.index(str(column.table))
        for members in self.classes:
            shares = i != own and i in members and own in members
            if shares and self._cells[i][members[i]].column == column.name:
                found = self._cells[own][members[own]].layout
                if layout in (None, found):
                    return own, members[own], found
        return self._cell_of(column, layout)

    def _literal_code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self._codes) + 1)
        if code > len(self.texts):
            self.texts.append(text)
        return code

    def _is_key(self, part: Expr) -> bool:
        return (
            isinstance(part, Op)
            and part.name == "="
            and isinstance(part.args[0], Col)
            and isinstance(part.args[1], Col)
            and part.args[0].table != part.args[1].table
        )

    def _predicate(self, tree: Expr) -> Predicate:
        used = frozenset(self.inputs.index(str(column.table)) for column in columns(tree))
        return Predicate(tree, used or frozenset([0]))

    def _build_classes(self, keys: Iterable[Expr]) -> None:
        groups: list[list[Col]] = []
        for key in keys:
            assert isinstance(key, Op)
            pair: list[Any] = list(key.args)
            merged = [group for group in groups if any(column in group for column in pair)]
            groups = [group for group in groups if group not in merged]
            joined = [column for group in merged for column in group]
            groups.append(joined + [column for column in pair if column not in joined])
        for group in groups:
            layout = self._common_layout(group)
            members: dict[int, int] = {}
            first: dict[int, Col] = {}
            for column in group:
                i, cell = self._cell(column, layout)
                if i in members:
                    self.predicates.append(Predicate(Op("=", (first[i], column)), frozenset([i])))
                else:
                    members[i], first[i] = cell, column
            self.classes.append(members)

    def _common_layout(self, group: Sequence[Col]) -> Layout:
        types = [self._type_of(column) for column in group]
        for column, type_ in zip(group, types, strict=True):
            layout_of(type_, str(column))
        for (first, one), (column, other) in combinations(zip(group, types, strict=True), 2):
            found = differing(one, other)
            if found is not None:
                raise ExpressionError(
                    f"{first} is {found[0]} and {column} is {found[1]}: they can never be equal; "
                    "convert one of them with MapToFields"
                )
        return common_layout(types)


def registers(program: Int64s) -> int:
    """How many registers a program uses."""
    return int(program[:, 1].max()) + 1 if len(program) else 1
