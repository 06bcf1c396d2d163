"""Options of the queue in front of a join."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from slackwater.plugins.registry.field_docs import Documented


class Queue(Documented):
    """A bounded queue in front of the join: rows that come while it is busy wait (SAJ 2.3, slow CPU)."""

    rows: int = Field(ge=1, le=10_000_000)
    """rows of a shard that may wait; when there is one too many, the one that is worth least is shed"""
    mode: Literal["integrated", "modular"] = "integrated"
    """what a waiting row is worth. integrated: the partners that the join holds for it and those it may expect
    while it is held; modular: those held only, as a histogram tells. Not used by random"""
    service_rate: float | None = Field(default=None, ge=0.01, le=1e9)
    """rows that a shard can join per second of the arrival column; default: as measured, on live inputs only"""
    arrival_unit: Literal["s", "ms", "us", "ns"] | None = None
    """unit of an arrival column of integers; default: the unit of the event times"""
    refresh: int = Field(default=10_000, ge=1)
    """arrivals from one look at what the join holds to the next; more where it holds much"""
