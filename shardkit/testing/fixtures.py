"""What the pytest fixtures ``dynamodb_table`` and ``simulated_partitions`` give."""

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
    from mypy_boto3_dynamodb.service_resource import Table

__all__ = ["DynamoDBTableFixture", "SimulatedPartitionsFixture", "tables_at"]

Attribute = str | tuple[str, str]
"""A key attribute: its name, or its name and type; the type of a name alone is S."""

_REGION = "us-east-1"


class DynamoDBTableFixture:
    """What the fixture ``dynamodb_table`` gives: called, it makes an empty table that the end of the test deletes."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self._made = ExitStack()

    def __call__(self, partition_key: Attribute, sort_key: Attribute | None = None, **create_table: Any) -> Table:
        """Make a table.

        Example::

            def test_an_order_is_found_again(dynamodb_table):
                orders = dynamodb_table("Date", "OrderId")

        Args:
            partition_key: its name, or its name and type: ``("Number", "N")``.
            sort_key: likewise; None: there is none.
            create_table: what else boto3's CreateTable takes: indexes with their AttributeDefinitions,
                ProvisionedThroughput (if not given, the table is on-demand), TableName (if not given, a new one).

        Returns:
            A boto3 ``Table``. Its client makes each call once (``total_max_attempts``), so that a throttle comes out at
            once, and no test waits for botocore.

        Raises:
            ClientError: the service's, for what it does not take.

        Cost:
            One CreateTable, and on an engine one DeleteTable.
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
    """Make tables on the engine at a URL, or over moto; delete them at the end."""
    with ExitStack() as ended:
        if endpoint is None:
            ended.enter_context(_moto())
        resource = boto3.resource(
            "dynamodb",
            region_name=_REGION,
            endpoint_url=endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - an engine's for tests, which checks none
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
            "the fixture dynamodb_table makes its tables over moto, which is not installed; "
            "pip install 'shardkit[testing]', or name an engine: pytest --dynamodb-endpoint=http://localhost:8000"
        ) from error
    return mock_aws()


class SimulatedPartitionsFixture:
    """What the fixture ``simulated_partitions`` gives: called, it simulates until the end of the test.

    Attributes:
        clock: the time of all that it simulates: a virtual one.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._entered = ExitStack()

    def __call__(self, client: Any, table: str | None = None, **options: Any) -> SimulatedPartitions:
        """Put simulated partitions in front of a client, from now on, in virtual time.

        Example::

            def test_orders_are_not_throttled(simulated_partitions, orders):
                simulated = simulated_partitions(orders, partitions=4, write_units=4000)
                simulated.load(lambda order: orders.put_item(Item=order), ten_minutes_of_orders, per_second=40)
                simulated.assert_not_throttled()

        Args:
            client: as of :func:`simulate_partitions`.
            table: likewise.
            options: likewise; ``clock`` is this fixture's, if it is not given.
        """
        simulated = simulate_partitions(client, table, **{"clock": self.clock, **options})
        return self._entered.enter_context(simulated)

    def close(self) -> None:
        """End."""
        self._entered.close()
