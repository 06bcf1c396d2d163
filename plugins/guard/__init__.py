"""The guard between operators and strategies: what goes out is read-only, what comes back is checked."""
