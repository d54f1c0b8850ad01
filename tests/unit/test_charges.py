from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from shardkit.capacity.charges import Action, actions_of, tables_of
from shardkit.codec import Binary

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"


@dataclass
class Call:
    operation: str
    params: dict[str, Any]


def put(**attributes: Any) -> dict[str, Any]:
    return {"PutRequest": {"Item": {"k": {"S": "x"}, **attributes}}}


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}),
        ({"NS": ["1", "2.50"]}, {"NS": ["2.5", "1"]}),
        ({"BS": [b"a", bytearray(b"b")]}, {"BS": [Binary(b"b"), b"a"]}),
        ({"L": [{"N": "1.0"}, {"B": bytearray(b"x")}]}, {"L": [{"N": "1"}, {"B": b"x"}]}),
        ({"M": {"a": {"N": "1e1"}, "b": {"NULL": True}}}, {"M": {"b": {"NULL": True}, "a": {"N": "10"}}}),
    ],
)
def test_an_unprocessed_write_is_recognized_however_it_is_written(sent: Any, left: Any) -> None:
    call = Call("BatchWriteItem", {"RequestItems": {f"{ARN}Orders": [put(a=sent), put(a={"S": "other"})]}})
    (action,) = actions_of(call, {"UnprocessedItems": {"Orders": [put(a=left)]}})
    assert action == Action("Orders", {"k": {"S": "x"}, "a": {"S": "other"}}, 1.0)


def test_a_list_keeps_its_order() -> None:
    requests = [put(a={"L": [{"S": "1"}, {"S": "2"}]})]
    call = Call("BatchWriteItem", {"RequestItems": {"Orders": requests}})
    left = {"UnprocessedItems": {"Orders": [put(a={"L": [{"S": "2"}, {"S": "1"}]})]}}
    assert len(list(actions_of(call, left))) == 1


def test_a_table_by_its_arn_is_the_table_of_its_plain_name() -> None:
    actions = [{"Put": {"TableName": "Orders", "Item": {}}}, {"Delete": {"TableName": f"{ARN}Orders", "Key": {}}}]
    assert tables_of(Call("TransactWriteItems", {"TransactItems": actions})) == {"Orders"}
