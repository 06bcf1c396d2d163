"""Which open auction a bid goes to. Importing this module loads Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackwater.pipelines.generate.spec import Int64s
from slackwater.transforms.kernels.compiler import kernel


@kernel
def pick_auctions(
    bid_ts: Int64s, opened_before: Int64s, end: Int64s, by_end: Int64s, weight: Int64s, draw: NDArray[np.float64]
) -> Int64s:
    """Return an auction for each bid, open at its time, with chances in proportion to the weights.

    Weights of the open auctions are kept in a tree of partial sums (Fenwick's), whole numbers, so that nothing is
    lost when an auction closes; opening, closing and picking take the logarithm of the auctions.

    Args:
        bid_ts: Times of the bids, ascending.
        opened_before: For each bid, how many auctions were opened before it; ascending.
        end: For each auction, in the order of opening, when it closes; a bid at that very time is too late. One
            at least is open at every bid.
        by_end: The auctions in the order in which they close.
        weight: For each auction, at least 1.
        draw: For each bid, a number from 0 to below 1.
    """
    auctions = len(end)
    top = 1
    while top * 2 <= auctions:
        top *= 2
    tree = np.zeros(auctions + 1, np.int64)
    picked = np.empty(len(bid_ts), np.int64)
    total, opened, closed = 0, 0, 0
    for bid in range(len(bid_ts)):
        while opened < opened_before[bid]:
            total += weight[opened]
            node = opened + 1
            while node <= auctions:
                tree[node] += weight[opened]
                node += node & -node
            opened += 1
        while closed < opened and end[by_end[closed]] <= bid_ts[bid]:
            over = by_end[closed]
            total -= weight[over]
            node = over + 1
            while node <= auctions:
                tree[node] -= weight[over]
                node += node & -node
            closed += 1
        left = min(np.int64(draw[bid] * total), total - 1)
        node, step = 0, top
        while step > 0:
            if node + step <= auctions and tree[node + step] <= left:
                node += step
                left -= tree[node]
            step //= 2
        picked[bid] = node
    return picked
