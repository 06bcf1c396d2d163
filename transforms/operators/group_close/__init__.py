"""GroupClose: aggregates of groups that punctuations close."""
