"""A load that a test can run in another process, kill and resume; and the expected content of its table."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from shardkit import BulkReport, CapacityMeter, ShardedTable, Strategy, Unsharded, backfill_index, bulk_load, migrate
from shardkit.bulk.sources.opening import open_source
from shardkit.migrate.marks import MARK
from tests.support.fakes import connected, timeless
from tests.support.moving import resharding
from tests.support.tables import make_table

_NUMBER = re.compile(r"(?:OrderId\D+|\[)(\d+)")
SECONDS = 30.0  # for what takes well under one
linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")
WORKERS = 4
DAYS = 7


@dataclass(frozen=True)
class Job:
    """A load of ``orders.jsonl`` in a folder, with its journal and dead letters beside it."""

    endpoint: str
    table: str
    strategy: Strategy
    folder: Path
    cursors: int = 1
    transport: Literal["client", "direct"] = "client"

    @property
    def dead(self) -> list[int]:
        """The numbers of the lines that failed."""
        lines = (self.folder / "dead.jsonl").read_text("utf-8").splitlines()
        return sorted(int(found[1]) for line in lines if (found := _NUMBER.search(line)))

    def run(self, *, meter: CapacityMeter | None = None, **options: Any) -> BulkReport:
        """Load, or resume."""
        resource = connected(self.endpoint)
        try:
            orders = ShardedTable(resource.Table(self.table), self.strategy, transport=self.transport)
            timeless(orders)
            if meter is not None:
                meter.attach(orders)
            source = open_source(str(self.folder / "orders.jsonl"), table=orders, cursors=self.cursors)
            return bulk_load(
                orders,
                source,
                **{
                    "workers": WORKERS,
                    "window": 200,
                    "on_error": "collect",
                    "journal": self.folder / "orders.journal",
                    "dead_letters": self.folder / "dead.jsonl",
                    **options,
                },
            )
        finally:
            resource.meta.client.close()


def backfilled(endpoint: str, table: str, strategy: Strategy, journal: Path) -> None:
    """Backfill an index slowly, in a process that can be killed."""
    resource = connected(endpoint)
    orders = ShardedTable(resource.Table(table), Unsharded(), indexes={"by-status": strategy})
    backfill_index(orders, "by-status", write_units=60, read_units=None, journal=journal)


def moved(endpoint: str, table: str) -> None:
    """Move a table slowly, in a process that can be killed."""
    orders = ShardedTable(connected(endpoint).Table(table), resharding("move"), max_concurrency=4)
    migrate.move(orders, write_units=60, read_units=None)


def make_orders(endpoint: str) -> str:
    resource = connected(endpoint)
    table = make_table(resource, ("Date", "S"), ("OrderId", "N"))
    resource.meta.client.close()
    return table.name


def write_orders(path: Path, count: int, *, again: float = 0.0, bad: float = 0.01) -> tuple[list[str], list[int]]:
    """Write orders, sorted by day; the shares ``again`` and ``bad`` repeat an earlier key, or cannot be loaded.

    Returns:
        The expected content of the table, as text, and the numbers of the bad lines, from 0.
    """
    rng = Random(count)
    lines: list[str] = []
    wanted: dict[tuple[str, int], dict[str, Any]] = {}
    wrong: list[int] = []
    for number in range(count):
        order = {"Date": f"2014-07-{1 + number * DAYS // count}", "OrderId": number, "Note": "x" * rng.randrange(300)}
        if wanted and rng.random() < again:
            order["Date"], order["OrderId"] = rng.choice(list(wanted)[-100:])
        if rng.random() < bad:
            wrong.append(number)
            lines.append(rng.choice([f'{{"OrderId": {number}', f'{{"OrderId": {number}, "Date": ""}}', f"[{number}]"]))
            continue
        wanted[str(order["Date"]), int(str(order["OrderId"]))] = order
        lines.append(json.dumps(order))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return sorted(_text(order["Date"], order["OrderId"], order["Note"]) for order in wanted.values()), wrong


def stored(endpoint: str, table: str, strategy: Strategy) -> list[str]:
    """Return the content of the table, as ``write_orders`` does; an item in two shards is in it twice."""
    resource = connected(endpoint)
    pages = resource.meta.client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    items: list[dict[str, Any]] = [dict(item) for page in pages for item in page["Items"]]
    resource.meta.client.close()
    items = [item for item in items if MARK not in item or item[MARK] != "stub"]
    assert all(item.keys() == {"Date", "OrderId", "Note"} for item in items)
    return sorted(_text(strategy.split(str(item["Date"]))[0], item["OrderId"], item["Note"]) for item in items)


def put_some(endpoint: str, table: str, path: Path) -> None:
    """Put every eighth of the orders as it was before the table was sharded, with another note."""
    resource = connected(endpoint)
    with resource.Table(table).batch_writer() as batch:
        for line in path.read_text("utf-8").splitlines()[::8]:
            batch.put_item({**json.loads(line), "Note": "before"})
    resource.meta.client.close()


def _text(*values: Any) -> str:
    return " ".join(map(str, values))


def some(count: int) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{number % 7 + 1}", "OrderId": number, "Note": "x" * 40} for number in range(count)]


def soon(holds: Callable[[], bool]) -> bool:
    """Wait until another process or thread makes a condition hold; return whether it does."""
    until = time.monotonic() + SECONDS
    while not (held := holds()) and time.monotonic() < until:
        threading.Event().wait(0.01)
    return held
