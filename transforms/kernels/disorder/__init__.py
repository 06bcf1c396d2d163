"""Kernels of the reorder buffer and of disorder strategies."""
