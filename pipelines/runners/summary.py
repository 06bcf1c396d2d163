"""The summary of a run: the same keys on every runner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slackwater.pipelines.runners.verdict import verdict, verdict_warnings
from slackwater.plugins.disorder.budget import LEAST_LEFT, NEARLY
from slackwater.plugins.registry.options import Memory, MemoryLimit
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import Plan, SheddingPlan
from slackwater.transforms.settings.time_unit import NANOS


def summarise(
    runner: str,
    joins: Mapping[str, tuple[Plan, Accounting]],
    elapsed_s: float,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the summary; of several joins the sums, with each join's own under ``joins``."""
    each = {name: _numbers(plan, account) for name, (plan, account) in joins.items()}
    rows = sum(sum(part["input"].values()) for part in each.values())
    if len(each) == 1:
        (body,) = each.values()
    else:
        late: Counter[str] = Counter()
        for part in each.values():
            late.update(part["late"])
        body = {
            **_least_recall(each),
            "input": {f"{n}.{i}": rows for n, part in each.items() for i, rows in part["input"].items()},
            "results": sum(part["results"] for part in each.values()),
            "late": dict(sorted(late.items())),
            "punctuations": {
                way: sum(part["punctuations"][way] for part in each.values()) for way in ("in", "out")
            },
            "slack_ms": max((p["slack_ms"] for p in each.values()), key=lambda s: s["max"], default={}),
            "recall_estimate": min(
                (p["recall_estimate"] for p in each.values() if p["recall_estimate"] is not None),
                default=None,
            ),
            "missed": {
                way: sum(part.get("missed", {}).get(way) or 0 for part in each.values())
                for way in ("late", "shed")
            },
            "queue": {
                **{key: sum(part["queue"][key] for part in each.values()) for key in ("max_rows", "shed")},
                "wait_ms": max(
                    (part["queue"]["wait_ms"] for part in each.values()), key=lambda w: w["max"], default={}
                ),
            },
            "state": {
                **{
                    key: sum(part["state"][key] for part in each.values())
                    for key in ("max_tuples", "max_bytes", "spilled_tuples", "spilled_bytes")
                },
                "max_shard_bytes": max((part["state"]["max_shard_bytes"] for part in each.values()), default=0),
            },
            "joins": each,
        }
    return {
        "runner": runner,
        **body,
        "elapsed_s": round(elapsed_s, 6),
        "rows_per_s": round(rows / elapsed_s, 1) if elapsed_s > 0 else 0.0,
        "warnings": [
            *warnings,
            *(w for name, (plan, account) in joins.items() for w in _lacking(name, plan, account)),
            *(w for name, (plan, account) in joins.items() for w in _below(name, plan, account, each[name])),
        ],
    }


def _least_recall(each: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the recall of the join that is furthest below what it was asked for, with its name."""
    recalls = {name: part["recall"] for name, part in each.items() if "recall" in part}
    known = {name: recall for name, recall in recalls.items() if recall["reached"] is not None} or recalls
    if not known:
        return {}
    name = min(known, key=lambda name: (known[name]["reached"] or 0) / known[name]["asked"])
    return {"recall": {"join": name, **known[name]}}


def _numbers(plan: Plan, account: Accounting) -> dict[str, Any]:
    """Return the summary of one join, the verdict first."""
    numbers = account.summary(NANOS[plan.unit])
    return {**verdict(plan, account, numbers), **numbers}


def _below(name: str, plan: Plan, account: Accounting, numbers: Mapping[str, Any]) -> Iterator[str]:
    """Say what was not reached; of a recall once, for its main reason."""
    short = list(_short_of_memory(name, plan, account))
    yield from short
    for warning in verdict_warnings(name, plan, account, numbers):
        if not (short and warning.startswith(f"{name}: recall ")):
            yield warning


def _lacking(name: str, plan: Plan, account: Accounting) -> Iterator[str]:
    """Inputs that gave the join nothing to work with: most likely a mistake."""
    for i, label in enumerate(plan.inputs):
        rows = int(account.received[i])
        if rows == 0 and label in plan.without_rows:
            yield f"{name}: {plan.without_rows[label]}"
        elif rows == 0 and i < len(plan.members):
            yield f"{name}: input {label!r} has no rows, so nothing can be joined; check its path and filters"
        elif rows and account.late[i, "bad_record"] == rows:
            yield (
                f"{name}: no row of input {label!r} has a time in column {plan.time_columns[i]!r} that can be "
                "read; all are in the late output as bad_record. Check the setting time"
            )


def _short_of_memory(name: str, plan: Plan, account: Accounting) -> Iterator[str]:
    """Say so if a recall target was not met for lack of memory, and how much it would take.

    Shedding may then lose what disorder has left of the target, or half of what may be lost if that is more.
    """
    recall = plan.disorder.stated_recall
    memory = plan.shedding.stated_memory if isinstance(plan, SheddingPlan) else None
    got, missed = account.recall_estimate(), account.missed_results()
    if recall is None or memory is None or got is None or not missed["shed"]:
        return
    true, may_miss = account.results + sum(missed.values()), 1 - recall
    share = missed["shed"] / true
    if share > may_miss or (got < NEARLY * recall and share > LEAST_LEFT * may_miss):
        times = account.memory_for(max(may_miss * true - missed["late"], may_miss * true / 2))
        if times == 1.0:
            if missed["shed"] > account.shed:
                yield (
                    f"{name}: recall {got:.3f} instead of {recall:g}, as the queue in front of the join shed "
                    "rows; let more rows wait in shedding.queue, or use more shards"
                )
            return
        enough = (
            f"about {_size(memory, times)} would do" if times < float("inf") else "it would take many times that"
        )
        yield (
            f"{name}: recall {got:.3f} instead of {recall:g}, as shedding cost {share:.1%} of the results: "
            f"memory of {_size(memory)} is too small; {enough}"
        )


def _size(memory: int | Memory | MemoryLimit, times: float = 1.0) -> str:
    """Return a multiple of a memory in the unit in which it was given, rounded up to two digits."""
    if isinstance(memory, MemoryLimit) and len(memory.steps) > 1:
        return str(memory) if times == 1.0 else f"{math.ceil(10 * times) / 10:g} times that"
    of = memory.steps[0][1] if isinstance(memory, MemoryLimit) else Memory.parse(memory)
    amount = of.amount
    if times != 1.0:
        amount = math.ceil(amount * times)
        unit = 10 ** max(0, len(str(amount)) - 2)
        amount = -(-amount // unit) * unit
    return str(Memory(amount, True)) if of.in_bytes else f"{amount:,} tuples"
