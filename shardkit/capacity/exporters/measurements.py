"""The metrics that a meter exports, each with numbers per table, index and operation, or per reason."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shardkit.capacity.charge import KeyValue
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import Usage
from shardkit.core.checks import check_count
from shardkit.dynamodb.body import binary_text
from shardkit.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that is counted; ``unit`` is in the singular, ``labels`` are what the numbers are divided by."""

    name: str
    unit: str
    description: str
    labels: tuple[str, ...]


Measurements = Mapping[Metric, Mapping[tuple[str, ...], float]]
"""The numbers of each metric, by the values of its labels, in their order; a label that does not apply is empty."""


class Measured(Protocol):
    """A meter or a scope."""

    @property
    def recorder(self) -> AbstractContextManager[Tally]:
        """Its figures, locked while they are read."""


# A field of Usage, its name in metrics, and its description.
_FIGURES = (
    ("read_units", "consumed_read", "Read capacity units that the service reported"),
    ("write_units", "consumed_write", "Write capacity units that the service reported"),
    ("estimated_read_units", "estimated_read", "Estimates of read capacity units that no response reported"),
    ("estimated_write_units", "estimated_write", "Estimates of write capacity units that no response reported"),
)
_PLACE = ("table", "index", "operation")
_UNITS = {
    figure: Metric(
        f"{name}_capacity_units", "capacity_unit", f"{text}; without an index, those of the table itself.", _PLACE
    )
    for figure, name, text in _FIGURES
}
_CALLS = {
    "requests": Metric(
        "requests",
        "request",
        "API calls, failed ones too, without botocore's retries; a call to several tables counts for each.",
        ("table", "operation"),
    ),
    "throttles": Metric(
        "throttled_attempts",
        "attempt",
        "Attempts that were refused for lack of throughput, every retry counted.",
        ("table", "operation"),
    ),
}
_BYTES = {
    f"vector_{side}_request_bytes": Metric(
        f"vector_{side}_request_bytes",
        "byte",
        f"Bytes of vector indexes that {what} consumed, as the service reported; not capacity units.",
        _PLACE,
    )
    for side, what in (("search", "searches"), ("write", "writes"))
}
_THROTTLES = Metric(
    "throttles",
    "attempt",
    "Throttled attempts by the service's reason, else by error code; one with two reasons counts under both.",
    ("reason",),
)
_RETRIES = Metric("retries", "attempt", "botocore's retries, by what the attempt before met.", ("reason",))
_LOOKUPS = {
    "fresh": Metric("cache_fresh_hits", "read", "Items and pages that a cache answered.", ("table",)),
    "stale": Metric("cache_stale_hits", "read", "Items and pages that a cache answered from an old copy.", ("table",)),
    "misses": Metric("cache_misses", "read", "Items and pages that a cache did not have.", ("table",)),
    "saved_read_units": Metric(
        "saved_read_capacity_units",
        "capacity_unit",
        "Read capacity units that a cache's answers would have consumed, by the size of their copies.",
        ("table",),
    ),
}
METRICS = (*_UNITS.values(), *_BYTES.values(), *_CALLS.values(), _THROTTLES, _RETRIES, *_LOOKUPS.values())
"""Metrics that only grow."""

_HOT = {
    figure: Metric(
        f"hottest_key_{name}_capacity_units", "capacity_unit", f"{text}, of the hottest keys.", ("table", "key")
    )
    for figure, name, text in _FIGURES
}
HOT_KEYS = tuple(_HOT.values())
"""Metrics that may shrink, because other keys may become the hottest."""


def check(totals: Measured, top: int = 0) -> None:
    """Check an exporter's arguments when it is made, because an error during a scrape is easily missed."""
    if not hasattr(totals, "recorder"):
        raise ConfigurationError(
            f"totals: must be a CapacityMeter or one of its scopes, got a {type(totals).__name__}; attach a meter to "
            "it, and pass the meter"
        )
    check_count("top", top, "keys", least=0)


def measure(totals: Measured, *, top: int = 0) -> Measurements:
    """Return the numbers of all :data:`METRICS`, and of :data:`HOT_KEYS` for the ``top`` keys, at one moment.

    The units of a metric sum to the meter's, because a table's numbers do not include those of its indexes.
    """
    with totals.recorder as tally:
        tables, indexes = tally.by_table_and_operation, tally.by_index_and_operation
        vectors = dict(tally.by_vector_index_and_operation)
        throttles, retries = dict(tally.throttles), dict(tally.retries)
        cached = dict(tally.lookups.by_table)
        hottest = tally.keys.hottest(top) if top else []
    return {
        **{metric: _apart(figure, tables, indexes) for figure, metric in _UNITS.items()},
        **{
            metric: {place: number for place, taken in vectors.items() if (number := getattr(taken, figure))}
            for figure, metric in _BYTES.items()
        },
        **{
            metric: {place: getattr(usage, figure) for place, usage in tables.items()}
            for figure, metric in _CALLS.items()
        },
        _THROTTLES: {(reason,): count for reason, count in throttles.items()},
        _RETRIES: {(reason,): count for reason, count in retries.items()},
        **{
            metric: {(table,): getattr(usage, figure) for table, usage in cached.items()}
            for figure, metric in _LOOKUPS.items()
        },
        **{
            metric: {(table, _text(key)): getattr(usage, figure) for (table, key), usage in hottest}
            for figure, metric in (_HOT.items() if top else ())
        },
    }


def _apart(
    figure: str, tables: Mapping[tuple[str, str], Usage], indexes: Mapping[tuple[str, str, str], Usage]
) -> dict[tuple[str, ...], float]:
    units: dict[tuple[str, ...], float] = {
        (table, "", operation): getattr(usage, figure) for (table, operation), usage in tables.items()
    }
    for (table, index, operation), usage in indexes.items():
        units[table, index, operation] = getattr(usage, figure)
        # A server may report more for an index than in total; a counter cannot be below 0.
        units[table, "", operation] = max(units[table, "", operation] - getattr(usage, figure), 0.0)
    return units


def _text(key: KeyValue) -> str:
    return binary_text(key) if isinstance(key, bytes) else str(key)


def differences(now: Measurements, before: Measurements) -> Measurements:
    """Return by how much the numbers grew; those that did not grow are left out."""
    return {
        metric: {
            place: grown
            for place, number in numbers.items()
            if (grown := number - before.get(metric, {}).get(place, 0)) > 0
        }
        for metric, numbers in now.items()
    }


def present(metric: Metric, values: tuple[str, ...], names: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that apply, under an exporter's names for them."""
    return {names[label]: value for label, value in zip(metric.labels, values, strict=True) if value}
