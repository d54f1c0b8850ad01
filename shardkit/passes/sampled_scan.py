"""Read segments of a table whole, within a number of read units."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardkit.analysis.sample import PAGE_UNITS
from shardkit.core.machine import Answer, Done, Send, Step, Wait
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import read_units
from shardkit.dynamodb.values import WireItem


class Page(NamedTuple):
    """A page of a segment; ``last`` if the segment has no other after it."""

    segment: int
    items: Sequence[WireItem]
    last: bool


class SampledScan:
    """A machine that reads segments in the given order, several at once; each result is a page, None the end.

    A page is begun only if the units that were used, and all that the pages in flight may use, stay within
    ``most_units``. So some segments may be left unfinished, or not begun.

    Attributes:
        units: the read units used so far.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        segments: Sequence[int],
        total_segments: int,
        *,
        most_units: float,
        concurrency: int,
    ) -> None:
        self.units = 0.0
        self._params = {**params, "ReturnConsumedCapacity": "TOTAL"}
        self._most_units = most_units
        self._concurrency = concurrency
        self._to_ask = deque({"Segment": segment, "TotalSegments": total_segments} for segment in segments)
        self._asked: dict[Send, dict[str, Any]] = {}
        self._pages: deque[Page] = deque()
        self._error: Exception | None = None

    def next(self, now: float) -> Step[Page | None]:
        if self._pages:
            return Done(self._pages.popleft())
        room = (
            len(self._asked) < self._concurrency
            and self.units + PAGE_UNITS * (len(self._asked) + 1) <= self._most_units
        )
        if self._to_ask and room and self._error is None:
            more = self._to_ask.popleft()
            send = Send("Scan", {**self._params, **more})
            self._asked[send] = more
            return send
        if self._asked:
            return Wait()
        if self._error is not None:
            raise self._error
        return Done(None)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        more = self._asked.pop(send)
        if isinstance(answer, Exception):
            self._error = answer
            return
        items = answer.get("Items", ())
        consumed = answer.get("ConsumedCapacity")
        self.units += consumed["CapacityUnits"] if consumed else read_units(sum(map(item_size, items)))
        last = answer.get("LastEvaluatedKey")
        if last:
            # Before any new segment, so that few are left unfinished.
            self._to_ask.appendleft({**more, "ExclusiveStartKey": last})
        self._pages.append(Page(more["Segment"], items, not last))
