"""The verdict on a run: what was asked for, what it reached, and what to do if that is less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from slackwater.plugins.disorder.budget import NEARLY
from slackwater.plugins.registry.builtin import DISORDER
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import Plan, SheddingPlan
from slackwater.transforms.settings.time_unit import NANOS

_NEARLY_ALL: Final = 0.9
_MANY_HELD: Final = 10_000
"""Rows that wait for another input are worth a warning from here on,"""
_FEW: Final = 100
"""if that brings a row to this many of the others."""


def verdict(plan: Plan, account: Accounting, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked for and reached, as keys of the summary; ``numbers`` are the others."""
    found: dict[str, Any] = {}
    asked = plan.disorder.stated_recall
    if asked is not None:
        waited = account.waited
        found["recall"] = {
            "asked": asked,
            "reached": numbers["recall_estimate"],
            "low": None,
            "high": None,
            "periods_met": waited.periods_met if waited.periods else None,
            "periods": waited.periods,
            "capped_by": list(_caps(plan, account, numbers)),
        }
    ratio = plan.disorder.stated_late_share
    if ratio is not None:
        rows, late = int(account.received.sum()), numbers["late"].get("too_late", 0)
        found["drop_ratio"] = {"asked": ratio, "reached": late / rows if rows else None}
    return found


def verdict_warnings(name: str, plan: Plan, account: Accounting, numbers: Mapping[str, Any]) -> Iterator[str]:
    """Say where less was reached than asked, who held the join back, and whose clock was wrong."""
    yield from _missed_recall(name, plan, account, numbers)
    yield from _exceeded_ratio(name, plan, numbers)
    yield from _held_back(name, plan, account)
    for i, label in enumerate(plan.inputs):
        rows = account.late[i, "future_time"]
        if rows:
            yield (
                f"{name}: {rows:,} row{'s' * (rows > 1)} of input {label!r} had a time far ahead of all others "
                f"and went to the late output as future_time; if {'they are' if rows > 1 else 'it is'} right, "
                "set guard: {future: none}"
            )


def _caps(plan: Plan, account: Accounting, numbers: Mapping[str, Any]) -> Iterator[str]:
    """Name what kept rows from waiting longer."""
    horizon = plan.disorder.longest_wait
    if horizon is not None and account.slack and max(account.slack) * NANOS[plan.unit] >= 0.98 * horizon:
        yield "horizon"
    if isinstance(plan, SheddingPlan) and plan.shedding.stated_memory is not None:
        waited = numbers["latency_ms"]["p50"]
        if numbers["missed"].get("shed") or (waited is not None and cut_short(numbers)):
            yield "memory"
    if account.waited.idled and numbers["late"].get("too_late"):
        yield "idle"


def cut_short(numbers: Mapping[str, Any]) -> bool:
    """Whether rows waited for less than their slack."""
    waited, slack = numbers["latency_ms"]["p50"], numbers["slack_ms"]["p50"]
    return bool(waited is not None and waited < _NEARLY_ALL * slack)


def _missed_recall(name: str, plan: Plan, account: Accounting, numbers: Mapping[str, Any]) -> Iterator[str]:
    found = verdict(plan, account, numbers).get("recall")
    if found is None or found["reached"] is None or found["reached"] >= NEARLY * found["asked"]:
        return
    missed = numbers["missed"]
    lost = (missed.get("late") or 0) + (missed.get("shed") or 0)
    said = (
        f"{name}: recall {found['reached']:.4f} instead of {found['asked']:g}: about {lost:,} results were missed"
    )
    if "horizon" in found["capped_by"]:
        said += (
            f"; rows wait for {plan.disorder.longest_wait} at most, the horizon of {plan.disorder.name}: set "
            f"a larger one in disorder: {{horizon: …}}, or use the strategy {DISORDER}"
        )
    elif "idle" in found["capped_by"]:
        said += "; inputs were idle and came back with older rows: set a longer idle_timeout"
    elif "memory" in found["capped_by"]:
        said += "; more memory in shedding would let rows wait longer"
    else:
        said += f"; delays grew beyond what had been seen: ask for more, or use the strategy {DISORDER}"
    yield said


def _exceeded_ratio(name: str, plan: Plan, numbers: Mapping[str, Any]) -> Iterator[str]:
    asked = plan.disorder.stated_late_share
    rows, late = sum(numbers["input"].values()), numbers["late"].get("too_late", 0)
    if asked is None or not rows or late <= asked * rows:
        return
    if plan.disorder.stated_buffer is not None:
        remedy = "a larger buffer_limit, or a smaller drop_ratio, lets rows wait longer"
    else:
        remedy = "latencies are not normal, as the strategy takes them to be: state a recall instead, or use "
        remedy += DISORDER
    yield f"{name}: {late / rows:.2%} of the rows came too late instead of {asked:.2%}; {remedy}"


def _held_back(name: str, plan: Plan, account: Accounting) -> Iterator[str]:
    """Name the input that nearly all rows waited for."""
    waited = account.waited
    others = int(account.received.sum())
    if waited.behind < 0 or waited.held < _MANY_HELD or len(plan.members) < 2:
        return
    own = int(account.received[waited.behind])
    if 0 < own * _FEW <= others and 2 * waited.held >= others:
        yield (
            f"{name}: {waited.held:,} rows had to wait for input {plan.inputs[waited.behind]!r}, which brought "
            f"{own:,} rows; in live runs set idle_timeout, in replays shedding: {{memory: …}} bounds what waits"
        )
