"""Sharded indexes beside plain ones, over moto; tests/integration has the real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.support.indexed import WAYS, Case, Indexed, Way, cases

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
@pytest.mark.parametrize("way", WAYS)
def test_the_same_as_a_plain_index(boto3_session: boto3.Session, resource: DynamoDBServiceResource, way: Way) -> None:
    """Promise 2: the same outcome of every write, and the same items, order and pages of every read.

    Of the real engines, none can query an index with a key of several attributes (``attribute=``).
    """
    with Indexed(boto3_session, resource, way).closing() as indexed:

        @settings(max_examples=settings().max_examples // 15, print_blob=True)
        @given(case=cases(way))
        def same(case: Case) -> None:
            indexed.check(case)

        same()
