"""A meter's figures as one record in a log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from shardkit.capacity.exporters.measurements import check

if TYPE_CHECKING:
    from shardkit.capacity.scopes import Totals

__all__ = ["log_capacity"]

_UNITS = ("read_units", "write_units", "estimated_read_units", "estimated_write_units")
_log = logging.getLogger("shardkit.capacity")


def log_capacity(
    totals: Totals,
    *,
    top: int = 5,
    level: int = logging.INFO,
    logger: logging.Logger | logging.LoggerAdapter[Any] = _log,
) -> None:
    """Log one record with all figures of a meter or a scope so far.

    Example:
        >>> with meter.attach(orders), meter.scope("import") as used:  # doctest: +SKIP
        ...     ...
        >>> log_capacity(used)  # doctest: +SKIP
        INFO shardkit.capacity capacity name=import read_units=0.5 write_units=12.0 ... hottest_keys=[...]

    The message consists of ``name=value`` pairs: the figures of ``total``, throttles and retries by reason, and the
    hottest keys as JSON. The record's attribute ``capacity`` is :meth:`~shardkit.CapacityMeter.to_dict`, for formatters
    that write JSON.

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes.
        top: how many of the hottest keys to log; 0 for none.
        level: the record's level.
        logger: the logger to use instead of ``shardkit.capacity``.

    Raises:
        ConfigurationError: ``totals`` is not a meter or a scope, or ``top`` is not an integer >= 0.

    Cost:
        No request; one pass over the keys that the meter holds. Nothing if the level is disabled.
    """
    check(totals, top)
    if logger.isEnabledFor(level):
        figures = totals.to_dict(hottest=top)
        logger.log(level, "capacity %s", " ".join(_pairs(figures)), extra={"capacity": figures})


def _pairs(figures: dict[str, Any]) -> Iterator[str]:
    yield f"name={_value(figures['name'])}"
    for name, number in figures["total"].items():
        if number or not name.endswith("_bytes"):  # most tables have no vector index
            yield f"{name}={number}"
    for kind in ("throttles", "retries"):
        for reason, count in figures[kind].items():
            yield f"{kind}.{reason}={count}"
    hottest = [
        {"table": hot["table"], "key": hot["key"], "units": sum(hot[name] for name in _UNITS)}
        for hot in figures["hottest_keys"]
    ]
    if hottest:
        yield f"hottest_keys={orjson.dumps(hottest).decode()}"


def _value(text: str) -> str:
    return text if text and text.isprintable() and not set(text) & set(' "=') else orjson.dumps(text).decode()
