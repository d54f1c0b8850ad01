"""Strategies: in which shards a key's items are stored, and how a table moves from one strategy to another."""

from shardkit.strategies.resharding import Resharding, Stage
from shardkit.strategies.suffixes import (
    CalculatedSuffix,
    KeyValue,
    RandomSuffix,
    RangeSuffix,
    Strategy,
    TextForm,
    Unsharded,
    register_function,
)

__all__ = [
    "CalculatedSuffix",
    "KeyValue",
    "RandomSuffix",
    "RangeSuffix",
    "Resharding",
    "Stage",
    "Strategy",
    "TextForm",
    "Unsharded",
    "register_function",
]
