"""Window joins."""
