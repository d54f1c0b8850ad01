"""``shardkit.migrate``: plan, move and verify a table, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from botocore.exceptions import ClientError

from shardkit import (
    ConfigurationError,
    RandomSuffix,
    Resharding,
    ShardedTable,
    StageError,
    Strategy,
    Unsharded,
    migrate,
)
from tests.support.fakes import timeless
from tests.support.mapped import Moment, before
from tests.support.moving import ADOPT, resharding
from tests.support.recorder import answering, recording
from tests.support.tables import make_table
from tests.support.wire import Body

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

ITEMS: list[dict[str, Any]] = [
    {"pk": f"k{number % 2}", "sk": f"s{number}", "v": number, "tags": {"a", "b"}} for number in range(7)
]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    made = make_table(resource, ("pk", "S"), ("sk", "S"))
    for item in ITEMS:
        made.put_item(Item=item)
    return made


def sharded(table: Any, strategy: Strategy, **options: Any) -> ShardedTable:
    # moto is not safe for threads: a Scan fails if another request adds an item meanwhile.
    made = ShardedTable(table, strategy, max_concurrency=1, **options)
    timeless(made)
    return made


def test_plan_move_verify(table: Table) -> None:
    """And then the new strategy alone finds every item."""
    first = sharded(table, resharding("old"))
    with recording(table.meta.client) as sent:
        plan = migrate.plan(first)
    assert set(sent.operations) == {"DescribeTable", "Scan"}
    assert (plan.read, plan.moving, plan.home, plan.failed, plan.table_units) == (7, 7, 0, 0, 42.0)
    assert str(plan).splitlines() == [
        "7 items read: 7 would move, 0 are at their place already",
        "42 write units of the table; at the given rates 0:00:01 (h:mm:ss)",
    ]
    moving = sharded(table, resharding("move"))
    assert (migrate.verify(moving).left, migrate.verify(moving).complete) == (7, False)
    told: list[migrate.MoveReport] = []
    report = migrate.move(moving, progress=told.append)
    assert (report.complete, report.moved, report.verified, report.left) == (True, 7, 7, 0)
    assert str(report).splitlines()[-1] == "7 items verified: all are at their new places"
    assert report.read >= 7  # with copies that were made before their page was read
    assert told[-1].verified == 7
    assert migrate.verify(moving).complete
    after = sharded(table, ADOPT[1])
    assert {item["sk"]: item for item in after.scan_items()} == {item["sk"]: item for item in ITEMS}
    for item in ITEMS:
        assert after.get_item(Key={"pk": item["pk"], "sk": item["sk"]})["Item"] == item
    assert (migrate.plan(moving).moving, migrate.plan(moving).home, migrate.plan(first).ambiguous) == (0, 7, 7)
    again = migrate.move(moving)
    assert (again.moved, again.complete) == (0, True)


def test_a_table_with_a_stream(resource: DynamoDBServiceResource, table: Table) -> None:
    stream: Any = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    resource.meta.client.update_table(TableName=table.name, StreamSpecification=stream)
    moving = sharded(table, resharding("move"))
    assert migrate.plan(moving).table_units == 7 * 7.0
    with recording(table.meta.client) as sent:
        report = migrate.move(moving)
    assert report.complete
    copies = [body["TransactItems"][0]["Put"]["Item"] for body in sent.bodies("TransactWriteItems")]
    assert all(copy["shardkit:move"]["S"].endswith(":stream") for copy in copies)
    assert not any("shardkit:move" in item for item in table.scan()["Items"])


def test_its_journal(table: Table, tmp_path: Path) -> None:
    """A move that was stopped goes on where it was, and another one is refused; at the end the journal is gone."""
    journal = tmp_path / "move.journal"
    moving = sharded(table, resharding("move"))

    def denied(_: Body) -> NoReturn:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DeleteItem")

    with answering(table.meta.client, "DeleteItem", denied), pytest.raises(ClientError, match="AccessDenied"):
        migrate.move(moving, journal=journal)
    other = sharded(table, resharding("move", ADOPT[1], Unsharded()))
    with pytest.raises(ConfigurationError, match=r"is of another move \(old, new differ\)"):
        migrate.move(other, journal=journal)
    assert migrate.move(moving, journal=journal).complete
    assert not journal.exists()


def test_by_a_shard_map(table: Table) -> None:
    """The map's own item is left out; when the map is changed, the mover stops before its next request."""
    moment = Moment()
    admin = moment.admin(table)
    admin.create(ADOPT[0])
    moment.wait(700)
    admin.start(ADOPT[1])
    orders = sharded(table, moment.map())
    with pytest.raises(StageError, match="must be 'move' to move or verify"):
        migrate.move(orders)
    moment.advanced(admin, "move")
    orders = sharded(table, moment.map())
    plan = migrate.plan(orders)
    assert (plan.read, plan.moving) == (7, 7)

    def back() -> None:
        admin.back()
        moment.wait(31)  # the lease ends

    with before(table.meta.client, "TransactWriteItems", do=back), pytest.raises(StageError, match="map was changed"):
        migrate.move(orders)
    assert len(table.scan()["Items"]) == 8
    assert [item for item in table.scan()["Items"] if "." in str(item["pk"])] == []
    moment.advanced(admin, "move")
    report = migrate.move(sharded(table, moment.map()))
    assert (report.complete, report.moved, report.verified) == (True, 7, 7)


@pytest.mark.parametrize("call", [migrate.plan, migrate.move, migrate.verify])
def test_what_is_refused(table: Table, call: Any) -> None:
    with pytest.raises(ConfigurationError, match="table: must have a Resharding as its strategy, or a ShardMap"):
        call(sharded(table, Unsharded()))
    more = Resharding(RandomSuffix(2), RandomSuffix(4), stage="move")
    with pytest.raises(ConfigurationError, match="no items have to move"):
        call(sharded(table, more))
    with pytest.raises(ConfigurationError, match="speed"):
        call(sharded(table, resharding("move")), speed=3)
    if call is not migrate.plan:
        with pytest.raises(
            StageError, match=r"stage: must be 'move' to move or verify table .* got 'switch'"
        ) as caught:
            call(sharded(table, resharding("switch")))
        assert caught.value.stage == "switch"
    assert all(item in ITEMS for item in table.scan()["Items"])
