"""Kernels of join strategies."""
