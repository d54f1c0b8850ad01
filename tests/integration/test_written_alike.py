"""Transactions and batches end as on a plain table, on real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable
from shardkit.table_types import TransactWriteItem
from tests.support.tables import make_table
from tests.support.written_alike import STRATEGIES, check_alike

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_as_on_a_plain_table(
    boto3_session: boto3.Session, engine_resource: DynamoDBServiceResource, strategy: str
) -> None:
    """The same outcome of every call, reasons and items included, and the same items in the end."""
    check_alike(boto3_session, engine_resource, strategy)


def test_one_token_is_one_transaction(engine_resource: DynamoDBServiceResource) -> None:
    """A put with a random suffix is drawn again from the token, so that the engine sees the same transaction twice."""
    table = make_table(engine_resource, sort_key=("sk", "N"))
    puts: list[TransactWriteItem] = [{"Put": {"Item": {"pk": "k", "sk": number}}} for number in range(5)]
    for token in ("one", "one", "two"):
        ShardedTable(table, RandomSuffix(1000)).transact_write_items(TransactItems=puts, ClientRequestToken=token)
    assert table.scan()["Count"] == 10
    calculated = ShardedTable(table, CalculatedSuffix("sk", 5))
    calculated.transact_write_items(TransactItems=puts, ClientRequestToken="three")
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        calculated.transact_write_items(TransactItems=puts[:1], ClientRequestToken="three")


def test_with_locate_a_repeated_token_is_refused(engine_resource: DynamoDBServiceResource) -> None:
    """As docs/reference/operations.md says: the item is now there, so the second transaction is another one."""
    located = ShardedTable(make_table(engine_resource, sort_key=("sk", "N")), RandomSuffix(5, locate=True))
    put: list[Any] = [{"Put": {"Item": {"pk": "k", "sk": 1}}}]
    located.transact_write_items(TransactItems=put, ClientRequestToken="four")
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        located.transact_write_items(TransactItems=put, ClientRequestToken="four")
