"""Joins whose state may be larger than memory (XJoin)."""
