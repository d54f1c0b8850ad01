"""Reports of heat: what each process wrote to its hottest keys in a minute; their form, and their sum over a fleet."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.sizes import item_size

SECONDS = 60
_MOST_KEYS, _MOST_BYTES = 10, 1950  # with the item's key, below 2 write units
_TEXT, _UNITS = "shardkit:heat", "shardkit:units"
_FORM = 1
_PACKED = struct.Struct(f"<{SECONDS}e")  # half floats: to 1 in 2,000, and whole numbers up to 2,048 exactly
_MOST = 65_504.0  # the largest half float


def heat_name(table: str) -> str:
    """Return the partition key of a table's reports."""
    return f"shardkit:heat:{table}"


def key_text(key: object) -> str:
    """Return a logical key as reports name it: ``S:2014-07-09``, ``B:`` with base64, or ``?:`` for an index's."""
    return f"S:{key}" if isinstance(key, str) else f"B:{binary_text(key)}" if isinstance(key, bytes) else f"?:{key}"


def key_of(text: str) -> str | bytes:
    """Return the logical key that a report names."""
    return binary_bytes(text[2:]) if text.startswith("B:") else text[2:]


class KeyReport(NamedTuple):
    """A key in one process and minute.

    ``units`` are write units in each second, ``refused`` those of throttled attempts, ``item`` the hash of its hottest
    item, and ``share`` that item's part of the writes that were looked at.
    """

    key: str
    index_name: str | None
    refused: float
    queries: int
    item: int
    share: float
    units: tuple[float, ...]


class Report(NamedTuple):
    """What a process reports: how often it did so, and its hottest keys, the hottest first."""

    counter: int
    keys: tuple[KeyReport, ...] = ()

    def to_attributes(self) -> dict[str, Any]:
        """Return the attributes of the report's item: as many of the keys as fit."""
        keys = self.keys[:_MOST_KEYS]
        while True:
            text = orjson.dumps({"form": _FORM, "counter": self.counter, "keys": [one[:-1] for one in keys]}).decode()
            packed = b"".join(_PACKED.pack(*(min(each, _MOST) for each in one.units)) for one in keys)
            if item_size(item := {_TEXT: text, _UNITS: packed}) <= _MOST_BYTES:
                return item
            keys = keys[:-1]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Report | None:
        """Read a report; None: it is none, or of a newer form."""
        given = orjson.loads(item.get(_TEXT, "{}"))
        if given.get("form") != _FORM:
            return None
        units = _PACKED.iter_unpack(bytes(item[_UNITS]))
        return cls(given["counter"], tuple(KeyReport._make((*one, next(units))) for one in given["keys"]))


class Heat(NamedTuple):
    """What all processes wrote to a key in a minute: in its busiest second, in a mean one, and to its hottest item."""

    peak: float = 0.0
    refused: float = 0.0
    queries: float = 0.0
    item: float = 0.0

    @property
    def wanted(self) -> float:
        """What was asked for; attempts are repeated, so at most 3 times what was served."""
        return min(self.peak + self.refused, 3 * self.peak + 1)


def heat_of(reports: Iterable[Report]) -> dict[tuple[str, str | None], Heat]:
    """Add up the reports of all processes, by key and index: their seconds are the service's, so peaks add up."""
    found: dict[tuple[str, str | None], list[KeyReport]] = {}
    for report in reports:
        for one in report.keys:
            found.setdefault((one.key, one.index_name), []).append(one)
    return {place: _sum(each) for place, each in found.items()}


def _sum(parts: list[KeyReport]) -> Heat:
    seconds = [sum(second) for second in zip(*(one.units for one in parts), strict=True)]
    items: Counter[int] = Counter()
    for one in parts:
        items[one.item] += one.share * sum(one.units)  # type: ignore[assignment]
    refused, queries = sum(one.refused for one in parts), sum(one.queries for one in parts)
    peak = max(seconds)
    return Heat(peak, refused / SECONDS, queries / SECONDS, peak * max(items.values()) / (sum(seconds) or 1.0))
