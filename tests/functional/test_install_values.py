"""Values come back from an installed client as a plain one returns them: binary ones as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

import shardkit
from shardkit import CalculatedSuffix, RandomSuffix, Resharding, Strategy, Unsharded
from shardkit.cache import CacheOptions
from shardkit.dynamodb.body import encode
from shardkit.runtime.runner import on_clock
from shardkit.testing import VirtualClock
from tests.support.wire import Body, Service, error, serving

RAW = b"\x00\xff\xfe-"
SCHEMA = {
    "KeySchema": [{"AttributeName": "B", "KeyType": "HASH"}, {"AttributeName": "BS", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "B"} for name in ("B", "BS")],
}
ELSEWHERE = "arn:aws:dynamodb:us-east-1:222222222222:table/B"
KEYS: list[dict[str, Any]] = [{"B": {"B": RAW}, "BS": {"B": RAW + bytes([number])}} for number in range(3)]
ITEMS = [{**key, "b": {"B": RAW}, "m": {"M": {"B": {"BS": [RAW]}, "n": {"N": "1"}}}} for key in KEYS]
BY_KEY = CalculatedSuffix("BS", 3)
LOCATED = RandomSuffix(2, locate=True)
CACHE = CacheOptions(max_bytes=1_000_000, query_ttl=60)
INSTALLED: dict[str, tuple[Strategy, CacheOptions | None]] = {
    "sharded": (BY_KEY, None),
    "cached": (BY_KEY, CACHE),
    "located": (LOCATED, None),
    **{stage: (Resharding(Unsharded(), BY_KEY, stage=stage), None) for stage in ("guard", "switch", "move")},
    "moving and cached": (Resharding(Unsharded(), BY_KEY, stage="move"), CACHE),
    "elsewhere": (BY_KEY, None),  # another account's table of the same name
}
BINARY = st.binary(max_size=9)
TEXT = st.text("aB", max_size=2) | st.just("eA==")
VALUES = st.recursive(
    st.one_of(
        st.builds(lambda text: {"S": text}, TEXT),
        st.builds(lambda number: {"N": str(number)}, st.integers()),
        st.builds(lambda raw: {"B": raw}, BINARY),
        st.builds(lambda given: {"BOOL": given}, st.booleans()),
        st.just({"NULL": True}),
        st.builds(lambda texts: {"SS": texts}, st.lists(TEXT, min_size=1, unique=True)),
        st.builds(lambda raws: {"BS": raws}, st.lists(BINARY, min_size=1, unique=True)),
    ),
    lambda values: st.one_of(
        st.builds(lambda members: {"L": members}, st.lists(values, max_size=3)),
        st.builds(lambda members: {"M": members}, st.dictionaries(st.sampled_from(["B", "BS", "M"]), values)),
    ),
    max_leaves=8,
)
EXAMPLES = st.dictionaries(st.sampled_from(["BOOL", "L", "S", "x"]), VALUES)


def nothing_processed(operation: str, body: Body) -> tuple[int, Any]:
    if operation == "DescribeTable":
        return error("ResourceNotFoundException")
    if operation == "BatchGetItem":
        return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}
    assert operation == "BatchWriteItem"
    return 200, {"UnprocessedItems": body["RequestItems"]}


@pytest.mark.parametrize("how", INSTALLED)
@pytest.mark.parametrize("kind", ["client", "resource"])
def test_what_is_left_unprocessed(how: str, kind: str) -> None:
    """It is given back to be sent again: base64 text would be encoded twice."""
    with serving(nothing_processed) as service, installed(how, kind, service) as (target, table):
        show: Callable[[Any], Any] = dict if kind == "client" else in_python
        puts = {table: [{"PutRequest": {"Item": show(item)}} for item in ITEMS]}
        keys = {table: {"Keys": [show(key) for key in KEYS]}}
        for _ in range(2):
            if how not in {"guard", "located", "switch"}:  # which write items singly
                puts = target.batch_write_item(RequestItems=puts)["UnprocessedItems"]
            keys = target.batch_get_item(RequestItems=keys)["UnprocessedKeys"]
    assert sorted(map(repr, puts[table])) == sorted(repr({"PutRequest": {"Item": show(item)}}) for item in ITEMS)
    assert sorted(map(repr, keys[table]["Keys"])) == sorted(repr(show(key)) for key in KEYS)


@pytest.mark.parametrize("how", INSTALLED)
def test_every_answer(how: str) -> None:
    @settings(max_examples=settings().max_examples // 6)
    @given(EXAMPLES)
    def same(attributes: dict[str, Any]) -> None:
        item = {**attributes, **KEYS[0]}
        service.answer = holding(item, how)
        with installed(how, "client", service) as (client, table):
            for _ in range(2):  # again, from a cache
                check_answers(client, table, item, scans=not isinstance(INSTALLED[how][0], Resharding))

    with serving(nothing_processed) as service:
        same()


def check_answers(client: Any, table: str, item: dict[str, Any], *, scans: bool) -> None:
    key = KEYS[0]
    query = {"KeyConditionExpression": "B = :b", "ExpressionAttributeValues": {":b": key["B"]}}
    assert client.query(TableName=table, **query)["Items"] == [item]
    page = client.query(TableName=table, **query, Limit=1)
    assert page["Items"] == [item]
    check_position(page["LastEvaluatedKey"])
    if scans:
        page = client.scan(TableName=table, Limit=1)
        assert page["Items"] == [item]
        check_position(page["LastEvaluatedKey"])
    assert client.get_item(TableName=table, Key=key)["Item"] == item
    assert client.batch_get_item(RequestItems={table: {"Keys": [key]}})["Responses"][table] == [item]
    (read,) = client.transact_get_items(TransactItems=[{"Get": {"TableName": table, "Key": key}}])["Responses"]
    assert read["Item"] == item
    metrics: Any = {"ReturnItemCollectionMetrics": "SIZE"}
    update = {"UpdateExpression": "SET x = :x", "ExpressionAttributeValues": {":x": {"B": RAW}}}
    for operation, params in (
        ("put_item", {"Item": item}),
        ("update_item", {"Key": key, **update}),
        ("delete_item", {"Key": key}),
    ):
        response = getattr(client, operation)(TableName=table, **params, ReturnValues="ALL_OLD", **metrics)
        assert response["Attributes"] == item
        assert response["ItemCollectionMetrics"]["ItemCollectionKey"] == {"B": key["B"]}
    batch = client.batch_write_item(RequestItems={table: [{"PutRequest": {"Item": item}}]}, **metrics)
    write = client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": item}}], **metrics)
    for response in (batch, write):
        ((of_table, (collection,)),) = response["ItemCollectionMetrics"].items()
        assert (of_table, collection["ItemCollectionKey"]) == (table, {"B": key["B"]})
    refused: Any = {
        "Item": item,
        "ConditionExpression": "x = :refused",
        "ExpressionAttributeValues": {":refused": {"B": RAW}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    with pytest.raises(ClientError) as of_item:
        client.put_item(TableName=table, **refused)
    with pytest.raises(ClientError) as of_transaction:
        client.transact_write_items(TransactItems=[{"Put": {"TableName": table, **refused}}])
    (reason,) = of_transaction.value.response["CancellationReasons"]
    assert of_item.value.response["Item"] == reason["Item"] == item  # type: ignore[typeddict-item]


def check_position(key: dict[str, Any]) -> None:
    """Where a position is logical it is the item's key; else it has a suffix."""
    assert key["BS"] == KEYS[0]["BS"]
    assert key["B"]["B"].startswith(RAW)


def holding(item: dict[str, Any], how: str) -> Callable[[str, Body], tuple[int, Any]]:
    """Return the answers of a service that holds one item, and carries out whatever has no value ``:refused``."""
    strategy = LOCATED if how == "located" else BY_KEY if how in {"cached", "sharded"} else Unsharded()
    shard = 1 if how == "located" else strategy.shard_of(RAW, {"BS": KEYS[0]["BS"]["B"]})
    home: Any = strategy.physical_key(RAW, shard)
    stored = json.loads(encode({**item, "B": {"B": home}}))
    place = stored["B"]
    collection = {"ItemCollectionKey": {"B": place}, "SizeEstimateRangeGB": [0, 1]}

    def found(key: Any) -> dict[str, Any]:
        return {"Item": stored} if key["B"] == place else {}

    def page(body: Body, items: list[Any]) -> dict[str, Any]:
        last = {name: stored[name] for name in ("B", "BS")}
        more = {"LastEvaluatedKey": last} if items and "Limit" in body and "ExclusiveStartKey" not in body else {}
        return {"Items": items, "Count": len(items), "ScannedCount": len(items), **more}

    def several(body: Body) -> dict[str, Any]:
        ((table, part),) = body["RequestItems"].items()
        items = [stored for key in part["Keys"] if key["B"] == place]
        return {"Responses": {table: items}, "UnprocessedKeys": {}}

    answers: dict[str, Callable[[Body], dict[str, Any]]] = {
        "BatchGetItem": several,
        "BatchWriteItem": lambda _: {"UnprocessedItems": {}, "ItemCollectionMetrics": {"B": [collection]}},
        "GetItem": lambda body: found(body["Key"]),
        "Query": lambda body: page(body, [stored] if place in body["ExpressionAttributeValues"].values() else []),
        "Scan": lambda body: page(body, [stored]),
        "TransactGetItems": lambda body: {"Responses": [found(part["Get"]["Key"]) for part in body["TransactItems"]]},
        "TransactWriteItems": lambda _: {"ItemCollectionMetrics": {"B": [collection]}},
        **dict.fromkeys(
            ("DeleteItem", "PutItem", "UpdateItem"),
            lambda _: {"Attributes": stored, "ItemCollectionMetrics": collection},
        ),
    }

    def answer(operation: str, body: Body) -> tuple[int, Any]:
        if operation == "DescribeTable":
            return error("ResourceNotFoundException")  # so each call asks again whether it is this account's table
        if ":refused" not in json.dumps(body):
            return 200, answers[operation](body)
        if operation == "TransactWriteItems":
            reasons = [{"Code": "ConditionalCheckFailed", "Message": "", "Item": stored}]
            return error("TransactionCanceledException", CancellationReasons=reasons)
        return error("ConditionalCheckFailedException", Item=stored)

    return answer


@contextmanager
def installed(how: str, kind: str, service: Service) -> Iterator[tuple[Any, str]]:
    """Yield a client or a resource with the table installed, and the name by which it is to be asked for."""
    make: Any = boto3.client if kind == "client" else boto3.resource
    target = make("dynamodb", endpoint_url=service.url)
    client = target if kind == "client" else target.meta.client
    strategy, cache = INSTALLED[how]
    caches = None if cache is None else {"B": cache}
    schemas = None if how == "elsewhere" else {"B": SCHEMA}
    with (
        shardkit.install(target, {"B": strategy}, key_schemas=schemas, cache=caches),
        on_clock(client, VirtualClock()),
    ):
        yield target, ELSEWHERE if how == "elsewhere" else "B"
    client.close()


def in_python(item: Any) -> Any:
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}
