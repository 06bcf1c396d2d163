"""What a user may say: models of all settings, bound to the columns that are there, as plans."""
