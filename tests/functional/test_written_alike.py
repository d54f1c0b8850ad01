"""Transactions and batches end as on a plain table, over moto; tests/integration has the real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.written_alike import STRATEGIES, check_alike

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_as_on_a_plain_table(
    boto3_session: boto3.Session, resource: DynamoDBServiceResource, strategy: str
) -> None:
    """The same outcome of every call, reasons and items included, and the same items in the end."""
    check_alike(boto3_session, resource, strategy)
