"""docs/reference/library-authors.md lists each botocore event that shardkit registers handlers for, with its order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardkit import CalculatedSuffix, CapacityBudget, CapacityMeter, ShardedTable, install
from shardkit.testing import VirtualClock, simulate_partitions
from tests.functional.test_docs import DOCS
from tests.support.tables import make_table

if TYPE_CHECKING:
    import pytest
    from types_boto3_dynamodb import DynamoDBServiceResource

STRATEGY = CalculatedSuffix("OrderId", shards=2)


def listed() -> set[tuple[str, str]]:
    page = (DOCS / "reference" / "library-authors.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## What shardkit registers\n")
    rows = re.findall(r"^\| (`[^|]+`) \| (first|last) \|", section.partition("\n## ")[0], re.MULTILINE)
    return {
        (name.replace("…", "after-call.dynamodb."), order)
        for names, order in rows
        for name in re.findall(r"`([^`]+)`", names)
    }


def test_events(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    events: Any = table.meta.client.meta.events
    registered: set[tuple[str, str]] = set()

    def noting(order: str, register: Callable[..., None]) -> Callable[..., None]:
        def register_noted(event: str, *args: Any, **options: Any) -> None:
            registered.add((event, order))
            register(event, *args, **options)

        return register_noted

    for order in ("first", "last"):
        name = f"register_{order}"
        monkeypatch.setattr(events, name, noting(order, getattr(events, name)))
    for transport in ("client", "direct"):
        ShardedTable(table, STRATEGY, transport=transport).put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})
    with (
        CapacityMeter().attach(table),
        CapacityBudget(write_units=100).attach(table),
        install(table, {table.name: STRATEGY}),
        simulate_partitions(table, partitions=1, clock=VirtualClock()),
    ):
        pass
    assert registered == listed()
