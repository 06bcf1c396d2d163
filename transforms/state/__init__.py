"""State outside the process: snapshots, the journal and locks."""
