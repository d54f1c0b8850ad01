"""Transactions over several tables: what is sent, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import (
    AmbiguousItemError,
    InvalidKeyError,
    ShardkitError,
    ShardUnknownError,
    UnsupportedExpressionError,
    UnsupportedParameterError,
)
from shardkit.sharding.form import PYTHON_VALUES, WIRE_VALUES
from shardkit.sharding.transactions import transact_get, transact_write
from tests.support.fakes import ARN, client_error
from tests.support.several import Several, sharding_of, stored


@pytest.fixture(params=[PYTHON_VALUES, WIRE_VALUES], ids=["python", "wire"])
def tables(request: pytest.FixtureRequest) -> Several:
    return Several(request.param)


def parts_of(send: Send) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = send.params["TransactItems"]
    return parts


def located(*there: dict[str, Any]) -> Callable[[Send], Answer]:
    """Answer a search with those of its keys that are there, and a transaction with nothing."""

    def answer(send: Send) -> Answer:
        if send.operation != "BatchGetItem":
            return {"Responses": [{} for _ in parts_of(send)]} if send.operation == "TransactGetItems" else {}
        ((table, asked),) = send.params["RequestItems"].items()
        return {"Responses": {table: [key for key in asked["Keys"] if key in there]}, "UnprocessedKeys": {}}

    return answer


def test_parts_on_sharded_and_plain_tables(tables: Several) -> None:
    """One request with stored keys, also in conditions; what is not a key stays as it is."""
    item, k1, k2 = (tables.given(pk="k", sk=number) for number in range(3))
    check = {"ConditionExpression": "pk = :k AND n < :n", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    values = tables.values(k="k", n=5)
    tables.run(transact_write, {
        "TransactItems": [
            {"Put": {"TableName": "calculated", "Item": item}},
            {"ConditionCheck": {"TableName": "calculated", "Key": k1, **check, "ExpressionAttributeValues": values}},
            {"Update": {"TableName": "by-customer", "Key": {**k1, **tables.given(customer="c")},
                        "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": tables.values(n=1)}},
            {"Delete": {"TableName": "calculated", "Key": k2}},
            {"Put": {"TableName": "plain", "Item": item}},
            {"Put": {"TableName": "random", "Item": item}},
        ],
        "ClientRequestToken": "once",
        "ReturnConsumedCapacity": "TOTAL",
    })  # fmt: skip
    (send,) = tables.sent
    assert send.operation == "TransactWriteItems"
    assert {**send.params, "TransactItems": []} == {
        "TransactItems": [], "ClientRequestToken": "once", "ReturnConsumedCapacity": "TOTAL",
    }  # fmt: skip
    put, checked, update, delete, plain, drawn = parts_of(send)
    assert put == {"Put": {"TableName": "calculated", "Item": stored("calculated", pk="k", sk=0)}}
    physical = stored("calculated", pk="k", sk=1)
    assert physical["pk"] in checked["ConditionCheck"]["ExpressionAttributeValues"].values()
    assert {"S": "k"} not in checked["ConditionCheck"]["ExpressionAttributeValues"].values()
    assert checked["ConditionCheck"]["Key"] == physical
    assert update["Update"]["Key"]["pk"] == stored("by-customer", pk="k", sk=1, customer="c")["pk"]
    assert update["Update"]["Key"].keys() == {"pk", "sk"}
    assert update["Update"]["ExpressionAttributeValues"] == {":n": {"N": "1"}}
    assert delete == {"Delete": {"TableName": "calculated", "Key": stored("calculated", pk="k", sk=2)}}
    assert plain == {"Put": {"TableName": "plain", "Item": to_wire_item({"pk": "k", "sk": 0})}}
    assert sharding_of("random").logical(drawn["Put"]["Item"]["pk"])[0] == {"S": "k"}


def test_the_response_of_a_write(tables: Several) -> None:
    """Metrics of item collections show logical keys, by the names of the request; capacity is the service's."""
    consumed = [{"TableName": "calculated", "CapacityUnits": 2.0}, {"TableName": "plain", "CapacityUnits": 2.0}]
    tables.answers = lambda _: {
        "ConsumedCapacity": consumed,
        "ItemCollectionMetrics": {
            "calculated": [{"ItemCollectionKey": {"pk": {"S": "k.3"}}, "SizeEstimateRangeGB": [0.0, 1.0]}],
            "plain": [{"ItemCollectionKey": {"pk": {"S": "k.3"}}}, {}],
        },
    }
    names = {"calculated": ARN + "calculated", "plain": "plain"}
    puts = [{"Put": {"TableName": name, "Item": tables.given(pk="k", sk=1)}} for name in names.values()]
    assert tables.run(transact_write, {"TransactItems": puts}) == {
        "ConsumedCapacity": consumed,
        "ItemCollectionMetrics": {
            names["calculated"]: [{"ItemCollectionKey": tables.given(pk="k"), "SizeEstimateRangeGB": [0.0, 1.0]}],
            "plain": [{"ItemCollectionKey": tables.given(pk="k.3")}, {}],
        },
    }
    assert [part["Put"]["TableName"] for part in parts_of(tables.sent[0])] == list(names.values())


def random_puts(tables: Several, count: int, **options: Any) -> list[Any]:
    puts = [{"Put": {"TableName": "random", "Item": tables.given(pk="k", sk=number)}} for number in range(count)]
    tables.run(transact_write, {"TransactItems": puts, **options})
    return [part["Put"]["Item"]["pk"]["S"] for part in parts_of(tables.sent[-1])]


def test_one_token_gives_the_same_random_shards(tables: Several) -> None:
    """The service refuses another transaction with the same token; each key is drawn by itself."""
    tables.draws = (0.1, 0.9)
    once, twice, other = (random_puts(tables, 40, ClientRequestToken=token) for token in ("a", "a", "b"))
    assert once == twice != other
    assert set(once) == {"k.1", "k.2", "k.3", "k.4"}
    assert tables.drawn == 0


def test_without_a_token_the_draws_are_the_callers(tables: Several) -> None:
    tables.draws = (0.1, 0.9)
    assert random_puts(tables, 40) != random_puts(tables, 40)


def test_two_parts_with_one_key_are_one_item(tables: Several) -> None:
    """Also where a shard is drawn: so the service refuses them, as it does on a plain table."""
    put = {"Put": {"TableName": "random", "Item": tables.given(pk="k", sk=1)}}
    tables.run(transact_write, {"TransactItems": [put, put]})
    one, other = parts_of(tables.sent[0])
    assert one == other


def test_the_reasons_of_a_cancelled_transaction_show_logical_keys(tables: Several) -> None:
    """In wire form, as boto3 leaves them; the error is the service's own."""
    failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
    items = [{"pk": {"S": "k.3"}, "n": {"N": "1"}}, {"n": {"N": "2"}}, {"pk": {"S": "k.3"}}]
    error: Any = client_error("TransactionCanceledException")
    error.response["CancellationReasons"] = [{"Code": "None"}, *({**failed, "Item": item} for item in items)]
    tables.answers = lambda _: error
    check = {"Key": tables.given(pk="k", sk=1), "ConditionExpression": "attribute_not_exists(pk)"}
    checks = [
        {"ConditionCheck": {"TableName": table, **check}}
        for table in ("calculated", "calculated", "calculated", "plain")
    ]
    with pytest.raises(ClientError) as raised:
        tables.run(transact_write, {"TransactItems": checks})
    assert raised.value is error
    logical = [{**items[0], "pk": {"S": "k"}}, *items[1:]]
    assert error.response["CancellationReasons"] == [{"Code": "None"}, *({**failed, "Item": item} for item in logical)]
    assert error.response["Error"]["Code"] == "TransactionCanceledException"


def test_reads(tables: Several) -> None:
    """Each item in the caller's form; no item, and an item without its key, as they are."""
    found = [stored("calculated", pk="k", sk=1, n=5), None, {"n": {"N": "7"}}, {"pk": {"S": "k.3"}}]
    tables.answers = lambda _: {"Responses": [{} if item is None else {"Item": item} for item in found], "X": 1}
    get = {"TableName": "calculated", "Key": tables.given(pk="k", sk=1)}
    named = {**get, "ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "n"}}
    gets = [get, get, named, {**get, "TableName": "plain"}]
    response = tables.run(transact_get, {"TransactItems": [{"Get": one} for one in gets]})
    (send,) = tables.sent
    physical = stored("calculated", pk="k", sk=1)
    assert [part["Get"]["Key"] for part in parts_of(send)] == [physical] * 3 + [to_wire_item({"pk": "k", "sk": 1})]
    assert parts_of(send)[2]["Get"] == {**named, "Key": physical}
    shown = [tables.given(pk="k", sk=1, n=5), None, tables.given(n=7), tables.given(pk="k.3")]
    assert response == {"Responses": [{} if item is None else {"Item": item} for item in shown], "X": 1}


def test_located_writes_search_first(tables: Several) -> None:
    """And go on the condition that the item has not moved, beside the caller's own."""
    here = stored("located", 3, pk="k", sk=1)
    tables.answers = located(here)
    key, new = tables.given(pk="k", sk=1), tables.given(pk="k", sk=2)
    check = {"ConditionExpression": "a = :a OR b = :a", "ExpressionAttributeValues": tables.values(a=1)}
    parts = [
        {"ConditionCheck": {"TableName": ARN + "located", "Key": key, **check}},
        {"Put": {"TableName": "located", "Item": new}},
        {"Put": {"TableName": "plain", "Item": new}},
        {"Delete": {"TableName": "located", "Key": new}},
    ]
    tables.run(transact_write, {"TransactItems": parts, "ClientRequestToken": "once"})
    *searches, send = tables.sent
    assert [list(search.params["RequestItems"]) for search in searches] == [[ARN + "located"], ["located"], ["located"]]
    assert all(part["ConsistentRead"] for search in searches for part in search.params["RequestItems"].values())
    checked, put, _, delete = parts_of(send)
    assert checked["ConditionCheck"]["Key"] == here
    assert checked["ConditionCheck"]["TableName"] == ARN + "located"
    expression = checked["ConditionCheck"]["ConditionExpression"]
    assert expression == "(a = :a OR b = :a) AND attribute_exists(#shardkit_k)"
    assert put["Put"]["ConditionExpression"] == delete["Delete"]["ConditionExpression"]
    assert put["Put"]["ConditionExpression"] == "attribute_not_exists(#shardkit_k)"
    assert put["Put"]["Item"] == delete["Delete"]["Key"]


def test_located_reads_search_first(tables: Several) -> None:
    """A key that no shard holds is read all the same, so that there is an answer for it."""
    here = stored("located", 3, pk="k", sk=1)
    tables.answers = located(here)
    gets = [{"Get": {"TableName": "located", "Key": tables.given(pk="k", sk=number)}} for number in (1, 2)]
    assert tables.run(transact_get, {"TransactItems": gets}) == {"Responses": [{}, {}]}
    keys = [part["Get"]["Key"] for part in parts_of(tables.sent[-1])]
    assert keys == [here, stored("located", 1, pk="k", sk=2)]


def test_a_part_may_name_its_shard(tables: Several) -> None:
    key = tables.given(pk="k", sk=1)
    writes = [{"Delete": {"TableName": table, "Key": key, "Shard": 2}} for table in ("random", "located")]
    tables.run(transact_write, {"TransactItems": writes})
    tables.run(transact_get, {"TransactItems": [{"Get": {"TableName": "random", "Key": key, "Shard": 2}}]})
    assert [send.operation for send in tables.sent] == ["TransactWriteItems", "TransactGetItems"]
    for send in tables.sent:
        for part in parts_of(send):
            (body,) = part.values()
            assert body == {"TableName": body["TableName"], "Key": stored("random", 2, pk="k", sk=1)}


KEY = {"pk": {"S": "k"}, "sk": {"N": "1"}}
UPDATE = {"Key": {**KEY, "customer": {"S": "c"}}, "UpdateExpression": "SET customer = :c"}


@pytest.mark.parametrize(
    ("kind", "table", "body", "error", "message"),
    [
        ("Put", "calculated", {}, UnsupportedParameterError, "^Item: missing"),
        ("Delete", "calculated", {}, UnsupportedParameterError, "^Key: missing"),
        ("Put", "calculated", {"Item": {"pk": {"S": "k"}}}, InvalidKeyError, "^sk: missing"),
        ("Put", "calculated", {"Item": KEY, "Expected": {}}, UnsupportedParameterError, "^Expected.*: not a param"),
        ("Delete", "random", {"Key": KEY, "Shards": 1}, UnsupportedParameterError, r"mean Shard\?\): not a .* Delete;"),
        ("Get", "calculated", {"Key": KEY}, UnsupportedParameterError, "^Get: not an action of TransactWriteItems; "),
        ("Delete", "random", {"Key": KEY}, ShardUnknownError, "^Shard: missing"),
        ("Put", "random", {"Item": KEY, "ConditionExpression": "a = b"}, ShardUnknownError, "^Shard: missing"),
        ("Update", "by-customer", UPDATE, UnsupportedExpressionError, "changes \\['customer'\\]"),
        ("Update", "located", {"Key": KEY, "UpdateExpression": "REMOVE a"}, ShardUnknownError, "no shard holds"),
    ],
)
def test_a_refusal_names_the_part(
    kind: str, table: str, body: dict[str, Any], error: type[ShardkitError], message: str
) -> None:
    """Before the transaction is sent."""
    tables = Several(WIRE_VALUES, located())
    good = {"Put": {"TableName": "calculated", "Item": KEY}}
    with pytest.raises(error, match=message) as raised:
        tables.run(transact_write, {"TransactItems": [good, {kind: {"TableName": table, **body}}]})
    assert raised.value.__notes__ == ["in TransactItems[1]"]
    assert "TransactWriteItems" not in [send.operation for send in tables.sent]


def test_an_item_in_two_shards(tables: Several) -> None:
    tables.answers = located(stored("located", 2, pk="k", sk=1), stored("located", 4, pk="k", sk=1))
    get = {"Get": {"TableName": "located", "Key": tables.given(pk="k", sk=1)}}
    with pytest.raises(AmbiguousItemError) as raised:
        tables.run(transact_get, {"TransactItems": [get]})
    assert raised.value.shards == (2, 4)


@pytest.mark.parametrize("items", [None, {}, "x", [5], [{}], [{"Put": KEY, "Delete": KEY}], [{"Put": None}]], ids=str)
def test_what_is_not_a_list_of_actions(items: Any) -> None:
    for operation in (transact_get, transact_write):
        with pytest.raises(UnsupportedParameterError, match=r"^TransactItems(\[0\])?: must be a "):
            Several(PYTHON_VALUES).run(operation, {"TransactItems": items})


def test_an_unknown_parameter(tables: Several) -> None:
    with pytest.raises(UnsupportedParameterError, match=r"^ClientToken \(did you mean ClientRequestToken\?\): not a"):
        tables.run(transact_write, {"TransactItems": [], "ClientToken": "x"})
