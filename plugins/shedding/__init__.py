"""Shedding strategies, one per file."""
