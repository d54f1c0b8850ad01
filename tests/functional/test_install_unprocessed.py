"""What a service leaves unprocessed comes back from an installed client as it was given, to be sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer

import shardkit
from shardkit import CalculatedSuffix, RandomSuffix, Resharding, Strategy, Unsharded
from shardkit.cache import CacheOptions
from shardkit.runtime.runner import on_clock
from shardkit.testing import VirtualClock
from tests.support.wire import Body, Service, serving

RAW = b"\x00\xff\xfe-"
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "B"},
    ],
}
KEYS = [{"pk": {"S": "day"}, "sk": {"B": RAW + bytes([number])}} for number in range(3)]
ITEMS = [{**key, "b": {"B": RAW}, "m": {"M": {"B": {"BS": [RAW]}, "n": {"N": "1"}}}} for key in KEYS]
BY_KEY = CalculatedSuffix("sk", 3)
INSTALLED: dict[str, tuple[Strategy, CacheOptions | None]] = {
    "sharded": (BY_KEY, None),
    "cached": (BY_KEY, CacheOptions(max_bytes=1_000_000)),
    "located": (RandomSuffix(2, locate=True), None),
    "moving": (Resharding(Unsharded(), BY_KEY, stage="move"), None),
    "moving and cached": (Resharding(Unsharded(), BY_KEY, stage="move"), CacheOptions(max_bytes=1_000_000)),
}


def nothing_processed(operation: str, body: Body) -> tuple[int, Any]:
    assert operation in {"BatchGetItem", "BatchWriteItem"}
    if operation == "BatchGetItem":
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}
    return 200, {"UnprocessedItems": body["RequestItems"]}


@pytest.mark.parametrize("how", INSTALLED)
@pytest.mark.parametrize("kind", ["client", "resource"])
def test_it_is_what_was_given(how: str, kind: str) -> None:
    """Binary keys and attributes too: base64 text would be encoded again when it is sent again."""
    with serving(nothing_processed) as service:
        target = made(kind, service)
        client = target if kind == "client" else target.meta.client
        strategy, cache = INSTALLED[how]
        show: Callable[[Any], Any] = dict if kind == "client" else in_python
        puts = {"T": [{"PutRequest": {"Item": show(item)}} for item in ITEMS]}
        keys = {"T": {"Keys": [show(key) for key in KEYS]}}
        caches = None if cache is None else {"T": cache}
        with (
            shardkit.install(target, {"T": strategy}, key_schemas={"T": SCHEMA}, cache=caches),
            on_clock(client, VirtualClock()),
        ):
            for _ in range(2):  # given back, and sent again
                if how != "located":  # which raises if it can find no item at all
                    puts = target.batch_write_item(RequestItems=puts)["UnprocessedItems"]
                keys = target.batch_get_item(RequestItems=keys)["UnprocessedKeys"]
        client.close()
        assert sorted(map(repr, puts["T"])) == sorted(repr({"PutRequest": {"Item": show(item)}}) for item in ITEMS)
        assert sorted(map(repr, keys["T"]["Keys"])) == sorted(repr(show(key)) for key in KEYS)


def made(kind: str, service: Service) -> Any:
    return (boto3.client if kind == "client" else boto3.resource)("dynamodb", endpoint_url=service.url)


def in_python(item: Any) -> Any:
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}
