"""State as a base and a log: restored exactly, written by what is new, read only by those who missed it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_cases import JOINS, N, arrivals, plan_of
from journaling import FailedBundle, MemoryStore, Worker, part_of, rows_of

from slackwater.plugins.clock import clock_at, now_nanos
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.errors import StateError
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.rows import ipc
from slackwater.transforms.state.log import rows_given

bundles = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.integers(1, 3),
        st.sampled_from(["works", "works", "fails", "fails and loses", "loses"]),
        st.integers(0, 2),
        st.sampled_from([None, None, None, [0], [0, 1]]),
    ),
    min_size=6,
    max_size=20,
)
"""Rows of a bundle, pieces they come in, what happens to it, who works on it, and which inputs are idle then."""


@pytest.mark.parametrize("name", [*JOINS, "aggregate"])
@settings(max_examples=4, deadline=None)
@given(bundles=bundles, seed=st.integers(0, 99), skips=st.booleans())
def test_bundles_that_fail_and_workers_that_forget_change_nothing(name, bundles, seed, skips) -> None:
    plan = plan_of(name)
    whole = arrivals(plan, seed)
    store = MemoryStore(skips)
    workers = [Worker(plan, least_log=20_000) for _ in range(3)]
    undisturbed = open_operator(plan)
    expected, found, start = [], [], 0
    for rows, pieces, fate, who, idle in bundles:
        stop = min(N, start + rows)
        cuts = np.linspace(start, stop, pieces + 1).astype(int).tolist()
        given: list[Any] = [part_of(whole, a, b) for a, b in pairwise(cuts) if b > a]
        if idle is not None:
            given.append([i for i in idle if i < len(plan.members)])
        with clock_at(start * 5_000_000):
            if fate.startswith("fails"):
                with store.bundle():
                    for part in given:
                        workers[who].give(store, part)
                    raise FailedBundle
            if fate.endswith("loses"):
                workers[who].forget()
            for part in given:
                found.append(workers[(who + (fate != "works")) % 3].give(store, part)[0])
            for part in given:
                expected.append(undisturbed.push(part) if isinstance(part, Chunk) else undisturbed.idle(part))
        start = stop
    found.append(workers[0].end(store))
    expected.append(undisturbed.finish())
    undisturbed.close()
    assert rows_of(found) == rows_of(expected)
    assert store.content.summary is None and not store.content.log


@pytest.mark.parametrize("window", ["5s", "1m", "10m"])
def test_what_is_written_is_proportional_to_the_rows_whatever_the_window(window: str) -> None:
    plan = plan_of("fixed", window=window)
    whole = arrivals(plan, 1, 60_000, keys=50_000, step=10)
    store, worker = MemoryStore(), Worker(plan, least_log=100_000)
    written = rows = largest = 0
    for start in range(0, 60_000, 500):
        part = part_of(whole, start, start + 500)
        _, opened = worker.give(store, part)
        written += opened.written_bytes
        rows += sum(len(ipc.to_bytes(batch)) for batch in part.batches)
        largest = max(largest, opened.stored_bytes)
    assert written < 4 * rows
    assert largest < written


def test_a_worker_that_holds_the_shard_reads_the_summary_and_nothing_else() -> None:
    plan = plan_of("fixed", window="1m")
    whole = arrivals(plan, 2, 10_000, step=2)
    store, worker = MemoryStore(), Worker(plan, least_log=100_000)
    for start in range(0, 10_000, 200):
        _, opened = worker.give(store, part_of(whole, start, start + 200))
        assert opened.read_bytes <= 500
    assert opened.read_bytes < 0.05 * opened.stored_bytes
    assert opened.stored_bytes > 100_000


def test_a_worker_that_is_behind_reads_what_it_missed() -> None:
    plan = plan_of("fixed")
    whole = arrivals(plan, 3)
    store, one, other = MemoryStore(), Worker(plan), Worker(plan)
    one.give(store, part_of(whole, 0, 200))
    missed = part_of(whole, 200, 210)
    other.give(store, missed)
    _, opened = one.give(store, part_of(whole, 210, 220))
    assert opened.read_bytes < len(rows_given(missed, 0)) + 600
    assert opened.read_bytes < 0.5 * opened.stored_bytes


def test_what_cannot_be_given_again_is_written_as_a_base() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan)
    worker.give(store, part_of(arrivals(plan, 4), 0, 50))
    assert store.content.log and not store.content.base
    with worker._journal.open("shard", store) as opened:
        opened.shard.push(part_of(arrivals(plan, 4), 50, 60))
        opened.log(None)
    assert not store.content.log
    with Worker(plan)._journal.open("shard", store) as opened:
        assert opened.shard.accounting.received.sum() == 60


def test_notes_are_kept_beside_the_shard() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan)
    with worker._journal.open("shard", store) as opened:
        assert opened.is_new and opened.notes == {}
        opened.notes["next"] = 7
    with Worker(plan)._journal.open("shard", store) as opened:
        assert opened.notes == {"next": 7}
    assert not store.content.log, "nothing was given"


def test_an_error_leaves_the_state_as_it_was() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan)
    worker.give(store, part_of(arrivals(plan, 5), 0, 50))
    before = store.content.summary
    with pytest.raises(ZeroDivisionError), worker._journal.open("shard", store) as opened:
        opened.shard.push(part_of(arrivals(plan, 5), 50, 60))
        opened.log(b"")
        raise ZeroDivisionError
    assert store.content.summary == before
    assert len(worker.shards) == 0


def test_a_process_holds_a_few_shards_and_those_used_last() -> None:
    plan = plan_of("fixed")
    worker = Worker(plan, most=2)
    stores = {key: MemoryStore() for key in "abc"}
    part = part_of(arrivals(plan, 6), 0, 20)
    for key in "abac":
        worker.give(stores[key], part, key)
    assert len(worker.shards) == 2
    assert worker.give(stores["a"], part, "a")[1].read_bytes < 600
    assert worker.give(stores["b"], part, "b")[1].read_bytes > 600


def test_a_log_with_a_gap_is_refused() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan)
    for start in range(0, 60, 20):
        worker.give(store, part_of(arrivals(plan, 7), start, start + 20))
    del store.content.log[1]
    fault = (
        "the stored state has 2 entries since number 0, and should have those that lead to 3: some are missing"
    )
    with pytest.raises(StateError, match=fault):
        Worker(plan).give(store, part_of(arrivals(plan, 7), 60, 80), "lost")


@pytest.mark.parametrize("least_log", [1 << 20, 0])
def test_what_several_attempts_at_a_step_have_left_goes_together(least_log: int) -> None:
    """After a kill, Spark may load what a first attempt has uploaded, and put changes after the second on it."""
    plan, whole = plan_of("fixed"), arrivals(plan_of("fixed"), 7)
    parts = [part_of(whole, start, start + 60) for start in range(0, 300, 60)]
    undisturbed, first, second = (MemoryStore() for _ in range(3))
    expected = [Worker(plan, least_log).give(undisturbed, part)[0] for part in parts]
    for store in (first, second):
        for part in parts[:2]:
            Worker(plan, least_log).give(store, part)
    uploaded = first.content
    Worker(plan, 1 << 20).give(second, parts[2])
    changes = {entry for entry in second.content.log if entry[0] == 3}
    first.content = replace(uploaded, summary=second.content.summary, log=[*uploaded.log, *changes])
    found = [Worker(plan).give(first, part)[0] for part in parts[3:]]
    assert rows_of(found) == rows_of(expected[3:])


def test_parts_of_two_states_are_not_mixed() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan, least_log=4_000)
    bases: dict[bytes, bytes] = {}
    for start in range(0, 280, 20):
        worker.give(store, part_of(arrivals(plan, 8), start, start + 20))
        bases.setdefault(store.content.base, store.content.log[-1][1])
    now, part = store.content, part_of(arrivals(plan, 8), 280, 300)
    _, old, new = bases
    assert new == now.base
    fault = (
        r"the base of the stored state is number \d+ and should be \d+: parts are mixed up; go on from an intact"
    )
    for wrong in (replace(now, base=old), replace(now, base=bases[new])):
        store.content = wrong
        with pytest.raises(StateError, match=fault):
            Worker(plan).give(store, part)


def test_a_journal_of_which_a_part_is_damaged_is_refused() -> None:
    plan = plan_of("fixed")
    store, worker = MemoryStore(), Worker(plan, least_log=4_000)
    for start in range(0, 100, 20):
        worker.give(store, part_of(arrivals(plan, 8), start, start + 20))
    now, part = store.content, part_of(arrivals(plan, 8), 100, 120)
    number, entry = now.log[-1]
    for wrong, what in (
        (replace(now, base=now.base[:-9] + b"?" + now.base[-8:]), "the base of the stored state"),
        (replace(now, log=[*now.log[:-1], (number, b"?" + entry[1:])]), "an entry of the stored state"),
        (replace(now, summary=b""), "the summary of the stored state"),
    ):
        store.content = wrong
        with pytest.raises(StateError, match=f"{what} is damaged: .+; go on from an intact copy, or start anew"):
            Worker(plan).give(store, part)


def test_the_time_of_day_can_be_set_back() -> None:
    with clock_at(5):
        assert now_nanos() == 5
    assert now_nanos() > 1_700_000_000_000_000_000
