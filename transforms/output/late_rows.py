"""Rows on their way to the late output: gathered during a step, written at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slackwater.plugins.contract import Int8s, Int64s
from slackwater.transforms.arrival.intake import Refused
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs, late_batches
from slackwater.transforms.rows.store import RowStore
from slackwater.transforms.settings.plan import Plan


def refuse(plan: Plan, accounting: Accounting, refused: Iterable[Refused], out: Outputs) -> None:
    """Count rows that the way in refuses, and write them."""
    for which, reason, ts, arrival, rows, copies in refused:
        accounting.refuse(which, reason, rows.num_rows, copies)
        out.late.extend(late_batches(plan.inputs[which], reason, ts, arrival, rows))


class LateRows:
    """Late rows of one operator, each once; few in each of many runs, they are written together,
    in order of arrival. Copies of rows are among them: their homes do not know what they miss here."""

    def __init__(self, plan: Plan, stores: Sequence[RowStore], accounting: Accounting) -> None:
        self._plan, self._stores, self._accounting = plan, stores, accounting
        self._due: dict[tuple[int, str], list[Int64s]] = {}
        """Where the rows of each input stand, by reason."""
        self.wanted = True
        """False where nobody reads them: then they are counted and not written."""

    def add(self, inputs: Int8s, seqs: Int64s, reason: str) -> Int64s:
        """Take rows, unless they are in the late output already; return how many of each input are new to it.

        Copies are counted, and are not among these.
        """
        fresh = np.zeros(len(self._stores), np.int64)
        for i, store in enumerate(self._stores) if len(seqs) else ():
            places = store.report(inputs, i, seqs)
            self._due.setdefault((i, reason), []).append(places)
            copies = int(np.count_nonzero(store.beside.copy[places]))
            self._accounting.reject_copies(i, reason, copies)
            fresh[i] = places.size - copies
        return fresh

    def write(self, out: Outputs) -> None:
        """Write what was taken."""
        for (i, reason), parts in sorted(self._due.items()):
            at = np.concatenate(parts) if self.wanted else np.empty(0, np.int64)
            if at.size:
                at.sort()
                name, store = self._plan.inputs[i], self._stores[i]
                for part in map(at.__getitem__, store.cuts(at)):
                    ts, arrival = store.beside.ts[part], store.beside.arrival[part]
                    out.late.extend(late_batches(name, reason, ts, arrival, store.batch(part)))
        self._due.clear()
