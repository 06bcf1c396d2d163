"""What any strategy can reach that does not know what will arrive: a ceiling below OPT-offline.

OPT keeps a tuple because its partner *will* come. Whoever must decide before that is bound by chances, however
well it knows them. Let both streams bring one tuple per time unit, each drawn by itself with fixed chances, and
let r arrive. It is independent of all that memory holds, so if that has x(v) tuples of s with value v, p(v) x(v)
results are to be expected of each value, where p are the chances of r. No strategy holds more tuples of a value
than are in the window, n(v), nor more than fit. So it finds no more on average than

    E[ max sum_v p(v) x(v)  subject to  0 <= x(v) <= n(v),  sum_v x(v) <= M ],

and the maximum takes the values in order of their chances until memory is full. The k likeliest values have
S(k) tuples in the window, a binomial number, hence the expectation is the sum over k of
(p(k) - p(k + 1)) E[min(S(k), M)], exactly. It cannot be reached in full: a tuple that has left for lack of memory
is not there when others of higher chance have expired.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.plugins.contract import Float64s


def ceiling_without_foresight(
    r: ArrayLike, s: ArrayLike, *, window: int, memory: int, allocation: Literal["fixed", "variable"] = "fixed"
) -> float:
    """Return the share of EXACT's results that no strategy without foresight exceeds on average, once windows are
    full.

    Arrivals that are simultaneous always join, as in ``optimum``; a join that handles one after the other, or
    lets one that waits take memory, does no better.

    Args:
        r: Chances, or frequencies, of the values of R; they are scaled to add up to 1.
        s: Those of S, of the same values.
        window: Time units that a tuple can have partners, its own included: SAJ's window.
        memory: Tuples that can be stored.
        allocation: ``fixed``, each stream has half of the memory, or ``variable``, tuples of both compete.
    """
    p_r, p_s = (np.asarray(given, np.float64) / np.sum(given) for given in (r, s))
    older, alike = window - 1, float(p_r @ p_s)
    if alike == 0.0:
        return 1.0
    none = np.zeros_like(p_r)
    if allocation == "variable":
        found = _found(np.append(p_s, p_r), np.append(p_r, none), np.append(none, p_s), older, memory)
    else:
        halves = (memory // 2, memory - memory // 2)
        held = ((p_s, p_r, halves[0]), (p_r, p_s, halves[1]))
        found = sum(_found(worth, chance, none, older, room) for worth, chance, room in held)
    return (alike + found) / ((2 * older + 1) * alike)


def _found(worth: Float64s, r: Float64s, s: Float64s, n: int, memory: int) -> float:
    """Return what is found in a memory that has the tuples of most worth of the last ``n`` of R and of S.

    Tuples of kind k are worth ``worth[k]`` each; an arrival of R, or S, is one with chance ``r[k]``, or ``s[k]``.
    """
    order = np.argsort(-worth, kind="stable")
    steps = -np.diff(worth[order], append=0.0)
    reached = zip(np.cumsum(r[order]), np.cumsum(s[order]), strict=True)
    held = np.minimum(np.arange(2 * n + 1), memory)
    kept = [float(np.convolve(_binomial(n, of_r), _binomial(n, of_s)) @ held) for of_r, of_s in reached]
    return float(steps @ kept)


def _binomial(n: int, chance: float) -> NDArray[Any]:
    """Return how likely each number of successes in ``n`` trials is."""
    if not 1e-12 < chance < 1 - 1e-12:
        return np.eye(1, n + 1, n if chance > 0.5 else 0)[0]
    factorial = np.append(0.0, np.cumsum(np.log(np.arange(1, n + 1))))
    k = np.arange(n + 1)
    ways = factorial[n] - factorial - factorial[::-1]
    return np.exp(ways + k * np.log(chance) + (n - k) * np.log1p(-chance))
