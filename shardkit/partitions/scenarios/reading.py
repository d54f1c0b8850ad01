"""Read a scenario file: check every entry, and report all problems at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from shardkit.bulk.load_machine import MOST_WINDOW, WINDOW
from shardkit.bulk.pacing import write_rate
from shardkit.core.checks import MOST_CURSORS, MOST_SIDE_BY_SIDE
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.errors import ConfigurationError
from shardkit.partitions.model import MOST_PARTITIONS
from shardkit.partitions.rules import BURST_SECONDS
from shardkit.partitions.scenarios.clients import ATTEMPTS
from shardkit.partitions.scenarios.distributions import Distribution, EachValue, read_distribution
from shardkit.partitions.scenarios.entries import Entries
from shardkit.partitions.scenarios.scenario import (
    CacheSettings,
    IndexSettings,
    ItemsSettings,
    LoadSettings,
    Operation,
    Order,
    ReadSettings,
    Scenario,
    TableSettings,
    ThroughputEntries,
    Tool,
    Way,
)
from shardkit.strategies import Strategy, Unsharded

_STRATEGIES = ("CalculatedSuffix", "RandomSuffix", "RangeSuffix", "Unsharded")
_PROJECTIONS = ("ALL", "KEYS_ONLY", "INCLUDE")
_FORMATS = ("csv", "tsv", "jsonl", "dynamodb", "parquet")
# What one simulation can hold in memory, and simulate in a reasonable time.
_MOST_ITEMS = 10_000_000
_MOST_REQUESTS = 100_000_000
_MOST_PER_SECOND = 1_000_000.0
_MOST_SECONDS = 31_536_000.0  # a year
_MOST_LATENCY = 3600
_MOST_TRIES = 1000
_MOST_EXPONENT = 10.0
_MOST_BYTES = 2**40
_NOTHING: Mapping[str, Any] = {}


def read_scenario(given: Mapping[str, Any], name: str) -> Scenario:
    """Read a scenario that was parsed from TOML or JSON; ``name`` is its name in messages.

    Raises:
        ConfigurationError: entries are missing, invalid or unknown; the message lists all of them, with what is
            allowed.
    """
    problems: list[str] = []
    top = Entries(given, "", problems)
    seed = top.count("seed", 1, "seed", least=0, most=2**64 - 1)
    latency = top.span("latency_seconds", (0.005, 0.010), "seconds", whole=False, least=0, most=_MOST_LATENCY)
    ways = tuple(_way(own, top) for own in top.tables("way")) or (_way(None, top),)
    items = _items(top.table("items", needed=True) or Entries(_NOTHING, "", []), ways)
    top.end()
    names = Counter(way.name for way in ways)
    problems += (
        f"[way] name = {again!r}: several ways have this name; give each its own"
        for again in sorted(name for name, count in names.items() if count > 1)
    )
    if problems:
        lines = [f"  {problem}" for problem in dict.fromkeys(problems)]
        raise ConfigurationError("\n".join([f"{name} cannot be simulated:", *lines]))
    return Scenario(items=items, ways=ways, seed=seed, latency_seconds=latency)


# -- ways --------------------------------------------------------------------------------------------------------------


def _way(own: Entries | None, top: Entries) -> Way:
    """Read a way; the parts that it leaves out are those of the scenario."""

    def part(name: str) -> Entries | None:
        found = None if own is None else own.table(name)
        return top.table(name) if found is None else found

    base = top.table("table", needed=True)
    table = part("table")
    if table is not None and base is not None:
        table = table.over(base)
    load, reads = part("load"), part("reads")
    if load is None and reads is None:
        top.note("load", "missing, and so is [reads]; give one of them, or both")
    way = Way(
        name="",
        table=_table(table or Entries({"partition_key": "-", "on_demand": True}, "", [])),
        strategy=_strategy(part("sharding")),
        load=None if load is None else _load(load),
        reads=None if reads is None else _reads(reads, alone=load is None),
    )
    throughput = way.table.throughput
    share = way.load is not None and isinstance(way.load.write_units, str)
    if load is not None and share and (throughput["on_demand"] or throughput["write_units"] is None):
        load.note("write_units", "the table has no provisioned write_units to take a share of; give a number")
    name = way.described
    if own is not None:
        name = own.text("name", name)
        own.end()
    return replace(way, name=name)


def _strategy(given: Entries | None) -> Strategy:
    """Read the text form of a strategy; without a type, the other entries decide it."""
    if given is None:
        return Unsharded()
    form = given.all()
    default = "CalculatedSuffix" if "by" in form else "RandomSuffix" if "shards" in form else "Unsharded"
    form["type"] = given.choice("type", "RangeSuffix" if "boundaries" in form else default, _STRATEGIES)
    for name in form.keys() & {"shards", "boundaries"}:
        if isinstance(form[name], Mapping):
            form[name] = [[{"S": key}, value] for key, value in form[name].items()]
    try:
        return Strategy.from_dict(form)
    except ConfigurationError as error:
        given.note("type", str(error).removeprefix("form: "))
        return Unsharded()


def _load(given: Entries) -> LoadSettings:
    tool = given.choice("with", "bulk_load", get_args(Tool), needed=True)
    settings: dict[str, Any] = {"tool": tool, "order": given.choice("order", LoadSettings.order, get_args(Order))}
    if tool != "put_item":
        default = 1 if tool == "batch_writer" else LoadSettings.workers
        settings["workers"] = given.count("workers", default, "workers", most=MOST_SIDE_BY_SIDE)
    if tool == "bulk_load":
        settings["window"] = given.count("window", WINDOW, "items", most=MOST_WINDOW)
        settings["cursors"] = given.count("cursors", LoadSettings.cursors, "cursors", most=MOST_CURSORS)
        settings["write_units"] = given.take("write_units", "write units a second, or a share of the table's")
        try:
            write_rate(settings["write_units"])
        except ConfigurationError as error:
            given.note("write_units", str(error))
    else:
        settings["attempts"] = given.count("attempts", ATTEMPTS, "tries", most=_MOST_TRIES)
    if tool == "put_item":
        settings |= _rate(given, "items", seconds_needed=False)
    given.end()
    return LoadSettings(**settings)


def _reads(given: Entries, *, alone: bool) -> ReadSettings:
    settings: dict[str, Any] = {
        "operation": given.choice("with", "query", get_args(Operation), needed=True),
        **_rate(given, "reads", seconds_needed=alone),
        "consistent": given.flag("consistent", default=False),
    }
    if settings["operation"] == "query":
        settings["limit"] = given.count("limit", None, "items", most=_MOST_ITEMS)
        if given.take("cache", "a table") is not None:
            given.note("cache", 'caches are simulated for single items only; use with = "get_item"')
    else:
        settings["attempts"] = given.count("attempts", ATTEMPTS, "tries", most=_MOST_TRIES)
        settings["zipf"] = given.number("zipf", 0.0, "exponent of Zipf's law", least=0.0, most=_MOST_EXPONENT)
        settings["cache"] = cache = _cache(given.table("cache"))
        if cache is not None and settings["consistent"]:
            given.note("cache", "consistent reads go past a cache; leave one of them out")
    given.end()
    return ReadSettings(**settings)


def _cache(given: Entries | None) -> CacheSettings | None:
    if given is None:
        return None
    cache = CacheSettings(
        max_bytes=given.count("max_bytes", 1, "bytes", most=_MOST_BYTES, needed=True),
        ttl=given.number("ttl", CacheSettings.ttl, "seconds", above=True, most=_MOST_SECONDS),
    )
    given.end()
    return cache


def _rate(given: Entries, unit: str, *, seconds_needed: bool) -> dict[str, float | None]:
    rate = given.number("per_second", 1.0, f"{unit} a second", above=True, most=_MOST_PER_SECOND, needed=True)
    seconds = given.number("seconds", None, "seconds", above=True, most=_MOST_SECONDS, needed=seconds_needed)
    if seconds is not None and rate * seconds > _MOST_REQUESTS:
        given.note(
            "seconds",
            f"with per_second, makes {rate * seconds:,.0f} requests, each of which is simulated; must make at most "
            f"{_MOST_REQUESTS:,}",
        )
    return {"per_second": rate, "seconds": seconds}


# -- table -------------------------------------------------------------------------------------------------------------


def _table(given: Entries) -> TableSettings:
    table = TableSettings(
        name=given.text("name", "table"),
        keys=_keys(given),
        throughput=_throughput(given),
        indexes=tuple(_index(index) for index in given.tables("indexes")),
    )
    given.end()
    return table


def _index(given: Entries) -> IndexSettings:
    projection = given.choice("projection", "ALL", _PROJECTIONS)
    included = given.texts("include", ())
    if (projection == "INCLUDE") != bool(included):
        given.note("include", 'belongs to projection = "INCLUDE"; give both, or neither')
    index = IndexSettings(
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
        given.note("sort_key", "is also the partition key; give another attribute, or none")
    return KeySchema((partition_key,), () if sort_key is None else (sort_key,))


def _throughput(given: Entries) -> ThroughputEntries:
    throughput = {
        "read_units": given.number("read_units", None, "read units a second", least=1.0),
        "write_units": given.number("write_units", None, "write units a second", least=1.0),
        "on_demand": given.flag("on_demand", default=False),
        "count": given.count("partitions", None, "partitions", most=MOST_PARTITIONS),
        "burst_seconds": given.number("burst_seconds", BURST_SECONDS, "seconds"),
        "adaptive_seconds": given.number("adaptive_seconds", 0.0, "seconds"),
        "split_for_heat": given.number("split_for_heat", None, "seconds"),
    }
    if not given.flag("adaptive", default=True):
        throughput["adaptive_seconds"] = None
    if not throughput["on_demand"] and throughput["read_units"] is throughput["write_units"] is None:
        given.note("write_units", "the table has no throughput; give read_units and write_units, or on_demand = true")
    return throughput


# -- items -------------------------------------------------------------------------------------------------------------


def _items(given: Entries, ways: tuple[Way, ...]) -> ItemsSettings:
    keys = ways[0].table.keys
    if any(way.table.keys != keys for way in ways):
        given.note(
            "keys", "the tables of the ways have different keys, but all ways have the same items; use the same keys"
        )
    number = given.count("number", None, "items", most=_MOST_ITEMS)
    if "source" in given:
        options = _source_options(given)
        path = given.text("source", "", "the path of a data file")
        items = ItemsSettings(number=number, source=path, source_options=options)
    else:
        items = _generated(given, number, keys)
        matter = frozenset[str]().union(*(way.attributes for way in ways))
        for name in sorted(matter - {*items.attributes, *keys.names}):
            given.note(
                "attributes",
                f"{name!r} is missing, but is a key of an index or part of a suffix; give its distribution",
            )
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
            if other is None:  # null in JSON; TOML has none
                others.note(name, "must be a table")
            elif name == keys.partition_key:
                others.note(name, "is the partition key; give its distribution in [items.keys]")
            else:
                attributes[name] = read_distribution(other)
    for name, distribution in attributes.items():
        is_key = name == keys.partition_key
        if isinstance(distribution, EachValue):
            if number is None and distribution.most > _MOST_ITEMS:
                given.note("keys", f"makes up to {distribution.most:,} items; must make at most {_MOST_ITEMS:,}")
            if not is_key:
                given.note("attributes", f'distribution = "each" is only for the partition key, not for {name!r}')
        elif is_key and "number" not in given:
            given.note("number", 'missing; give the number of items, or a distribution = "each"')
    return ItemsSettings(number=number, size=(int(least), int(most)), attributes=attributes)


def _source_options(given: Entries) -> dict[str, Any]:
    return {
        "format": given.choice("format", None, _FORMATS),
        "types": given.text("types", None),
        "columns": given.texts("columns", None),
        "delimiter": given.text("delimiter", None),
        "absent": given.texts("absent", ()),
        "empty_strings": given.flag("empty_strings", default=False),
    }
