"""Joins that exploit punctuations (PWJoin, PJoin)."""
