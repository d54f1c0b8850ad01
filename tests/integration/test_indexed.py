"""Sharded indexes beside plain ones, on real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.support.engines import EngineName
from tests.support.indexed import WAYS, Case, Indexed, Way, cases

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
@pytest.mark.parametrize("way", WAYS)
def test_the_same_as_a_plain_index(
    boto3_session: boto3.Session,
    engine_name: EngineName,
    engine_resource: DynamoDBServiceResource,
    way: Way,
) -> None:
    """Promise 2: the same outcome of every write, and the same items, order and pages of every read.

    dynoxide cannot query the index of ``attribute=``: its key has several attributes.
    """
    if (way, engine_name) == ("attribute", "dynoxide"):
        pytest.skip("dynoxide cannot query an index key of several attributes")
    with Indexed(boto3_session, engine_resource, way).closing() as indexed:

        @settings(max_examples=settings().max_examples // 15, print_blob=True)
        @given(case=cases(way, engine_name))
        def same(case: Case) -> None:
            indexed.check(case)

        same()
