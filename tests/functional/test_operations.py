"""Every operation of DynamoDB and every action of boto3's Table: rewritten, forwarded, or refused with the reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name

from shardkit import CalculatedSuffix, ShardedTable, UnsupportedOperationError
from shardkit.sharding.operations import DECISIONS, decide
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

WALK = "SHARDKIT_OPERATION_WALK"


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> ShardedTable:
    return ShardedTable(make_table(resource, ("Date", "S"), ("OrderId", "S")), CalculatedSuffix("OrderId", 5))


def model_operations(orders: ShardedTable) -> list[str]:
    return list(orders.meta.client.meta.service_model.operation_names)


@pytest.mark.skipif(not os.environ.get(WALK), reason=f"{WALK} is not set: the newest boto3 is walked in CI")
def test_every_operation_of_this_botocore_is_decided(orders: ShardedTable) -> None:
    """An operation that AWS added waits for a decision: rewrite it, forward it, or refuse it with the reason."""
    assert [name for name in model_operations(orders) if name not in DECISIONS] == []


def test_what_nobody_decided_on_is_refused(orders: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that is newer than shardkit is refused at run time, with that as the reason."""
    monkeypatch.delitem(DECISIONS, "DescribeTable")
    undecided = [name for name in model_operations(orders) if name not in DECISIONS]
    assert "DescribeTable" in undecided
    for name in undecided:
        with pytest.raises(UnsupportedOperationError, match="does not know the operation"):
            getattr(orders, xform_name(name))
    assert decide("NotYetInvented").action == "refuse"


def test_refused_operations_say_why(orders: ShardedTable) -> None:
    """Each gives its own reason and names the table, and hasattr answers no."""
    refused = [name for name in model_operations(orders) if decide(name).action == "refuse"]
    assert {"ExecuteStatement", "ExecuteTransaction", "ImportTable"} <= set(refused)
    for name in refused:
        method = xform_name(name)
        with pytest.raises(UnsupportedOperationError) as caught:
            getattr(orders, method)
        message = str(caught.value)
        assert method in message
        assert orders.name in message
        assert decide(name).reason in message
        assert len(decide(name).reason) > 20
        assert not hasattr(orders, method)


def test_decided_operations_need_no_reason() -> None:
    """What is rewritten or forwarded has no reason, what is refused has one; older models may lack some."""
    for decision in DECISIONS.values():
        assert bool(decision.reason) == (decision.action == "refuse")


def test_every_action_of_boto3s_table_is_there_or_refused(orders: ShardedTable) -> None:
    """Whatever `dir()` of a boto3 Table shows is on a ShardedTable too, or is refused with a reason."""
    public = [name for name in dir(orders.table) if not name.startswith("_")]
    assert {"get_item", "query", "batch_writer", "wait_until_exists", "load", "item_count"} <= set(public)
    for name in public:
        if name in dir(orders):
            continue
        with pytest.raises(UnsupportedOperationError, match=name) as caught:
            getattr(orders, name)
        assert caught.value.args


def test_actions_that_carry_no_key_are_forwarded(orders: ShardedTable) -> None:
    """Attributes, waiters and the table's own settings are boto3's."""
    orders.load()
    orders.reload()
    orders.wait_until_exists()
    assert orders.table_status == "ACTIVE"
    assert orders.key_schema == orders.table.key_schema
    assert orders.name == orders.table_name == orders.table.name
    assert orders.meta.client is orders.table.meta.client
    orders.update(BillingMode="PAY_PER_REQUEST")
    assert orders.delete()["TableDescription"]["TableName"] == orders.name
    orders.wait_until_not_exists()


@pytest.mark.parametrize("name", ["batch_get_item", "describe_table", "nonsense", "_private", "__wrapped__"])
def test_what_boto3s_table_has_not_is_an_ordinary_attribute_error(orders: ShardedTable, name: str) -> None:
    """A misspelt name is not an operation that was refused."""
    with pytest.raises(AttributeError) as caught:
        getattr(orders, name)
    assert not isinstance(caught.value, UnsupportedOperationError)
    assert not hasattr(orders, name)


def test_looking_for_an_attribute_sends_nothing(orders: ShardedTable) -> None:
    """hasattr() on a sharded table is no request to the service."""
    from tests.support.recorder import recording

    names: list[Any] = ["nonsense", "execute_statement", "search_vectors", "batch_get_item"]
    with recording(orders.meta.client) as wire:
        assert [hasattr(orders, name) for name in names] == [False] * len(names)
    assert wire.requests == []
