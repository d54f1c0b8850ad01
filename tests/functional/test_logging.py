"""What shardkit logs: enough to see why a call is slow or a load stopped, and nothing of the items."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit import BulkLoadError, CalculatedSuffix, RandomSuffix, ShardedTable, bulk_load
from tests.support.fakes import Faults, timeless
from tests.support.tables import make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from types_boto3_dynamodb import DynamoDBServiceResource

SECRET = "a.person@example.org"


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> ShardedTable:
    table = ShardedTable(make_table(resource, ("pk", "S"), ("sk", "S")), CalculatedSuffix("sk", 3), max_concurrency=1)
    timeless(table)
    return table


def refusing(orders: ShardedTable, operation: str, *codes: str | None) -> None:
    """Let the client's calls of an operation fail with these codes in turn; with None, and then, they succeed."""
    left: Iterator[str | None] = iter(codes)

    def refuse(**_: Any) -> None:
        code = next(left, None)
        if code is not None:
            raise ClientError({"Error": {"Code": code, "Message": SECRET}}, operation)

    orders.meta.client.meta.events.register(f"before-call.dynamodb.{operation}", refuse)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "shardkit"]


def test_a_fan_out_s_throttles_and_retries(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    refusing(orders, "Query", None, "ThrottlingException", None, "ThrottlingException")
    with caplog.at_level(logging.DEBUG, "shardkit"):
        orders.query(KeyConditionExpression=Key("pk").eq(SECRET))
    records = logged(caplog)
    assert [level for level, _ in records] == [logging.DEBUG] * 2
    for _, said in records:
        assert said.startswith(f"Query on table {orders.name}, shard 2: ThrottlingException; retry in 0.")
        assert SECRET not in said


def test_a_shard_that_is_given_up(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    """After its last try."""
    refusing(orders, "Query", *["ThrottlingException"] * 30)
    with caplog.at_level(logging.DEBUG, "shardkit"), pytest.raises(ClientError):
        orders.query(KeyConditionExpression=Key("pk").eq(SECRET), Shard=1)
    assert len(logged(caplog)) == 10
    assert logged(caplog)[-1][1] == f"Query on table {orders.name}, shard 1: ThrottlingException; given up"


def test_another_error_is_the_caller_s_to_log(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    refusing(orders, "Query", *["AccessDeniedException"] * 3)
    with caplog.at_level(logging.DEBUG, "shardkit"), pytest.raises(ClientError):
        orders.query(KeyConditionExpression=Key("pk").eq(SECRET))
    assert logged(caplog) == []


def test_keys_that_are_asked_for_again(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    refusing(orders, "BatchGetItem", "ThrottlingException")
    with caplog.at_level(logging.DEBUG, "shardkit"):
        orders.batch_get_items([{"pk": SECRET, "sk": "1"}, {"pk": SECRET, "sk": "2"}])
    ((level, said),) = logged(caplog)
    assert level == logging.DEBUG
    assert said.startswith(f"BatchGetItem on table {orders.name}, 2 keys: ThrottlingException; retry in 0.")


def test_nothing_is_said_where_all_goes_well(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shardkit"):
        bulk_load(orders, [{"pk": SECRET, "sk": "1"}])
        orders.query(KeyConditionExpression=Key("pk").eq(SECRET))
    assert logged(caplog) == []


def load(orders: ShardedTable) -> None:
    bulk_load(orders, [{"pk": SECRET, "sk": str(number)} for number in range(30)])


def write(orders: ShardedTable) -> None:
    with orders.batch_writer() as batch:
        for number in range(30):
            batch.put_item(Item={"pk": SECRET, "sk": str(number)})


@pytest.mark.parametrize("run", [load, write])
def test_a_load_s_stop(
    orders: ShardedTable, caplog: pytest.LogCaptureFixture, run: Callable[[ShardedTable], None]
) -> None:
    """At WARNING, once, with the reason."""
    Faults(orders.meta.client, ["denied"])
    with pytest.raises(BulkLoadError):
        run(orders)
    ((level, said),) = logged(caplog)
    assert level == logging.WARNING
    what = "the load into table" if run is load else "the batch writer of table"
    assert said.startswith(f"{what} {orders.name} stopped: ")
    assert "AccessDeniedException" in said
    assert SECRET not in said


def test_a_source_that_breaks_off(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    """Its error is the caller's own: only its type is said."""

    def items() -> Iterator[dict[str, str]]:
        yield {"pk": "k", "sk": "1"}
        raise ValueError(SECRET)

    with pytest.raises(BulkLoadError):
        bulk_load(orders, items())
    assert logged(caplog) == [
        (
            logging.WARNING,
            f"the load into table {orders.name} stopped, because its source raised an error: ValueError",
        )
    ]


def test_a_load_s_advice(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    """As in its report."""
    Faults(orders.meta.client, ["unprocessed", "unprocessed"])
    report = bulk_load(orders, [{"pk": "k", "sk": str(number)} for number in range(30)])
    assert report.advice
    assert logged(caplog) == [
        (logging.WARNING, f"the load into table {orders.name}: {advice}") for advice in report.advice
    ]


def test_a_view_and_a_located_item_log_too(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    """Every way to a fan-out."""
    located = ShardedTable(orders.table, RandomSuffix(3, locate=True))
    timeless(located)
    refusing(orders, "BatchGetItem", "ThrottlingException")
    refusing(orders, "Query", "ThrottlingException")
    with caplog.at_level(logging.DEBUG, "shardkit"):
        located.get_item(Key={"pk": "k", "sk": "1"})
        assert list(orders.with_options(timeout=9).query_items(KeyConditionExpression=Key("pk").eq("k"))) == []
    assert [said.split(",")[0] for _, said in logged(caplog)] == [
        f"BatchGetItem on table {orders.name}",
        f"Query on table {orders.name}",
    ]


def test_the_import_adds_a_null_handler_and_nothing_else() -> None:
    """So nothing is printed where the application has configured nothing, and nothing is configured for it."""
    code = (
        "import logging\n"
        "root = logging.getLogger().handlers[:], logging.getLogger().level\n"
        "import shardkit\n"
        "log = logging.getLogger('shardkit')\n"
        "assert root == (logging.getLogger().handlers, logging.getLogger().level)\n"
        "print([type(handler).__name__ for handler in log.handlers], log.level, log.propagate)\n"
        "log.warning('to nobody')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("['NullHandler'] 0 True\n", "")
