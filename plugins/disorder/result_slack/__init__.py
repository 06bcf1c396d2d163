"""``result_slack``: K from the slack that results needed."""
