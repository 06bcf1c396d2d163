"""Kernels one by one. The last test runs this file again with their Python bodies, not compiled."""

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from reference import reference_join
from running import NAMES, SCHEMA, disorder_of, numbered, plan_of, run

from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.expressions import opcodes as ops
from slackwater.transforms.kernels import heap
from slackwater.transforms.kernels.arrival import guard as guarding
from slackwater.transforms.kernels.expressions import predicate
from slackwater.transforms.kernels.rows import dictionary as strings
from slackwater.transforms.kernels.rows import lookup as rows
from slackwater.transforms.rows.encoder import TextDictionary, text_buffers

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"
NEVER = np.iinfo(np.int64).min


@pytest.fixture(autouse=True)
def integers_wrap():
    """Interpreted bodies warn where compiled ones wrap; wrapping is what hashes want."""
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def test_a_heap_gives_back_keys_in_order_and_ties_by_code():
    rng = random.Random(1)
    entries = [(rng.randrange(20), code) for code in range(200)]
    rng.shuffle(entries)
    keys, codes = np.zeros(200, np.int64), np.zeros(200, np.int64)
    out, n = [], 0
    for count, (key, code) in enumerate(entries):
        heap.push(keys, codes, n, key, code)
        n += 1
        if count % 3 == 2:
            out.append((int(keys[0]), int(codes[0])))
            assert out[-1] == min(e for e in entries[: count + 1] if e not in out[:-1])
            heap.pop(keys, codes, n)
            n -= 1
    rest = []
    while n:
        rest.append((int(keys[0]), int(codes[0])))
        heap.pop(keys, codes, n)
        n -= 1
    assert rest == sorted(rest)
    assert sorted(out + rest) == sorted(entries)


def test_a_dictionary_codes_texts_exactly_and_forgets_what_is_unused():
    import pyarrow as pa

    dictionary = TextDictionary(["pinned", ""])
    words = ["pinned", "", "x", None, "x", "longer than eight bytes", "longer than eight bytez", "ä"]
    codes = dictionary.encode(pa.array(words))
    assert codes.tolist() == [1, 2, 3, 0, 3, 4, 5, 6]
    assert dictionary.encode(pa.array(["y", *words])[1:]).tolist() == codes.tolist()
    many = dictionary.encode(pa.array([f"word {k}" for k in range(300)]))
    assert many.tolist() == list(range(7, 307))
    dictionary.forget(np.array([4, many[7]]))
    assert dictionary.size == 4
    assert dictionary.encode(pa.array(["longer than eight bytes", "word 7", "pinned", ""])).tolist() == [
        4,
        14,
        1,
        2,
    ]
    assert dictionary.encode(pa.array(["x"])).tolist() == [307]
    copy = TextDictionary(["pinned", ""], dictionary.snapshot())
    again = ["x", "word 7", "new", ""]
    assert (
        copy.encode(pa.array(again)).tolist() == dictionary.encode(pa.array(again)).tolist() == [307, 14, 308, 2]
    )


def test_hashes_are_the_same_in_every_process():
    import pyarrow as pa

    out = np.empty(3, np.int64)
    strings.hash_strings(*text_buffers(pa.array(["", "a", "longer than eight bytes"])), out)
    assert out.tolist() == [-780787492076525413, 2813319537248118479, 7561036201396047764]
    strings.hash_ints(np.array([0, 1, -1]), out)
    assert out.tolist() == [-2152535657050944081, -7995527694508729151, -1956407806741107680]


@pytest.mark.parametrize("stored", [range(10), [1, 5, 6, 9, 20, 21, 22], [7]])
def test_rows_are_located_by_number(stored):
    stored = np.array(stored, np.int64)
    out = np.empty(stored.size, np.int64)
    asked = stored[::-1].copy()
    rows.locate(stored, asked, out)
    assert stored[out].tolist() == asked.tolist()
    codes = np.concatenate([asked * 8 + 2, [3]])
    cells, nulls, delay = (
        np.zeros((codes.size, 1), np.int64),
        np.zeros(codes.size, np.uint64),
        np.zeros(codes.size, np.int64),
    )
    rows.scatter(
        codes, 2, stored, stored[:, None] * 10, stored.astype(np.uint64), stored * 3, cells, nulls, delay
    )
    assert cells[:-1, 0].tolist() == (asked * 10).tolist()
    assert nulls[:-1].tolist() == asked.tolist()
    assert delay.tolist() == [*(asked * 3).tolist(), 0]  # the row of another input is left alone


def calculate(op, *operands):
    """Run one instruction on operands; a float operand is given as bits, None is null."""
    values = [np.array([v if isinstance(v, float) else int(v or 0)]) for v in operands]
    is_float = any(isinstance(v, float) for v in operands) or (ops.ADD_F <= op < ops.AND)
    bits = [int((v.astype(float) if is_float else v).view(np.int64)[0]) for v in values]
    program = [(ops.CONST, k, int(operands[k] is None), bits[k]) for k in range(len(operands))]
    program.append((op, 0, 0, 1))
    ints, null = np.zeros((2, predicate.BLOCK), np.int64), np.zeros((2, predicate.BLOCK), np.int64)
    empty = np.zeros((1, 1), np.int64)
    predicate.run(np.array(program), 0, len(program), empty, 1, empty, 1, ints, null)
    if null[0, 0]:
        return None
    returns_float = ops.ADD_F <= op <= ops.MAX_F
    return float(ints.view(np.float64)[0, 0]) if returns_float else int(ints[0, 0])


TRUTHS = (True, False, None)


def kleene(op, x, y):
    if op == ops.AND:
        return False if False in (x, y) else None if None in (x, y) else True
    return True if True in (x, y) else None if None in (x, y) else False


@pytest.mark.parametrize("op", [ops.AND, ops.OR])
def test_and_and_or_are_three_valued(op):
    for x in TRUTHS:
        for y in TRUTHS:
            expected = kleene(op, x, y)
            assert calculate(op, x, y) == (None if expected is None else int(expected)), (x, y)


def test_not_and_is_null():
    assert [calculate(ops.NOT, x) for x in TRUTHS] == [0, 1, None]
    assert [calculate(ops.IS_NULL, x) for x in TRUTHS] == [0, 0, 1]


NAN = float("nan")


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        (ops.ADD_I, 2, 3, 5),
        (ops.SUB_I, 2, 3, -1),
        (ops.MUL_I, -2, 3, -6),
        (ops.MOD_I, 7, 3, 1),
        (ops.MOD_I, -7, 3, -1),
        (ops.MOD_I, 7, -3, 1),
        (ops.MOD_I, 7, 0, None),
        (ops.MIN_I, 2, 3, 2),
        (ops.MAX_I, 2, 3, 3),
        (ops.MIN_I, None, 3, 3),
        (ops.MAX_I, 2, None, 2),
        (ops.MIN_I, None, None, None),
        (ops.LT_I, 2, 3, 1),
        (ops.LE_I, 3, 3, 1),
        (ops.EQ_I, 2, 3, 0),
        (ops.NE_I, 2, 3, 1),
        (ops.EQ_I, None, 3, None),
        (ops.ADD_I, 1, None, None),
        (ops.ADD_F, 2.5, 0.25, 2.75),
        (ops.SUB_F, 2.5, 0.25, 2.25),
        (ops.MUL_F, 2.5, 2.0, 5.0),
        (ops.DIV_F, 1.0, 4.0, 0.25),
        (ops.DIV_F, 1.0, 0.0, None),
        (ops.MOD_F, -7.5, 2.0, -1.5),
        (ops.MOD_F, 7.5, 0.0, None),
        (ops.MIN_F, 2.5, NAN, 2.5),
        (ops.MIN_F, NAN, 2.5, 2.5),
        (ops.MAX_F, -1.0, 2.0, 2.0),
        (ops.MAX_F, None, 2.0, 2.0),
        (ops.LT_F, 1.0, NAN, 1),
        (ops.LT_F, NAN, NAN, 0),
        (ops.LE_F, NAN, NAN, 1),
        (ops.LE_F, NAN, 1.0, 0),
        (ops.EQ_F, NAN, NAN, 1),
        (ops.EQ_F, 0.0, -0.0, 1),
        (ops.NE_F, NAN, 1.0, 1),
        (ops.NE_F, NAN, NAN, 0),
    ],
)
def test_arithmetic_and_comparisons(op, x, y, expected):
    assert calculate(op, x, y) == expected


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        (ops.NEG_I, 3, -3),
        (ops.ABS_I, -3, 3),
        (ops.ABS_I, None, None),
        (ops.NEG_F, 1.5, -1.5),
        (ops.ABS_F, -1.5, 1.5),
        (ops.SQRT_F, 2.25, 1.5),
        (ops.SQRT_F, -1.0, None),
        (ops.SQRT_F, None, None),
    ],
)
def test_operations_on_one_value(op, x, expected):
    assert calculate(op, x) == expected


def test_integers_become_floats():
    ints, null = np.zeros((1, predicate.BLOCK), np.int64), np.zeros((1, predicate.BLOCK), np.int64)
    program = np.array([(ops.LOAD, 0, 0, 1), (ops.TO_FLOAT, 0, 0, 0)])
    records = np.array([[0, 5, 7], [2, 5, 9]])
    predicate.run(program, 0, 2, records, 1, np.array([[0, 1]]), 2, ints, null)
    assert ints.view(np.float64)[0, 0] == 7.0
    assert null[0, :2].tolist() == [0, 1]


def test_many_candidates_are_tested_block_by_block():
    n = 2 * predicate.BLOCK + 3
    records = np.column_stack([np.zeros(n, np.int64), np.arange(n)])
    program = np.array([(ops.LOAD, 0, 0, 0), (ops.CONST, 1, 0, 300), (ops.LT_I, 0, 0, 1)])
    shape = (2, predicate.BLOCK)
    out = np.zeros(n, np.bool_)
    predicate.select(
        program, records, np.arange(n)[None, :], np.zeros(shape, np.int64), np.zeros(shape, np.int64), out
    )
    assert np.flatnonzero(out).tolist() == list(range(300))


def track(inputs, times, past=-1, future=-1):
    n = len(times)
    known = np.array([t is not None for t in times])
    ts = np.array([t or 0 for t in times])
    verdict, progress, frontier = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64)
    state = guarding.GuardState(*np.full((2, 2), NEVER), np.zeros(2, np.int64), np.zeros(3, np.int64))
    limits = np.array([past, future, -1, 0])
    inputs, clock = np.array(inputs, np.int8), np.empty(0, np.int64)
    guarding.track(inputs, ts, known, clock, limits, False, True, state, verdict, progress, frontier)
    return verdict.tolist(), progress.tolist(), frontier.tolist()


def test_progress_and_frontier_follow_the_arrivals():
    verdict, progress, frontier = track([0, 0, 1, 1, 0], [5, 3, 2, 9, 4])
    assert verdict == [guarding.KEEP] * 5
    assert progress == [5, 5, 2, 9, 5]
    assert frontier == [NEVER, NEVER, 2, 5, 5]


def test_refused_arrivals_move_nothing():
    verdict, progress, _ = track([0, 1, 1, 0, 0], [5, 6, 1, None, 5], past=4)
    assert verdict[:2] == [guarding.KEEP, guarding.KEEP]
    assert verdict[2:] == [guarding.TOO_OLD, guarding.NO_TIME, guarding.KEEP]
    assert progress[:3] == [5, 6, 6] and progress[4] == 5


def test_a_buffer_releases_up_to_the_bound_and_waits_for_the_slowest_input():
    buffer = ReorderBuffer(2)
    codes = np.arange(6) * 8 + np.array([0, 0, 1, 0, 1, 0])
    emitted = buffer.push(
        np.array([0, 0, 1, 0, 1, 0], np.int8),
        np.array([5, 3, 4, 9, 8, 2]),
        codes,
        np.array([0, 4, 4, 9, 8, 9]),
    )
    assert emitted.ts.tolist() == [3, 4, 5, 8, 2]
    assert emitted.late.tolist() == [False, False, False, False, True]
    assert len(buffer) == 1
    rest = ReorderBuffer(2, buffer.snapshot()).drain()
    assert (rest.ts.tolist(), rest.late.tolist()) == ([9], [False])


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("output", ["rows", "counts"])
def test_the_join_kernel_agrees_with_the_reference(m, output):
    rng = random.Random(m)
    arrivals = numbered(
        (
            rng.randrange(m),
            {
                "ts": k // 2 - rng.choice([0, 0, 3, 9]),
                "k": rng.choice([0, 1, 2, None]),
                "v": rng.randrange(4),
            },
        )
        for k in range(60)
    )
    keys = " AND ".join(f"a.k = {name}.k" for name in NAMES[1:m])
    plan = plan_of(
        SCHEMA,
        m,
        window="6ms",
        where=f"{keys} AND a.v <= b.v AND b.v > 0",
        disorder=disorder_of(2),
        output=output,
    )
    got = run(plan, arrivals, [20], [40])
    expected = reference_join(
        arrivals,
        [6] * m,
        lambda r: (
            r[0]["k"] is not None
            and all(row["k"] == r[0]["k"] for row in r.values())
            and 0 < r[1]["v"] >= r[0]["v"]
        ),
        2,
    )
    assert got.join_sizes == expected.join_sizes
    assert got.cross_sizes == expected.cross_sizes
    if output == "rows":
        assert got.results == expected.results
    else:
        assert got.counts == expected.counts


@pytest.mark.skipif(INTERPRETED, reason="this is the inner run")
def test_the_interpreted_kernels_pass_the_same_tests():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
