"""Files: reading and writing them."""
