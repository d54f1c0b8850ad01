"""Batches over several tables: what rides in one request, what is sent alone, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Program, Response, Send
from shardkit.errors import (
    AmbiguousItemError,
    ConfigurationError,
    ShardUnknownError,
    UnsupportedParameterError,
)
from shardkit.sharding.batches import batch_get, batch_write
from shardkit.sharding.form import PYTHON_VALUES, WIRE_VALUES
from tests.support.fakes import ARN, client_error, throttled
from tests.support.several import Several, stored


@pytest.fixture(params=[PYTHON_VALUES, WIRE_VALUES], ids=["python", "wire"])
def tables(request: pytest.FixtureRequest) -> Several:
    return Several(request.param)


def answered(program: Program[Response], response: Response) -> Response:
    """Answer a program's next request, which must be its last."""
    with pytest.raises(StopIteration) as stop:
        program.send(response)
    result: Response = stop.value.value
    return result


def put(item: dict[str, Any]) -> dict[str, Any]:
    return {"PutRequest": {"Item": item}}


def delete(key: dict[str, Any]) -> dict[str, Any]:
    return {"DeleteRequest": {"Key": key}}


# -- writes


def test_writes_ride(tables: Several) -> None:
    """The program is one request and nothing else; what the service left comes back as it was given."""
    k1, k2 = tables.given(pk="k", sk=1), tables.given(pk="k", sk=2)
    by_customer = tables.given(pk="k", sk=1, customer="c")
    requests = {
        ARN + "calculated": [put({**k1, **tables.given(n=5)}), delete(k2)],
        "by-customer": [delete(by_customer)],
        "plain": [put(k1), delete(k2)],
    }
    program = tables.begun(batch_write, {"RequestItems": requests, "ReturnConsumedCapacity": "TOTAL"})
    send = next(program)
    assert isinstance(send, Send)
    assert send.operation == "BatchWriteItem"
    key_by_customer = {**stored("by-customer", pk="k", sk=1, customer="c")}
    del key_by_customer["customer"]
    sent = {
        ARN + "calculated": [put(stored("calculated", pk="k", sk=1, n=5)), delete(stored("calculated", pk="k", sk=2))],
        "by-customer": [delete(key_by_customer)],
        "plain": [put(stored("plain", pk="k", sk=1)), delete(stored("plain", pk="k", sk=2))],
    }
    assert send.params == {"RequestItems": sent, "ReturnConsumedCapacity": "TOTAL"}
    # The service may write a number otherwise, and name a table by its name or its ARN.
    again = delete({**sent[ARN + "calculated"][1]["DeleteRequest"]["Key"], "sk": {"N": "2.0"}})
    left = {"calculated": [again], ARN + "by-customer": sent["by-customer"], "plain": sent["plain"][:1]}
    metrics = {"calculated": [{"ItemCollectionKey": {"pk": {"S": "k.3"}}}]}
    result = answered(program, {"UnprocessedItems": left, "ConsumedCapacity": [], "ItemCollectionMetrics": metrics})
    assert result == {
        "UnprocessedItems": {
            ARN + "calculated": [delete(k2)],
            "by-customer": [delete(by_customer)],
            "plain": [put(k1)],
        },
        "ConsumedCapacity": [],
        "ItemCollectionMetrics": {ARN + "calculated": [{"ItemCollectionKey": tables.given(pk="k")}]},
    }


def test_two_random_puts_of_one_key_are_two_items(tables: Several) -> None:
    tables.draws = (0.1, 0.9)
    item = tables.given(pk="k", sk=1)
    tables.run(batch_write, {"RequestItems": {"random": [put(item), put(item)]}})
    (send,) = tables.sent
    keys = {request["PutRequest"]["Item"]["pk"]["S"] for request in send.params["RequestItems"]["random"]}
    assert keys == {"k.1", "k.4"}


class Locating:
    """The service of a batch with located writes: single writes and batches are answered, or fail as a test says."""

    def __init__(self, **alone: Answer) -> None:
        self.alone = alone
        self.search: Answer = {"Responses": {}, "UnprocessedKeys": {}}

    def __call__(self, send: Send) -> Answer:
        if send.operation == "BatchGetItem":
            return self.search
        consumed = {"CapacityUnits": 1.0, "WriteCapacityUnits": 1.0}
        if send.operation == "BatchWriteItem":
            of_tables = [{"TableName": name, **consumed} for name in send.params["RequestItems"]]
            return {"UnprocessedItems": {}, "ConsumedCapacity": of_tables, "ResponseMetadata": {"RequestId": "batch"}}
        number = send.params.get("Item", send.params.get("Key"))["sk"]["N"]
        return self.alone.get(f"n{number}") or {
            "ConsumedCapacity": {"TableName": send.params["TableName"], **consumed},
            "ItemCollectionMetrics": {"ItemCollectionKey": {"pk": {"S": "k.1"}}},
            "ResponseMetadata": {"RequestId": number},
        }


def located(tables: Several, *numbers: int) -> dict[str, Any]:
    return {"located": [put(tables.given(pk="k", sk=number)) for number in numbers]}


def test_located_writes_come_first_and_alone(tables: Several) -> None:
    """Side by side; what they consumed is added to the list of the batch."""
    tables.answers = Locating()
    others = {"plain": [put(tables.given(pk="k", sk=9))], "calculated": [put(tables.given(pk="k", sk=8))]}
    asks = {"ReturnConsumedCapacity": "TOTAL", "ReturnItemCollectionMetrics": "SIZE"}
    result = tables.run(batch_write, {"RequestItems": {**others, **located(tables, 1, 2)}, **asks})
    operations = [send.operation for send in tables.sent]
    assert operations == ["BatchGetItem", "BatchGetItem", "PutItem", "PutItem", "BatchWriteItem"]
    for send in tables.sent[2:4]:
        assert {name: send.params.get(name) for name in asks} == asks
    assert set(tables.sent[-1].params["RequestItems"]) == {"plain", "calculated"}
    units = {"CapacityUnits": 1.0, "WriteCapacityUnits": 1.0}
    assert result == {
        "UnprocessedItems": {},
        "ConsumedCapacity": [
            {"TableName": "plain", **units},
            {"TableName": "calculated", **units},
            {"TableName": "located", "CapacityUnits": 2.0, "WriteCapacityUnits": 2.0},
        ],
        "ItemCollectionMetrics": {"located": [{"ItemCollectionKey": tables.given(pk="k")}] * 2},
        "ResponseMetadata": {"RequestId": "batch"},
    }


@pytest.mark.parametrize("error", [throttled("KeyRangeThroughput"), client_error("TransactionConflictException")])
def test_a_refused_located_write_comes_back(tables: Several, error: ClientError) -> None:
    tables.answers = Locating(n2=error)
    requests = located(tables, 1, 2)
    result = tables.run(batch_write, {"RequestItems": requests})
    assert result["UnprocessedItems"] == {"located": requests["located"][1:]}
    assert result["ResponseMetadata"] == {"RequestId": "1"}


def test_a_located_write_whose_search_stays_unanswered_comes_back(tables: Several) -> None:
    """The service leaves the search's keys unprocessed, try after try; what rides is written."""
    tables.answers = service = Locating()
    left = {"Keys": [stored("located", shard, pk="k", sk=1) for shard in (1, 2, 3, 4)]}
    service.search = {"Responses": {}, "UnprocessedKeys": {"located": left}}
    requests = located(tables, 1)
    result = tables.run(batch_write, {"RequestItems": {**requests, "plain": [put(tables.given(pk="k", sk=9))]}})
    assert result["UnprocessedItems"] == requests
    assert tables.sent[-1].operation == "BatchWriteItem"


def test_if_nothing_of_a_batch_was_written_it_is_throttled(tables: Several) -> None:
    """As the service does."""
    throttle = throttled("KeyRangeThroughput")
    tables.answers = Locating(n1=throttle)
    with pytest.raises(ClientError) as raised:
        tables.run(batch_write, {"RequestItems": located(tables, 1)})
    assert raised.value is throttle


def test_another_error_of_a_located_write_is_raised(tables: Several) -> None:
    """Before anything else is written."""
    tables.answers = Locating(n1=client_error("AccessDeniedException"))
    requests = {**located(tables, 1), "plain": [put(tables.given(pk="k", sk=9))]}
    with pytest.raises(ClientError, match="AccessDenied"):
        tables.run(batch_write, {"RequestItems": requests})
    assert "BatchWriteItem" not in [send.operation for send in tables.sent]


def test_two_located_writes_of_one_item(tables: Several) -> None:
    """The service cannot refuse them, because they are two requests."""
    with pytest.raises(ConfigurationError, match=r"^RequestItems: must write an item once, got two writes of "):
        tables.run(batch_write, {"RequestItems": located(tables, 1, 1)})
    assert tables.sent == []


def test_two_writes_of_one_item_beside_a_located_one(tables: Several) -> None:
    """The service would refuse them only when the located write is made."""
    twice = [put(tables.given(pk="k", sk=1)), delete(tables.given(pk="k", sk=1))]
    for table in ("calculated", "plain"):
        with pytest.raises(ConfigurationError, match=rf"^RequestItems: must write an item once, got .*'{table}'"):
            tables.run(batch_write, {"RequestItems": {table: twice, **located(tables, 2)}})
    assert tables.sent == []


@pytest.mark.parametrize("wrong", [{"N": "x"}, {"N": "sNaN"}, {}, {"L": [5]}, 5], ids=str)
def test_a_wrong_value_beside_a_located_write(wrong: Any) -> None:
    """It is the service's to refuse, where the table is not sharded."""
    tables = Several(WIRE_VALUES, Locating())
    items = [put({"pk": {"S": key}, "n": wrong}) for key in ("k", "j")]
    tables.run(batch_write, {"RequestItems": {"plain": items, **located(tables, 2)}})
    assert tables.sent[-1].params["RequestItems"] == {"plain": items}


@pytest.mark.parametrize("request_", [{}, {**put({}), **delete({})}, {"UpdateRequest": {}}], ids=str)
def test_what_is_not_a_write(request_: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedParameterError, match=r"^RequestItems: must have dicts with either DeleteRequest or"):
        Several(PYTHON_VALUES).run(batch_write, {"RequestItems": {"calculated": [request_]}})


def test_a_delete_without_a_known_shard(tables: Several) -> None:
    with pytest.raises(ShardUnknownError):
        tables.run(batch_write, {"RequestItems": {"random": [delete(tables.given(pk="k", sk=1))]}})


# -- reads


def test_reads_ride(tables: Several) -> None:
    """Each table with its own options; items have logical keys; unprocessed keys are the caller's, with the options."""
    keys = [tables.given(pk="k", sk=number) for number in range(3)]
    by_customer = tables.given(pk="k", sk=1, customer="c")
    options = {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "n"}, "ConsistentRead": True}
    program = tables.begun(batch_get, {"RequestItems": {
        "calculated": {"Keys": keys},
        ARN + "by-customer": {"Keys": [by_customer], **options},
        "plain": {"Keys": keys[:2], **options},
    }})  # fmt: skip
    send = next(program)
    assert isinstance(send, Send)
    assert send.operation == "BatchGetItem"
    of_customer = {"pk": stored("by-customer", pk="k", sk=1, customer="c")["pk"], "sk": {"N": "1"}}
    assert send.params == {"RequestItems": {
        "calculated": {"Keys": [stored("calculated", pk="k", sk=number) for number in range(3)]},
        ARN + "by-customer": {"Keys": [of_customer], **options},
        "plain": {"Keys": [stored("plain", pk="k", sk=number) for number in range(2)], **options},
    }}  # fmt: skip
    result = answered(program, {
        "Responses": {
            "by-customer": [{"n": {"N": "5"}}],
            "calculated": [stored("calculated", pk="k", sk=2, n=7), stored("calculated", pk="k", sk=0)],
            "plain": [stored("plain", pk="k.3", sk=1)],
        },
        "UnprocessedKeys": {
            ARN + "calculated": {"Keys": [{**stored("calculated", pk="k", sk=1), "sk": {"N": "1E0"}}]},
            ARN + "by-customer": {"Keys": [of_customer], **options},
            "plain": {"Keys": [stored("plain", pk="k", sk=0)]},
        },
        "ConsumedCapacity": [{"TableName": "plain", "CapacityUnits": 1.0}],
    })  # fmt: skip
    assert result == {
        "Responses": {
            "calculated": [tables.given(pk="k", sk=2, n=7), keys[0]],
            ARN + "by-customer": [tables.given(n=5)],
            "plain": [tables.given(pk="k.3", sk=1)],
        },
        "UnprocessedKeys": {
            "calculated": {"Keys": [keys[1]]},
            ARN + "by-customer": {"Keys": [by_customer], **options},
            "plain": {"Keys": [keys[0]], **options},
        },
        "ConsumedCapacity": [{"TableName": "plain", "CapacityUnits": 1.0}],
    }


def answer_reads(there: list[dict[str, Any]], left: tuple[dict[str, Any], ...] = ()) -> Any:
    def answer(send: Send) -> Answer:
        response: Response = {"Responses": {}, "UnprocessedKeys": {}, "ConsumedCapacity": []}
        for table, asked in send.params["RequestItems"].items():
            response["Responses"][table] = [
                item for item in there if {"pk": item["pk"], "sk": item["sk"]} in asked["Keys"]
            ]
            response["ConsumedCapacity"].append({"TableName": table, "CapacityUnits": 0.5 * len(asked["Keys"])})
            if kept := [key for key in asked["Keys"] if key in left]:
                response["UnprocessedKeys"][table] = {"Keys": kept}
        return response

    return answer


def test_located_tables_are_read_first(tables: Several) -> None:
    """Each by itself, from all shards; what the service left of it comes back with its options."""
    here, left = stored("located", 3, pk="k", sk=1, n=5), stored("located", 2, pk="k", sk=2)
    tables.answers = answer_reads([here, stored("calculated", pk="c", sk=1)], (left,))
    keys = [tables.given(pk="k", sk=number) for number in (1, 2)]
    other, options = tables.given(pk="c", sk=1), {"ProjectionExpression": "n"}
    params = {
        "RequestItems": {"calculated": {"Keys": [other]}, "located": {"Keys": keys, **options}},
        "ReturnConsumedCapacity": "TOTAL",
    }
    result = tables.run(batch_get, params)
    *searches, send = tables.sent
    assert {tuple(search.params["RequestItems"]) for search in searches} == {("located",)}
    assert len(searches[0].params["RequestItems"]["located"]["Keys"]) == 8
    assert set(send.params["RequestItems"]) == {"calculated"}
    assert result["Responses"] == {"calculated": [other], "located": [tables.given(n=5)]}
    assert result["UnprocessedKeys"] == {"located": {"Keys": keys[1:], **options}}
    *_, consumed = result["ConsumedCapacity"]
    assert consumed["TableName"] == "located"
    assert consumed["CapacityUnits"] > 4.0


def test_a_located_table_alone(tables: Several) -> None:
    tables.answers = answer_reads([stored("located", 3, pk="k", sk=1)])
    result = tables.run(batch_get, {"RequestItems": {"located": {"Keys": [tables.given(pk="k", sk=1)]}}})
    assert result == {
        "Responses": {"located": [tables.given(pk="k", sk=1)]},
        "UnprocessedKeys": {},
        "ResponseMetadata": {},
    }


def test_an_item_in_two_shards(tables: Several) -> None:
    tables.answers = answer_reads([stored("located", shard, pk="k", sk=1) for shard in (2, 4)])
    with pytest.raises(AmbiguousItemError) as raised:
        tables.run(batch_get, {"RequestItems": {"located": {"Keys": [tables.given(pk="k", sk=1)]}}})
    assert raised.value.shards == (2, 4)


def test_reads_that_are_refused(tables: Several) -> None:
    key = tables.given(pk="k", sk=1)
    with pytest.raises(ShardUnknownError):
        tables.run(batch_get, {"RequestItems": {"random": {"Keys": [key]}}})
    with pytest.raises(
        UnsupportedParameterError, match=r"^Projection.* \(did you mean ProjectionExpression\?\): not a"
    ):
        tables.run(batch_get, {"RequestItems": {"calculated": {"Keys": [key], "ProjectionExpresion": "n"}}})
    assert tables.sent == []
