"""moto's answers, which the tests have it write in less time, are those that it writes itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

serialize = pytest.importorskip("moto.core.serialize")


def test_answers_are_those_of_moto_s_own_serializer(
    resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "dynamodb" not in getattr(serialize, "SERVICE_SPECIFIC_SERIALIZERS", {}):
        pytest.skip("this moto writes its answers otherwise")
    name = make_table(resource, ("pk", "S"), ("sk", "N")).name
    nested = {"S": "", "N": [1, {"L": [b"x", {"x", "y"}, {1, 2}, {b"x"}], "M": {}}], "BOOL": {"NULL": None, "B": True}}
    items = [{"pk": "A", "sk": number, "nested": nested, "b": b"\x00\xff"} for number in range(3)]
    bodies: list[Any] = []
    client: Any = resource.meta.client
    client.meta.events.register("after-call.dynamodb", lambda http_response, **_: bodies.append(http_response.content))

    def answers() -> list[Any]:
        bodies.clear()
        keys = [{"pk": item["pk"], "sk": item["sk"]} for item in items]
        all_units = {"ReturnConsumedCapacity": "INDEXES"}
        client.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": item}} for item in items]}, **all_units)
        client.describe_table(TableName=name)
        client.get_item(TableName=name, Key=keys[0], **all_units)
        client.get_item(TableName=name, Key={"pk": "none", "sk": 0})
        client.batch_get_item(RequestItems={name: {"Keys": keys}}, **all_units)
        client.transact_get_items(TransactItems=[{"Get": {"TableName": name, "Key": key}} for key in keys], **all_units)
        client.query(TableName=name, Limit=2, KeyConditionExpression="pk = :a", ExpressionAttributeValues={":a": "A"})
        return [json.loads(body) for body in bodies]

    in_less_time = answers()
    monkeypatch.delitem(serialize.SERVICE_SPECIFIC_SERIALIZERS, "dynamodb")
    assert answers() == in_less_time
    assert len(in_less_time) == 7
