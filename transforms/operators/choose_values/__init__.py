"""ChooseValues: which tuples of stored relations to fetch."""
