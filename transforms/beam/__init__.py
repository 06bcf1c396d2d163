"""Beam adapter: PTransforms over the operator."""
