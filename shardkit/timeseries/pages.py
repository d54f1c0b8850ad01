"""The pages of a read over the tables of several periods, and the cursors between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.units import add_consumed
from shardkit.errors import CursorError, brief
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.parameters import Params
from shardkit.sharding.programs import no_request
from shardkit.sharding.query.cursor import Cursor, is_token, token_in
from shardkit.timeseries.periods import Period
from shardkit.timeseries.settings import Series

# Before a cursor's token: a period, and where the position is: within its table, after all its items, or before them.
WITHIN, _AFTER, _BEFORE = ".", "~", "_"
_SIDES = {WITHIN: 0, _AFTER: 1, _BEFORE: -1}


@dataclass(frozen=True)
class Pages:
    """``read``, of a page, returns a period's response, or None if its table does not exist."""

    series: Series
    form: Form

    def left(
        self,
        params: Params,
        periods: Sequence[Period],
        purpose: str,
        what: str,
        touches: Callable[[Period], bool] = lambda _: True,
    ) -> tuple[list[Period], Any]:
        """Return the periods that are left to read after the cursor, and where to start in the first of them."""
        given = params.get("ExclusiveStartKey")
        if given is None:
            return [*periods], None
        start, side = given, 0
        if is_token(given, self.form):
            token = token_in(given, self.form)
            mark = next((mark for mark in token if mark in _SIDES), "")
            name, _, rest = token.partition(mark or WITHIN)
            period = self.series.calendar.named(name) if mark else None
            if period is None:
                raise CursorError(
                    f"ExclusiveStartKey: the cursor {token[:80]!r} is damaged, or not of time series "
                    f"{self.series.name!r}; pass LastEvaluatedKey unchanged"
                )
            side = _SIDES[mark]
            if side:
                Cursor.read({"shardkit": rest}, purpose, what, PYTHON_VALUES)  # its signature is checked and removed
                start = None
        else:
            period = self.series.period_of(given, self.form)
            if period is None:
                raise CursorError(
                    f"ExclusiveStartKey: {brief(given, 200)} has no {self.series.at!r}, so its table is unknown; pass "
                    "LastEvaluatedKey unchanged"
                )
        if not touches(period):
            raise CursorError(
                f"ExclusiveStartKey: the cursor is in period {period}, outside the key condition of this Query on "
                f"{what}; start the read again"
            )
        position, descending = (period.number, side), params.get("ScanIndexForward") is False
        left = [one for one in periods if ((one.number, 0) <= position if descending else (one.number, 0) >= position)]
        # Its table may have been deleted since: go on with the next one.
        return left, start if left[:1] == [period] else None

    def page(
        self,
        periods: Sequence[Period],
        start: Any,
        purpose: str,
        params: Params,
        read: Callable[[Period, Params], Program[Response | None]],
        *,
        return_shards: bool,
    ) -> Program[Response]:
        left: Any = params.get("Limit")
        counted = isinstance(left, int)
        lists = ["Items", "Shards"] if return_shards else ["Items"]
        page: Response = {} if params.get("Select") == "COUNT" else {name: [] for name in lists}
        page |= {"Count": 0, "ScannedCount": 0, "ResponseMetadata": no_request()}
        for place, period in enumerate(periods):
            asked = starting({**params, "Limit": left} if counted else params, None if place else start)
            more = yield from read(period, asked)
            if more is None:
                continue
            self._add(page, more)
            if "LastEvaluatedKey" in more:
                page["LastEvaluatedKey"] = more["LastEvaluatedKey"]
                return page
            if counted:
                left -= more["ScannedCount"]
            full = left <= 0 if counted else more["ScannedCount"] > 0
            if full and place + 1 < len(periods):
                # The next table may be deleted, or another one made before it, until the cursor is used.
                mark = _AFTER if period < periods[place + 1] else _BEFORE
                page["LastEvaluatedKey"] = Cursor(None, {}).token(purpose, self.form, f"{period}{mark}")
                return page
        return page

    def _add(self, page: Response, more: Response) -> None:
        for name in ("Count", "ScannedCount", "Items", "Shards"):
            if name in more:
                page[name] += more[name]
        if "ShardErrors" in more:
            page["ShardErrors"] = {**page.get("ShardErrors", {}), **more["ShardErrors"]}
        if "ConsumedCapacity" in more:
            consumed = {**more["ConsumedCapacity"], "TableName": self.series.name}
            page["ConsumedCapacity"] = add_consumed(page.get("ConsumedCapacity"), consumed)
        page["ResponseMetadata"] = more["ResponseMetadata"]


def starting(params: Params, start: Any) -> dict[str, Any]:
    """Return a request that starts somewhere else."""
    rest = {name: value for name, value in params.items() if name != "ExclusiveStartKey"}
    return rest if start is None else {**rest, "ExclusiveStartKey": start}
