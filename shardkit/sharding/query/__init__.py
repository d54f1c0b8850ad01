"""A Query over the shards of a logical key."""
