"""The embedded runner."""
