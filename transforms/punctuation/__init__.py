"""Punctuations: which rows are punctuations, what they promise, and what follows from it."""
