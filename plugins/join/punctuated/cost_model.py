"""What a join with punctuations is expected to hold: the cost model of PWJoin."""

from __future__ import annotations


def expected_state(rate: float, window: float, punctuation_rate: float, elapsed: float, values: float) -> float:
    """Return how many tuples of an input ``pwjoin`` of two inputs holds ``elapsed`` after the start (Eq. 1).

    A window join holds all that came within the window, ``rate * window``. Of these, the ones whose value the
    other input has punctuated are gone: purged, or discarded when they came. The equation takes their share to be
    that of the values: ``punctuation_rate * elapsed`` of ``values``.

    It holds where the join keeps up, rates are constant, every punctuation names another value, the windows are
    full, and a tuple has each of the values with the same probability whether it is punctuated or not: one input
    with uniform values whose domain has been seen, the other with punctuations. Where the values of tuples move
    on with those of punctuations, as in clusters, more or less is purged than it says.

    Args:
        rate: tuples of the input per unit of time.
        window: window of the input.
        punctuation_rate: punctuations of the other input per unit of time.
        elapsed: time since the start.
        values: distinct join values that the input has had so far.
    """
    if values <= 0:
        return 0.0
    return rate * window * max(0.0, 1.0 - punctuation_rate * elapsed / values)
