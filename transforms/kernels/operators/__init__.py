"""Kernels of the operators that are not joins."""
