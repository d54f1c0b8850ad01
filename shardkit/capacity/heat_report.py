"""HeatReport: each minute, what this process wrote to its hottest keys, as an item of a control table."""

from __future__ import annotations

import logging
import secrets
from collections import Counter, defaultdict
from heapq import nlargest
from random import Random
from typing import Any
from zlib import crc32

from boto3.resources.base import ServiceResource

from shardkit.analysis.tuning import SECONDS, KeyReport, Report, heat_name, key_text
from shardkit.capacity.seconds import Seconds, writing
from shardkit.capacity.thinning import Row, RowKey
from shardkit.dynamodb.requests import OPERATIONS
from shardkit.dynamodb.schema import control_keys
from shardkit.errors import ConfigurationError, brief

_LATEST = 20.0  # seconds after the end of a minute: processes do not report all at once
EXPIRES, _EXPIRES_AFTER = "shardkit:expires", 7200
_HELD, _MOST_HELD = 1000, 10_000  # keys of a minute
_MINUTES = 3
_log = logging.getLogger("shardkit")


def key_names(control: Any) -> tuple[str, ...]:
    """Return the names of a control table's key attributes."""
    return control_keys("control", control.name, control.key_schema, control.attribute_definitions)


class HeatReport(Seconds):
    """Report the hottest keys of a meter's sharded tables each minute, for ``shardkit tune``.

    Example:
        >>> control = boto3.resource("dynamodb").Table("Control")  # doctest: +SKIP
        >>> CapacityMeter(heat=HeatReport(control)).attach(orders)  # doctest: +SKIP

    Each process has an item for each table, which it replaces each minute: the write units of its 10 hottest keys in
    each second, what was throttled, and queries. No call waits for it, or fails; if it cannot be written, a warning is
    logged.

    Args:
        control: a boto3 ``Table`` whose partition key and sort key are strings. Let Time to Live on its attribute
            ``shardkit:expires`` delete the items of processes that have ended.

    Raises:
        ConfigurationError: ``control`` is not a boto3 ``Table``.

    Cost: 2 write units a minute for each table. About 1 µs of CPU per call; a thread; at most 10 MB of memory.
    IAM: ``dynamodb:PutItem`` and ``dynamodb:DescribeTable`` on ``control``.
    """

    def __init__(self, control: Any) -> None:
        if not isinstance(control, ServiceResource) or not hasattr(control, "put_item"):
            raise ConfigurationError(f"control: must be a boto3 Table, got {brief(control)}; give resource.Table('…')")
        self._control = control
        super().__init__()

    def begin(self) -> None:
        super().begin()
        self._name = secrets.token_urlsafe(6)
        self._late = Random().uniform(1.0, _LATEST)  # noqa: S311 - not a secret
        self._counter = self._reported = 0
        self._minutes: dict[int, dict[tuple[Any, ...], _Key]] = {}

    def see_item(self, key: RowKey, sort: object) -> None:
        if OPERATIONS.get(key[0]):
            item = key, crc32(sort if isinstance(sort, bytes) else str(sort).encode(errors="surrogatepass"))
            self._items[item] = self._items.get(item, 0) + 1

    def hand_on(self, *, flush: bool = False) -> None:
        try:
            with writing:
                for ended in self._ended(flush=flush):
                    self._take_in(*ended)
                now = self._clock() + self._offset
                minute = int((now - self._late) // SECONDS) - 1
                if flush:
                    minute = max(self._minutes, default=minute)
                elif minute == self._reported:
                    return
                self._reported, self._counter = minute, self._counter + 1
                keys = sorted(self._minutes.get(minute, {}).items(), key=lambda pair: -pair[1].heat)
                tables = [*self._shardings]
            for table in tables:
                hottest = tuple(one.report(*place) for (of, *place), one in keys if of == table and one.heat)
                key = dict(zip(key_names(self._control), (heat_name(table), self._name), strict=True))
                report = Report(self._counter, hottest).to_attributes()
                self._control.put_item(Item={**key, **report, EXPIRES: int(now) + _EXPIRES_AFTER})
        except Exception as error:  # noqa: BLE001 - of whatever kind: the process goes on, and so does the thread
            if not self.dropped:
                _log.warning("the heat report cannot be written to %r: %r", self._control, error)
            self.dropped += 1

    def _take_in(self, second: int, rows: dict[RowKey, Row], items: dict[Any, int]) -> None:
        minute, second = divmod(second, SECONDS)
        keys = self._minutes.setdefault(minute, defaultdict(_Key))
        for (operation, table, index, logical, stored), (calls, _, write, throttled) in rows.items():
            if logical is None or table not in self._shardings:
                continue
            one = keys[table, index, logical]
            one.units[second] += write
            if OPERATIONS.get(operation):
                one.calls += calls
                one.throttled += throttled
            elif operation == "Query":
                one.queries[stored] += int(calls)
        for (row, item), count in items.items():
            if row[1:4] in keys:
                keys[row[1:4]].items[item] += count
        if len(keys) > _MOST_HELD:
            hottest = nlargest(_HELD, keys.items(), key=lambda pair: pair[1].heat)
            self._minutes[minute] = defaultdict(_Key, hottest)
        if len(self._minutes) > _MINUTES:
            del self._minutes[next(iter(self._minutes))]


class _Key:
    """What a key took in a minute."""

    def __init__(self) -> None:
        self.units = [0.0] * SECONDS
        self.calls = self.throttled = 0.0
        self.queries: Counter[object] = Counter()  # by stored key: a Query asks each shard
        self.items: Counter[int] = Counter()

    @property
    def refused(self) -> float:
        return self.throttled * (sum(self.units) / self.calls if self.calls else 1.0)

    @property
    def heat(self) -> float:
        return sum(self.units) + self.refused

    def report(self, index: str | None, key: object) -> KeyReport:
        ((item, count),) = self.items.most_common(1) or [(0, 0)]
        queries, share = max(self.queries.values(), default=0), round(count / (self.items.total() or 1), 3)
        return KeyReport(key_text(key), index, round(self.refused, 1), queries, item, share, tuple(self.units))
