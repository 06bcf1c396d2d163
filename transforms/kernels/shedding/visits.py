"""Tuples that look at what was evicted, and evicted ones in their turn, laid out in one order."""

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel


@kernel(inline=True)
def _copy(source, k, late, out, at):  # type: ignore[no-untyped-def]
    inputs, seqs, ts, cells, nulls = source
    out_input, out_seq, out_ts, out_late, out_cells, out_nulls = out
    out_input[at] = inputs[k]
    out_seq[at] = seqs[k]
    out_ts[at] = ts[k]
    out_late[at] = late
    out_nulls[at] = nulls[k]
    for c in range(out_cells.shape[1]):
        out_cells[at, c] = cells[k, c]


@kernel
def line_up(released, looking, ghosts, after, out, place):  # type: ignore[no-untyped-def]
    """Write the tuples ``looking`` of ``released``, and every ghost behind the tuple that it comes ``after``.

    Both are in ascending order. Ghosts are written as late ones; ``place`` is where each of the others stands.
    """
    inputs, seqs, ts, _, cells, nulls = released
    tuples = (borrowed(inputs), borrowed(seqs), borrowed(ts), borrowed(cells), borrowed(nulls))
    g = 0
    for n in range(looking.size):
        while g < after.size and after[g] < looking[n]:
            _copy(ghosts, g, True, out, n + g)
            g += 1
        _copy(tuples, looking[n], False, out, n + g)
        place[n] = n + g
    for rest in range(g, after.size):
        _copy(ghosts, rest, True, out, looking.size + rest)
