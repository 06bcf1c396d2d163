"""SQL expressions: text to a tree, evaluated on Arrow columns or assembled for the predicate kernel."""
