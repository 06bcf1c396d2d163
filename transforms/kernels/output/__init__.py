"""Kernels of accounts."""
