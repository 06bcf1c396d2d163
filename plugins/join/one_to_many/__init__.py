"""The one-to-many join (MJoin)."""
