"""What tuples can expect, from what has arrived: the scores of PROB and LIFE (SAJ 4.2)."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.contract import Float64s, Limit, Setting, Snapshot, Tuples
from slackwater.plugins.shedding.links import keys_of, samples_of
from slackwater.plugins.shedding.prob import ByChance
from slackwater.transforms.kernels import frequencies as counting
from slackwater.transforms.kernels.expectations import expected

NEGLIGIBLE = 1 / 16
"""A decayed count below this many new observations is forgotten when room is needed."""
_COUNTED = ("hashes", "counts", "used", "totals", "arrivals", "weights")
_SAMPLED = ("records", "beyond", "seen", "factor", "bins", "found")
STRIDE = 1024
"""Tuples between two looks at whether there is room; counted over the whole stream, chunks do not show."""


class ChancesLogic:
    """Scores a tuple by the results, or their worth, to expect of an arrival on every other input.

    An input that is linked to the tuple's in no way counts for nothing: it is the same for all. Unless it
    ``foresees`` others, only values that have been seen are expected.
    """

    scores_are_chances = True

    def __init__(
        self, options: ByChance, setting: Setting, decays: bool, snapshot: Snapshot | None = None,
        foresees: bool = True,
    ) -> None:  # fmt: skip
        self.memory: Limit = options.memory
        self.allocation = options.allocation
        self.decays = decays
        self.renewal = 0 if decays else options.half_life // 4
        """Tuples for which scores stay good: chances change slowly, lifetimes do not."""
        own, partners = keys_of(setting)
        self._forgets = options.estimate == "decayed"
        growth = 1.0 if options.estimate == "exact" else 2.0 ** (1 / options.half_life)
        given = bool(setting.frequencies)
        sketch = options.estimate == "sketch" and not given
        width = 1 << (options.width - 1).bit_length()
        self._s = samples_of(setting)
        self._f = counting.Frequencies(
            hashes=np.zeros(0 if sketch else 1024, np.uint64),
            counts=np.zeros(counting.ROWS * width if sketch else 1024),
            used=np.zeros(1, np.int64),
            totals=np.full(len(setting.inputs), float(given)),
            arrivals=np.zeros((*own.shape[:2], 3)),
            weights=np.array([1.0, growth, float(not given), float(foresees and not given)]),
            own=own,
            partners=partners,
        )
        if given:
            self._count_given(setting)
        self._observed = int(snapshot["observed"]) if snapshot else 0
        if snapshot:
            kept = {name: np.array(snapshot[name]) for name in self._lasting}
            self._f = self._f._replace(**{name: kept[name] for name in _COUNTED if name in kept})
            self._s = self._s._replace(**{name: kept[name] for name in _SAMPLED if name in kept})

    def scores(self, tuples: Tuples) -> Float64s:
        return self._expected(tuples, False)

    def observe(self, tuples: Tuples) -> Float64s:
        """Return what each tuple could expect when it came; each is learnt from in turn."""
        out = np.empty(tuples.ts.size)
        counts = self._f.hashes.size and self._f.weights[counting.COUNTS]
        start = 0
        while start < out.size:
            if counts and self._observed % STRIDE == 0:
                self._reserve(STRIDE * self._f.own.shape[1])
            stop = min(out.size, start + STRIDE - self._observed % STRIDE)
            out[start:stop] = self._expected(Tuples._make(array[start:stop] for array in tuples), True)
            self._observed += stop - start
            start = stop
        return out

    def snapshot(self) -> Snapshot:
        learnt = {name: getattr(self._f if name in _COUNTED else self._s, name).copy() for name in self._lasting}
        return {"observed": self._observed, **learnt}

    @property
    def nbytes(self) -> int:
        """Bytes of the counts and samples."""
        return sum(array.nbytes for array in (self._f.hashes, self._f.counts, *self._s))

    def bytes_after(self, tuples: int) -> int:
        """Bytes of what is learnt at most, once so many more tuples have been observed."""
        size = self._f.hashes.size
        wanted = int(self._f.used[0]) + (tuples + STRIDE) * self._f.own.shape[1]
        if not size or not self._f.weights[counting.COUNTS] or 2 * wanted <= size:
            return self.nbytes
        return self.nbytes - 16 * size + (16 << (4 * wanted - 1).bit_length())

    @property
    def _lasting(self) -> tuple[str, ...]:
        """What is learnt: given frequencies are not."""
        counted = _COUNTED if self._f.weights[counting.COUNTS] else ("weights",)
        return (*counted, *(_SAMPLED if len(self._s.records) else ()))

    def _expected(self, tuples: Tuples, learn: bool) -> Float64s:
        out = np.empty(tuples.ts.size)
        expected(self._f, self._s, tuples.input, tuples.seq, tuples.cells, tuples.nulls, learn, out)
        return out

    def _count_given(self, setting: Setting) -> None:
        """Fill the table with the frequencies that are known."""
        self._reserve(sum(len(key.share) for key in setting.frequencies))
        for key in setting.frequencies:
            n = len(key.classes)
            entry = (key.input, n, sum(1 << c for c in key.classes), 0, 0, *range(n))
            hashes = np.empty(len(key.share), np.uint64)
            counting.hashes_of(np.array(entry, np.int64), key.words, hashes)
            self._f.used[0] += counting.refill(hashes, key.share, 0.0, self._f.hashes, self._f.counts)

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more values, by forgetting what has become negligible, or by growing."""
        size = self._f.hashes.size
        if 2 * (int(self._f.used[0]) + n) <= size:
            return
        least = NEGLIGIBLE * self._f.weights[counting.GAIN] if self._forgets else 0.0
        stay = int(np.count_nonzero((self._f.hashes != 0) & (self._f.counts >= least)))
        while size < 4 * (stay + n):
            size *= 2
        hashes, counts = np.zeros(size, np.uint64), np.zeros(size)
        self._f.used[0] = counting.refill(self._f.hashes, self._f.counts, least, hashes, counts)
        self._f = self._f._replace(hashes=hashes, counts=counts)
