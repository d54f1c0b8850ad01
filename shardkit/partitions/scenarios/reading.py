"""A scenario as a file says it: every entry checked, and all that is wrong with them told at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from shardkit.bulk.load_machine import MOST_WINDOW, WINDOW
from shardkit.bulk.pacing import write_rate
from shardkit.core.checks import MOST_CURSORS, MOST_SIDE_BY_SIDE
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.errors import ConfigurationError
from shardkit.partitions.model import MOST_PARTITIONS
from shardkit.partitions.rules import BURST_SECONDS
from shardkit.partitions.scenarios.distributions import Distribution, EachValue, read_distribution
from shardkit.partitions.scenarios.entries import Entries
from shardkit.partitions.scenarios.items import Order
from shardkit.partitions.scenarios.scenario import (
    Index,
    ItemsSettings,
    Load,
    Operation,
    Reads,
    Scenario,
    Source,
    Table,
    Throughput,
    Tool,
    Way,
)
from shardkit.strategies import Strategy, Unsharded

_STRATEGIES = ("CalculatedSuffix", "RandomSuffix", "Unsharded")
_PROJECTIONS = ("ALL", "KEYS_ONLY", "INCLUDE")
_FORMATS = ("csv", "tsv", "jsonl", "dynamodb", "parquet")
# What one simulation holds in memory, and can get through.
_MOST_ITEMS = 10_000_000
_MOST_REQUESTS = 100_000_000
_MOST_PER_SECOND = 1_000_000.0
_MOST_SECONDS = 31_536_000.0  # a year
_MOST_LATENCY = 3600.0
_MOST_TRIES = 1000
_NOTHING: Mapping[str, Any] = {}


def read_scenario(given: Mapping[str, Any], name: str) -> Scenario:
    """Read a scenario that was parsed from TOML, or JSON.

    Example::

        read_scenario(tomllib.loads(text), "messages.toml")

    Args:
        given: the entries.
        name: what to call it in a message.

    Returns:
        The scenario, complete with what the file left out.

    Raises:
        ConfigurationError: entries are missing, wrong or unknown; the message says of each what was given, what is
            allowed, and the name that was probably meant.

    Cost: no request.
    """
    problems: list[str] = []
    top = Entries(given, "", problems)
    seed = top.count("seed", 1, "the seed", least=0, most=2**64 - 1)
    latency = top.span("latency_seconds", (0.005, 0.010), "seconds", whole=False, least=0.0, most=_MOST_LATENCY)
    ways = tuple(_way(own, top) for own in top.tables("way")) or (_way(None, top),)
    items = _items(top.table("items", needed=True) or Entries(_NOTHING, "", []), ways)
    top.end()
    names = Counter(way.name for way in ways)
    problems += (
        f"[way] name = {again!r}: several ways are called so; name each its own"
        for again in sorted(name for name, count in names.items() if count > 1)
    )
    if problems:
        told = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
        raise ConfigurationError(f"{name} cannot be simulated:\n{told}")
    return Scenario(items=items, ways=ways, seed=seed, latency_seconds=latency)


# -- ways --------------------------------------------------------------------------------------------------------------


def _way(own: Entries | None, top: Entries) -> Way:
    """Read a way: its own parts, and those of the scenario where it has none."""

    def part(name: str, *, needed: bool = False) -> Entries | None:
        found = None if own is None else own.table(name)
        return top.table(name, needed=needed) if found is None else found

    base = top.table("table", needed=True)
    table = part("table")
    if table is not None and base is not None:
        table = table.over(base)
    load, reads = part("load"), part("reads")
    if load is None and reads is None:
        top.note("load", "there is neither a [load] nor [reads]; give one of them, or both")
    way = Way(
        name="",
        table=_table(table or Entries({"partition_key": "-", "on_demand": True}, "", [])),
        strategy=_strategy(part("sharding")),
        load=None if load is None else _load(load),
        reads=None if reads is None else _reads(reads, alone=load is None),
    )
    throughput = way.table.throughput
    share = way.load is not None and isinstance(way.load.write_units, str)
    if load is not None and share and (throughput.on_demand or throughput.write_units is None):
        load.note("write_units", "the table has no provisioned write_units to take a share of; give a number")
    name = way.described
    if own is not None:
        name = own.text("name", name)
        own.end()
    return replace(way, name=name)


def _strategy(given: Entries | None) -> Strategy:
    """Read the text form of a strategy; its type may be left out, as it is on the command line."""
    if given is None:
        return Unsharded()
    form = given.all()
    default = "CalculatedSuffix" if "by" in form else "RandomSuffix" if "shards" in form else "Unsharded"
    form["type"] = given.choice("type", default, _STRATEGIES)
    if isinstance(form.get("shards"), Mapping):
        form["shards"] = [[{"S": key}, count] for key, count in form["shards"].items()]
    try:
        return Strategy.from_dict(form)
    except ConfigurationError as error:
        given.note("type", str(error))
        return Unsharded()


def _load(given: Entries) -> Load:
    tool = cast("Tool", given.choice("with", "bulk_load", get_args(Tool), needed=True))
    load = Load(tool=tool, order=cast("Order", given.choice("order", "as given", get_args(Order))))
    if tool != "put_item":
        workers = 1 if tool == "batch_writer" else load.workers
        load = replace(load, workers=given.count("workers", workers, "workers", most=MOST_SIDE_BY_SIDE))
    if tool == "bulk_load":
        write_units = given.take("write_units", "write units a second, or a share of the table's")
        try:
            write_rate(write_units)
        except ConfigurationError as error:
            given.note("write_units", str(error))
        load = replace(
            load,
            window=given.count("window", WINDOW, "items", most=MOST_WINDOW),
            cursors=given.count("cursors", load.cursors, "cursors", most=MOST_CURSORS),
            write_units=write_units,
        )
    else:
        load = replace(load, attempts=given.count("attempts", load.attempts, "tries", most=_MOST_TRIES))
    if tool == "put_item":
        load = replace(
            load,
            per_second=_per_second(given, "items"),
            seconds=_seconds(given, needed=False),
        )
        _check_requests(given, load.per_second, load.seconds)
    given.end()
    return load


def _reads(given: Entries, *, alone: bool) -> Reads:
    reads = Reads(
        operation=cast("Operation", given.choice("with", "query", get_args(Operation), needed=True)),
        per_second=_per_second(given, "reads"),
        seconds=_seconds(given, needed=alone),
        consistent=given.flag("consistent", default=False),
    )
    if reads.operation == "query":
        reads = replace(reads, limit=given.count("limit", None, "items", most=_MOST_ITEMS))
    else:
        reads = replace(reads, attempts=given.count("attempts", reads.attempts, "tries", most=_MOST_TRIES))
    _check_requests(given, reads.per_second, reads.seconds)
    given.end()
    return reads


def _per_second(given: Entries, unit: str) -> float:
    return given.number("per_second", 1.0, f"{unit} a second", above=True, most=_MOST_PER_SECOND, needed=True)


def _seconds(given: Entries, *, needed: bool) -> float | None:
    return given.number("seconds", None, "seconds", above=True, most=_MOST_SECONDS, needed=needed)


def _check_requests(given: Entries, per_second: float, seconds: float | None) -> None:
    if seconds is not None and per_second * seconds > _MOST_REQUESTS:
        asked = f"with per_second, they are {per_second * seconds:,.0f} requests"
        given.note("seconds", f"{asked}, each of which is simulated; give at most {_MOST_REQUESTS:,}")


# -- table -------------------------------------------------------------------------------------------------------------


def _table(given: Entries) -> Table:
    table = Table(
        name=given.text("name", "table"),
        keys=_keys(given),
        throughput=_throughput(given),
        indexes=tuple(_index(index) for index in given.tables("indexes")),
    )
    given.end()
    return table


def _index(given: Entries) -> Index:
    projection = given.choice("projection", "ALL", _PROJECTIONS)
    included = given.texts("include", ())
    if (projection == "INCLUDE") != bool(included):
        given.note("include", 'it goes with projection = "INCLUDE"; give both, or neither')
    index = Index(
        name=given.text("name", "index", needed=True),
        keys=_keys(given),
        projection=projection,
        included=included,
        throughput=_throughput(given),
    )
    given.end()
    return index


def _keys(given: Entries) -> KeySchema:
    what = "the name of an attribute"
    partition_key = given.text("partition_key", "-", what, needed=True)
    sort_key = given.text("sort_key", None, what)
    if sort_key == partition_key:
        given.note("sort_key", "it is the partition key; give another attribute, or none")
    return KeySchema((partition_key,), () if sort_key is None else (sort_key,))


def _throughput(given: Entries) -> Throughput:
    throughput = Throughput(
        read_units=given.number("read_units", None, "read units a second", least=1.0),
        write_units=given.number("write_units", None, "write units a second", least=1.0),
        on_demand=given.flag("on_demand", default=False),
        partitions=given.count("partitions", None, "partitions", most=MOST_PARTITIONS),
        burst_seconds=given.number("burst_seconds", BURST_SECONDS, "seconds"),
        adaptive_seconds=given.number("adaptive_seconds", 0.0, "seconds"),
        split_for_heat=given.number("split_for_heat", None, "seconds"),
    )
    if not given.flag("adaptive", default=True):
        throughput = replace(throughput, adaptive_seconds=None)
    if not throughput.on_demand and throughput.read_units is throughput.write_units is None:
        given.note("write_units", "there is no throughput; give read_units and write_units, or on_demand = true")
    return throughput


# -- items -------------------------------------------------------------------------------------------------------------


def _items(given: Entries, ways: tuple[Way, ...]) -> ItemsSettings:
    keys = ways[0].table.keys
    if any(way.table.keys != keys for way in ways):
        given.note("keys", "the items are the same for all ways, but the ways' tables have different keys; give one")
    number = given.count("number", None, "items", most=_MOST_ITEMS)
    if "source" in given:
        items = ItemsSettings(number=number, source=_source(given))
    else:
        items = _generated(given, number, keys)
        matter = frozenset[str]().union(*(way.attributes for way in ways))
        for name in sorted(matter - {*items.attributes, *keys.names}):
            given.note("attributes", f"{name!r} is a key of an index, or makes a suffix; say how it is distributed")
    given.end()
    return items


def _generated(given: Entries, number: int | None, keys: KeySchema) -> ItemsSettings:
    least, most = given.span("size", (1000, 1000), "bytes", most=ITEM_BYTES)
    attributes: dict[str, Distribution] = {}
    if (distributed := given.table("keys", needed=True)) is not None:
        attributes[keys.partition_key] = read_distribution(distributed)
    if (others := given.table("attributes")) is not None:
        for name in others.all():
            other = others.table(name)
            if other is None:  # as JSON can say, and TOML cannot
                others.note(name, "give a table of entries")
            elif name == keys.partition_key:
                others.note(name, "it is the partition key; say in [items.keys] how it is distributed")
            else:
                attributes[name] = read_distribution(other)
    for name, distribution in attributes.items():
        each = isinstance(distribution, EachValue)
        if number is None and isinstance(distribution, EachValue) and distribution.most > _MOST_ITEMS:
            given.note("keys", f"they are up to {distribution.most:,} items; give at most {_MOST_ITEMS:,}, or a number")
        if name != keys.partition_key and each:
            given.note("attributes", f'{name!r} cannot be distributed by "each", which is for the partition key')
        elif name == keys.partition_key and "number" not in given and not each:
            given.note("number", 'it is missing; give the number of items, or a distribution = "each"')
    return ItemsSettings(number=number, size=(int(least), int(most)), attributes=attributes)


def _source(given: Entries) -> Source:
    options: dict[str, Any] = {
        "format": given.choice("format", None, _FORMATS),
        "types": given.text("types", None),
        "columns": given.texts("columns", None),
        "delimiter": given.text("delimiter", None),
        "absent": given.texts("absent", ()),
        "empty_strings": given.flag("empty_strings", default=False),
    }
    return Source(path=given.text("source", "", "the path of a data file"), options=options)
