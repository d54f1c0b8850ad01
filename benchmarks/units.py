"""Read units of merged reads, as an engine reports them: shardkit's, the obvious way's, and an oracle's."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any, Literal

from boto3.dynamodb.conditions import Key

from benchmarks import ways
from benchmarks.measure import Figure
from benchmarks.orders import DAY, order_id, strategy_of
from benchmarks.wire import Wire
from shardkit import RangeSuffix, ShardedTable, Strategy
from shardkit.capacity import item_size
from tests.support import engines

__all__ = ["Case", "figures", "units"]

Spread = Literal["even", "skewed", "ranges"]
"""Hashed evenly, hashed with half of the items on one shard, or in ranges of the sort key."""
ITEM_BYTES = 300
"""With the sharded key."""
BLOCK_BYTES = 4096
ITEMS = 4000
"""Of a day, in all its shards."""
PAGE = 100
"""``Limit`` of the pages in which a whole day is read."""
NARROW = 40
"""Items between the two sort keys of a narrow range."""
RATIO: dict[Spread, float] = {"even": 1.2, "skewed": 1.6, "ranges": 1.1}
ROUNDS: dict[Spread, int] = {"even": 3, "skewed": 4}
REQUESTS = 2
"""Of a page of 100 items, and of a narrow range, where the shards are ranges."""
STREAMED = 1.05
QUIET, QUIET_OF_MANY = 0.25, 0.1
"""Seconds without a request that end a round: of one page, and of the many of a whole day."""
_ALL: dict[str, Any] = {"KeyConditionExpression": ways.CONDITION, "ReturnConsumedCapacity": "TOTAL"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One read and what it took: units, and of shardkit's how many rounds of requests and refills of a shard.

    ``obvious`` is every shard with ``Limit`` (for ``query_items``: one full read of every shard); ``floor`` what an
    oracle would pay; ``worst_page`` the highest ratio to the floor of a page where there are several.
    """

    read: str
    state: str
    spread: Spread
    shards: int
    obvious: float
    floor: float
    units: float
    rounds: int
    refills: int
    requests: int = 0
    worst_page: float | None = None
    excess: float = 0.0
    """Units above the obvious way's and half a unit a refill; of pages, the worst."""

    @property
    def name(self) -> str:
        """What was read."""
        return f"{self.read}, {self.state}, {self.shards} shards, {self.spread}"

    @property
    def ratio(self) -> float:
        """Units, of the floor."""
        return self.units / self.floor


@dataclass
class Day:
    """A day on the engine: which shard holds each order, in order."""

    endpoint: str
    table: str
    shards: int
    spread: Spread
    held: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    items: int = ITEMS

    @cached_property
    def strategy(self) -> Strategy:
        if self.spread != "ranges":
            return strategy_of(self.shards)
        sample = [order_id(number) for number in random.Random(self.shards).sample(range(self.items), self.items)]
        return RangeSuffix.from_sample(sample, self.shards, by="OrderId")

    def floor(self, start: int, items: int) -> float:
        """Give the units of an oracle for a page: of each shard its part, and the one item that proves it complete."""
        if self.spread == "ranges":
            return self.part(start, items)
        part, left = Counter(self.held[start : start + items]), Counter(self.held[start:])
        return sum(block_units(min(part[shard] + 1, left[shard])) for shard in range(1, self.shards + 1))

    def part(self, start: int, items: int) -> float:
        """Give the units of an oracle for the items between two sort keys: of each shard its part.

        Of ranges only those that have a part, or one if none has.
        """
        part = Counter(self.held[start : start + items])
        asked = part or [1] if self.spread == "ranges" else range(1, self.shards + 1)
        return sum(block_units(part[shard]) for shard in asked)

    def obvious(self, start: int, limit: int) -> float:
        """Give the units of asking every shard for a whole page."""
        left = Counter(self.held[start:])
        return sum(block_units(min(limit, left[shard])) for shard in range(1, self.shards + 1))

    @contextmanager
    def reader(self, *, quiet: float) -> Iterator[tuple[ShardedTable, Wire]]:
        """Give a table that has learnt nothing yet, and the wire to carry its requests."""
        # Ranges are asked one after another: the first round has one request.
        wire = Wire(connections=1 if self.spread == "ranges" else self.shards, quiet=quiet)
        with closing(wire), ways.resource(self.endpoint, connections=self.shards) as resource:
            table = ShardedTable(resource.Table(self.table), self.strategy)
            table.physical_key({"Date": DAY, "OrderId": "A0"})
            yield table, wire


def block_units(items: int) -> float:
    """Give the read units of a page of so many items, eventually consistent: at least half a one."""
    return max(1, ceil(items * ITEM_BYTES / BLOCK_BYTES)) / 2


def units(*, short: bool) -> Iterator[Case]:
    """Measure every case.

    Raises:
        engines.EngineUnavailableError: dynoxide is not on this machine.
    """
    endpoint = engines.engine_endpoint("dynoxide")
    items, limits = (ITEMS // 4, (100,)) if short else (ITEMS, (10, 100, 1000))
    try:
        days: list[tuple[int, Spread]] = list(itertools.product((10, 200) if short else (10, 50, 200), ROUNDS))
        for shards, spread in [*days, (10 if short else 50, "ranges")]:
            with _day(endpoint, shards, spread, items) as day:
                for limit in limits:
                    yield from _first_page(day, limit)
                yield from _narrow(day)
                yield _pages(day)
                yield from _stream(day)
    finally:
        engines.stop_engines()


@contextmanager
def _day(endpoint: str, shards: int, spread: Spread, items: int) -> Iterator[Day]:
    draw = random.Random(shards)
    day = Day(endpoint, f"Orders-{shards}-{spread}", shards, spread, items=items)
    strategy = day.strategy
    with ways.resource(endpoint) as resource:
        table = resource.create_table(
            TableName=day.table,
            KeySchema=[
                {"AttributeName": "Date", "KeyType": "HASH"},
                {"AttributeName": "OrderId", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "Date", "AttributeType": "S"},
                {"AttributeName": "OrderId", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        numbers = itertools.count()
        with table.batch_writer() as batch:
            while len(day.held) < items:
                wanted = draw.random() < 0.5 if spread == "skewed" else None  # noqa: PLR2004 - one shard holds half
                number, shard = next(
                    (number, shard)
                    for number in numbers
                    if (shard := strategy.shard_of(DAY, {"OrderId": order_id(number)})) is not None
                    and wanted in {None, shard == 1}
                )
                day.held.append(shard)
                day.ids.append(order_id(number))
                item = {"Date": strategy.physical_key(DAY, shard), "OrderId": order_id(number), "Pad": ""}
                wire = {name: {"S": value} for name, value in item.items()}
                batch.put_item(Item={**item, "Pad": "x" * (ITEM_BYTES - item_size(wire))})
        try:
            yield day
        finally:
            table.delete()


def _first_page(day: Day, limit: int) -> Iterator[Case]:
    obvious = _measured_obvious(day, limit)
    with day.reader(quiet=QUIET) as (table, wire):
        for state in ("fresh", "warm"):
            with wire.carrying(table.meta.client):
                page = table.query(**_ALL, Limit=limit)
            if len(page["Items"]) != limit:
                raise RuntimeError(f"a page of {limit} came with {len(page['Items'])} items")
            yield Case(
                read=f"Limit={limit}",
                state=state,
                spread=day.spread,
                shards=day.shards,
                obvious=obvious,
                floor=day.floor(0, limit),
                units=wire.units,
                rounds=wire.rounds,
                refills=wire.refills,
                requests=len(wire.sent),
                excess=wire.units - obvious - wire.refills / 2,
            )


def _narrow(day: Day) -> Iterator[Case]:
    """Read the items between two sort keys, which most often lie in one range."""
    start = len(day.ids) // 2 + 10
    asked = {**_ALL, "KeyConditionExpression": ways.CONDITION & Key("OrderId").between(*_ends(day, start))}
    part = Counter(day.held[start : start + NARROW])
    obvious = sum(block_units(part[shard]) for shard in range(1, day.shards + 1))
    with day.reader(quiet=QUIET) as (table, wire):
        for state in ("fresh", "warm"):
            with wire.carrying(table.meta.client):
                found = table.query(**asked)["Items"]
            if len(found) != NARROW:
                raise RuntimeError(f"a range of {NARROW} came with {len(found)} items")
            yield Case(
                read=f"a range of {NARROW} items",
                state=state,
                spread=day.spread,
                shards=day.shards,
                obvious=obvious,
                floor=day.part(start, NARROW),
                units=wire.units,
                rounds=wire.rounds,
                refills=wire.refills,
                requests=len(wire.sent),
            )


def _ends(day: Day, start: int) -> tuple[str, str]:
    return day.ids[start], day.ids[start + NARROW - 1]


def _measured_obvious(day: Day, limit: int | None) -> float:
    wire = Wire()
    with closing(wire), ways.resource(day.endpoint) as resource:
        table = resource.Table(day.table)
        with wire.carrying(resource.meta.client):
            for key in day.strategy.physical_keys(DAY):
                asked = {**_ALL, "KeyConditionExpression": Key("Date").eq(key)}
                if limit is not None:
                    asked["Limit"] = limit
                answer = table.query(**asked)
                while limit is None and "LastEvaluatedKey" in answer:
                    answer = table.query(**asked, ExclusiveStartKey=answer["LastEvaluatedKey"])
    if limit is not None and wire.units != day.obvious(0, limit):
        raise RuntimeError(f"the engine counts {wire.units} units, the formula {day.obvious(0, limit)}")
    return wire.units


def _pages(day: Day) -> Case:
    """Read the day in pages; the obvious way's units are those of the formula that was checked for first pages."""
    read, pages = 0, list[tuple[float, float, float]]()
    rounds = refills = 0
    excess = float("-inf")
    cursor: dict[str, Any] = {}
    with day.reader(quiet=QUIET_OF_MANY) as (table, wire):
        while True:
            with wire.carrying(table.meta.client):
                page = table.query(**_ALL, **cursor, Limit=PAGE)
            items = len(page["Items"])
            pages.append((day.obvious(read, PAGE), day.floor(read, items), wire.units))
            excess = max(excess, wire.units - pages[-1][0] - wire.refills / 2)
            rounds, refills = max(rounds, wire.rounds), refills + wire.refills
            read += items
            if "LastEvaluatedKey" not in page:
                break
            cursor = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    if read != len(day.held):
        raise RuntimeError(f"{read} items were read of {len(day.held)}")
    return Case(
        read=f"{len(day.held):,} items in pages of {PAGE}",
        state="fresh",
        spread=day.spread,
        shards=day.shards,
        obvious=sum(obvious for obvious, _, _ in pages),
        floor=sum(floor for _, floor, _ in pages),
        units=sum(own for _, _, own in pages),
        rounds=rounds,
        refills=refills,
        worst_page=max(own / floor for _, floor, own in pages),
        excess=excess,
    )


def _stream(day: Day) -> Iterator[Case]:
    full = _measured_obvious(day, None)
    with day.reader(quiet=QUIET) as (table, wire):
        for state in ("fresh", "warm"):
            with wire.carrying(table.meta.client):
                read = len(list(table.query_items(**_ALL)))
            if read != len(day.held):
                raise RuntimeError(f"{read} items were read of {len(day.held)}")
            yield Case(
                read="query_items",
                state=state,
                spread=day.spread,
                shards=day.shards,
                obvious=full,
                floor=full,
                units=wire.units,
                rounds=wire.rounds,
                refills=wire.refills,
            )


def figures(cases: Sequence[Case]) -> Iterator[Figure]:
    """Give what is judged of the cases."""
    for case in cases:
        if case.read == "query_items":
            # At most 5% more, or of small shards one extra Query each.
            allowed = max(STREAMED, 1 + case.shards / 2 / case.floor)
            yield Figure(bench="units", name=f"{case.name}: of one full read", value=case.ratio, target=allowed)
            continue
        target = RATIO[case.spread]
        yield Figure(bench="units", name=f"{case.name}: of the floor", value=case.ratio, target=target)
        if case.worst_page is not None:
            # Of ranges, a page that begins at the end of one asks it in vain: half a unit of 4, as on a plain table.
            judged = None if case.spread == "ranges" else target
            yield Figure(
                bench="units", name=f"{case.name}: worst page, of its floor", value=case.worst_page, target=judged
            )
        if case.spread == "ranges":
            if case.requests and case.read != "Limit=1000":
                yield Figure(
                    bench="units", name=f"{case.name}: requests", value=case.requests, unit="", target=REQUESTS
                )
            continue
        rounds = ROUNDS[case.spread]
        yield Figure(bench="units", name=f"{case.name}: rounds", value=case.rounds, unit="", target=rounds)
        above = (case.obvious + case.excess) / case.obvious
        yield Figure(bench="units", name=f"{case.name}: of the obvious way + ½ a refill", value=above, target=1.0)
