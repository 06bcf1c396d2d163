"""Kernels of shedding: the limited join and the scores of tuples."""
