"""What tuples can expect, from what has arrived: the scores of PROB and LIFE (SAJ 4.2)."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import Float64s, Limit, Setting, SheddingLogic, Snapshot, Tuples, UInt64s
from slackwater.plugins.shedding.links import keys_of, samples_of
from slackwater.plugins.shedding.prob import ByChance
from slackwater.transforms.kernels.shedding import frequencies as counting
from slackwater.transforms.kernels.shedding.expectations import expected

NEGLIGIBLE = 1 / 16
"""A decayed count below this many new observations is forgotten when room is needed."""
_COUNTED = ("hashes", "counts", "used", "totals", "arrivals", "weights")
_SAMPLED = ("records", "beyond", "seen", "factor", "bins", "found")


class ChancesLogic(SheddingLogic):
    """Scores a tuple by the results, or their worth, to expect of an arrival on every other input.

    An input that is linked to the tuple's in no way counts for nothing: it is the same for all. Unless it
    ``foresees`` others, only values that have been seen are expected.
    """

    scores_are_chances: bool = True

    def __init__(
        self, options: ByChance, setting: Setting, decays: bool, snapshot: Snapshot | None = None,
        foresees: bool = True,
    ) -> None:  # fmt: skip
        self.memory: Limit = options.memory
        self.allocation: str = options.allocation
        self.decays: bool = decays
        self.renewal: int = 0 if decays else options.half_life // 4
        """Tuples for which scores stay good: chances change slowly, lifetimes do not."""
        own, partners = keys_of(setting)
        self._forgets = options.estimate == "decayed"
        growth = 1.0 if options.estimate == "exact" else 2.0 ** (1 / options.half_life)
        given = bool(setting.frequencies)
        sketch = options.estimate == "sketch" and not given
        width = 1 << (options.width - 1).bit_length()
        self._s = samples_of(setting)
        hashes, counts = counting.table_of(0 if sketch else 1024)
        self._f = counting.Frequencies(
            hashes=hashes,
            counts=np.zeros((counting.ROWS * width, 1)) if sketch else counts,
            used=np.zeros(1, np.int64),
            totals=np.full(len(setting.inputs), float(given)),
            arrivals=np.zeros((*own.shape[:2], 3)),
            weights=np.array([1.0, growth, float(not given), float(foresees and not given)]),
            own=own,
            partners=partners,
        )
        if given:
            self._count_given(setting)
        if snapshot:
            kept = {name: np.array(snapshot[name]) for name in self._lasting}
            if not given:
                self._restore(kept.pop("hashes"), kept.pop("counts"))
            self._f = self._f._replace(**{name: kept[name] for name in _COUNTED if name in kept})
            self._s = self._s._replace(**{name: kept[name] for name in _SAMPLED if name in kept})

    def scores(self, tuples: Tuples) -> Float64s:
        out = np.empty(tuples.ts.size)
        self._expect(tuples, False, 0, out)
        return out

    def observe(self, tuples: Tuples) -> Float64s:
        """Return what each tuple could expect when it came; each is learnt from in turn."""
        out = np.empty(tuples.ts.size)
        done = 0
        while done < out.size:
            done = self._expect(tuples, True, done, out)
            if done < out.size:
                self._reserve(self._f.own.shape[1])
        return out

    def snapshot(self) -> Snapshot:
        state = {**self._f._asdict(), **self._s._asdict()}
        learnt = {name: state[name].copy() for name in self._lasting}
        table = {"hashes": self._f.hashes[:, 0].copy(), "counts": self._f.counts[:, -1].copy()}
        return {**learnt, **(table if "hashes" in learnt else {})}

    @property
    def nbytes(self) -> int:
        """Bytes of the counts and samples."""
        return self._f.counts.nbytes + sum(array.nbytes for array in self._s)

    def bytes_after(self, tuples: int) -> int:
        """Bytes of what is learnt at most, once so many more tuples have been observed."""
        size = len(self._f.hashes)
        wanted = int(self._f.used[0]) + (tuples + 1) * self._f.own.shape[1]
        if not size or not self._f.weights[counting.COUNTS] or 2 * wanted <= size:
            return self.nbytes
        return self.nbytes - 16 * size + (16 << (4 * wanted - 1).bit_length())

    @property
    def _lasting(self) -> tuple[str, ...]:
        """What is learnt: given frequencies are not."""
        counted = _COUNTED if self._f.weights[counting.COUNTS] else ("weights",)
        return (*counted, *(_SAMPLED if len(self._s.records) else ()))

    def _expect(self, tuples: Tuples, learn: bool, start: int, out: Float64s) -> int:
        """Score the tuples from ``start`` on; return where there is no room any more to learn from the next."""
        given = opened_all((tuples.input, tuples.seq, tuples.cells, tuples.nulls))
        return int(expected(self._f, self._s, *given, learn, start, out))

    def _restore(self, hashes: UInt64s, counts: Float64s) -> None:
        table = counting.table_of(hashes.size)
        self._f = self._f._replace(hashes=table[0], counts=table[1] if hashes.size else counts[:, None])
        if hashes.size:
            self._f.hashes[:, 0], self._f.counts[:, -1] = hashes, counts

    def _count_given(self, setting: Setting) -> None:
        """Fill the table with the frequencies that are known."""
        self._reserve(sum(len(key.share) for key in setting.frequencies))
        for key in setting.frequencies:
            n, classes = len(key.classes), sum(1 << c for c in key.classes)
            seed = counting.seed_of(key.input, classes, 0)
            entry = (key.input, n, classes, 0, 0, seed, *range(n))
            hashes = np.empty(len(key.share), np.uint64)
            counting.hashes_of(np.array(entry, np.int64), key.words, hashes)
            self._f.used[0] += counting.refill(hashes, key.share, 0.0, self._f.hashes, self._f.counts)

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more values, by forgetting what has become negligible, or by growing."""
        size = len(self._f.hashes)
        if 2 * (int(self._f.used[0]) + n) <= size:
            return
        hashes, counts = self._f.hashes[:, 0].copy(), self._f.counts[:, -1].copy()
        least = NEGLIGIBLE * self._f.weights[counting.GAIN] if self._forgets else 0.0
        stay = int(np.count_nonzero((hashes != 0) & (counts >= least)))
        while size < 4 * (stay + n):
            size *= 2
        table = counting.table_of(size)
        self._f.used[0] = counting.refill(hashes, counts, least, *table)
        self._f = self._f._replace(hashes=table[0], counts=table[1])
