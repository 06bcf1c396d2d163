"""Kernels of the queue and the guard."""
