"""What leaves an operator: results, late rows, accounts and the archive."""
