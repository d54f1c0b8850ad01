"""How scenarios are read: defaults, what a way overrides, and the report of all problems at once."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, Unsharded
from shardkit.dynamodb.schema import KeySchema
from shardkit.errors import ConfigurationError
from shardkit.partitions import BURST_SECONDS
from shardkit.partitions.scenarios.clients import ATTEMPTS
from shardkit.partitions.scenarios.distributions import EachValue, Weighted
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.scenario import LoadSettings, ReadSettings

PLAIN: dict[str, Any] = {
    "table": {"partition_key": "Date", "sort_key": "OrderId", "write_units": 4000},
    "items": {"number": 100, "keys": {"distribution": "uniform", "values": 10}},
    "load": {"with": "bulk_load"},
}
TABLE_ENTRIES = (
    *("name", "partition_key", "sort_key", "read_units", "write_units", "on_demand", "partitions", "burst_seconds"),
    *("adaptive_seconds", "split_for_heat", "adaptive", "indexes"),
)
TOP_ENTRIES = ("seed", "latency_seconds", "way", "table", "load", "reads", "sharding", "items")


def scenario(**changes: Any) -> dict[str, Any]:
    """The plain scenario, with its parts changed entry by entry; None takes a part or an entry away."""
    made = copy.deepcopy(PLAIN)
    for name, change in changes.items():
        if change is None:
            made.pop(name, None)
        elif isinstance(change, dict):
            merged = {**made.get(name, {}), **change}
            made[name] = {entry: value for entry, value in merged.items() if value is not None}
        else:
            made[name] = change
    return made


def problems(given: Any) -> list[str]:
    """What is said of each entry that is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        read_scenario(given, "s.toml")
    first, *told = str(caught.value).splitlines()
    assert first == "s.toml cannot be simulated:"
    return [line.removeprefix("  ") for line in told]


# -- what is left out --------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    read = read_scenario(PLAIN, "s.toml")
    (way,) = read.ways
    assert (read.seed, read.latency_seconds) == (1, (0.005, 0.010))
    assert way.table.keys == read.keys == KeySchema(("Date",), ("OrderId",))
    assert way.table.throughput == {
        "read_units": None,
        "write_units": 4000,
        "on_demand": False,
        "count": None,
        "burst_seconds": BURST_SECONDS,
        "adaptive_seconds": 0.0,
        "split_for_heat": None,
    }
    assert way.load == LoadSettings(
        tool="bulk_load", order="as given", workers=10, window=50_000, cursors=1, write_units=None
    )
    assert (way.strategy, way.reads, way.name) == (Unsharded(), None, "bulk_load")
    assert (read.items.number, read.items.size, read.items.source) == (100, (1000, 1000), None)


def test_the_table_and_its_indexes_as_create_table_takes_them() -> None:
    index = {
        "name": "ByUser",
        "partition_key": "User",
        "projection": "INCLUDE",
        "include": ["Total"],
        "on_demand": True,
    }
    items = {"attributes": {name: {"distribution": "uniform", "values": 2} for name in ("User", "Total")}}
    (way,) = read_scenario(scenario(table={"indexes": [index]}, items=items), "s.toml").ways
    assert way.table.description({"User": "N"}) == {
        "TableName": "table",
        "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
        "AttributeDefinitions": [
            {"AttributeName": "Date", "AttributeType": "S"},
            {"AttributeName": "OrderId", "AttributeType": "S"},
            {"AttributeName": "User", "AttributeType": "N"},
        ],
        "ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 4000},
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "ByUser",
                "KeySchema": [{"AttributeName": "User", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["Total"]},
                "BillingMode": "PAY_PER_REQUEST",
            }
        ],
    }
    assert way.attributes == {"Date", "OrderId", "User", "Total"}


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({"shards": 20}, RandomSuffix(20)),
        ({"shards": 200, "by": "OrderId"}, CalculatedSuffix("OrderId", shards=200)),
        (
            {"shards": 2, "by": ["Date", "OrderId"], "separator": "#"},
            CalculatedSuffix(("Date", "OrderId"), 2, separator="#"),
        ),
        ({"shards": {"2014-07-09": 50}}, RandomSuffix({"2014-07-09": 50})),
        ({"boundaries": ["F", "N"], "by": "OrderId"}, RangeSuffix("OrderId", ["F", "N"])),
        ({"boundaries": {"2014-07-09": ["F"]}, "by": "OrderId"}, RangeSuffix("OrderId", {"2014-07-09": ["F"]})),
        ({"type": "RandomSuffix", "shards": 3, "first": 0}, RandomSuffix(3, first=0)),
        ({"type": "Unsharded"}, Unsharded()),
        ({}, Unsharded()),
    ],
)
def test_strategies(given: dict[str, Any], strategy: Any) -> None:
    (way,) = read_scenario(scenario(sharding=given), "s.toml").ways
    assert way.strategy == strategy


def test_every_form_of_a_load_and_of_reads() -> None:
    bulk = {"with": "bulk_load", "order": "sorted", "workers": 3, "window": 9, "cursors": 4, "write_units": "80%"}
    (way,) = read_scenario(scenario(load=bulk), "s.toml").ways
    assert way.load == LoadSettings(tool="bulk_load", order="sorted", workers=3, window=9, cursors=4, write_units="80%")
    (way,) = read_scenario(scenario(load={"with": "batch_writer", "order": "random"}), "s.toml").ways
    assert way.load == LoadSettings(tool="batch_writer", order="random", workers=1, attempts=ATTEMPTS)
    puts = {"with": "put_item", "per_second": 5, "seconds": 60, "attempts": 1}
    reads = {"with": "get_item", "per_second": 2.5, "consistent": True}
    (way,) = read_scenario(scenario(load=puts, reads=reads), "s.toml").ways
    assert way.load == LoadSettings(tool="put_item", per_second=5, seconds=60, attempts=1)
    assert way.reads == ReadSettings(operation="get_item", per_second=2.5, consistent=True)
    query = {"with": "query", "per_second": 1, "seconds": 9, "limit": 50}
    (way,) = read_scenario(scenario(load=None, reads=query), "s.toml").ways
    assert (way.load, way.reads) == (None, ReadSettings(operation="query", per_second=1, seconds=9, limit=50))


def test_items_of_a_file() -> None:
    items = {"source": "flights.csv", "types": "Delay:N", "absent": ["NA"], "number": 7}
    read = read_scenario({**PLAIN, "items": items}, "s.toml").items
    options = {"format": None, "types": "Delay:N", "columns": None, "delimiter": None, "empty_strings": False}
    assert (read.number, read.source) == (7, "flights.csv")
    assert read.source_options == {**options, "absent": ("NA",)}


def test_distributions() -> None:
    def keys(**given: Any) -> Any:
        items = {"number": 10, "keys": given}
        return read_scenario({**PLAIN, "items": items}, "s.toml").items.attributes["Date"]

    assert keys(distribution="uniform", values=2, prefix="U") == Weighted(["U1", "U2"], (1.0, 1.0))
    assert keys(distribution="zipf", values=3, exponent=2) == Weighted(["key-1", "key-2", "key-3"], [1, 1 / 4, 1 / 9])
    assert keys(distribution="hot", values=3, share=0.5) == Weighted(["key-1", "key-2", "key-3"], (0.5, 0.25, 0.25))
    assert keys(distribution="hot", values=1, share=0.5) == Weighted(["key-1"], (1.0,))
    assert keys(distribution="weights", weights={"a": 2, "b": 1}) == Weighted(("a", "b"), (2, 1))
    assert keys(distribution="each", values=2, items=[100, 200]) == EachValue(["key-1", "key-2"], (100, 200))
    assert keys(distribution="each", values=1, items=5) == EachValue(["key-1"], (5, 5))
    assert list(keys(distribution="uniform", values=10).values)[::9] == ["key-01", "key-10"]


# -- ways --------------------------------------------------------------------------------------------------------------


def test_ways_have_what_is_theirs_and_the_rest_of_the_scenario() -> None:
    ways = [
        {"load": {"with": "batch_writer"}, "table": {"burst_seconds": 0}},
        {"name": "spread", "sharding": {"shards": 20}},
        {"load": {"with": "put_item", "per_second": 5}, "sharding": {"type": "Unsharded"}},
    ]
    read = read_scenario(scenario(sharding={"shards": 2}, way=ways), "s.toml").ways
    assert [way.name for way in read] == ["batch_writer, RandomSuffix(shards=2)", "spread", "put_item"]
    assert [way.strategy for way in read] == [RandomSuffix(2), RandomSuffix(20), Unsharded()]
    assert [way.table.throughput["burst_seconds"] for way in read] == [0, BURST_SECONDS, BURST_SECONDS]
    assert {way.table.throughput["write_units"] for way in read} == {4000}
    # A load takes the place of the other one, with all of its entries.
    assert [way.load.tool if way.load else None for way in read] == ["batch_writer", "bulk_load", "put_item"]


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_told_at_once() -> None:
    given = scenario(
        table={"write_unit": 5, "partitions": 0},
        items={"size": [2000, 1000]},
        load={"with": "batch_wirter"},
        colour="red",
    )
    assert problems(given) == [
        "[table] partitions = 0: must be an integer from 1 to 1,000,000 (partitions)",
        "[table] write_unit = 5: unknown entry (did you mean write_units?); known: " + ", ".join(TABLE_ENTRIES),
        "[load] with = 'batch_wirter': must be one of batch_writer, bulk_load, put_item (did you mean batch_writer?)",
        "[items] size = [2000, 1000]: must be an integer from 1 to 409,600 (bytes), or a range of two, [least, most]",
        "colour = 'red': unknown entry; known: " + ", ".join(TOP_ENTRIES),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "table: missing; must be a table"),
        (scenario(table=None), "table: missing; must be a table"),
        (scenario(items=None), "items: missing; must be a table"),
        (scenario(load=None), "load: missing, and so is [reads]; give one of them, or both"),
        (scenario(table={"partition_key": ""}), "[table] partition_key = '': must be the name of an attribute"),
        (
            scenario(table={"write_units": None}),
            "[table] write_units: the table has no throughput; give read_units and",
        ),
        (scenario(table={"on_demand": "yes"}), "[table] on_demand = 'yes': must be true or false"),
        (scenario(table={"burst_seconds": -1}), "[table] burst_seconds = -1: must be a number >= 0 (seconds)"),
        (
            scenario(table={"write_units": float("nan")}),
            "[table] write_units = nan: must be a number >= 1 (write units a second)",
        ),
        (
            scenario(table={"write_units": 0}),
            "[table] write_units = 0: must be a number >= 1 (write units a second)",
        ),
        (
            scenario(table={"read_units": 0.5}),
            "[table] read_units = 0.5: must be a number >= 1 (read units a second)",
        ),
        (scenario(table={"sort_key": "Date"}), "[table] sort_key = 'Date': is also the partition key; give another"),
        (scenario(items={"attributes": {"User": None}}), "[items.attributes] User = None: must be a table"),
        (
            scenario(table={"write_units": True}),
            "[table] write_units = True: must be a number >= 1 (write units a second)",
        ),
        (scenario(table={"indexes": [{"name": "I"}]}), "[table.indexes] 1 partition_key: missing"),
        (scenario(table={"indexes": {}}), "[table] indexes = {}: must be an array of tables"),
        (
            scenario(table={"indexes": [{"name": "I", "partition_key": "Date", "on_demand": True, "include": ["A"]}]}),
            "[table.indexes] 1 include = ['A']: belongs to projection = \"INCLUDE\"; give both, or neither",
        ),
        (
            scenario(table={"indexes": [{"name": "I", "partition_key": "User", "on_demand": True}]}),
            "[items] attributes: 'User' is missing, but is a key of an index or part of a suffix; give its",
        ),
        (
            scenario(sharding={"shards": 9, "by": "User"}),
            "[items] attributes: 'User' is missing, but is a key of an index or part of a suffix; give its",
        ),
        (scenario(sharding={"shards": 0}), "[sharding] type: shards: must be an integer >= 1, got 0"),
        (scenario(sharding={"shard": 9}), "[sharding] type: shard: not a parameter of Unsharded; give none"),
        (scenario(sharding={"type": "Random"}), "[sharding] type = 'Random': must be one of CalculatedSuffix"),
        (scenario(sharding=5), "[sharding] = 5: must be a table"),
        (scenario(load={"workers": 1.5}), "[load] workers = 1.5: must be an integer from 1 to 1,000 (workers)"),
        (scenario(load={"write_units": "lots"}), "[load] write_units = 'lots': "),
        (
            scenario(table={"on_demand": True}, load={"write_units": "80%"}),
            "[load] write_units = '80%': the table has no provisioned write_units to take a share of; give a number",
        ),
        (scenario(load={"attempts": 3}), "[load] attempts = 3: unknown entry"),
        (
            scenario(load={"with": "put_item"}),
            "[load] per_second: missing; must be a number > 0 and <= 1,000,000 (items",
        ),
        (
            scenario(load={"with": "put_item", "per_second": 0}),
            "[load] per_second = 0: must be a number > 0 and <= 1,000,000 (items",
        ),
        (scenario(load=None, reads={"with": "query", "per_second": 1}), "[reads] seconds: missing"),
        (
            scenario(reads={"with": "get_item", "per_second": 1, "consistent": True, "cache": {"max_bytes": 1}}),
            "[reads] cache = {'max_bytes': 1}: consistent reads go past a cache; leave one of them out",
        ),
        (scenario(reads={"with": "get_item", "per_second": 1, "cache": {}}), "[reads.cache] max_bytes: missing;"),
        (
            scenario(reads={"with": "query", "per_second": 1, "cache": {"max_bytes": 1}}),
            "[reads] cache = {'max_bytes': 1}: caches are simulated for single items only; use with = \"get_item\"",
        ),
        (
            scenario(reads={"with": "get_item", "per_second": 1, "limit": 5}),
            "[reads] limit = 5: unknown entry",
        ),
        (
            scenario(latency_seconds=[1, 2, 3]),
            "latency_seconds = [1, 2, 3]: must be a number from 0 to 3,600 (seconds), or a",
        ),
        (scenario(items={"number": None}), "[items] number: missing; give the number of items"),
        (scenario(items={"keys": None}), "[items] keys: missing; must be a table"),
        (scenario(items={"keys": {"distribution": "hot", "values": 9}}), "[items.keys] share: missing; must be a"),
        *(
            (
                scenario(items={"keys": {"distribution": "hot", "values": 9, "share": share}}),
                f"[items.keys] share = {share}: must be a number > 0 and <= 1 (share of the hottest value)",
            )
            for share in (0, 1.1)
        ),
        (scenario(items={"keys": {"distribution": "normal"}}), "[items.keys] distribution = 'normal': must be one of"),
        (
            scenario(items={"keys": {"distribution": "weights", "weights": {"a": 0}}}),
            "[items.keys] weights = {'a': 0}: must be a table of values and their weights, each > 0",
        ),
        (
            scenario(items={"keys": {"distribution": "weights", "weights": {"a": 1, "b": "2"}}}),
            "[items.keys] weights = {'a': 1, 'b': '2'}: must be a table of values and their weights, each > 0",
        ),
        (
            scenario(items={"attributes": {"User": {"distribution": "each", "values": 2, "items": 5}}}),
            "[items] attributes = ",
        ),
        (
            scenario(items={"attributes": {"Date": {"distribution": "uniform", "values": 2}}}),
            "[items.attributes] Date = {'distribution': 'uniform', 'values': 2}: is the partition key; give its",
        ),
        ({**PLAIN, "items": {"source": "a.csv", "size": 5}}, "[items] size = 5: unknown entry"),
        (
            {**PLAIN, "items": {"source": "a.csv", "absent": "NA"}},
            "[items] absent = 'NA': must be a list of one or more texts",
        ),
        (
            {**PLAIN, "items": {"source": "a.csv", "absent": []}},
            "[items] absent = []: must be a list of one or more texts",
        ),
        (
            {**PLAIN, "items": {"source": "a.csv", "absent": ["NA", 1]}},
            "[items] absent = ['NA', 1]: must be a list of one",
        ),
        (
            {**PLAIN, "items": {"source": "a.csv", "absent": ["NA", ""]}},
            "[items] absent = ['NA', '']: must be a list of one",
        ),
        (scenario(way=[{"name": "a"}, {"name": "a"}]), "[way] name = 'a': several ways have this name"),
        (scenario(way=[{"nome": "a"}]), "[way] 1 nome = 'a': unknown entry (did you mean name?)"),
        (scenario(way=[{"table": {"sort_key": "X"}}, {}]), "[items] keys = "),
        (scenario(way=[{"load": {"with": "bulk_load", "windows": 3}}]), "[way] 1 [load] windows = 3: unknown entry"),
    ],
)
def test_what_is_wrong(given: dict[str, Any], said: str) -> None:
    told = problems(given)
    assert any(line.startswith(said) for line in told), told


def test_a_number_that_is_wrong_is_not_said_to_be_missing() -> None:
    given = scenario(items={"number": "many"})
    assert problems(given) == ["[items] number = 'many': must be an integer from 1 to 10,000,000 (items)"]


def test_the_given_entries_are_not_changed() -> None:
    given = scenario(sharding={"shards": {"a": 2}}, way=[{"table": {"partitions": 2}}])
    before = copy.deepcopy(given)
    read_scenario(given, "s.toml")
    assert given == before
