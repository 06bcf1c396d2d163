"""The flow network of OPT-offline, kept sparse, and its solution.

SAJ 4.1.1 has a node for every tuple and every time at which the tuple could be in memory. Only the times at
which a partner arrives matter, so a tuple gets nodes there alone. A *time line* with one node per time takes
the place of the arcs from tuple to tuple: a unit of flow is a slot of memory, idle while it is on the time
line. It leaves at a tuple's arrival, goes along the tuple's *chain* of nodes, each of which is worth the
results produced there, and comes back at the node after which the tuple is dropped.

Tuples of one stream that have the same partners, as equal keys do, share a chain. If all slots given to them
always hold the newest of them, none is lost: a newer one meets whatever an older one would from then on, and
expires no earlier. So a chain's flow is how many of them to hold, and the network of an unweighted equi-join
has at most two nodes and four arcs for each tuple, whatever the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slackwater.pipelines.bench.offline.arrivals import Side
from slackwater.plugins.contract import Int64s
from slackwater.transforms.errors import SlackwaterError


class Meetings(NamedTuple):
    """Times at which the tuples of a chain meet partners; no two of the same chain and rank."""

    chain: Int64s
    rank: Int64s
    value: Int64s
    """What each tuple of the chain that is there gains."""


@dataclass(frozen=True)
class Chains:
    """The chains of one stream: members ordered by chain and arrival, nodes by chain and rank.

    Tuples of a chain must expire in the order of their arrival.
    """

    order: Int64s
    """Tuple numbers of the members."""
    entry_rank: Int64s
    entry_node: Int64s
    entry_room: Int64s
    """Arcs from the time line to the first node after an arrival, and how many tuples arrive there."""
    rank: Int64s
    value: Int64s
    end: Int64s
    """One past the newest member that a node can have."""
    alive: Int64s
    """Members that a node can have: arrived before it, not yet expired."""
    carried: Int64s
    """Members that can come from the node before; 0 for the first node of a chain."""

    @classmethod
    def of(cls, side: Side, chain: Int64s, meetings: Meetings) -> Chains:
        """Lay out the chains; a meeting without a tuple that could be there gets no node."""
        ranks = int(max(side.last.max(initial=0), meetings.rank.max(initial=0))) + 1
        order = np.lexsort((side.rank, chain))
        arrived = chain[order] * ranks + side.rank[order]
        expired = chain[order] * ranks + side.last[order]
        by = np.lexsort((meetings.rank, meetings.chain))
        node = meetings.chain[by] * ranks + meetings.rank[by]
        end = np.searchsorted(arrived, node)
        gone = np.searchsorted(expired, node)
        kept = end > gone
        by, node, end, gone = by[kept], node[kept], end[kept], gone[kept]
        carried = np.zeros(len(node), np.int64)
        carried[1:] = np.maximum(end[:-1] - gone[1:], 0)

        entry = np.searchsorted(node, arrived, side="right")
        met = entry < len(node)
        met[met] = node[entry[met]] <= expired[met]
        entries, room = np.unique(side.rank[order][met] * len(node) + entry[met], return_counts=True)
        entry_rank, entry_node = np.divmod(entries, len(node) or 1)
        return cls(
            order, entry_rank, entry_node, room, meetings.rank[by], meetings.value[by], end, end - gone, carried
        )

    def until(self, side: Side, held: Int64s) -> Int64s:
        """Return the rank until which each tuple stays, its own where it is never stored.

        ``held`` is the number of tuples at each node; they are the newest that can be there.
        """
        until = side.rank.copy()
        step = np.arange(int(held.sum())) - np.repeat(np.cumsum(held) - held, held)
        members = self.order[np.repeat(self.end - held, held) + step]
        np.maximum.at(until, members, np.repeat(self.rank, held))
        return until


def solve(chains: list[Chains], capacities: Int64s) -> list[Int64s]:
    """Return how many tuples each node holds, for each of the streams that share a memory.

    ``capacities`` has the slots from each time to the next. Where memory grows or shrinks, slots come in and
    go out as supply and demand of the time line (SAJ 6.1.1): an idle slot waits there for the next tuple, so
    an increase needs no care. Flow is whole by SAJ's Theorem 4; OR-tools' cost scaling finds it in
    O(n² m log(n C)) for n nodes, m arcs and values up to C, and in practice in little more than linear time.

    Raises:
        SlackwaterError: OR-tools is not installed, or values are too large for it.
    """
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError as error:
        raise SlackwaterError(
            "the offline optimum needs OR-tools; install it with: pip install 'slackwater[offline]'"
        ) from error

    if not any(len(own.rank) for own in chains):
        return [np.empty(0, np.int64) for _ in chains]
    times = len(capacities)
    line = np.arange(times - 1)
    room = np.full(times - 1, capacities.max(initial=0))
    arcs = [(line, line + 1, room, np.zeros(times - 1, np.int64))]
    first = times
    for own in chains:
        node = first + np.arange(len(own.rank))
        on = np.flatnonzero(own.carried)
        arcs += [
            (own.entry_rank, first + own.entry_node, own.entry_room, -own.value[own.entry_node]),
            (node[on] - 1, node[on], own.carried[on], -own.value[on]),
            (node, own.rank, own.alive, np.zeros(len(node), np.int64)),
        ]
        first += len(node)
    tails, heads, rooms, costs = (np.concatenate(parts) for parts in zip(*arcs, strict=True))
    supply = np.diff(capacities[:-1], prepend=0, append=0)

    flow = SimpleMinCostFlow()
    numbers = flow.add_arcs_with_capacity_and_unit_cost(
        tails.astype(np.int32), heads.astype(np.int32), rooms, costs
    )
    flow.set_nodes_supplies(np.arange(times, dtype=np.int32), supply)
    status = flow.solve()
    if status == flow.BAD_COST_RANGE:
        raise SlackwaterError("weight: values are too large for OR-tools to add up; scale them down")
    if status != flow.OPTIMAL:
        raise RuntimeError(f"OR-tools found no optimal flow: {status}")
    inflow = np.bincount(heads, weights=flow.flows(numbers), minlength=first).astype(np.int64)
    return np.split(inflow[times:], np.cumsum([len(own.rank) for own in chains])[:-1])
