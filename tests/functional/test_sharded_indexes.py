"""Sharded indexes through boto3, on moto: what goes over the wire, installed clients, loads and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable, Unsharded, bulk_load, install
from shardkit.bulk.sources import open_source
from shardkit.errors import CursorError, InvalidKeyError, UnsupportedExpressionError
from shardkit.strategies import Strategy
from tests.support.indexed import WAYS, Way
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

NAMES = {"#s": "status"}
OPEN = Key("status").eq("open")
KEYS: Mapping[Way, Any] = {
    "attribute": [("status", "S"), ("shard", "N")],
    "source": ("ix", "S"),
    "place": ("status", "S"),
}
STORED = {"attribute": "shard", "source": "ix", "place": "status"}
MORE: Mapping[Way, dict[str, Any]] = {"attribute": {"attribute": "shard"}, "source": {"source": "status"}, "place": {}}


def table_of(
    resource: DynamoDBServiceResource, way: Way, strategy: Strategy, of_table: Strategy | None = None
) -> ShardedTable:
    table = make_table(
        resource,
        sort_key=("sk", "S"),
        global_indexes=[GlobalIndex("all", KEYS[way], ("at", "N")), GlobalIndex("keys", KEYS[way], None, "KEYS_ONLY")],
    )
    indexes = {"all": strategy, "keys": strategy}
    return ShardedTable(table, of_table or Unsharded(), indexes=indexes, rng=random.Random(0))


def items(count: int = 12) -> list[dict[str, Any]]:
    """Open and done ones, with ties."""
    return [
        {"pk": f"p{number % 2}", "sk": f"s{number:02}", "status": ["open", "done"][number % 3 == 0], "at": number // 4}
        for number in range(count)
    ]


# --- on the wire


@pytest.mark.parametrize("way", WAYS)
def test_what_is_sent(resource: DynamoDBServiceResource, way: Way) -> None:
    """Not every engine can query the index of ``attribute=``: here is what they get."""
    strategy = CalculatedSuffix("sk", shards=2, **MORE[way])
    table = table_of(resource, way, strategy)
    shards = {sk: CalculatedSuffix("sk", 2).shard_of("open", {"sk": sk}) for sk in ("a", "b", "c", "d")}
    assert {*shards.values()} == {1, 2}

    def stored(sk: str, value: str = "open") -> dict[str, str]:
        return {"N": str(shards[sk])} if way == "attribute" else {"S": f"{value}.{shards[sk]}"}

    with recording(table.meta.client) as recorder:
        for sk in shards:
            table.put_item(Item={"pk": "p", "sk": sk, "status": "open", "at": 1})
        table.update_item(
            Key={"pk": "p", "sk": "a"},
            UpdateExpression="SET #s = :v",
            ConditionExpression="#s = :o",
            ExpressionAttributeNames=NAMES,
            ExpressionAttributeValues={":v": "done", ":o": "open"},
        )
        pages = [table.query(IndexName="all", KeyConditionExpression=OPEN & Key("at").gt(0), Limit=2)]
        pages.append(table.query(
            IndexName="all", KeyConditionExpression=OPEN & Key("at").gt(0),
            ExclusiveStartKey=pages[0]["LastEvaluatedKey"],
        ))  # fmt: skip
    for sk, put in zip(shards, recorder.bodies("PutItem"), strict=True):
        item = {"pk": {"S": "p"}, "sk": {"S": sk}, "status": {"S": "open"}, "at": {"N": "1"}}
        assert put == {"TableName": table.name, "Item": {**item, STORED[way]: stored(sk)}}
    (update,) = recorder.bodies("UpdateItem")
    wanted = {
        "attribute": ("SET #s = :v, #shardkit_u0 = :shardkit_u0", "#s = :o"),
        "source": ("SET #s = :v, #shardkit_u0 = :shardkit_u0", "#s = :o"),
        "place": ("SET #s = :shardkit_u0", "#s IN (:shardkit_v0, :shardkit_v1)"),
    }
    assert (update["UpdateExpression"], update["ConditionExpression"]) == wanted[way]
    assert update["ExpressionAttributeValues"][":shardkit_u0"] == stored("a", "done")
    assert update["Key"] == {"pk": {"S": "p"}, "sk": {"S": "a"}}
    assert sorted(item["sk"] for page in pages for item in page["Items"]) == ["b", "c", "d"]
    queries = recorder.bodies("Query")
    for query in queries:
        names = query["ExpressionAttributeNames"]
        terms = query["KeyConditionExpression"].split(" AND ")
        compared = {names[term.split()[0]]: query["ExpressionAttributeValues"][term.split()[2]] for term in terms}
        logical = {"status": {"S": "open"}} if way == "attribute" else {}
        shard = compared.pop(STORED[way])
        assert shard in ([{"N": "1"}, {"N": "2"}] if way == "attribute" else [{"S": "open.1"}, {"S": "open.2"}])
        assert compared == {**logical, "at": compared["at"]}
        start = query.get("ExclusiveStartKey", {})
        assert not start or (start.keys() == {"pk", "sk", "at", STORED[way], *logical} and start[STORED[way]] == shard)
    assert any("ExclusiveStartKey" in query for query in queries)


def test_a_small_projection_is_read_from_the_index(resource: DynamoDBServiceResource) -> None:
    """DynamoDB refuses to select an attribute that the index does not have, as an index of keys the source."""
    table = table_of(resource, "source", CalculatedSuffix("sk", 2, source="status"))
    for item in items():
        table.put_item(Item=item)
    projected: dict[str, Any] = {"ProjectionExpression": "sk, #s", "ExpressionAttributeNames": NAMES}
    with recording(table.meta.client) as recorder:
        found = table.query(IndexName="keys", KeyConditionExpression=OPEN, **projected)["Items"]
        assert table.scan(IndexName="keys", **projected)["Count"] == 12
        table.query(KeyConditionExpression=Key("pk").eq("p1"), **projected)
    assert {item["status"] for item in found} == {"open"}
    assert all(item.keys() == {"sk", "status"} for item in found)
    for operation, body in recorder.requests[:-1]:
        names = {body["ExpressionAttributeNames"][part.strip()] for part in body["ProjectionExpression"].split(",")[1:]}
        assert "ix" in names, operation
        assert "status" not in names
    assert "ix" not in recorder.requests[-1][1]["ExpressionAttributeNames"].values()


# --- reads


@pytest.mark.parametrize("of_table", [CalculatedSuffix("sk", 2), RandomSuffix(2)])
@pytest.mark.parametrize("way", WAYS)
def test_an_installed_client(
    boto3_session: boto3.Session, resource: DynamoDBServiceResource, way: Way, of_table: Strategy
) -> None:
    """Paginators get keys as cursors, and those of a library that makes them of the last item are read too."""
    for strategy in (CalculatedSuffix("sk", 3, **MORE[way]), RandomSuffix(3, **MORE[way])):
        table = table_of(resource, way, strategy, of_table)
        client = boto3_session.client("dynamodb")
        indexes = {table.name: {"all": strategy, "keys": strategy}}
        with install(client, {table.name: of_table}, indexes=indexes, rng=random.Random(0)):
            requests: Any = [{"PutRequest": {"Item": _wire(item)}} for item in items()]
            client.batch_write_item(RequestItems={table.name: requests})
            wanted = sorted(str(_wire(item)) for item in items() if item["status"] == "open")
            query: dict[str, Any] = {
                "TableName": table.name, "IndexName": "all", "KeyConditionExpression": "#s = :o",
                "ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": {":o": {"S": "open"}},
            }  # fmt: skip
            for size in (1, 5):
                config: Any = {"PageSize": size}
                pages = [*client.get_paginator("query").paginate(**query, PaginationConfig=config)]
                found = [item for page in pages for item in page["Items"]]
                assert sorted(map(_text, found)) == wanted
                assert [item["at"]["N"] for item in found] == sorted(item["at"]["N"] for item in found)
                scanned = client.get_paginator("scan").paginate(
                    TableName=table.name, IndexName="all", PaginationConfig=config
                )
                every = [item for page in scanned for item in page["Items"]]
                assert sorted(map(_text, every)) == sorted(str(_wire(item)) for item in items())
            whole = client.query(**query)["Items"]
            start = {name: whole[4][name] for name in ("pk", "sk", "at", "status")}
            if isinstance(strategy, CalculatedSuffix) and not isinstance(of_table, RandomSuffix):
                assert client.query(**query, ExclusiveStartKey=start)["Items"] == whole[5:]
                rest = client.scan(TableName=table.name, IndexName="all", ExclusiveStartKey=start)["Items"]
                assert 0 < len(rest) < 12
                continue
            for name in ("query", "scan"):
                with pytest.raises(CursorError, match="hand-made, and its shard cannot be calculated"):
                    getattr(client, name)(
                        **(query if name == "query" else {"TableName": table.name, "IndexName": "all"}),
                        ExclusiveStartKey=start,
                    )


def _wire(item: Mapping[str, Any]) -> dict[str, Any]:
    wire = {name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in item.items()}
    return dict(sorted(wire.items()))


def _text(item: Mapping[str, Any]) -> str:
    return str(dict(sorted(item.items())))


def test_the_partition_key_is_a_source(boto3_session: boto3.Session, resource: DynamoDBServiceResource) -> None:
    """The table's shard is not known from the position, so it must stay in the key that is the cursor."""
    table = make_table(resource, sort_key=("sk", "S"), global_indexes=[GlobalIndex("by-pk", ("ix", "S"), ("at", "N"))])
    strategy = CalculatedSuffix("sk", 3, source="pk")
    client = boto3_session.client("dynamodb")
    with install(client, {table.name: RandomSuffix(3)}, indexes={table.name: {"by-pk": strategy}}):
        for number in range(12):
            client.put_item(TableName=table.name, Item=_wire({"pk": "p.1", "sk": f"s{number}", "at": number // 5}))
        pages = client.get_paginator("query").paginate(
            TableName=table.name, IndexName="by-pk", KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "p.1"}}, PaginationConfig={"PageSize": 1},
        )  # fmt: skip
        found = [item for page in pages for item in page["Items"]]
    assert {item["sk"]["S"] for item in found} == {f"s{number}" for number in range(12)}
    assert len(found) == 12
    assert all(item.keys() == {"pk", "sk", "at"} and item["pk"] == {"S": "p.1"} for item in found)


@pytest.mark.parametrize("returned", ["UPDATED_NEW", "UPDATED_OLD", "ALL_NEW", "ALL_OLD"])
def test_returned_attributes(resource: DynamoDBServiceResource, returned: Any) -> None:
    """The source is a key of the table, so each update also sets the index's attribute."""
    table = make_table(resource, sort_key=("sk", "S"), global_indexes=[GlobalIndex("by-sk", ("ix", "S"), ("at", "N"))])
    sharded = ShardedTable(table, Unsharded(), indexes={"by-sk": CalculatedSuffix("pk", 3, source="sk")})
    plain = make_table(resource, sort_key=("sk", "S"))
    key = {"pk": "p", "sk": "open.3"}
    for number in (1, 2):
        found, wanted = (
            one.update_item(
                Key=key, UpdateExpression="SET n = :n", ExpressionAttributeValues={":n": number}, ReturnValues=returned
            ).get("Attributes")
            for one in (sharded, plain)
        )
        assert found == wanted
    assert sharded.query(IndexName="by-sk", KeyConditionExpression=Key("sk").eq("open.3"))["Items"] == []
    sharded.update_item(Key=key, UpdateExpression="SET #a = :a", ExpressionAttributeNames={"#a": "at"},
                        ExpressionAttributeValues={":a": 1})  # fmt: skip
    assert sharded.query(IndexName="by-sk", KeyConditionExpression=Key("sk").eq("open.3"))["Count"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_unusual_values(resource: DynamoDBServiceResource, way: Way) -> None:
    """Also those that look like another value's stored one."""
    table = table_of(resource, way, CalculatedSuffix("sk", 3, **MORE[way]))
    value, *values = ["open.3", "open", "open.3.3", "ö.\U0001f600.1", ".", "a" * 2000, "#s", "3"]
    for number, one in enumerate((value, *values)):
        for sk in "abcd":
            table.put_item(Item={"pk": f"p{number}", "sk": sk, "status": one, "at": 1})
    for number, one in enumerate((value, *values)):
        found = table.query(IndexName="all", KeyConditionExpression=Key("status").eq(one))["Items"]
        assert [(item["status"], item["pk"]) for item in found] == [(one, f"p{number}")] * 4
        assert table.scan(FilterExpression=Attr("status").eq(one))["Count"] == 4
    update: dict[str, Any] = {
        "UpdateExpression": "SET #s = :o", "ConditionExpression": "#s = :v", "ExpressionAttributeNames": NAMES,
        "ExpressionAttributeValues": {":o": "open", ":v": value}, "ReturnValues": "UPDATED_OLD",
    }  # fmt: skip
    assert table.update_item(Key={"pk": "p0", "sk": "a"}, **update)["Attributes"] == {"status": value}
    with pytest.raises(ClientError, match="ConditionalCheckFailed") as caught:
        table.update_item(Key={"pk": "p0", "sk": "a"}, ReturnValuesOnConditionCheckFailure="ALL_OLD", **update)
    assert caught.value.response["Item"].keys() == {"pk", "sk", "status", "at"}  # type: ignore[typeddict-item]
    assert table.query(IndexName="all", KeyConditionExpression=OPEN)["Count"] == 5


# --- writes of several items


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_with_a_token_is_the_same_again(resource: DynamoDBServiceResource, way: Way) -> None:
    """Random shards are drawn from the token: the service refuses another transaction with the same token."""
    table = table_of(resource, way, RandomSuffix(1000, **MORE[way]))
    put = {"Put": {"Item": {"pk": "p", "sk": "a", "status": "open", "at": 1}}}
    change = {
        "Update": {
            "Key": {"pk": "p", "sk": "b"}, "UpdateExpression": "SET #s = :o", "ExpressionAttributeNames": NAMES,
            "ExpressionAttributeValues": {":o": "open"},
        }
    }  # fmt: skip
    check = {
        "ConditionCheck": {
            "Key": {"pk": "p", "sk": "c"}, "ConditionExpression": "attribute_not_exists(#s) OR #s <> :o",
            "ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": {":o": "open"},
        }
    }  # fmt: skip
    parts: Any = [put, change, *([] if way == "place" else [check])]
    with recording(table.meta.client) as recorder:
        for token in ("one", "one", "two"):
            table.transact_write_items(TransactItems=parts, ClientRequestToken=token)
    first, again, other = recorder.bodies("TransactWriteItems")
    assert first == again
    assert first["TransactItems"][:2] != other["TransactItems"][:2]
    if way == "place":
        with pytest.raises(UnsupportedExpressionError, match="has 1000 stored values for it"):
            table.transact_write_items(TransactItems=[check])  # type: ignore[list-item]


@pytest.mark.parametrize("way", WAYS)
def test_loads_and_their_dead_letters(resource: DynamoDBServiceResource, way: Way, tmp_path: Path) -> None:
    """An item that was refused is written later, and each item has the attribute of its index."""
    strategy = RandomSuffix(3, **MORE[way])
    table = table_of(resource, way, strategy, RandomSuffix(2))
    letters = tmp_path / "dead.jsonl"
    refused = {"__type": "com.amazonaws.dynamodb.v20120810#ValidationException", "message": "no"}
    with answering(table.meta.client, "BatchWriteItem", lambda _: refused), answering(
        table.meta.client, "PutItem", lambda _: refused
    ):  # fmt: skip
        report = bulk_load(table, items(), on_error="collect", dead_letters=letters)
    assert report.failed == 12
    kept = [json.loads(line)["Item"].keys() for line in letters.read_text("utf-8").splitlines()]
    assert kept == [{"pk", "sk", "status", "at"}] * 12
    assert bulk_load(table, open_source(letters, table=table)).written == 12
    found = table.query(IndexName="all", KeyConditionExpression=OPEN)["Items"]
    key: Any = lambda item: item["sk"]  # noqa: E731
    assert sorted(found, key=key) == [item for item in items() if item["status"] == "open"]
    stored = resource.Table(table.name).scan()["Items"]
    assert len({item[STORED[way]] for item in stored}) > 1
    assert all(strategy.split(str(item["ix"]))[1] for item in stored if way == "source")


# --- refusals


REFUSED: list[tuple[Way, str, dict[str, Any], str]] = [
    ("source", "put_item", {"Item": {"pk": "p", "sk": "s", "ix": "open.1"}}, "Item: must not have 'ix'"),
    ("attribute", "put_item", {"Item": {"pk": "p", "sk": "s", "shard": 1}}, "Item: must not have 'shard'"),
    ("source", "put_item", {"Item": {"pk": "p", "sk": "s", "status": 3}}, "status: must be a value of type S.* got 3;"),
    ("place", "put_item", {"Item": {"pk": "p", "sk": "s", "status": None}}, "status: must be a value of type S"),
    ("source", "get_item", {"ProjectionExpression": "ix"}, "ProjectionExpression: must not mention 'ix'"),
    ("source", "get_item", {"AttributesToGet": ["ix"]}, "AttributesToGet: must not mention 'ix'"),
    ("source", "scan", {"ProjectionExpression": "ix.a"}, "ProjectionExpression: must not mention 'ix'"),
    ("source", "scan", {"FilterExpression": Attr("ix").exists()}, "FilterExpression: must not mention 'ix'"),
    ("source", "scan", {"IndexName": "all", "FilterExpression": Attr("status").exists()}, "query the index, or scan"),
    ("source", "query", {"FilterExpression": Attr("status").eq("open")}, "must not mention 'status'.* key of index"),
    ("source", "query", {"KeyConditionExpression": Key("ix").eq("open.1")}, "must have '=' on the .* 'status'"),
    (
        "attribute", "query", {"KeyConditionExpression": OPEN & Key("shard").eq(1)},
        "KeyConditionExpression: must not mention 'shard'",
    ),
    ("place", "query", {"Shard": 1}, "Shard: not supported for this index"),
    ("place", "scan", {"FilterExpression": Attr("status").begins_with("o")}, "compare it with = to a whole value"),
    ("place", "scan", {"ScanFilter": {"status": {"ComparisonOperator": "NE", "AttributeValueList": ["a"]}}}, "with ="),
    ("place", "delete_item", {"ConditionExpression": Attr("status").gt("o")}, "compare it with = to a whole value"),
]  # fmt: skip


@pytest.mark.parametrize("way", ["attribute", "source"])
def test_a_table_made_without_indexes(resource: DynamoDBServiceResource, way: Way) -> None:
    """The refusal of the logical key names the argument that was forgotten, and not of an index as of the table."""
    plain = ShardedTable(table_of(resource, way, CalculatedSuffix("sk", 3, **MORE[way])).table, Unsharded())
    with pytest.raises(UnsupportedExpressionError, match=r"; if the index is sharded, give indexes={'all': …}$"):
        plain.query(IndexName="all", KeyConditionExpression=OPEN)
    with pytest.raises(UnsupportedExpressionError, match=r"scan\(\)$"):
        plain.query(KeyConditionExpression=OPEN)


def test_a_forgotten_source(resource: DynamoDBServiceResource) -> None:
    table = table_of(resource, "place", CalculatedSuffix("sk", 3))
    with pytest.raises(UnsupportedExpressionError, match=r"; to ask by 'kind', give the index's strategy .* source=$"):
        table.query(IndexName="all", KeyConditionExpression=Key("kind").eq("order"))


@pytest.mark.parametrize(("way", "operation", "params", "message"), REFUSED)
def test_refusals(
    resource: DynamoDBServiceResource, way: Way, operation: str, params: dict[str, Any], message: str
) -> None:
    table = table_of(resource, way, CalculatedSuffix("sk", 3, **MORE[way]))
    if operation in {"get_item", "delete_item"}:
        params = {"Key": {"pk": "p", "sk": "s"}, **params}
    if operation == "query":
        params = {"IndexName": "all", "KeyConditionExpression": OPEN, **params}
    with recording(table.meta.client) as recorder, pytest.raises(Exception, match=message):
        getattr(table, operation)(**params)
    assert not {*recorder.operations} - {"DescribeTable"}


def test_kept_attributes_are_not_selected_in_batches(
    boto3_session: boto3.Session, resource: DynamoDBServiceResource
) -> None:
    strategy = CalculatedSuffix("sk", 3, source="status")
    table = table_of(resource, "source", strategy)
    key = {"pk": "p", "sk": "s"}
    client = boto3_session.client("dynamodb")
    with pytest.raises(UnsupportedExpressionError, match="ProjectionExpression: must not mention 'ix'"):
        table.batch_get_items([key], ProjectionExpression="ix")
    with install(client, {table.name: Unsharded()}, indexes={table.name: {"all": strategy, "keys": strategy}}):
        asked: Any = {
            table.name: {"Keys": [_wire(key)], "ProjectionExpression": "#i", "ExpressionAttributeNames": {"#i": "ix"}}
        }
        with pytest.raises(ClientError, match="ProjectionExpression: must not mention 'ix'"):
            client.batch_get_item(RequestItems=asked)


def test_what_by_reads_is_left_out_of_the_key(resource: DynamoDBServiceResource) -> None:
    """Beside the key, an update gives the attribute that the index's shard is calculated from."""
    for by in ("region", lambda item: item["region"]):
        table = table_of(resource, "source", CalculatedSuffix(by, 3, source="status"))
        table.put_item(Item={"pk": "p", "sk": "s", "region": "eu", "at": 1})
        with recording(table.meta.client) as recorder:
            table.update_item(
                Key={"pk": "p", "sk": "s", "region": "eu"}, UpdateExpression="SET #s = :o",
                ExpressionAttributeNames=NAMES, ExpressionAttributeValues={":o": "open"},
            )  # fmt: skip
        assert recorder.bodies("UpdateItem")[0]["Key"].keys() == {"pk", "sk"}
        assert table.query(IndexName="all", KeyConditionExpression=OPEN)["Count"] == 1


def test_placeholders_that_are_not_used_are_the_callers(resource: DynamoDBServiceResource) -> None:
    """The service refuses them, so they must not go with what is rewritten, and none may be left behind."""
    table = table_of(resource, "place", CalculatedSuffix("sk", 3))
    update: dict[str, Any] = {
        "Key": {"pk": "p", "sk": "s"}, "UpdateExpression": "SET #s = :o", "ConditionExpression": "#s <> :o",
        "ExpressionAttributeNames": NAMES,
    }  # fmt: skip
    with pytest.raises(ClientError, match=r"unused in expressions: keys: {:x}"):
        table.update_item(**update, ExpressionAttributeValues={":o": "open", ":x": "x"})
    table.update_item(**update, ExpressionAttributeValues={":o": "open"})
    with pytest.raises(InvalidKeyError, match="not empty, because it is the partition key of index 'keys'"):
        table.update_item(**update, ExpressionAttributeValues={":o": ""})
