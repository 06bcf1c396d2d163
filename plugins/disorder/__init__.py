"""Disorder strategies, one per file."""
