"""A graph bound to its sources: columns everywhere, a plan for every operator."""
