"""Kernels of punctuations: promises, I-Nodes, purging."""
