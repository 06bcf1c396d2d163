"""Templates: text to a graph of checked nodes."""
