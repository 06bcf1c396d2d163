"""The rows of a shard, and the int64 cells that keys and predicates read of them."""
