"""A pytest plugin for another project's tests: shards its tables, and writes down which keys were sent.

`pytest -p tests.support.sharded_suite --keys-sent FILE [--sharded]`
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore

import shardkit
from shardkit import CalculatedSuffix, RandomSuffix, Unsharded
from shardkit.strategies import Strategy

if TYPE_CHECKING:
    import pytest

SHARDS = 4
KEYS = {
    "pynamodb-ci-connection": ("Forum", "Thread"),
    "pynamodb-ci-table": ("Forum", "Thread"),
    "pynamodb-ci": ("forum", "thread"),
    "discriminator_index_test": ("hash_key", None),
    "binary_set_attr_update__legacy_True": ("pkey", None),
    "binary_set_attr_update__legacy_False": ("pkey", None),
}
"""The tables of PynamoDB's tests whose partition key is text: their partition and sort keys."""

NUMBERS = ("user", "statement", "line-item", "different-region", "foo")
"""Those whose partition key is a number, which cannot carry a suffix: their calls are rewritten with the same keys."""


def strategies() -> dict[str, Strategy]:
    suffixes = {
        table: CalculatedSuffix(sort_key, shards=SHARDS) if sort_key else RandomSuffix(SHARDS, locate=True)
        for table, (_, sort_key) in KEYS.items()
    }
    return {**suffixes, **dict.fromkeys(NUMBERS, Unsharded())}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keys-sent", type=Path, required=True)
    parser.addoption("--sharded", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    # The mark that PynamoDB's own configuration declares.
    config.addinivalue_line("markers", "ddblocal: needs an engine")
    sent: list[tuple[str, str]] = []

    def record(request: Any, **_: object) -> None:
        body = json.loads(request.body)
        items = [(body.get("TableName"), body["Item"])] if "Item" in body else []
        for table, requests in body.get("RequestItems", {}).items():
            if isinstance(requests, list):  # of a BatchWriteItem
                items += [(table, request["PutRequest"]["Item"]) for request in requests if "PutRequest" in request]
        sent.extend((table, item[KEYS[table][0]]["S"]) for table, item in items if table in KEYS)

    def watch(session: Any) -> None:
        session.register("before-send.dynamodb", record)

    stack = ExitStack()
    config.add_cleanup(stack.close)
    stack.callback(lambda: config.getoption("--keys-sent").write_text(json.dumps(sent), encoding="utf-8"))
    botocore.register_initializer(watch)
    stack.callback(botocore.unregister_initializer, watch)
    if config.getoption("--sharded"):
        stack.enter_context(shardkit.install_everywhere(strategies()))
