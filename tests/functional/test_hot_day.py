"""The picture of a hot day in docs/capacity.md: what it says is so of the flights."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from benchmarks.hot_day import DAYS, PICTURE, SHARDS, week
from shardkit import CalculatedSuffix
from shardkit.capacity import item_size, write_units
from shardkit.cli.flights import FlightsMissingError


def test_the_hottest_keys() -> None:
    try:
        flights = week()
    except FlightsMissingError as missing:
        pytest.skip(str(missing))
    assert len(flights) == DAYS
    strategy = CalculatedSuffix("Flight", shards=SHARDS)
    plain: Counter[object] = Counter()
    sharded: Counter[object] = Counter()
    for item in (item for items in flights.values() for item in items):
        units = int(write_units(item_size(item)))
        plain[item["Date"]] += units
        sharded[strategy.physical_key(item["Date"], strategy.shard_of(item["Date"], item))] += units
    shown = re.findall(r">hottest key: ([\d,]+)<", PICTURE.read_text(encoding="utf-8"))
    assert shown == [f"{max(units.values()):,}" for units in (plain, sharded)]
    page = (PICTURE.parent / "capacity.md").read_text(encoding="utf-8")
    assert f"{shown[0]} on the hottest with a key a day, {shown[1]} with ten" in page
    assert f"{sum(map(len, flights.values())):,} flights" in page
