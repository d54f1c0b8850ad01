"""``shardkit heat --table`` and ``size --table`` on real engines: what a sample says of a table that is known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from shardkit import CapacityMeter
from shardkit.capacity import item_size
from shardkit.cli.heat_live import heat_of_sample
from shardkit.cli.live_table import LiveTable, SampleOptions, describe
from shardkit.cli.size import size_of_sample
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

QUIET = Console(quiet=True)


def orders() -> list[dict[str, Any]]:
    """Some hundred customers with one to sixty orders of all sizes."""
    rng = random.Random(17)
    return [
        {"Customer": f"C{customer}", "OrderId": number, "Note": "x" * rng.randrange(1500)}
        for customer in range(250)
        for number in range(1 + int(rng.expovariate(0.3)))
    ]


@pytest.fixture
def table(engine_resource: DynamoDBServiceResource) -> Iterator[Table]:
    table = make_table(engine_resource, ("Customer", "S"), ("OrderId", "N"))
    with table.batch_writer() as batch:
        for order in orders():
            batch.put_item(Item=order)
    yield table
    table.delete()


def how(seed: int) -> SampleOptions:
    return {"most_units": 256.0, "rate": 1e9, "progress": False, "rng": random.Random(seed)}


def described(table: Table) -> LiveTable:
    """The table, as if it were three times as large: so that 256 read units are for a part of it."""
    return replace(describe(table.meta.client, table.name, None), bytes=3 * 128 * 8192)


def test_estimates_hold_the_truth_and_keys_are_exact(table: Table) -> None:
    written = orders()
    by_customer = Counter(order["Customer"] for order in written)
    truth = {"items": len(written), "keys": len(by_customer), "bytes": sum(map(item_size, written))}
    held = 0
    for seed in range(4):
        read = heat_of_sample(
            described(table), None, None, QUIET, write_units=None, read_units=None, top=9, **how(seed)
        )
        live = read()
        sample = live.found.sample
        assert 0.2 < sample.share < 0.6
        assert live.found.units <= 256
        assert live.judged is not None
        for usage in live.judged.found.hottest:
            assert usage.items == by_customer[usage.key[0]]
        held += sum(sample.total(name).low <= figure <= sample.total(name).high for name, figure in truth.items())
    assert held >= 9  # of 12


def test_all_of_it(table: Table) -> None:
    """Every item once, whatever the engine's segments are; and what was read is what it took."""
    written = orders()
    meter = CapacityMeter()
    whole = replace(described(table), bytes=100 * 8192)
    with meter.attach(table):
        sizes = size_of_sample(whole, QUIET, **how(1))()
    assert sizes.found.sample.share == 1
    assert (sizes.profile.items, sizes.profile.bytes) == (len(written), sum(map(item_size, written)))
    assert sizes.found.sample.total("keys").value == len({order["Customer"] for order in written})
    assert sizes.found.units == meter.read_units
