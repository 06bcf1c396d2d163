"""What runs an assembled pipeline, and what all runners report."""
