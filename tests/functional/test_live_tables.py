"""``shardkit heat --table`` and ``shardkit size --table``: what they read, say and estimate."""

from __future__ import annotations

import importlib
import io
import json
import os
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    Resharding,
    ShardedTable,
    Strategy,
    Unsharded,
)
from shardkit.analysis.shards import shards_for
from shardkit.cli import build_app
from shardkit.shard_map import ShardMapAdmin
from tests.support.recorder import recording
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

    from shardkit.strategies import Stage

click_testing = pytest.importorskip("click.testing")
rich_console = pytest.importorskip("rich.console")
live: Any = importlib.import_module("shardkit.cli.live_table")
heat_live: Any = importlib.import_module("shardkit.cli.heat_live")
throttled: Any = importlib.import_module("shardkit.cli.throttled")
size: Any = importlib.import_module("shardkit.cli.size")

LARGE = 3 * 172 * 8192  # bytes: three times what 300 read units read, but for the page in reserve
RATES = {"write_units": 4000.0, "read_units": None}
FAST = 1e9  # read units a second


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    """A hundred keys of one item, and one of 50."""
    table = make_table(
        resource, ("Customer", "S"), ("OrderId", "N"), name="Orders",
        global_indexes=[GlobalIndex("ByStatus", ("Status", "S"))],
    )  # fmt: skip
    with table.batch_writer() as batch:
        for number in range(150):
            batch.put_item(
                Item={
                    "Customer": "hot" if number < 50 else f"C{number}",
                    "OrderId": number,
                    "Status": "new" if number % 3 else "paid",
                    "Note": "x" * (number % 7),
                }
            )
    return table


class Seen:
    """What was printed to a console."""

    def __init__(self, width: int = 200) -> None:
        self.file = io.StringIO()
        self.console = rich_console.Console(file=self.file, width=width, highlight=False)

    @property
    def text(self) -> str:
        return self.file.getvalue()


def described(table: Table, index: str | None = None, **changed: Any) -> Any:
    return replace(live.describe(table.meta.client, table.name, index), **changed)


def heat(found: Any, strategy: Strategy | None = None, seen: Seen | None = None, **how: Any) -> Any:
    how = {"most_units": 300.0, "rate": FAST, "progress": False, "rng": random.Random(1), "top": 3, **RATES, **how}
    return heat_live.heat_of_sample(found, strategy, None, (seen or Seen()).console, **how)()


def shown(found: Any, *args: Any) -> str:
    seen = Seen()
    found.show(seen.console, *args)
    return seen.text


def test_a_small_table_is_read_whole(table: Table) -> None:
    """All figures are exact, and the verdict is that of a file with the same items."""
    before = Seen()
    small = described(table, bytes=10_000)
    with recording(table.meta.client) as recorder:
        found = heat(small, seen=before)
    assert before.text == (
        "Orders: 150 items, 10.0 KB, as DynamoDB counted (about every six hours)\n"
        "reading all of it, eventually consistent:\n"
        "this takes about 1 read units (at most 300), 1 request, 8 at a time, and 0.0 s or more, at 1,000,000,000 "
        "units a second\n"
    )
    assert {operation for operation, _ in recorder.requests} == {"Scan"}
    assert [body.get("ConsistentRead") for _, body in recorder.requests] == [None] * len(recorder.requests)
    text = shown(found)
    assert text.startswith("read all of Orders: 150 items of 101 keys, ")
    assert "Customer: bad at 4,000 write units a second" in text
    assert '  write: CalculatedSuffix("OrderId", shards={"hot": 24})\n' in text
    assert "  101 distinct values" in text
    assert "  hot         50    33%" in text
    data = json.loads(json.dumps(found.to_json()))
    assert data["estimates"]["items"] == {"value": 150.0, "low": 150.0, "high": 150.0}
    (judged,) = data["keys"]
    assert (judged["exact"], judged["distinct"], judged["unseen"]) == (True, 101, 0)
    assert judged["hottest"][0]["key"] == {"Customer": {"S": "hot"}}
    assert (judged["hottest"][0]["items"], judged["hottest"][0]["at_least"]) == (50, False)
    assert judged["writes"]["hottest_share"] == pytest.approx(1 / 3)


def test_a_sample_of_a_larger_one(table: Table) -> None:
    """Moto has 150 items; what DescribeTable says of their bytes makes the plan read a third of the segments."""
    large = described(table, bytes=LARGE)
    before = Seen()
    found = heat(large, seen=before, write_units=500.0)
    assert " random segments (" in before.text
    sample = found.found.sample
    assert 0.25 < sample.share < 0.4
    text = shown(found)
    assert "% of the keys of Orders: " in text
    assert "partition keys" in text
    assert "with 95% confidence, at most " in text
    (judged,) = found.to_json()["keys"]
    assert judged["exact"] is False
    assert judged["unseen"] >= 5
    assert judged["items"] == 150
    # A key was read whole, or not at all.
    items = {"hot": 50}
    for usage in judged["hottest"]:
        assert usage["items"] == items.get(usage["key"]["Customer"]["S"], 1)


@pytest.mark.parametrize(("rate", "good"), [(1000.0, None), (500.0, True)])
def test_items_that_were_not_read_and_could_make_one_key_hot(table: Table, rate: float, good: bool | None) -> None:
    """DynamoDB counted far more than the sample suggests: the verdict is not known if they are too many for one key."""
    found = heat(described(table, items=3000, bytes=LARGE), write_units=rate, rng=random.Random(2))
    sampled = found.found
    assert sampled.unseen == pytest.approx(1 - sampled.sample.total("items").low / 3000)
    (judged,), (index,) = found.to_json()["keys"], found.to_json()["indexes"]
    assert (judged["good"], index["good"]) == (good, good)
    text = shown(found)
    assert "DynamoDB counted 3,000 items, more than the sample suggests" in text
    share = f"{sampled.unseen:.0%} of the items"
    reason = f"a key that was not read may have up to {share}; raise --max-units (652 reads all of it)"
    if good:
        assert "unknown" not in text
    else:
        assert f"Customer: unknown at 1,000 write units a second\n  {reason}\n" in text
        assert "index ByStatus (Status): unknown at 1,000 write units a second" in text
        assert (judged["shards_needed"], judged["shards_reason"], index["line"]) == (None, reason, None)
    assert heat(described(table, items=3000, bytes=LARGE), most_units=652.0).found.whole


def test_an_index_by_its_own_key(table: Table) -> None:
    found = heat(described(table, "ByStatus", bytes=10_000))
    (judged,) = found.to_json()["keys"]
    assert judged["attributes"] == ["Status"]
    assert {usage["key"]["Status"]["S"]: usage["items"] for usage in judged["hottest"]} == {"new": 100, "paid": 50}
    with pytest.raises(ConfigurationError, match="--index: table 'Orders' has no index 'X'; its indexes are: ByStatus"):
        described(table, "X")
    with pytest.raises(ConfigurationError, match="--strategy: not supported for Orders, index ByStatus"):
        heat(described(table, "ByStatus"), RandomSuffix(3))


def test_the_hot_indexes_of_a_table_are_named(resource: DynamoDBServiceResource) -> None:
    """Each by the entries that it has: of a sparse one, and of a small projection, fewer units than the table's."""
    table = make_table(
        resource, ("Customer", "S"), ("OrderId", "N"), name="Orders",
        local_indexes=[LocalIndex("ByTotal", ("Total", "N"))],
        global_indexes=[
            GlobalIndex("ByStatus", ("Status", "S"), projection="KEYS_ONLY"),
            GlobalIndex("ByCoupon", ("Coupon", "S"), ("Total", "N")),
            GlobalIndex("ByOrder", ("OrderId", "N")),
            GlobalIndex("BySameKey", ("Customer", "S"), ("Total", "N")),
            GlobalIndex("ByNothing", ("Nothing", "S")),
        ],
    )  # fmt: skip
    with table.batch_writer() as batch:
        for number in range(100):
            item: dict[str, Any] = {"Customer": f"C{number}", "OrderId": number, "Note": "x" * 1500}
            item |= {"Status": "new" if number % 4 else "paid", **({"Coupon": "c"} if number < 10 else {})}
            batch.put_item(Item=item if number % 2 else {**item, "Total": 1})
    found = heat(described(table, bytes=10_000))
    status, coupon, order, nothing = found.to_json()["indexes"]
    line = 'indexes={"ByStatus": CalculatedSuffix(("Customer", "OrderId"), shards=44, attribute="shard")}'
    assert status == {
        "index": "ByStatus", "attributes": ["Status"], "good": False, "items": 100, "rate": 2000.0,
        "reason": "it has too few different values (2): even if all were equally hot, each would take too much",
        "hottest_key": {"Status": {"S": "new"}}, "hottest_share": 0.75, "hottest": 1500.0, "shards_needed": 44,
        "line": line,
    }  # fmt: skip
    assert shards_for(write_units=1500).shards == 44
    assert (coupon["items"], coupon["good"], coupon["rate"], coupon["line"]) == (5, True, 200.0, None)
    assert (order["good"], nothing["items"], nothing["good"]) == (True, 0, None)
    text = shown(found)
    assert text.endswith(
        "index ByStatus (Status): bad at 2,000 write units a second, 50% of the table's\n"
        "  it has too few different values (2): even if all were equally hot, each would take too much\n"
        "  new takes 1,500 write units a second (75%); one partition serves 1,000, and a hot index throttles the "
        "writes of its table\n"
        f"  44 shards: create an index with the partition key Status, shard (a number), and write {line} with its name"
        ": see docs/sharded-indexes.md\n"
        "\n"
        "index ByCoupon (Coupon): good at 200 write units a second, 5.00% of the table's\n"
        "  it has only one value, but one partition can serve it at this rate\n"
        "\n"
        "index ByOrder (OrderId): good at 4,000 write units a second, 100% of the table's\n"
        "  it has 100 different values, and one partition can serve the hottest\n"
        "\n"
        "index ByNothing (Nothing): no item that was read has its key\n"
    )
    assert heat(described(table, bytes=10_000), write_units=None, read_units=100.0).to_json()["indexes"] == []


def test_an_index_that_is_read_by_itself_is_advised_on(table: Table) -> None:
    found = heat(described(table, "ByStatus", bytes=10_000))
    (index,) = found.to_json()["indexes"]
    needed = index["shards_needed"]
    line = f'indexes={{"ByStatus": CalculatedSuffix(("Customer", "OrderId"), shards={needed}, attribute="shard")}}'
    assert (index["index"], index["line"]) == ("ByStatus", line)
    assert shown(found).endswith(f"shard (a number), and write {line} with its name: see docs/sharded-indexes.md\n")


def test_shards_are_shown_by_their_logical_key(resource: DynamoDBServiceResource) -> None:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Days")
    strategy = CalculatedSuffix("OrderId", shards=4)
    with table.batch_writer() as batch:
        for number in range(80):
            item = {"Date": f"2014-07-{number % 2 + 1:02}", "OrderId": f"A{number}"}
            shard = strategy.shard_of(item["Date"], item)
            batch.put_item(Item={**item, "Date": strategy.physical_key(item["Date"], shard)})
    small = described(table, bytes=10_000)
    plain = shown(heat(small))
    assert "these keys look like shards of fewer keys: with --strategy they are shown together" in plain
    found = heat(small, strategy)
    text = shown(found)
    assert (
        "  Date says when an item is written, so one key takes the whole load; its hottest key has 4 shards, which are "
        "too few\n"
    ) in text
    assert "  4 shards (as it has, 190 needed), by RandomSuffix(4) or CalculatedSuffix: " in text
    assert ["2014-07-01", "4", "of", "4", "40"] in map(str.split, text.splitlines())
    data = found.to_json()
    assert data["logical_keys"][0]["items"] == {"value": 40.0, "low": 40.0, "high": 40.0}
    assert data["keys"][0]["shards_needed"] == 190


def test_items_without_a_suffix_and_shards_that_are_empty(resource: DynamoDBServiceResource) -> None:
    """The first are no shard of their key; the others count as read, with no items."""
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Mixed")
    with table.batch_writer() as batch:
        for number in range(30):
            batch.put_item(Item={"Date": f"a.{number % 3 + 1}", "OrderId": str(number)})
            batch.put_item(Item={"Date": "a", "OrderId": str(number)})
            batch.put_item(Item={"Date": "b.2", "OrderId": str(number)})
            batch.put_item(Item={"Date": "none", "OrderId": str(number)})
    found = heat(described(table, bytes=10_000), RandomSuffix(3))
    a, b = found.to_json()["logical_keys"]
    assert (a["shards_read"], a["items_read"], a["items"]["value"]) == (3, 30, 30.0)
    assert (b["shards_found"], b["shards_read"], b["items_read"]) == (1, 3, 30)
    assert b["items"] == {"value": 30.0, "low": 30.0, "high": 30.0}
    assert ["b", "3", "of", "3", "30"] in map(str.split, shown(found).splitlines())


@pytest.mark.parametrize("stage", ["switch", "move"])
def test_in_a_move_the_places_of_both_strategies_are_one_key(resource: DynamoDBServiceResource, stage: Stage) -> None:
    """Neither the stubs of items that have moved nor the shard map count as items."""
    table = make_table(resource, ("Customer", "S"), ("OrderId", "N"), name="Orders")
    new = CalculatedSuffix("OrderId", shards=4)
    for strategy, numbers in {Unsharded(): range(20), Resharding(Unsharded(), new, stage=stage): range(20, 40)}.items():
        orders = ShardedTable(table, strategy)
        for number in numbers:
            orders.put_item(Item={"Customer": "hot", "OrderId": number})
    ShardMapAdmin(table).create(Unsharded())
    found = heat(described(table, bytes=10_000), Resharding(Unsharded(), new, stage=stage))
    (hot,) = found.to_json()["logical_keys"]
    assert (hot["key"], hot["shards_read"], hot["items_read"]) == ({"S": "hot"}, 5, 40)
    assert "its hottest key has 4 shards, which are too few" in shown(found)


def test_number_keys(resource: DynamoDBServiceResource) -> None:
    """A number has no suffix: 1.5 is no shard of 1."""
    table = make_table(resource, ("Price", "N"), name="Prices")
    for number in range(4):
        table.put_item(Item={"Price": Decimal(number) / 4})
    assert "look like shards" not in shown(heat(described(table, bytes=10_000)))
    with (
        recording(table.meta.client) as recorder,
        pytest.raises(
            ConfigurationError, match="--strategy: not supported for Prices, whose partition key is a number"
        ),
    ):
        heat(described(table, bytes=10_000), RandomSuffix(3))
    assert [operation for operation, _ in recorder.requests] == ["DescribeTable"]
    assert shown(heat(described(table, bytes=10_000), Unsharded()))


@pytest.fixture
def few(resource: DynamoDBServiceResource) -> Table:
    """Two keys of five items and ten shards each, of which most are empty."""
    table = make_table(resource, ("Date", "S"), ("OrderId", "N"), name="Few")
    with table.batch_writer() as batch:
        for number, shard in enumerate([1, 2, 3, 4, 5, 6, 7, 8, 9, 9]):
            batch.put_item(Item={"Date": f"{'ab'[number % 2]}.{shard}", "OrderId": number})
    return table


def test_the_hottest_logical_key_takes_what_its_shards_take_together(few: Table) -> None:
    """Not as many times its hottest shard as it has shards."""
    text = shown(heat(described(few, bytes=10_000), RandomSuffix(10), write_units=2000.0))
    assert "the hottest key takes 1,000 write units a second (50%)" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("  a ", "  b "))]
    assert sorted(rows) == [["a", "10", "of", "10", "5"], ["b", "10", "of", "10", "5"]]


def test_of_a_sample_shards_that_were_not_found_may_be_empty(few: Table) -> None:
    """The logical key's figures are those of the sample's share, not of all its shards."""
    found = heat(described(few, bytes=LARGE), RandomSuffix(10), rng=random.Random(4))
    share, keys = found.found.sample.share, found.to_json()["logical_keys"]
    assert share < 0.5
    assert keys
    for key in keys:
        assert key["shards_read"] is None
        one = key["shards_found"] == 1
        assert key["items"]["value"] == pytest.approx(key["items_read"] / (1 if one else share))
    assert "shards found" in shown(found)


def test_a_sample_that_ended_in_the_middle_is_not_exact(few: Table) -> None:
    """All segments were begun, and some stored keys have more: the shards that were not found may have items too."""
    found = heat_live.LogicalKey("a", 10, [{"items": 5.0}], 1.0, at_least=True)
    assert (found.exact, found.shards_read, found.total) == (False, None, (5.0, 5.0, float("inf")))


def test_a_table_that_is_read_whole_is_read_in_few_requests(table: Table) -> None:
    """Engines that search the whole table for each segment take a time for each; the plan says how many there are."""
    before = Seen()
    counted = described(table, items=4996, bytes=0)
    with recording(table.meta.client) as recorder:
        heat(counted, most_units=1000.0, seen=before)
    assert len(recorder.requests) == 30
    assert (
        "if an item has 1.0 KB, this takes about 632 read units (at most 1,000), 30 requests, 8 at a time, and 0.0 s "
        "or more, at 1,000,000,000 units a second\n"
    ) in before.text


def test_the_units_a_second_are_kept(table: Table) -> None:
    """The rate is a quarter of the table's, unless it is given; pages wait for their turn."""
    before = Seen()
    heat(described(table, bytes=10_000, provisioned=8.0), rate=None, seen=before)
    assert "2 units a second" in before.text
    with pytest.raises(ConfigurationError, match="--max-rate: must be a number > 0"):
        heat(described(table), rate=0.0)
    with pytest.raises(ConfigurationError, match="--max-units: must be a number >= 256"):
        heat(described(table), most_units=100.0)


@pytest.fixture
def interrupting(table: Table) -> Iterator[None]:
    """Ctrl-C at the 20th Scan."""
    sent = iter(range(1000))

    def interrupt(**_: Any) -> None:
        if next(sent) == 20:
            os.kill(os.getpid(), signal.SIGINT)

    table.meta.client.meta.events.register("before-call.dynamodb.Scan", interrupt)
    yield
    table.meta.client.meta.events.unregister("before-call.dynamodb.Scan", interrupt)


@pytest.mark.usefixtures("interrupting")
def test_interrupted_it_shows_what_was_read(table: Table) -> None:
    found = heat(described(table, bytes=LARGE))
    assert found.found.problem == "interrupted"
    assert 0 < found.found.sample.segments < 50
    assert "stopped before its end: interrupted; what follows is from what was read until then" in shown(found)


def test_an_error_shows_what_was_read(table: Table) -> None:
    sent = iter(range(1000))

    def fail(params: Mapping[str, Any], **_: Any) -> None:
        if next(sent) == 20:
            raise ConfigurationError("no more")

    table.meta.client.meta.events.register("before-parameter-build.dynamodb.Scan", fail)
    found = heat(described(table, bytes=LARGE))
    table.meta.client.meta.events.unregister("before-parameter-build.dynamodb.Scan", fail)
    assert (found.found.problem, 0 < found.found.sample.segments < 50) == ("no more", True)


def test_keys_that_were_not_read_to_their_end(table: Table) -> None:
    """The units are used up: they have at least what was read."""

    def paged(params: dict[str, Any], **_: Any) -> None:
        params["Limit"] = 5

    def costly(parsed: dict[str, Any], **_: Any) -> None:
        parsed["ConsumedCapacity"]["CapacityUnits"] = 128.0

    events = table.meta.client.meta.events
    events.register("before-parameter-build.dynamodb.Scan", paged)
    events.register_first("after-call.dynamodb.Scan", costly)
    found = heat(described(table, bytes=10_000), most_units=600.0)
    events.unregister("before-parameter-build.dynamodb.Scan", paged)
    events.unregister("after-call.dynamodb.Scan", costly)
    assert found.found.units == 512
    assert len(found.found.unfinished) > 0
    text = shown(found)
    assert "keys (marked with +): they have more, and so has the table" in text
    assert found.to_json()["keys"][0]["hottest"][0]["at_least"] is True
    assert "DynamoDB counted 150 items, more than the sample suggests" in text
    for estimate in found.to_json()["estimates"].values():
        assert estimate["high"] is None


def test_an_empty_table(resource: DynamoDBServiceResource) -> None:
    table = make_table(resource, name="Empty")
    before = Seen()
    found = heat(described(table), seen=before)
    assert "DynamoDB has not counted its items yet" in before.text
    assert shown(found).splitlines()[-1] == "no item was read: there is nothing to judge"
    assert found.to_json()["keys"] == []
    measured = size.size_of_sample(
        described(table, bytes=10_000), Seen().console, most_units=300.0, rate=FAST, progress=False
    )()
    assert shown(measured).splitlines()[-1] == "no item was read: there is nothing to measure"
    assert measured.to_json()["read"] == {}


def test_sizes(table: Table) -> None:
    how = {"most_units": 300.0, "rate": FAST, "progress": False, "rng": random.Random(1)}
    whole = size.size_of_sample(described(table, bytes=10_000), Seen().console, **how)()
    data = json.loads(json.dumps(whole.to_json()))
    assert data["read"]["items"] == 150
    assert data["estimates"]["bytes"]["value"] == data["read"]["bytes"]
    assert data["estimates"]["storage_bytes"]["value"] == data["read"]["storage_bytes"]
    assert sum(one["share"]["value"] for one in data["attribute_shares"]) == pytest.approx(1.0)
    text = shown(whole)
    assert text.startswith("read all of Orders: 150 items of 101 keys, ")
    assert "of those that were read: 150 items" in text
    part = size.size_of_sample(described(table, bytes=LARGE), Seen().console, **how)()
    found = part.to_json()
    for name in ("items", "bytes", "write_units", "keys"):
        estimate = found["estimates"][name]
        assert estimate["low"] < estimate["value"] < estimate["high"]
    text = shown(part)
    assert "storage" in text
    assert "95% interval" in text


# -- the commands


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), [*args, "--max-rate", "1e9"], env={"COLUMNS": "80"})


@pytest.mark.usefixtures("table")
def test_heat_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(importlib.import_module("shardkit.cli.heat"), "drawing", lambda path, draw: drawn.extend)
    result = invoke("heat", "--table", "Orders", "--write-units", "4000", "--top", "1", "--plot", "heat.svg")
    assert result.exit_code == 0, result.output
    assert [one.title for one in drawn] == ["Customer: bad at 4,000 write units a second"]
    assert result.stderr.startswith("Orders: 150 items, as DynamoDB counted (about every six hours)\nreading all of it")
    assert "Customer: bad at 4,000 write units a second" in result.stdout
    assert [line for line in result.stdout.splitlines() if line != line.rstrip()] == []
    result = invoke("heat", "--table", "Orders", "--index", "ByStatus", "--json", "--time", "Status")
    data = json.loads(result.stdout)
    assert (data["index"], data["sample"]["stopped"], data["keys"][0]["times"]) == ("ByStatus", None, ["Status"])


@pytest.mark.usefixtures("table")
def test_a_time_that_is_no_part_of_the_partition_key() -> None:
    """The sort key, and the key of an index: only the keys that have it are judged by it."""
    result = invoke("heat", "--table", "Orders", "--time", "OrderId,Status", "--json", "--write-units", "4000")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["keys"][0]["times"] == []
    assert data["indexes"][0]["hottest_share"] == 1.0


@pytest.mark.usefixtures("table")
def test_size_of_a_table() -> None:
    result = invoke("size", "--table", "Orders")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("read all of Orders: 150 items of 101 keys, ")
    assert json.loads(invoke("size", "--table", "Orders", "--json").stdout)["read"]["items"] == 150


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("size",), "SOURCE, --table: must be one of them, got neither"),
        (("heat", "orders.jsonl", "--table", "Orders"), "SOURCE, --table: must be one of them, got both"),
        (("heat", "orders.jsonl", "--key", "A", "--strategy", "{}"), "--strategy: needs --table"),
        (("size", "orders.jsonl", "--index", "I"), "--index: needs --table; add it, or omit this option"),
        (("size", "--table", "Orders", "--format", "csv"), "--format: is not for --table; omit one of them"),
        (("heat", "--table", "Orders", "--key", "Status"), "--key: is not for --table"),
        (("heat", "--table", "Orders", "--index-key", "Status"), "--index-key: is not for --table"),
        (("heat", "--table", "Orders", "--strategy", "x"), "--strategy: 'x' is not valid JSON"),
        (
            ("heat", "--table", "Orders", "--time", "Status"),
            "--time: 'Status' is not a key of table Orders or its indexes; give one of Customer",
        ),
        (("heat", "--table", "Orders", "--max-units", "5"), "--max-units: must be a number >= 256"),
        (("heat", "--table", "Nothing"), "--table: DescribeTable of table 'Nothing' failed: An error occurred"),
        (("size", "--table", "Nothing"), "--table: DescribeTable of table 'Nothing' failed: An error occurred"),
        (("heat", "--table", "Orders", "--throttled", "--last", "soon"), "--last: 'soon' is not a duration"),
        (("heat", "--table", "Orders", "--throttled", "--last", "9" * 20 + "d"), "--last: '99999999999999999999d' is"),
        (("heat", "--table", "Orders", "--throttled", "--last", "9999999d"), "--last: '9999999d' is longer ago"),
        (("heat", "--table", "Orders", "--throttled", "--plot", "h.svg"), "--plot: draws no report of --throttled"),
        (("heat", "--table", "Orders", "--throttled", "--endpoint-url", "a:b"), "--endpoint-url: 'a:b'"),
    ],
)
def test_wrong_use(args: tuple[str, ...], says: str, resource: DynamoDBServiceResource) -> None:
    make_table(resource, ("Customer", "S"), name="Orders")
    result = invoke(*args) if "--table" in args else click_testing.CliRunner().invoke(build_app(), args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"not begun: {says.removeprefix('not begun: ')}" in result.stderr.replace("\n", " ")


@pytest.mark.usefixtures("table")
def test_throttled_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks the services of the table's region; moto has no Contributor Insights."""
    asked: dict[str, Any] = {}

    def read(client: Any, cloudwatch: Any, table: Any, **how: Any) -> Any:
        asked.update(how, table=table.name, service=cloudwatch.meta.service_model.service_name)
        times = how["until"] - how["last"], how["until"]
        return throttled.ThrottledTable([throttled.Throttled(table.name, None, None, *times, {}, how["strategy"])])

    monkeypatch.setattr(heat_live, "read_throttled_table", read)
    form = json.dumps(RandomSuffix(3).to_dict())
    result = click_testing.CliRunner().invoke(
        build_app(), ["heat", "--table", "Orders", "--throttled", "--last", "30m", "--top", "7", "--strategy", form]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Orders, ")
    assert (asked["table"], asked["service"], asked["top"], asked["last"]) == (
        "Orders", "cloudwatch", 7, timedelta(minutes=30),
    )  # fmt: skip
    assert asked["strategy"] == RandomSuffix(3)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, b'{"__type": "x#UnknownOperationException", "message": ""}', "this endpoint has no Contributor Insights"),
        (501, b"<!doctype html><title>501 Not Implemented</title>", "this endpoint has no Contributor Insights"),
        (
            400,
            b'{"__type": "x#ResourceNotFoundException", "message": "no"}',
            "table 'Orders' failed: An error occurred",
        ),
        (400, b'{"__type": "x#AccessDeniedException", "message": "no"}', "dynamodb:DescribeContributorInsights"),
    ],
)
def test_throttled_keys_of_an_endpoint_that_does_not_know_them(status: int, body: bytes, says: str) -> None:
    client: Any = boto3.client("dynamodb", region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}))

    headers: Any = {}
    raw: Any = SimpleNamespace(stream=lambda **_: iter([body]))

    def answer(**_: Any) -> AWSResponse:
        return AWSResponse("http://localhost", status, headers, raw)

    client.meta.events.register("before-send.dynamodb", answer)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match=r"^--throttled: ") as caught:
        throttled.read_throttled(client, None, "Orders", None, until=now, last=timedelta(hours=1), top=3)
    assert says in str(caught.value)
