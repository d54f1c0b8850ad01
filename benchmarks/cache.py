"""A cache of popular items: hit ratios beside LRU and the best possible, CPU of a hit, partitions, and a stampede.

``python -m benchmarks.cache`` draws the picture of docs/cache.md; ``python -m benchmarks cache`` measures.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any

from benchmarks import ways
from benchmarks.measure import Figure, alternate, over
from benchmarks.orders import DAY, TABLE, order_id, orders, strategy_of
from benchmarks.stub import stub
from shardkit.cache import CachedTable
from shardkit.core.popular import PopularValues
from shardkit.partitions.scenarios.items import generated
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.running import run
from shardkit.partitions.simulator import draws

__all__ = ["EXPONENTS", "ITEMS", "SHARES", "best", "cache", "hit_ratios"]

ITEMS = 100_000
EXPONENTS = (1.0, 1.2)
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""The parts of the items that are in memory, in the picture; ``cache`` measures 1%."""
READS = 1_000_000
CALLS = 200
THREADS = 1000
Access = Callable[[int], bool]


@lru_cache
def _weights(exponent: float) -> Sequence[float]:
    return list(accumulate(rank**-exponent for rank in range(1, ITEMS + 1)))


def best(exponent: float, held: int) -> float:
    """Return the hit ratio of memory that holds the most popular items from the beginning."""
    weights = _weights(exponent)
    return weights[held - 1] / weights[-1]


def reads(exponent: float, number: int) -> list[int]:
    """Draw items by Zipf's law: the item of rank r in proportion to 1 / r ** exponent; ranks are shuffled."""
    random, weights = Random(f"zipf {exponent}"), _weights(exponent)
    order = random.sample(range(ITEMS), ITEMS)
    return [order[bisect_right(weights, random.random() * weights[-1])] for _ in range(number)]


def popular(held: int) -> Access:
    """Return what a MemoryStore does with items of one size."""
    values: PopularValues[int, bool] = PopularValues(held, lambda _key, _value: 1)

    def access(item: int) -> bool:
        hit = values.get(item) is not None
        if not hit:
            values.put(item, True)
        return hit

    return access


def least_recently_used(held: int) -> Access:
    """Return what a cache does that takes everything, and drops what was not read for the longest time."""
    values: OrderedDict[int, None] = OrderedDict()

    def access(item: int) -> bool:
        hit = item in values
        values[item] = None
        values.move_to_end(item)
        if len(values) > held:
            values.popitem(last=False)
        return hit

    return access


@lru_cache
def hit_ratios(exponent: float, held: int, number: int = READS) -> dict[str, float]:
    """Return the hit ratios of the second half of the reads, when the memory is full."""
    drawn = reads(exponent, number)
    ratios = {"best": best(exponent, held)}
    for name, access in (("shardkit", popular(held)), ("LRU", least_recently_used(held))):
        hits = [access(item) for item in drawn]
        ratios[name] = sum(hits[number // 2 :]) / (number - number // 2)
    return ratios


def cache(*, short: bool) -> Iterator[Figure]:
    """Measure what a cache saves, and what a hit costs."""
    for exponent in EXPONENTS:
        ratios = hit_ratios(exponent, ITEMS // 100, READS // 4 if short else READS)
        lru, ours = ratios["LRU"], ratios["shardkit"]
        yield Figure(
            bench="cache",
            name=f"Zipf's law, s = {exponent}, 1% of 100,000 items in memory: the best hit ratio, of shardkit's",
            value=ratios["best"] / ours,
            target=1 / 0.95,
            note=f"{ours:.1%} ({ours / ratios['best']:.1%} of the best); best {ratios['best']:.1%}, LRU {lru:.1%}",
        )
    yield from _partitions()
    yield from _hits(5 if short else 15)


def _partitions() -> Iterator[Figure]:
    reads: dict[str, Any] = {"with": "get_item", "per_second": 6000, "seconds": 20, "zipf": 1.2}
    scenario = read_scenario(
        {
            "table": {"partition_key": "Id", "read_units": 6000, "write_units": 1000},
            "items": {
                "number": 20_000,
                "size": 900,
                "keys": {"distribution": "each", "values": 20_000, "items": 1},
            },
            "way": [
                {"name": "without", "reads": reads},
                {"name": "with", "reads": {**reads, "cache": {"max_bytes": 200 * 1300, "ttl": 60}}},
            ],
        },
        "cache",
    )
    items = generated(scenario.items, scenario.keys, draws("items"))
    without, cached = (run(scenario, way, items) for way in scenario.ways)
    yield Figure(
        bench="cache",
        name="s = 1.2, 1% of 20,000 items in memory, simulated: read units of the hottest partition, of those without",
        value=cached.busiest[1] / without.busiest[1],
        note=f"{cached.busiest[1]:,.0f} read units a second, {without.busiest[1]:,.0f} without; of all reads, "
        f"{cached.cache_hits / cached.reads:.0%} were hits",
    )


def _hits(runs: int) -> Iterator[Figure]:
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(shards=10, items=1000))
        sharded = stack.enter_context(ways.sharded(endpoint, 10))
        plain = stack.enter_context(ways.resource(endpoint)).Table(TABLE)
        strategy = strategy_of(10)
        names = [name for _, name in orders(10, 1000)][:CALLS]
        keys = [{"Date": DAY, "OrderId": name} for name in names]
        stored = [{**key, "Date": strategy.physical_key(DAY, strategy.shard_of(DAY, key))} for key in keys]
        schema = {"KeySchema": plain.key_schema, "AttributeDefinitions": plain.attribute_definitions}
        over_plain = CachedTable(plain, max_bytes=10_000_000, ttl=3600, key_schema=schema)
        over_sharded = CachedTable(sharded, max_bytes=10_000_000, ttl=3600)
        for key, physical in zip(keys, stored, strict=True):
            item = plain.get_item(Key=physical)["Item"]
            for table, asked in ((over_plain, physical), (over_sharded, key)):
                if not table.get_item(Key=asked)["Item"] == table.get_item(Key=asked)["Item"] == item | asked:
                    raise RuntimeError(f"a copy of {asked} is another item")
        timings = alternate(
            {
                "hit": lambda: [over_plain.get_item(Key=key) for key in stored],
                "hit of a sharded table": lambda: [over_sharded.get_item(Key=key) for key in keys],
                "boto3": lambda: [plain.get_item(Key=key) for key in stored],
                "shardkit": lambda: [sharded.get_item(Key=key) for key in keys],
            },
            runs=runs,
        )
        for name, hit, read in (("boto3's", "hit", "boto3"), ("ShardedTable's", "hit of a sharded table", "shardkit")):
            value, spread = over(timings[hit], timings[read])
            own, theirs = (timings[way].median / CALLS * 1e6 for way in (hit, read))
            yield Figure(
                bench="cache",
                name=f"get_item from memory: CPU, of {name} get_item",
                value=value,
                target=1 / 20,
                spread=spread,
                note=f"{own:,.1f} µs, {theirs:,.0f} µs a call; an item of ten attributes",
            )
        yield _stampede(over_plain)


def _stampede(table: CachedTable) -> Figure:
    requests: list[None] = []
    table.meta.client.meta.events.register_first("before-send.dynamodb", lambda **_: requests.append(None))
    all_there = threading.Barrier(THREADS)
    key = {"Date": f"{DAY}.1", "OrderId": order_id(10**8)}

    def read(_: int) -> None:
        all_there.wait()
        table.get_item(Key=key)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(read, range(THREADS)))
    return Figure(
        bench="cache",
        name=f"{THREADS:,} threads read an item at once that is not in memory: requests",
        value=len(requests),
        unit="",
        target=1,
    )


def draw(figure: Any) -> None:
    """Draw the hit ratio over the part of the items that is in memory."""
    from shardkit.cli.pictures import BLUE, GREY, ORANGE

    colours = {"best": GREY, "shardkit": BLUE, "LRU": ORANGE}
    labels = {"best": "the best possible", "shardkit": "CachedTable", "LRU": "least recently used"}
    for axes, exponent in zip(figure.subplots(1, len(EXPONENTS), sharey=True), EXPONENTS, strict=True):
        ratios = [hit_ratios(exponent, round(share * ITEMS)) for share in SHARES]
        for name, colour in colours.items():
            style = "--" if name == "best" else "o-"
            axes.plot(
                [100 * share for share in SHARES],
                [100 * one[name] for one in ratios],
                style,
                markersize=3,
                color=colour,
                label=labels[name],
            )
        axes.set(xscale="log", xlabel="items in memory (%)", title=f"popularity by Zipf's law, s = {exponent}")
        axes.set(xticks=[100 * share for share in SHARES], ylim=(0, 100))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(axis="y")
        if exponent == EXPONENTS[0]:
            axes.set_ylabel("reads answered from memory (%)")
            axes.legend(loc="lower right")
    figure.suptitle("A little memory answers most reads, if it holds the popular items", x=0.01, ha="left")


if __name__ == "__main__":
    from benchmarks.pictures import draw_both

    draw_both("hit-ratio", 3.6, draw, width=9)
