"""How a join is split over shards: one scheme per module, chosen when its settings are bound.

Whatever the scheme, every result is found in exactly one shard. Rows that may meet partners in several are
copied to each; one of these shards is the row's *home*, which counts it and writes it if it is late.
"""
