"""The values of the pytest fixtures ``dynamodb_table`` and ``simulated_partitions``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from shardkit.errors import ConfigurationError
from shardkit.testing.clock import VirtualClock
from shardkit.testing.simulation import SimulatedPartitions, simulate_partitions

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table

Attribute = str | tuple[str, str]
"""A key attribute: its name (of type S), or its name and type."""

_REGION = "us-east-1"


class DynamoDBTableFixture:
    """The fixture ``dynamodb_table``: call it to create an empty table, which is deleted after the test."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self._made = ExitStack()

    def __call__(self, partition_key: Attribute, sort_key: Attribute | None = None, **create_table: Any) -> Table:
        """Create a table.

        Example:
            def test_an_order_is_found_again(dynamodb_table):
                orders = dynamodb_table("Date", "OrderId")

        Args:
            partition_key: its name, or its name and type: ``("Number", "N")``.
            sort_key: likewise; None: no sort key.
            create_table: other parameters of boto3's CreateTable: indexes with their AttributeDefinitions,
                ProvisionedThroughput (if not given, the table is on-demand), TableName (if not given, a new one).

        Returns:
            A boto3 ``Table``. Its client does not retry (``total_max_attempts=1``), so a throttle raises at once and no
            test waits for botocore.

        Raises:
            ClientError: the engine refused the request.

        Cost:
            One CreateTable and one DeleteTable.
        """
        schema = [("HASH", partition_key), *([] if sort_key is None else [("RANGE", sort_key)])]
        keys = [(kind, *((key, "S") if isinstance(key, str) else key)) for kind, key in schema]
        types = {name: letter for _, name, letter in keys}
        types |= {one["AttributeName"]: one["AttributeType"] for one in create_table.pop("AttributeDefinitions", ())}
        if "ProvisionedThroughput" not in create_table:
            create_table.setdefault("BillingMode", "PAY_PER_REQUEST")
        table = self.resource.create_table(
            **{
                "TableName": f"table-{uuid.uuid4().hex}",
                "KeySchema": [{"AttributeName": name, "KeyType": kind} for kind, name, _ in keys],
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": of} for name, of in types.items()],
                **create_table,
            }
        )
        self._made.callback(self._delete, table)
        table.wait_until_exists()
        made: Table = table
        return made

    def close(self) -> None:
        """Delete the tables."""
        self._made.close()

    def _delete(self, table: Any) -> None:
        with suppress(self.resource.meta.client.exceptions.ResourceNotFoundException):
            table.delete()


@contextmanager
def tables_at(endpoint: str | None) -> Iterator[DynamoDBTableFixture]:
    """Yield the fixture for the engine at a URL, or for moto; delete its tables at the end."""
    with ExitStack() as ended:
        if endpoint is None:
            ended.enter_context(_moto())
        resource = boto3.resource(
            "dynamodb",
            region_name=_REGION,
            endpoint_url=endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - engines for tests do not check it
            config=Config(retries={"total_max_attempts": 1}),
        )
        ended.callback(resource.meta.client.close)
        fixture = DynamoDBTableFixture(resource)
        ended.callback(fixture.close)
        yield fixture


def _moto() -> Any:
    try:
        from moto import mock_aws  # noqa: PLC0415 - of the testing extra
    except ImportError as error:
        raise ConfigurationError(
            "dynamodb_table: moto is not installed; run pip install 'shardkit[testing]', or name an engine: "
            "pytest --dynamodb-endpoint=http://localhost:8000"
        ) from error
    return mock_aws()


class SimulatedPartitionsFixture:
    """The fixture ``simulated_partitions``: call it to simulate a table's partitions until the end of the test.

    Attributes:
        clock: the virtual clock of its simulations.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._entered = ExitStack()

    def __call__(self, client: Any, table: str | None = None, **options: Any) -> SimulatedPartitions:
        """Put simulated partitions in front of a client, in virtual time.

        Example:
            def test_orders_are_not_throttled(simulated_partitions, orders):
                simulated = simulated_partitions(orders, partitions=4, write_units=4000)
                simulated.load(lambda order: orders.put_item(Item=order), ten_minutes_of_orders, per_second=40)
                simulated.assert_not_throttled()

        Args:
            client: as in :func:`simulate_partitions`.
            table: likewise.
            options: likewise; ``clock`` defaults to this fixture's.

        Returns:
            The simulation. With an async client, it begins and ends with your ``async with``.
        """
        simulated = simulate_partitions(client, table, **{"clock": self.clock, **options})
        return simulated if simulated.is_async else self._entered.enter_context(simulated)

    def close(self) -> None:
        """End the simulations."""
        self._entered.close()
