"""Key conditions, conditions, updates and projections of DynamoDB requests: read and rewritten, never sent.

>>> parse_key_condition({"KeyConditionExpression": "d = :d", "ExpressionAttributeValues": {":d": {"S": "x"}}})
KeyCondition(equals={'d': {'S': 'x'}}, range=None)
"""

from __future__ import annotations

from shardkit.dynamodb.expressions.key_condition import (
    Comparable,
    KeyCondition,
    SortCondition,
    comparable,
    from_position,
    matches,
    parse_key_condition,
    replace_key_condition,
)
from shardkit.dynamodb.expressions.rewrite import (
    and_condition,
    build_conditions,
    keys_only,
    project,
    refuse_partition_key,
    rewrite_partition_key,
    updated_attributes,
)
from shardkit.dynamodb.expressions.tokens import Part, Token, WireValue, parts, render, tokenize

__all__ = [
    "Comparable",
    "KeyCondition",
    "Part",
    "SortCondition",
    "Token",
    "WireValue",
    "and_condition",
    "build_conditions",
    "comparable",
    "from_position",
    "keys_only",
    "matches",
    "parse_key_condition",
    "parts",
    "project",
    "refuse_partition_key",
    "render",
    "replace_key_condition",
    "rewrite_partition_key",
    "tokenize",
    "updated_attributes",
]
