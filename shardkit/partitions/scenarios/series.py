"""Read the scenario of a time series: one table that grows, beside a table for each period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.errors import ConfigurationError
from shardkit.partitions.plan_series import MOST_PERIODS, SeriesPlan, plan_series
from shardkit.partitions.scenarios.entries import Entries

_MOST_ITEMS = 10**12


def read_series(given: Mapping[str, Any], name: str) -> SeriesPlan:
    """Read a scenario with ``[series]``, and plan it; ``name`` is its name in messages.

    Raises:
        ConfigurationError: entries are missing, invalid or unknown; the message lists all of them.
    """
    problems: list[str] = []
    top = Entries(given, "", problems)
    series = top.table("series", needed=True) or Entries({}, "", [])
    top.end()
    settings: dict[str, Any] = {
        "periods": series.count("periods", 12, "periods", most=MOST_PERIODS),
        "items": series.count("items", 1, "items a period", most=_MOST_ITEMS, needed=True),
        "item_size": series.count("item_size", 1, "bytes", most=ITEM_BYTES, needed=True),
        "keep": series.count("keep", None, "periods that have ended", least=0, most=MOST_PERIODS),
    }
    for part, prefix, needed in (("hot", "", True), ("cold", "cold_", False)):
        units = series.table(part, needed=needed) or Entries({}, f"[series.{part}]", [])
        for kind in ("read_units", "write_units"):
            settings[prefix + kind] = units.number(kind, 1.0, "units a second", above=True, needed=needed)
        units.end()
    series.end()
    if problems:
        raise ConfigurationError("\n".join([f"{name} cannot be simulated:", *(f"  {one}" for one in problems)]))
    return plan_series(**settings)
