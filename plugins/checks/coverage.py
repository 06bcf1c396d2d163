"""Which checks cover what the contract declares, member by member; a test holds it complete.

A capability that is added to a base class needs a line here and one in ``docs/plugins.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BOUNDS: Final = ("check_bounds_shape_and_dtype", "check_chunking_does_not_change_bounds")
_TYPES: Final = ("check_declarations_have_their_types",)

COVERAGE: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "DisorderLogic": {
        "adapt": ("check_bounds_are_deterministic", "check_chunking_does_not_change_bounds"),
        "bounds": _BOUNDS,
        "bounds_at": _BOUNDS,
        "held_cells": ("check_disorder_logic_keeps_to_the_contract",),
        "interval": ("check_disorder_logic_keeps_to_the_contract",),
        "needs_cells": ("check_bounds_shape_and_dtype",),
        "report": ("check_chunking_does_not_change_bounds",),
        "slacks": ("check_bounds_shape_and_dtype",),
        "snapshot": ("check_disorder_snapshot_resumes_identically", "check_disorder_snapshot_changes_nothing"),
    },
    "JoinLogic": {
        "bytes_for": ("check_bytes_for_is_enough",),
        "directory": ("check_the_disk_changes_no_result",),
        "evict": ("check_held_and_evict",),
        "finish": ("check_the_disk_changes_no_result",),
        "fit": ("check_bytes_for_is_enough",),
        "held": ("check_held_and_evict",),
        "held_cells": ("check_punctuated_logic_keeps_to_the_contract",),
        "judges": ("check_tuples_that_contradict_are_told",),
        "keeps_limit": ("check_a_limit_is_kept_tuple_by_tuple",),
        "lifetimes": ("check_lifetimes_are_rows_that_tuples_stay",),
        "limited_step": (
            "check_a_limit_that_is_never_reached_changes_no_result",
            "check_a_limit_is_kept_tuple_by_tuple",
        ),
        "live": ("check_held_and_evict",),
        "nbytes": ("check_bytes_for_is_enough",),
        "owes": ("check_the_disk_changes_no_result",),
        "punctuated_step": (
            "check_punctuations_change_no_result",
            "check_finished_values_are_in_no_later_result",
        ),
        "reorders": ("check_join_matches_brute_force",),
        "snapshot": ("check_join_snapshot_resumes_identically", "check_punctuated_snapshot_resumes_identically"),
        "spilled": ("check_the_disk_changes_no_result",),
        "step": ("check_join_matches_brute_force",),
        "use_disk": ("check_the_disk_changes_no_result",),
        "uses_disk": ("check_the_disk_changes_no_result",),
        "uses_punctuations": ("check_punctuations_change_no_result",),
    },
    "SheddingLogic": {
        "allocation": ("check_shedding_logic_keeps_to_the_contract",),
        "bytes_after": ("check_shedding_logic_keeps_to_the_contract",),
        "decays": ("check_shedding_logic_keeps_to_the_contract",),
        "memory": ("check_shedding_logic_keeps_to_the_contract",),
        "nbytes": ("check_shedding_logic_keeps_to_the_contract", "check_shedding_state_is_bounded"),
        "observe": ("check_scores_are_finite_numbers", "check_chunking_does_not_change_scores"),
        "renewal": ("check_shedding_logic_keeps_to_the_contract",),
        "scores": ("check_scores_are_of_each_tuple", "check_scores_are_finite_numbers"),
        "scores_are_chances": ("check_scores_are_finite_numbers",),
        "snapshot": ("check_shedding_snapshot_resumes_identically", "check_shedding_snapshot_changes_nothing"),
    },
    "DisorderStrategy": {
        "build": ("check_disorder_logic_keeps_to_the_contract",),
        "clock_nanos": _TYPES,
        "has_target": _TYPES,
        "learns_from_results": _TYPES,
        "longest_wait": _TYPES,
        "may_change": _TYPES,
        "models_windows": _TYPES,
        "needs_feedback": _TYPES,
        "reads_clock": _TYPES,
        "shares": _TYPES,
        "stage": ("check_has_name_and_purpose",),
        "stated_buffer": _TYPES,
        "stated_interval": _TYPES,
        "stated_late_share": _TYPES,
        "stated_period": _TYPES,
        "stated_recall": _TYPES,
        "system_clock": ("check_bounds_are_not_ahead",),
        "watermark_columns": _TYPES,
    },
    "JoinStrategy": {
        "build": ("check_join_logic_keeps_to_the_contract",),
        "check": ("check_join_logic_keeps_to_the_contract",),
        "keeps_all": _TYPES,
        "knows_bytes": (*_TYPES, "check_bytes_for_is_enough"),
        "needs_window": _TYPES,
        "stage": ("check_has_name_and_purpose",),
        "takes_rows": (*_TYPES, "check_lifetimes_are_rows_that_tuples_stay"),
        "takes_window": _TYPES,
    },
    "SheddingStrategy": {
        "build": ("check_shedding_logic_keeps_to_the_contract",),
        "needs_partners": _TYPES,
        "sheds": _TYPES,
        "stage": ("check_has_name_and_purpose",),
        "stated_frequencies": _TYPES,
        "stated_memory": _TYPES,
        "stated_queue": _TYPES,
        "stated_weight": _TYPES,
    },
}
"""Class, member, names of checks."""
