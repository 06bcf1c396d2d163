"""Kernels that find rows, encode text and write JSON."""
