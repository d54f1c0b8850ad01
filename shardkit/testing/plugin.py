"""The pytest plugin: fixtures and an option. Every test run imports it, so each fixture imports what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shardkit.testing.capacity_fixture import CapacityBudgetFixture
    from shardkit.testing.fixtures import DynamoDBTableFixture, SimulatedPartitionsFixture

_ENDPOINT = "dynamodb_endpoint"
_HELP = "URL of the engine for the tables of the fixture dynamodb_table (default: moto, in process)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting for the engine."""
    parser.getgroup("shardkit").addoption("--dynamodb-endpoint", metavar="URL", help=_HELP)
    parser.addini(_ENDPOINT, _HELP)


@pytest.fixture
def capacity_budget() -> Iterator[CapacityBudgetFixture]:
    """Fail a test when a block of it consumes more than it should."""
    from shardkit.testing.capacity_fixture import watching_clients

    with watching_clients() as fixture:
        yield fixture


@pytest.fixture
def dynamodb_table(pytestconfig: pytest.Config) -> Iterator[DynamoDBTableFixture]:
    """Create tables for a test: in moto, or on the engine of ``--dynamodb-endpoint``."""
    from shardkit.testing.fixtures import tables_at

    with tables_at(pytestconfig.getoption(_ENDPOINT) or pytestconfig.getini(_ENDPOINT) or None) as fixture:
        yield fixture


@pytest.fixture
def simulated_partitions() -> Iterator[SimulatedPartitionsFixture]:
    """Simulate partitions until the end of a test, in virtual time."""
    from shardkit.testing.fixtures import SimulatedPartitionsFixture

    fixture = SimulatedPartitionsFixture()
    yield fixture
    fixture.close()
