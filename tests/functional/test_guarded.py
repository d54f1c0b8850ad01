"""Looks for a shard map, by callers whose strategy is another: when they are sent, and what they protect."""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    Resharding,
    ShardedCounter,
    ShardedTable,
    ShardMap,
    Strategy,
    Unsharded,
    bulk_load,
    install,
    open_source,
)
from shardkit.cache import CachedTable
from shardkit.cli import build_app
from shardkit.core.machine import Send
from shardkit.migrate import move, plan, verify
from shardkit.parts import PartConfig
from shardkit.read_parts import ReadConfig
from shardkit.sharding.programs import Programs
from shardkit.sharding.shard_map import MAP
from tests.support.fakes import timeless
from tests.support.mapped import Moment, requests_of
from tests.support.recorder import answering
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

OLD, NEW = Unsharded(), CalculatedSuffix("OrderId", shards=4)
ITEM = {"Date": "2014-07-09", "OrderId": "A1"}
FIRST = ["DescribeTable", "map"]
REFUSED = r"has a shard map \(generation \d, stage '{}'\)"
DENIED = {"__type": "com.amazon.coral.service#AccessDeniedException", "message": "no"}


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Any:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


@pytest.fixture
def schema(table: Any) -> Any:
    return table.meta.client.describe_table(TableName="Orders")["Table"]


@pytest.fixture
def moving(table: Any) -> Moment:
    """A map in the middle of a move."""
    moment = Moment()
    admin = moment.admin(table)
    admin.create(OLD)
    admin.start(NEW)
    moment.advanced(admin, "move")
    return moment


def looks(table: Any, *calls: Any) -> list[list[str]]:
    """Return what each call sends."""
    sent = []
    for call in calls:
        with requests_of(table.meta.client) as seen:
            call()
        sent.append([name for name, _ in seen])
    return sent


def test_a_table_looks_once_with_its_description(table: Any, schema: Any) -> None:
    for strategy in (OLD, NEW, RandomSuffix(3), Resharding(OLD, NEW, stage="old")):
        orders = ShardedTable(table, strategy)
        first, second = looks(table, *[lambda to=orders: to.put_item(Item=ITEM)] * 2)
        assert (first, second) == ([*FIRST, "PutItem"], ["PutItem"])
    given = ShardedTable(table, NEW, key_schema=schema)
    assert looks(table, lambda: given.put_item(Item=ITEM)) == [["PutItem"]]
    client = table.meta.client
    with install(client, {"Orders": NEW}):
        put = [lambda: table.put_item(Item=ITEM)] * 2
        assert looks(table, *put) == [[*FIRST, "PutItem"], ["PutItem"]]


def test_a_load_looks_at_its_start(table: Any, schema: Any) -> None:
    """Also into a table that is known for long: a map may have come since."""
    written = ["map", "BatchWriteItem"]
    orders, given = ShardedTable(table, NEW), ShardedTable(table, NEW, key_schema=schema)
    load = [lambda: bulk_load(orders, [ITEM])] * 2
    assert looks(table, *load) == [["DescribeTable", *written], written]
    assert looks(table, lambda: bulk_load(given, [ITEM])) == [written]

    def batch() -> None:
        with orders.batch_writer() as writer:
            writer.put_item(Item=ITEM)

    assert looks(table, batch) == [["BatchWriteItem"]]


def test_a_number_as_the_partition_key_has_no_map(resource: DynamoDBServiceResource) -> None:
    numbered = make_table(resource, ("Id", "N"))
    orders = ShardedTable(numbered, Unsharded())
    calls = (lambda: orders.put_item(Item={"Id": 1})), (lambda: bulk_load(orders, [{"Id": 2}]))
    assert looks(numbered, *calls) == [["DescribeTable", "PutItem"], ["BatchWriteItem"]]


@pytest.mark.parametrize("stage", ["guard", "move"])
def test_the_same_move_in_the_code_is_told_by_its_stage(table: Any, moving: Moment, stage: Any) -> None:
    """The map is in stage move; the message does not show one strategy twice."""
    orders = ShardedTable(table, Resharding(OLD, NEW, stage=stage))
    with pytest.raises(ConfigurationError, match=rf"{REFUSED.format('move')}.* stays in stage '{stage}'") as caught:
        orders.put_item(Item=ITEM)
    assert "OrderId" not in str(caught.value)


def test_a_role_that_may_not_look_goes_on(table: Any, caplog: pytest.LogCaptureFixture) -> None:
    orders = ShardedTable(table, NEW)
    with (
        caplog.at_level(logging.INFO, "shardkit"),
        answering(table.meta.client, "GetItem", lambda body: DENIED if MAP in str(body["Key"]) else None),
    ):
        for _ in range(2):
            orders.put_item(Item=ITEM)
        bulk_load(orders, [{**ITEM, "OrderId": "A2"}])
    said = "table Orders: could not look for a shard map (AccessDeniedException), goes on without"
    assert [one.getMessage() for one in caplog.records if one.name == "shardkit"] == [said] * 2
    assert table.scan()["Count"] == 2


def test_a_throttled_look_waits_only_for_a_load(table: Any, schema: Any) -> None:
    """Who has no map is not held up; a load has time, and is protected also while its table is hot."""
    throttle = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException", "Message": ""}}, "GetItem")
    first, second, described = (Programs("Orders", NEW, given, lambda: 0.5) for given in (None, None, schema))
    known, loading, again = first.known(), second.to_load(look=True), described.to_load(look=True)
    answers: list[tuple[Any, bool]] = [(known, True), (loading, False), (again, False)]
    for program, paced in answers:
        look = next(program)
        if program is not again:
            look = program.send({"Table": schema})
        assert isinstance(look, Send)
        assert (look.operation, look.paced) == ("GetItem", paced)
        with pytest.raises(StopIteration):
            program.throw(throttle)


def test_no_answer_is_the_callers_error(table: Any) -> None:
    orders = ShardedTable(table, NEW)
    timeless(orders)

    def lost(**_: Any) -> None:
        raise ConnectionError

    table.meta.client.meta.events.register("before-call.dynamodb.GetItem", lost)
    with pytest.raises(ConnectionError):
        orders.put_item(Item=ITEM)


@pytest.mark.usefixtures("moving")
def test_nothing_is_written(table: Any, schema: Any, tmp_path: Path) -> None:
    """No item, and no file of a load."""
    journal, given = tmp_path / "journal", ShardedTable(table, NEW, key_schema=schema)
    before = table.scan()["Items"]
    for target in (ShardedTable(table, NEW), given, table):
        with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
            bulk_load(target, [ITEM], journal=journal)
    for cached in (
        CachedTable(table, ttl=1, max_bytes=100_000),
        CachedTable(ShardedTable(table, NEW), ttl=1, max_bytes=100_000),
    ):
        with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
            cached.get_item(Key=ITEM)
    with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
        ShardedCounter(table, ITEM, "n", shards=3).add()
    with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
        PartConfig(table="Orders", strategy=NEW, parts=1, connect=lambda: table.meta.client).prepared()
    with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
        ReadConfig(table="Orders", strategy=NEW, parts=1, connect=lambda: table.meta.client).prepared()
    assert table.scan()["Items"] == before
    assert not journal.exists()
    given.put_item(Item=ITEM)  # who gives the key schema is not protected


@pytest.mark.usefixtures("moving")
def test_a_move_by_the_code_is_refused(table: Any) -> None:
    """A plan of it, which writes nothing and concludes nothing, is not."""
    by_code = ShardedTable(table, Resharding(OLD, NEW, stage="move"))
    assert plan(by_code).moving == 0
    for run in (move, verify):
        with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
            run(by_code)
    assert move(ShardedTable(table, ShardMap())).complete


def test_a_refused_table_looks_again(table: Any, moving: Moment) -> None:
    orders, admin = ShardedTable(table, NEW), moving.admin(table)
    with pytest.raises(ConfigurationError, match=REFUSED.format("move")):
        orders.put_item(Item=ITEM)
    moving.wait(admin.wait())
    admin.finish()
    orders.put_item(Item=ITEM)
    assert orders.get_item(Key=ITEM)["Item"] == ITEM


def test_the_maps_own_strategy_sees_no_map_in_its_scans(table: Any) -> None:
    """So a copy by a load has the items only, and the map's item is no key of the application."""
    Moment().admin(table).create(NEW)
    orders = ShardedTable(table, NEW)
    orders.put_item(Item=ITEM)
    assert len(table.scan()["Items"]) == 2
    assert orders.scan()["Items"] == [*orders.scan_items()] == [*orders.scan_items(segments=3)] == [ITEM]
    assert orders.scan(Select="COUNT")["Count"] == 1
    assert bulk_load(orders, orders.scan_items()).written == 1
    with pytest.raises(InvalidKeyError, match="is the key of the shard map"):
        orders.put_item(Item={**ITEM, "Date": MAP})
    with install(table.meta.client, {"Orders": NEW}):
        assert table.scan()["Items"] == [ITEM]


def test_how_items_are_searched_is_no_conflict(table: Any) -> None:
    Moment().admin(table).create(RandomSuffix(4))
    located = ShardedTable(table, RandomSuffix(4, locate=True))
    located.put_item(Item=ITEM)
    assert located.get_item(Key=ITEM)["Item"] == ITEM
    with pytest.raises(ConfigurationError, match=REFUSED.format("old")):
        ShardedTable(table, RandomSuffix(8)).put_item(Item=ITEM)


@pytest.mark.parametrize("strategy", [ShardMap(), Resharding(OLD, NEW, stage="move")])
def test_a_map_that_cannot_be_one_guards_too(table: Any, strategy: Strategy) -> None:
    text = {"form": 1, "generation": 1, "stage": "old", "before": "old", "reached": "old", "since": None, "new": None}
    key = {"Date": MAP, "OrderId": MAP}
    table.put_item(Item={**key, MAP: json.dumps({**text, "old": strategy.to_dict()}), "shardkit:generation": 1})
    for used in (NEW, ShardMap()):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            ShardedTable(table, used).put_item(Item=ITEM)


def test_a_text_form_of_the_map() -> None:
    assert Strategy.from_dict({"type": "ShardMap"}) == ShardMap()
    assert Strategy.from_dict(ShardMap(clock=lambda: (0.0,)).to_dict()) == ShardMap()
    with pytest.raises(ConfigurationError, match="clock: must be a function"):
        Strategy.from_dict({"type": "ShardMap", "clock": 5})


def test_an_export_is_not_stored_by_a_map(table: Any, tmp_path: Path) -> None:
    export = tmp_path / "export.json"
    export.write_text('{"Item": {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "A1"}}}\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="known only to the table that holds the map"):
        open_source(str(export), table=ShardedTable(table, NEW), stored_by=ShardMap())


class TestCommands:
    """``shardkit load``, ``stage`` and ``heat``."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: DynamoDBServiceResource) -> None:
        pytest.importorskip("click")
        monkeypatch.chdir(tmp_path)
        rows = "\n".join(f"2014-07-09,A{number}" for number in range(20))
        Path("orders.csv").write_text(f"Date,OrderId\n{rows}\n", encoding="utf-8")
        monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)

    def run(self, *args: str) -> Any:
        testing: Any = importlib.import_module("click.testing")
        return testing.CliRunner().invoke(build_app(), [*args, "--no-progress"])

    def load(self, *more: str) -> Any:
        return self.run("load", "orders.csv", "--table", "Orders", "--transport", "client", *more)

    def test_a_load_without_a_strategy_follows_the_map(self, table: Any, moving: Moment) -> None:
        for more in ((), ("--strategy", '{"type": "ShardMap"}')):
            dry = self.load("--dry-run", *more)
            assert (dry.exit_code, "20 items" in dry.stdout) == (0, True), dry.output
            assert table.scan()["Count"] == (1 if not more else 21)
            result = self.load(*more)
            assert result.exit_code == 0, result.output
            assert "ShardMap()" in result.stderr
        found = [str(item["Date"]) for item in table.scan()["Items"] if item["Date"] != MAP]
        assert (len(found), all("." in key for key in found)) == (20, True), "new items are at new places in 'move'"

    @pytest.mark.usefixtures("moving")
    @pytest.mark.parametrize(
        "strategy",
        [("--shards", "4", "--by", "OrderId"), ("--strategy", '{"type": "Unsharded"}')],
    )
    def test_a_strategy_that_says_otherwise_is_refused(self, table: Any, strategy: tuple[str, ...]) -> None:
        result = self.load(*strategy)
        assert (result.exit_code, "has a shard map" in result.stderr) == (2, True), result.output
        assert table.scan()["Count"] == 1

    def test_what_a_load_asks(self, table: Any) -> None:
        """Without a map: one look as the command begins, and one as its load begins."""
        for more in ((), ("--shards", "4", "--by", "OrderId")):
            with requests_of(table.meta.client) as seen:
                assert self.load(*more).exit_code == 0
            assert [name for name, _ in seen] == [*FIRST, "map", "BatchWriteItem"]

    @pytest.mark.usefixtures("moving")
    def test_a_look_at_the_table_by_its_map(self) -> None:
        result = self.run("heat", "--table", "Orders", "--strategy", '{"type": "ShardMap"}', "--no-time")
        assert result.exit_code == 0, result.output
