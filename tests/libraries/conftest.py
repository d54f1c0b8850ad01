"""Fixtures of the tests of other libraries: each test runs plain and sharded, on each engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.installed import Setting

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

# Another project's tests: test_pynamodb_suite.py runs them.
collect_ignore = ["pynamodb-6.1.0"]


@pytest.fixture(params=["plain", "sharded"])
def setting(request: pytest.FixtureRequest, engine_resource: DynamoDBServiceResource) -> Setting:
    return Setting(engine_resource, sharded=request.param == "sharded")
