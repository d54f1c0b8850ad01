"""A table's strategy, and the stage of a move, in an item of the table itself: what reads it and what changes it."""

from shardkit.migrate.admin import ShardMapAdmin
from shardkit.migrate.tuner import Tuner
from shardkit.sharding.shard_map import ShardMap, ShardMapState

__all__ = ["ShardMap", "ShardMapAdmin", "ShardMapState", "Tuner"]
