"""The results that a join has missed, from its archive."""
