"""Faults inside a shard, told with the rows at which they came up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.errors import ShardError, SlackwaterError, unexpected
from slackwater.transforms.settings.plan import Plan


@contextmanager
def naming_rows(plan: Plan, shard: int, chunk: Chunk | None = None) -> Iterator[None]:
    """Turn any error into a ShardError that names the shard and, by arrival number, the rows it was given.

    Args:
        plan: what the shard does.
        shard: its number.
        chunk: the rows; None where it was given none.
    """
    try:
        yield
    except ShardError:
        raise
    except Exception as error:
        cause = str(error) if isinstance(error, SlackwaterError) else unexpected(error)
        raise ShardError(f"shard {shard}{'' if chunk is None else _rows(plan, chunk)}: {cause}") from error


def _rows(plan: Plan, chunk: Chunk) -> str:
    found = ""
    for i, name in enumerate(plan.inputs):
        arrival = chunk.arrival[chunk.input == i]
        if arrival.size:
            found += f", input {name!r} arrivals {arrival.min()} to {arrival.max()}"
    return found
