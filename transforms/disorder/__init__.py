"""The reorder buffer, the pace of adaptation, metrics, and the slack that shards share."""
