"""Punctuations from times of arrival: the VSeq estimate of ADC (sec. 5) and the buffer limit.

Every array of state has one row per input and is owned by the caller, large enough for the whole chunk.
Means and deviations come from a window that only ever adds: the older part of the list keeps, for each entry,
the mean and the sum of squares from there to its end, the newer part one running pair. When the older part is
used up, the list is summed once from its end. That is constant time per tuple, amortised, and a huge latency
that has left the list leaves no rounding error behind, as a running sum of squares would.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.heap import pop, push

NEVER = np.iinfo(np.int64).min
MIN_VSEQ = 30
MAX_VSEQ = 4096
_FARTHEST = 2.0**62


class VSeqState(NamedTuple):
    """The list of the latest tuples of every input: a ring of their times."""

    clock: Any
    """``[inputs, capacity]`` system times, the capacity a power of two."""
    latency: Any
    """System time less event time."""
    mean: Any
    square: Any
    """For entries of the older part: mean, and sum of squared deviations, from there to the end of that part."""
    newer: Any
    """``[inputs, 2]``: mean and sum of squared deviations of the newer part."""
    at: Any
    """``[inputs, 6]``: see FIRST to ZERO."""


FIRST, COUNT, OLDER, SIZE, PUNCTUATION, ZERO = range(6)
"""First entry; entries; those in the older part; entries wanted; punctuation; latency that means count from."""


@kernel
def vseq_size(c, sigma, theta):  # type: ignore[no-untyped-def]
    """Solve n² - c·n - 2·c·σ²/θ² = 0 (5.7) for n, as a real number; infinite where θ is 0 and σ is not."""
    if theta <= 0.0:
        return c if sigma == 0.0 else np.inf
    spread = sigma / theta
    return (c + np.sqrt(c * c + 8.0 * c * spread * spread)) / 2.0


@kernel
def region(c, sigma, theta):  # type: ignore[no-untyped-def]
    """The stretch n·θ below the newest event time that (5.8) keeps open, n rounded down.

    As θ goes to 0 it goes to √(2c)·σ.
    """
    n = vseq_size(c, sigma, theta)
    if n == np.inf:
        return np.sqrt(2.0 * c) * sigma
    return np.floor(n) * theta


@kernel
def _sum_up(latency, mean, square, first, count, zero):  # type: ignore[no-untyped-def]
    """Make the whole list the older part: for each entry, mean and squares from there to the end."""
    mask = latency.size - 1
    m = 0.0
    q = 0.0
    for n in range(1, count + 1):
        j = (first + count - n) & mask
        x = float(latency[j] - zero)
        step = x - m
        m += step / n
        q += step * (x - m)
        mean[j] = m
        square[j] = q


@kernel
def estimate(inputs, ts, clock, c, state, out):  # type: ignore[no-untyped-def]
    """Write the punctuation of its input after each arrival, NEVER before the first; it never goes back.

    ``c`` is the square of the z-value of the drop ratio. The list is read once it holds as many tuples as are
    wanted (Fig. 5); then n tuples are wanted: at least MIN_VSEQ, at most MAX_VSEQ, and no more than twice as
    many as before, so that a few outliers cannot suspend the estimate for long.
    """
    all_clock, all_latency = borrowed(state.clock), borrowed(state.latency)
    all_mean, all_square = borrowed(state.mean), borrowed(state.square)
    newer, at = borrowed(state.newer), borrowed(state.at)
    mask = all_clock.shape[1] - 1
    for k in range(ts.size):
        i = inputs[k]
        times, latency, mean, square = all_clock[i], all_latency[i], all_mean[i], all_square[i]
        first, count, older, size = at[i, FIRST], at[i, COUNT], at[i, OLDER], at[i, SIZE]
        t = clock[k]
        if count == 0:
            at[i, ZERO] = t - ts[k]
        else:
            t = max(t, times[(first + count - 1) & mask])
        while count >= size:
            if older == 0:
                at[i, ZERO] = latency[(first + count - 1) & mask]
                _sum_up(latency, mean, square, first, count, at[i, ZERO])
                older = count
                newer[i, 0] = 0.0
                newer[i, 1] = 0.0
            first = (first + 1) & mask
            count -= 1
            older -= 1
        last = (first + count) & mask
        times[last] = t
        latency[last] = t - ts[k]
        count += 1
        x = float(latency[last] - at[i, ZERO])
        step = x - newer[i, 0]
        newer[i, 0] += step / (count - older)
        newer[i, 1] += step * (x - newer[i, 0])
        if count == size:
            mu = newer[i, 0]
            squares = newer[i, 1]
            if older > 0:
                apart = mu - mean[first]
                mu = mean[first] + apart * (count - older) / count
                squares += square[first] + apart * apart * older * (count - older) / count
            sigma = np.sqrt(squares / count)
            theta = float(t - times[first]) / count
            below = mu + region(c, sigma, theta)
            if abs(below) < _FARTHEST:
                at[i, PUNCTUATION] = max(at[i, PUNCTUATION], t - at[i, ZERO] - np.int64(np.ceil(below)))
            size = np.int64(max(MIN_VSEQ, min(vseq_size(c, sigma, theta), 2 * size, MAX_VSEQ)))
        out[k] = at[i, PUNCTUATION]
        at[i, FIRST] = first
        at[i, COUNT] = count
        at[i, OLDER] = older
        at[i, SIZE] = size


@kernel
def limit(inputs, ts, most, heap_ts, heap_code, held, punctuation, bounds):  # type: ignore[no-untyped-def]
    """Raise bounds so that no input ever holds more than ``most`` rows above its bound; bounds never go back.

    ``heap_ts[i, : held[i]]`` are the times of the rows that input i holds, a heap; ``punctuation`` its bound.
    """
    all_ts, all_code = borrowed(heap_ts), borrowed(heap_code)
    for k in range(ts.size):
        i = inputs[k]
        times, codes = all_ts[i], all_code[i]
        n = held[i]
        bound = max(bounds[k], punctuation[i])
        if ts[k] > bound:
            push(times, codes, n, ts[k], 0)
            n += 1
            if n > most:
                bound = max(bound, times[0])
        while n > 0 and times[0] <= bound:
            pop(times, codes, n)
            n -= 1
        held[i] = n
        punctuation[i] = bound
        bounds[k] = bound
