"""Items that move from one strategy to another: every face answers in every stage as a plain boto3 Table does.

With ``SHARDKIT_CONTRACT_STAGES=1``, the other files of this folder run in each stage too.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import CalculatedSuffix, Unsharded
from shardkit.migrate.marks import MARK
from shardkit.strategies import Resharding, Stage
from tests.functional.contract.faces import Face
from tests.support.moving import BETWEEN
from tests.support.tables import make_table

NEW = CalculatedSuffix("OrderId", 4)
KEYS = [{"Date": "2014-07-09", "OrderId": f"A{number}"} for number in range(4)]
LIVE, MOVED, MISSING, FRESH = KEYS


def prepared(face: Face, stage: Stage) -> tuple[Any, Any]:
    """Return a table with one item at its old home and one at its new, and a stub, and what its face makes of it."""
    stored = make_table(face.resource, ("Date", "S"), ("OrderId", "S"))
    home = NEW.physical_key(MOVED["Date"], NEW.shard_of(MOVED["Date"], MOVED))
    with stored.batch_writer() as batch:
        for item in ({**LIVE, "n": 1}, {**MOVED, MARK: "stub"}, {**MOVED, "Date": home, "n": 2}):
            batch.put_item(Item=item)
    return stored, face.sharded(stored, Resharding(Unsharded(), NEW, stage=stage))


@pytest.mark.parametrize("stage", BETWEEN)
def test_single_items(face: Face, stage: Stage) -> None:
    """Items are read and written wherever they are, with what the caller asks for, and without the mark."""
    stored, table = prepared(face, stage)
    add = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 10}}
    for key, n in ((LIVE, 1), (MOVED, 2)):
        given = deepcopy(key)
        assert table.get_item(Key=given)["Item"] == {**key, "n": n}
        response = table.update_item(Key=given, **add, ReturnValues="ALL_NEW", ReturnConsumedCapacity="TOTAL")
        assert response["Attributes"] == {**key, "n": n + 10}
        assert response["ConsumedCapacity"]["TableName"] == stored.name
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 200
        with pytest.raises(table.client.exceptions.ConditionalCheckFailedException) as caught:
            table.put_item(
                Item=given, ConditionExpression=Attr("n").eq(5), ReturnValuesOnConditionCheckFailure="ALL_OLD"
            )
        assert caught.value.response["Item"]["Date"] == {"S": key["Date"]}
        assert caught.value.response["Item"].keys() == {"Date", "OrderId", "n"}
        with pytest.raises(table.client.exceptions.ConditionalCheckFailedException) as caught:
            table.delete_item(Key=given, ConditionExpression=Attr("n").eq(5))
        assert "Item" not in caught.value.response
        assert given == key
    table.put_item(Item={**FRESH, "n": 3}, ConditionExpression=Attr("Date").not_exists())
    assert table.delete_item(Key=MOVED, ReturnValues="ALL_OLD")["Attributes"] == {**MOVED, "n": 12}
    assert table.batch_get_items(KEYS, ConsistentRead=True) == [{**LIVE, "n": 11}, {**FRESH, "n": 3}]
    assert "Item" not in table.get_item(Key=MISSING)
