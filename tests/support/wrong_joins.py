"""Joins that are wrong in one way each, for every check of joins (``wrong_strategies``)."""

import numpy as np
from wrong_frame import Wrong

from slackwater.plugins.contract import Matches, Punctuations
from slackwater.plugins.join.overflow.xjoin import XJoin
from slackwater.plugins.join.punctuated.pwjoin import PunctuatedWindowJoin
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy


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


def another_partner(run, released):
    return run._replace(rows=run.rows + 1)


def nothing_first(self, released):
    none = np.empty(0, np.int64)
    yield Matches(0, 0, np.empty((0, len(self.setting.inputs)), np.int64), none, none, np.empty(0))
    yield from self.logic.step(released)


def evicts_others(self, victims):
    self.logic.evict(np.roll(victims, 1))


def drops_the_windows(self):
    kept = self.logic.snapshot()
    self.logic.evict(np.ones(self.logic.live(), np.bool_))
    return kept


def by_the_dice(run, released):
    order = np.lexsort((np.random.rand(len(run.probe)), run.probe))
    return run._replace(rows=run.rows[order])


def by_hash(run, released):
    words = [hash(str(row)) for row in run.rows.tolist()]
    return run._replace(rows=run.rows[np.lexsort((words, run.probe))])


def keeps_chunks(self, released):
    self.__dict__.setdefault("chunks", []).append(released.ts.copy())
    return self.logic.step(released)


def finds_nothing(self, released, keep):
    for run in self.logic.limited_step(released, keep):
        yield run._replace(rows=run.rows[:0], probe=run.probe[:0], join_size=run.join_size * 0)


def keeps_more(self, released, keep):
    return self.logic.limited_step(released, keep._replace(limit=keep.limit + 5))


def keeps_all_of_late_ones(self, released, keep):
    for run in self.logic.limited_step(released, keep):
        yield run._replace(evicted=None)


def forgets_the_disk(self):
    return ()


JOIN = {
    "check_a_limit_that_is_never_reached_changes_no_result": [
        (wrong_join("x", limited_step=finds_nothing), "with room for all, tuple "),
    ],
    "check_a_limit_is_kept_tuple_by_tuple": [
        (wrong_join("x", limited_step=keeps_more), "limited_step wrote Keep.live that is not within 0 and"),
        (wrong_join("x", limited_step=keeps_all_of_late_ones), "with room for 12: nothing was evicted"),
    ],
    "check_bytes_for_is_enough": [
        (wrong_join("x", bytes_for=lambda self, tuples, heaps: 10), ", and bytes_for said 10"),
    ],
    "check_lifetimes_are_rows_that_tuples_stay": [
        (wrong_join("x", lifetimes=lambda self: self.logic.lifetimes() + 1), ": lifetimes differ in "),
    ],
    "check_the_disk_changes_no_result": [
        (Wrong(XJoin(memory=10), "x", finish=forgets_the_disk), ", with a disk that "),
    ],
    "check_punctuated_logic_keeps_to_the_contract": [
        (wrong_punctuated("x", lacks="held_cells"), "the logic lacks held_cells"),
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
        (wrong_join("x", lacks="evict"), "build returned WrongLogic, which lacks evict"),
    ],
    "check_join_matches_brute_force": [
        (wrong_join("x", step=changed(lose_a_row)), "Matches.rows and a Matches.join_size of"),
        (wrong_join("x", step=changed(another_partner)), "results: Counter("),
        (wrong_join("x", step=changed(no_cross)), "join size and cross size: (0, 0.0)"),
        (wrong_join("x", step=last_left_out), "step yielded runs that cover 119 of 120 tuples, must cover all"),
        (wrong_join("x", step=changed(lambda r, _: r._replace(start=1))), "must go on at 0: runs cover all of"),
        (wrong_join("x", step=nothing_first), "a run from 0 to 0 covers nothing"),
        (
            wrong_join("x", step=changed(lambda r, _: r._replace(probe=r.probe[1:]))),
            "Matches.rows as an array",
        ),
        (wrong_join("x", step=changed(lambda r, _: r._replace(probe=r.probe[::-1]))), "Matches.probe that falls"),
        (
            wrong_join("x", step=changed(lambda r, _: r._replace(cross_size=r.cross_size[1:]))),
            "Matches.cross_size as an array of shape (119,), must be (120,)",
        ),
    ],
    "check_counts_match_rows": [
        (wrong_join("x", step=changed(always_rows)), "Matches.rows, must be none: only counts are wanted"),
        (wrong_join("x", step=changed(count_one_more)), "join size and cross size: (1, "),
    ],
    "check_chunking_does_not_change_results": [(wrong_join("x", step=from_scratch), ", by 1, tuple ")],
    "check_held_and_evict": [
        (
            wrong_join("x", held=lambda self: type(h := self.logic.held())(*(a[1:] for a in h))),
            "held returned Held.input as an array of shape ",
        ),
        (
            wrong_join("x", held=lambda self: self.logic.held()._replace(ts=self.logic.held().seq)),
            "Held.ts",
        ),
        (wrong_join("x", live=lambda self: 0), "held returned Held.input as an array of shape "),
        (wrong_join("x", evict=lambda self, victims: None), "evict left "),
        (wrong_join("x", evict=evicts_others), "results after evict: "),
    ],
    "check_join_snapshot_resumes_identically": [
        (wrong_join("x", snapshot=lambda self: {}), "after a restart, where a.k = b.k, tuple "),
    ],
    "check_join_snapshot_changes_nothing": [
        (wrong_join("x", snapshot=drops_the_windows), ", after snapshots, tuple "),
    ],
    "check_results_are_deterministic": [
        (wrong_join("x", step=changed(by_the_dice)), "results of a run with other clocks and dice"),
    ],
    "check_results_are_the_same_elsewhere": [
        (wrong_join("x", step=changed(by_hash)), "results in another process"),
    ],
    "check_join_state_is_bounded": [
        (wrong_join("x", step=keeps_chunks), "memory grows with the stream: by "),
    ],
}
