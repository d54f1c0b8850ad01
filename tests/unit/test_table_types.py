"""The types of keywords name what the operations know, TableLike takes the same, and all are readable at run time."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

import shardkit.aio.table
from shardkit import ShardedTable, TableLike, table_types
from shardkit.sharding.operations import KEYWORDS

METHODS = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "query": "Query",
    "query_items": "Query",
    "scan": "Scan",
    "scan_items": "Scan",
    "batch_get_items": "BatchGetItem",
    "transact_get_items": "TransactGetItems",
    "transact_write_items": "TransactWriteItems",
}
OWN = {"self", "Shard", "ReturnShards", "keys", "max_items", "segments"}
PARTS = {
    "ConditionCheck": table_types.ConditionCheckPart,
    "Delete": table_types.DeletePart,
    "Get": table_types.GetPart,
    "Put": table_types.PutPart,
    "Update": table_types.UpdatePart,
}


def keywords(method: Any) -> set[str]:
    hints = get_type_hints(method)
    names: set[str] = set()
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = hints[name].__args__
            names |= set(get_type_hints(options))
        else:
            names.add(name)
    return names - OWN


@pytest.mark.parametrize("table", [ShardedTable, shardkit.aio.table.ShardedTable])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_keywords_of_its_operation(table: type, method: str) -> None:
    """Not ``TableName``, which is the table's own, and which boto3's Table does not take either."""
    assert keywords(getattr(table, method)) == KEYWORDS[METHODS[method]] - {"TableName"}


@pytest.mark.parametrize("method", [name for name in METHODS if hasattr(TableLike, name)])
def test_table_like_takes_the_same_keywords(method: str) -> None:
    assert keywords(getattr(TableLike, method)) == keywords(getattr(ShardedTable, method))


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_of_a_transaction_has_its_keywords(kind: str) -> None:
    assert set(get_type_hints(PARTS[kind])) == KEYWORDS[kind]


@pytest.mark.parametrize("table", [ShardedTable, shardkit.aio.table.ShardedTable, TableLike])
def test_annotations_can_be_read_at_run_time(table: type) -> None:
    """Also without the stubs of boto3."""
    for name, method in inspect.getmembers(table, inspect.isfunction):
        if name != "__init_subclass__":
            assert isinstance(get_type_hints(method), dict)
