"""The hot keys that CloudWatch Contributor Insights for DynamoDB reports.

Source: Developer Guide, "CloudWatch Contributor Insights for DynamoDB: How it works" (rules and their names, units,
billing); CloudWatch API reference, GetInsightRuleReport.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from shardkit.analysis.shards import HEADROOM, shards_for
from shardkit.dynamodb.units import PARTITION_READ_UNITS

MOST_CONTRIBUTORS = 25
"""The most keys of a report: requesting more is an error."""
PERIOD = 60
"""Seconds of a data point that is asked for."""
_WRITE_WEIGHT = 3  # ConsumedThroughputUnits = 3 x write units + read units
_MOST_UNITS = PARTITION_READ_UNITS * PERIOD  # of a key in a period: 1,000 write units or 3,000 read units a second


class Kind(NamedTuple):
    """What a rule reports: ``code`` is part of its name. ``of_keys``: of partition keys, not of items."""

    code: str
    title: str
    throttles: bool
    of_keys: bool


KINDS = (
    Kind("PKT", "most throttled partition keys", throttles=True, of_keys=True),
    Kind("SKT", "most throttled items", throttles=True, of_keys=False),
    Kind("PKC", "most consuming partition keys", throttles=False, of_keys=True),
    Kind("SKC", "most consuming items", throttles=False, of_keys=False),
)
_code_of = re.compile(r"DynamoDBContributorInsights-([A-Z]+)-").match


def rules_of(names: Iterable[str]) -> dict[Kind, str]:
    """Return the rules of a table or an index by what they report, from their names.

    Example:
        >>> [kind.title for kind in rules_of(["DynamoDBContributorInsights-PKT-Orders-1576629651520"])]
        ['most throttled partition keys']
    """
    codes = {found[1]: name for name in names if (found := _code_of(name))}
    return {kind: codes[kind.code] for kind in KINDS if kind.code in codes}


@dataclass(frozen=True)
class Contributor:
    """A key, or a key and a sort key, as text.

    Attributes:
        keys: the partition key, and the sort key if the rule reports items.
        value: throttled requests, or consumed units: three times the write units, plus the read units.
        peak: the value of the busiest minute.
        peak_at: when that minute began; None if the report has no data points.
    """

    keys: tuple[str, ...]
    value: float
    peak: float
    peak_at: datetime | None

    @property
    def peak_share(self) -> float:
        """For consumed units: at most this share of what a partition serves, on average over the busiest minute.

        It is less if the key was both read and written: a partition serves each independently.
        """
        return self.peak / _MOST_UNITS

    def shards_needed(self, shards: int = 1) -> int | None:
        """For consumed units: how many shards the key needs if it has ``shards`` as busy as this; None: no number."""
        return shards_for(write_units=self.peak / PERIOD / _WRITE_WEIGHT * shards).shards

    @property
    def near(self) -> bool:
        """For consumed units: whether less is free than should be."""
        return self.peak_share > 1 - HEADROOM


def contributors_of(report: Mapping[str, Any]) -> list[Contributor]:
    """Return the contributors of a GetInsightRuleReport response, those with the highest values first."""
    found = []
    for entry in report.get("Contributors") or ():
        points = entry.get("Datapoints") or ()
        busiest = max(points, key=lambda point: point["ApproximateValue"], default=None)
        found.append(
            Contributor(
                tuple(entry["Keys"]),
                entry["ApproximateAggregateValue"],
                busiest["ApproximateValue"] if busiest else entry["ApproximateAggregateValue"],
                busiest["Timestamp"] if busiest else None,
            )
        )
    return sorted(found, key=lambda one: -one.value)
