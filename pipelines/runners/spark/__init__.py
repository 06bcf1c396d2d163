"""The Spark runner."""
