"""The memory limit of a join: who is evicted, what that costs, and what goes to disk."""
