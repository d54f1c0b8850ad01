"""Reads of many items, and what every operation costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.capacity import TableUnits
from tests.aws.check import check, holds
from tests.aws.orders import BY_ID, DAY, numbers, order, pages
from tests.aws.run import Run
from tests.support.compared import Compared


@check(
    "A parallel scan of a table of several partitions has each item once", "reference/reads",
    minutes=1, write_units=3_000, read_units=1_500,
)  # fmt: skip
def scan_segments(run: Run) -> str:
    count = 2_000 if run.place.on_aws else 300
    orders = ShardedTable(run.table(), BY_ID)
    bulk_load(orders, (order(number) | {"day": f"day-{number % 50}"} for number in range(count)))
    for segments in (1, 8):
        found = numbers(orders.scan_items(segments=segments, ConsistentRead=True))
        holds(
            sorted(found) == list(range(count)), f"{segments} segments: {len(found)} items, {len(set(found))} different"
        )
    return f"{count:,} items in 1 and in 8 segments"


@check("Pages of 1 MB are merged in order, both ways", "reference/reads",
       minutes=1, write_units=6_000, read_units=6_000)  # fmt: skip
def large_pages(run: Run) -> str:
    orders = ShardedTable(run.table(), CalculatedSuffix("id", shards=3))
    bulk_load(orders, (order(number, pad="x" * 99_000) for number in range(48)), window=100)
    for forward in (True, False):
        query: Any = {"KeyConditionExpression": DAY, "ScanIndexForward": forward, "ConsistentRead": True}
        expected = sorted(range(48), reverse=not forward)
        found = pages(orders, **query)
        holds([*chain(*found)] == expected and len(found) > 1, found)
        streamed = numbers(orders.query_items(**query))
        holds(streamed == expected, streamed)
    return "4.8 MB in pages and as a stream, both ways"


@check(
    "Each operation on a table with seven indexes consumes what the rules say", "reference/sizes-and-units",
    minutes=3, write_units=40_000, read_units=20_000,
)  # fmt: skip
def units(run: Run) -> str:
    table = _Judged(run)
    for seed in range(8 if run.place.on_aws else 1):
        table.run(seed, 100)
    different = [
        f"{name} ({table.differ[name]} of {table.compared[name]}): {seen}" for name, seen in table.first.items()
    ]
    holds(not different, "; ".join(different))
    return f"{table.compared.total()} operations of {len(table.compared)} kinds"


class _Judged(Compared):
    """Goes on after a difference, so that all operations are compared."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.resource, frozenset(), name=run.journal.new_name(), client=run.client)
        run.active(run.resource.Table(self.name))
        self.differ: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def compare(self, name: str, answer: Mapping[str, Any], expected: TableUnits) -> None:
        try:
            super().compare(name, answer, expected)
        except AssertionError as error:
            self.differ[name] += 1
            self.first.setdefault(name, str(error).partition(": ")[2] or "its parts are not the sum")
