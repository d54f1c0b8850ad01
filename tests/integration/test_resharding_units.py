"""What a read and a write of an item that moves cost on dynoxide, beside docs/reference/resharding.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CapacityMeter, ShardedTable
from tests.support.engines import ServerName
from tests.support.moving import BETWEEN, PLACES, SCHEMA, Held, resharding
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "resharding.md"
KEY = {"pk": "k", "sk": "s1"}
ITEM = {**KEY, "text": "x" * 950}  # with the mark and the suffix, it still fits 1 KB
WRITES: dict[str, dict[str, Any]] = {
    "put_item": {"Item": ITEM},
    "update_item": {"Key": KEY, "UpdateExpression": "REMOVE gone"},
    "delete_item": {"Key": KEY},
}
ROWS = {
    "of an item at its old place": "live",
    "of an item at its new place, with a stub": "stub",
    "of an item at its new place, without a stub": "moved",
    "of a new item": "absent",
    "of a missing item": "absent",
    "of a frozen item": "frozen",
    "of a frozen item with a copy": "copied",
}


def said(table: str) -> dict[tuple[str, str], str]:
    """The units that the page's table says, by stage and state."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n| {table} |")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rest.partition("\n\n")[0].splitlines()[2:]]
    assert rows
    return {(stage, ROWS[row[0]]): cell for row in rows for stage, cell in zip(BETWEEN, row[1:], strict=True) if cell}


@pytest.fixture(scope="module")
def resource(engine_endpoint: Callable[[ServerName], str], boto3_session: boto3.Session) -> Iterator[Any]:
    made = boto3_session.resource("dynamodb", endpoint_url=engine_endpoint("dynoxide"))
    yield made
    made.meta.client.close()


def shown(reads: float, writes: float) -> str:
    return " + ".join(f"{units:g}{letter}" for units, letter in ((writes, "w"), (reads, "r")) if units)


@pytest.mark.integration
def test_the_units_are_those_of_the_page(resource: Any) -> None:
    """Of a write, each kind in turn, and of a read, wherever the item is; an answer has the sum of its requests."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    reads: dict[tuple[str, str], str] = {}
    writes: dict[tuple[str, str], str] = {}
    for (stage, state), write in zip(PLACES, cycle(WRITES.items()), strict=False):
        sharded = ShardedTable(table, resharding(stage), key_schema=SCHEMA)
        for method, params in (write, ("get_item", {"Key": KEY, "ConsistentRead": True})):
            Held(table).put(ITEM, state)
            meter = CapacityMeter()
            with meter.attach(sharded), meter.scope("one") as used:
                response = getattr(sharded, method)(**params, ReturnConsumedCapacity="TOTAL")
            assert response["ConsumedCapacity"]["CapacityUnits"] == used.read_units + used.write_units
            assert {key for _, key in meter.by_key} == {"k"}
            found = shown(used.read_units, used.write_units + used.estimated_write_units)
            into = reads if method == "get_item" else writes
            assert into.setdefault((stage, state), found) == found
            Held(table).clear()
    assert reads == said("strongly consistent read")
    assert writes == said("write")


def test_the_page_has_a_row_for_each_place() -> None:
    """The pattern above would not notice a row that is missing from both."""
    assert set(said("write")) == set(said("strongly consistent read")) == set(PLACES)
    assert all(re.fullmatch(r"(\dw)?( \+ )?(\dr)?", cell) for cell in said("write").values())
