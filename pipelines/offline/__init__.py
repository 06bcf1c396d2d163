"""What the best choice of tuples would have kept, known in hindsight or from summaries (SAJ).

``optimum`` is OPT-offline, the ceiling of every shedding strategy on a finished pair of streams;
``static_join`` chooses which tuples of stored relations to fetch when not all of them can be.
"""
