"""The recall that a slack is expected to give, and the smallest slack that is expected to give enough.

QDDH Eqs. (2)-(6) and Alg. 3. Delays and slacks are counted in steps of g, as *coarse delays*: 0 for none, d for
delays in ((d - 1) g, d g]. Times may be in any unit, the same for windows, g and b.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel


class DelayModel(NamedTuple):
    """Delays of every input as seen by the join, and its windows."""

    bins: Any
    """Coarse delays that occur, ascending: input i has ``bins[first[i] : first[i + 1]]``."""
    below: Any
    """Tuples of the input in all bins before this one; one entry more per input, its number of tuples, so
    that input i starts at ``first[i] + i``."""
    mass: Any
    """The same with each tuple weighted by its coarse delay."""
    first: Any
    shift: Any
    """What the Synchronizer holds back for each input, in steps of g."""
    windows: Any
    """Window of each input; none is 0."""
    step: int
    """g."""
    basic: int
    """b, the length of a basic window."""


@kernel
def _rank(bins, start, stop, value):  # type: ignore[no-untyped-def]
    """How many of ``bins[start:stop]`` are at most ``value``."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if bins[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - start


@kernel
def completeness(model, i, slack):  # type: ignore[no-untyped-def]
    """Return the share of input i's tuples that are in order, and of its window that is full (Eqs. 2 and 3).

    A tuple that the join sees d steps late is missing from the newest ``ceil(d g / b)`` basic windows only, so
    summing |w_l| over the basic windows is summing over the delays what each tuple is missing. Where b divides
    g that is linear in d and two lookups in prefix sums do.
    """
    start, stop = model.first[i], model.first[i + 1]
    if start == stop:
        return 1.0, 1.0
    base = start + i
    tuples = model.below[base + stop - start]
    window, step, basic = model.windows[i], model.step, model.basic
    lag = slack + model.shift[i]
    reach = (window - 1) // basic * basic // step
    in_order = _rank(model.bins, start, stop, lag)
    in_time = _rank(model.bins, start, stop, lag + reach)
    present = model.below[base + in_time]
    if step % basic == 0:
        late = present - model.below[base + in_order]
        missing = float(step) * (model.mass[base + in_time] - model.mass[base + in_order] - lag * late)
    else:
        missing = 0.0
        for k in range(in_order, in_time):
            count = model.below[base + k + 1] - model.below[base + k]
            missing += float(count) * (-(-(model.bins[start + k] - lag) * step // basic) * basic)
    full = float(window) * tuples
    return model.below[base + in_order] / tuples, (float(window) * present - missing) / full


@kernel
def cross_recall(model, slack):  # type: ignore[no-untyped-def]
    """Return the recall of the cross join within one interval under a slack (Eq. 5 with equal selectivities).

    Never falls as the slack grows.
    """
    m = model.windows.size
    ordered, full = np.empty(m), np.empty(m)
    for i in range(m):
        ordered[i], full[i] = completeness(model, i, slack)
    produced = true = 0.0
    longest = model.windows.max()
    for i in range(m):
        size, part = 1.0, ordered[i]
        for j in range(m):
            if j != i:
                size *= model.windows[j] / longest
                part *= full[j]
        produced += size * part
        true += size
    return produced / true


@kernel
def smallest_slack(model, changes, ratios, last, required):  # type: ignore[no-untyped-def]
    """Return the smallest slack in steps of g with enough expected recall, and that recall (Alg. 3).

    ``ratios[j]`` is sel(K) / sel from slack ``changes[j - 1]`` up to just before ``changes[j]``. Slacks up to
    ``last`` are examined; if none is enough the answer is ``last + 1``. Within a run of one ratio the recall
    never falls, so each run is settled by its end and, in the first that has an answer, by bisection: the same
    answer as trying 0, 1, 2, … in turn.
    """
    low = 0
    for run in range(ratios.size):
        end = last if run == changes.size else min(changes[run] - 1, last)
        if low <= end and ratios[run] * cross_recall(model, end) >= required:
            high = end
            while low < high:
                middle = (low + high) >> 1
                if ratios[run] * cross_recall(model, middle) >= required:
                    high = middle
                else:
                    low = middle + 1
            return low, ratios[run] * cross_recall(model, low)
        low = max(low, end + 1)
        if low > last:
            break
    run = ratios.size - 1
    while run > 0 and changes[run - 1] > low:
        run -= 1
    return low, ratios[run] * cross_recall(model, low)
