"""Join strategies, one per file."""
