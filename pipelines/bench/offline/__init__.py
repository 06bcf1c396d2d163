"""What the best choice of tuples would have kept, known in hindsight (SAJ).

``optimum`` is OPT-offline, the ceiling of every shedding strategy on a finished pair of streams.
"""
