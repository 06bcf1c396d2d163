"""Spark adapter: the operator as a stateful step of Structured Streaming."""
