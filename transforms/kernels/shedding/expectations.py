"""What a tuple can expect: the chance that arrivals match it, and what the results would be worth.

The chance of a match is a product over the other inputs. Keys contribute the share of arrivals with the tuple's
value (``frequencies``), predicates the share of a *sample* of recent arrivals that pass together with the
tuple, as if their keys were equal to its own. Shares of samples are coarse, so they are averaged over similar
tuples: those whose cells fall into the same *bin*. What a result is worth is the mean over the sample.

An arrival counts for what lies *beyond* it: one that will find no partner among the inputs that only it links to
the tuple is of no use to the tuple.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.expressions import predicate
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.rows.dictionary import mix
from slackwater.transforms.kernels.shedding import frequencies
from slackwater.transforms.kernels.shedding.frequencies import BEYOND, COUNTS, GAIN, GROWTH, INPUT, KEYS

SAMPLE = BLOCK
"""Arrivals of each input in the sample: as many as one run of a program takes."""
WEIGHED = 64
"""How many of them weights are averaged over where all of them pass."""
FITTED = 64
"""After so many arrivals of an input, the width of its bins is fitted to the sample."""
FINENESS = 8
"""Bins between the quartiles of a cell's values."""
WAYS = 4
"""Places that a bin may have in the table; the one observed least gives way."""
# Columns of a test: its instructions, the inputs it needs, whose chance it is, whether what lies beyond counts,
# and the tuple's own cells that it reads, as bits.
FROM, TO, NEEDS, WHOSE, WEIGHTED, READS = range(6)
# Columns of an input: instructions for predicates on it alone and for the weight; then what lies beyond it as
# seen by each input, as bits.
OWN_FROM, OWN_TO, WORTH_FROM, WORTH_TO, VIEWS = range(5)
# How a cell is put in a bin: as it is, as an integer, as a float.
EXACT, INTEGER, FLOAT = range(3)
NO_END = 1 << 62


class Samples(NamedTuple):
    """Recent arrivals, what is tested on them, and what was found."""

    records: Any
    """``SAMPLE`` per input, null bits and cells, then the tuple at hand; none where nothing is tested."""
    beyond: Any
    """``[record, input]``: the chance of the arrival at what lies beyond it, as seen by a tuple of an input."""
    seen: Any
    """Arrivals of each input."""
    factor: Any
    """``[input, cell]``: what a number is multiplied by to get its bin, a power of two; 0 before any is known."""
    bins: Any
    """Tags of bins, 0 for none."""
    found: Any
    """``[bin, 2]``: summed shares and their weight."""
    rows: Any
    """``[input, input, SAMPLE]``: the records that tuples of an input are put together with."""
    program: Any
    inputs: Any
    tests: Any
    """``[input, test, columns]``."""
    kinds: Any
    """``[input, cell]``."""
    scratch: Any
    """Registers, their null flags, and in the first row of a third plane which of the sample pass."""


@kernel
def expected(f, s, inputs, seqs, cells, nulls, learn, start, out):  # type: ignore[no-untyped-def]
    """Write what each tuple from ``start`` on can expect of one arrival on every other input.

    Where ``learn`` is set, each tuple is learnt from once its own expectation is known, so that the order of the
    tuples matters and where calls are cut does not. What it is worth weighs it then: its partners share in that.
    Stops before a tuple whose values there may be no room for, which chunks do not show; returns where.
    """
    f = frequencies.Frequencies(
        borrowed(f.hashes), borrowed(f.counts), borrowed(f.used), borrowed(f.totals), borrowed(f.arrivals),
        borrowed(f.weights), borrowed(f.own), borrowed(f.partners),
    )  # fmt: skip
    s = Samples(
        borrowed(s.records), borrowed(s.beyond), borrowed(s.seen), borrowed(s.factor), borrowed(s.bins),
        borrowed(s.found), borrowed(s.rows), borrowed(s.program), borrowed(s.inputs), borrowed(s.tests),
        borrowed(s.kinds), borrowed(s.scratch),
    )  # fmt: skip
    cells, nulls = borrowed(cells), borrowed(nulls)
    m = f.totals.size
    chance, word = np.empty(m), np.empty(1)
    sampling = s.records.shape[0] > 0
    counts = learn and f.weights[COUNTS] != 0.0
    room = f.hashes.shape[0] // 2 - f.own.shape[1] if counts and f.hashes.size else NO_END
    if m == 2 and not sampling and f.partners[0, 0, KEYS] != 0:
        return _paired(f, inputs, cells, nulls, learn, counts, room, start, out)
    for k in range(start, out.size):
        if f.used[0] > room:
            return k
        i = np.int64(inputs[k])
        for j in range(m):
            chance[j] = 1.0
        for p in range(f.partners.shape[1]):
            if f.partners[i, p, KEYS] == 0:
                break
            key = f.partners[i, p]
            chance[key[INPUT]] = frequencies.share(f, f.weights[GAIN], key, cells, nulls, k)
        worth = 1.0
        if sampling:
            last = s.records.shape[0] - 1
            s.records[last, 0] = nulls[k]
            for c in range(cells.shape[1]):
                s.records[last, 1 + c] = cells[k, c]
            worth = _sampled(s, i, chance, f.weights[GAIN] if learn else 0.0, word)
        out[k] = worth * _product(chance, -1)
        if not learn:
            continue
        qualifies = not sampling or _qualifies(s, i)
        if counts:
            f.totals[i] += f.weights[GAIN] * worth
            for p in range(f.own.shape[1]):
                if f.own[i, p, KEYS] == 0 or not qualifies:
                    break
                weight = f.weights[GAIN] * worth * _product(chance, f.own[i, p, BEYOND])
                frequencies.count(f, f.weights[GAIN], f.own[i, p], cells, nulls, k, weight)
        if sampling and qualifies:
            _keep(s, i, seqs[k], chance)
        f.weights[GAIN] *= f.weights[GROWTH]
        if f.weights[GAIN] > 1e200:
            frequencies.rescale(f)
            for at in range(s.found.shape[0]):
                s.found[at, 0] /= f.weights[GAIN]
                s.found[at, 1] /= f.weights[GAIN]
            f.weights[GAIN] = 1.0
    return out.size


@kernel(inline=True)
def _paired(f, inputs, cells, nulls, learn, counts, room, start, out):  # type: ignore[no-untyped-def]
    """As ``expected``, for two inputs with a key and nothing else: with one chance only it is a third faster."""
    gain, growth = f.weights[GAIN], f.weights[GROWTH]
    for k in range(start, out.size):
        if f.used[0] > room:
            f.weights[GAIN] = gain
            return k
        i = np.int64(inputs[k])
        out[k] = frequencies.share(f, gain, f.partners[i, 0], cells, nulls, k)
        if counts:
            f.totals[i] += gain
            frequencies.count(f, gain, f.own[i, 0], cells, nulls, k, gain)
        if learn:
            gain *= growth
            if gain > 1e200:
                f.weights[GAIN] = gain
                frequencies.rescale(f)
                gain = 1.0
    f.weights[GAIN] = gain
    return out.size


@kernel(inline=True)
def _product(chance, which):  # type: ignore[no-untyped-def]
    """Return the product of the chances of some inputs, given as bits."""
    product = 1.0
    for j in range(chance.size):
        if (which >> j) & 1 != 0:
            product *= chance[j]
    return product


@kernel
def _sampled(s, i, chance, gain, word):  # type: ignore[no-untyped-def]
    """Multiply the chances by the shares of the sample that pass; return the mean weight of those.

    Shares are added to their bins with the weight ``gain``; none are if it is 0.
    """
    weighing = s.inputs[i, WORTH_TO] > s.inputs[i, WORTH_FROM]
    if weighing:
        s.scratch[2, 0] = 1
    tested = False
    for t in range(s.tests.shape[1]):
        if s.tests[i, t, TO] == 0:
            break
        tested = True
        tag = _tag(s, i, t, word)
        at = _place(s, tag)
        known = s.bins[at] == tag
        n = _available(s, i, s.tests[i, t, NEEDS])
        share = 0.0
        if n > 0 and (weighing or gain > 0.0 or not known):
            share = _passing(s, i, t, n)
            if gain > 0.0:
                if not known:
                    s.bins[at] = tag
                    s.found[at, 0] = 0.0
                    s.found[at, 1] = 0.0
                    known = True
                s.found[at, 0] += gain * share
                s.found[at, 1] += gain
        chance[s.tests[i, t, WHOSE]] *= s.found[at, 0] / s.found[at, 1] if known else share
    return _mean_weight(s, i, tested) if weighing else 1.0


@kernel(inline=True)
def _available(s, i, needs):  # type: ignore[no-untyped-def]
    """Return how many combinations of sampled arrivals of some inputs there are."""
    n = s.rows.shape[2]
    for j in range(s.seen.size):
        if j != i and (needs >> j) & 1 != 0:
            n = min(n, s.seen[j])
    return n


@kernel
def _run(s, i, first, last, n):  # type: ignore[no-untyped-def]
    """Run instructions for the tuple at hand and ``n`` combinations of the sample."""
    predicate.run(s.program, first, last, s.records, 1, s.rows[i], n, s.scratch[0], s.scratch[1])


@kernel(inline=True)
def _true(s, k):  # type: ignore[no-untyped-def]
    return s.scratch[0, 0, k] != 0 and s.scratch[1, 0, k] == 0


@kernel
def _qualifies(s, i):  # type: ignore[no-untyped-def]
    """Return whether the tuple at hand passes the predicates that speak of its input alone."""
    if s.inputs[i, OWN_TO] == s.inputs[i, OWN_FROM]:
        return True
    _run(s, i, s.inputs[i, OWN_FROM], s.inputs[i, OWN_TO], min(1, s.rows.shape[2]))
    return _true(s, 0)


@kernel
def _passing(s, i, t, n):  # type: ignore[no-untyped-def]
    """Test the tuple at hand with the sample; return the share that passes, and note which do not."""
    _run(s, i, s.tests[i, t, FROM], s.tests[i, t, TO], n)
    weighted = s.tests[i, t, WEIGHTED] != 0
    total = 0.0
    for k in range(n):
        if _true(s, k):
            total += s.beyond[s.rows[i, s.tests[i, t, WHOSE], k], i] if weighted else 1.0
        else:
            s.scratch[2, 0, k] = 0
    return total / n


@kernel
def _mean_weight(s, i, tested):  # type: ignore[no-untyped-def]
    """Return the mean weight of the combinations that pass, of all if none does; below 0 and null count 0."""
    n = _available(s, i, -1)
    if not tested:
        n = min(n, WEIGHED)
    if n == 0:
        return 0.0
    _run(s, i, s.inputs[i, WORTH_FROM], s.inputs[i, WORTH_TO], n)
    values = s.scratch[0].view(np.float64)
    total, passed, everything = 0.0, 0, 0.0
    for k in range(n):
        value = values[0, k]
        if s.scratch[1, 0, k] != 0 or not 0.0 < value < np.inf:
            value = 0.0
        everything += value
        if s.scratch[2, 0, k] != 0:
            total += value
            passed += 1
    return total / passed if passed else everything / n


@kernel
def _keep(s, i, seq, chance):  # type: ignore[no-untyped-def]
    """Put the tuple at hand into the sample; once that is full, in the place of any, by its identity."""
    at = s.seen[i]
    s.seen[i] += 1
    if at >= SAMPLE:
        at = np.int64(mix(np.uint64(8 * seq + i) + np.uint64(0x9E3779B97F4A7C15)) % np.uint64(SAMPLE))
    at += i * SAMPLE
    for c in range(s.records.shape[1]):
        s.records[at, c] = s.records[-1, c]
    for viewer in range(chance.size):
        s.beyond[at, viewer] = _product(chance, s.inputs[i, VIEWS + viewer])
    if s.seen[i] % FITTED == 0:
        for c in range(s.factor.shape[1]):
            if s.kinds[i, c] != EXACT:
                _fit(s, i, c)


@kernel
def _fit(s, i, c):  # type: ignore[no-untyped-def]
    """Fit the bins of a cell to the spread of its values, unless they are about right."""
    n = min(s.seen[i], SAMPLE)
    words = s.records[i * SAMPLE : i * SAMPLE + n, 1 + c].copy()
    values = words.view(np.float64)
    if s.kinds[i, c] == INTEGER:
        for k in range(n):
            values[k] = np.float64(words[k])
    for k in range(1, n):
        value = values[k]
        at = k
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value
    spread = 0.0
    for left_out in (n // 4, n // 10, 0):
        if not spread > 0.0:
            spread = values[n - 1 - left_out] - values[left_out]
    if not 0.0 < spread < np.inf:
        return
    factor = 2.0 ** -np.floor(np.log2(spread / FINENESS))
    if s.kinds[i, c] == INTEGER:
        factor = min(factor, 1.0)
    if not s.factor[i, c] / 4 < factor < s.factor[i, c] * 4:
        s.factor[i, c] = factor


@kernel
def _tag(s, i, t, word):  # type: ignore[no-untyped-def]
    """Return the tag of the bin that the tuple at hand is in for a test; never 0."""
    h = mix(np.uint64(s.tests.shape[1] * i + t) + np.uint64(0x9E3779B97F4A7C15))
    bits = word.view(np.int64)
    for c in range(s.factor.shape[1]):
        if (s.tests[i, t, READS] >> c) & 1 == 0:
            continue
        bits[0] = s.records[-1, 1 + c]
        if (s.records[-1, 0] >> c) & 1 != 0:
            bits[0] = 1
        elif s.kinds[i, c] != EXACT and s.factor[i, c] != 0.0:
            h = mix(h ^ np.uint64(np.int64(np.log2(s.factor[i, c]))))
            value = word[0] if s.kinds[i, c] == FLOAT else np.float64(bits[0])
            word[0] = np.floor(value * s.factor[i, c]) + 0.0
        h = mix(h ^ np.uint64(bits[0]))
    return h | np.uint64(1)


@kernel
def _place(s, tag):  # type: ignore[no-untyped-def]
    """Return where a bin is, or where it may be put."""
    mask = np.uint64(s.bins.size - 1)
    best = np.int64((tag >> np.uint64(1)) & mask)
    for way in range(WAYS):
        at = np.int64(((tag >> np.uint64(1)) + np.uint64(way)) & mask)
        if s.bins[at] == tag:
            return at
        if s.found[at, 1] < s.found[best, 1]:
            best = at
    return best
