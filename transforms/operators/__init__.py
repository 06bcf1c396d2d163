"""The operators, one module or package each, and their registry."""
