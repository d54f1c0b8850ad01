"""The requests of one operation on items that move: after a conflict with a transaction, they are sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.core.backoff import ATTEMPTS, backoff_seconds
from shardkit.core.machine import Program, Response, Send, Wait
from shardkit.dynamodb.service_errors import CONFLICTS, PASSING_REASONS, code_of, refused_parts, retry_after
from shardkit.dynamodb.units import add_consumed
from shardkit.sharding.parameters import FanOutOptions


@dataclass
class Sending:
    """Sends the requests of an operation on one table, and adds up what they consumed if the caller ``asked``."""

    table: str
    fan_out: FanOutOptions
    asked: str | None = None
    consumed: dict[str, Any] | None = None

    def __call__(self, operation: str, params: Mapping[str, Any]) -> Program[Response]:
        """Send a request; the table's name and what the caller wants to know of its units are added."""
        if not operation.startswith("Transact"):
            params = {**params, "TableName": self.table}
        if self.asked is not None:
            params = {**params, "ReturnConsumedCapacity": self.asked}
        tries = 0
        while True:
            try:
                response: Response = yield Send(operation, params, part=True)
            except Exception as error:
                tries += 1
                code = _conflict(error)
                if code is None or tries == ATTEMPTS:
                    raise
                # botocore does not send these again, and here the transaction may be shardkit's own.
                wait = backoff_seconds(tries, self.fan_out.draw(), asked=retry_after(error))
                self.fan_out.on_retry(operation, self.table, "1 item", code, wait)
                now: float = yield Wait()
                yield Wait(now + wait)
            else:
                consumed = response.get("ConsumedCapacity")
                for one in consumed if isinstance(consumed, list) else (consumed,):
                    self.consumed = self.consumed if not one else add_consumed(self.consumed, one)
                return response


def _conflict(error: Exception) -> str | None:
    """Return the code of an error for which the same request is to be sent again; None: it has another meaning."""
    passing = sorted(refused_parts(error) & PASSING_REASONS)
    return code_of(error) if code_of(error) in CONFLICTS else next(iter(passing), None)


def failed_condition(error: Exception) -> bool:
    return code_of(error) == "ConditionalCheckFailedException"


def item_there(error: Exception) -> dict[str, Any] | None:
    """Return the item on which a condition failed; None: there is none."""
    response = getattr(error, "response", None)
    return response.get("Item") if isinstance(response, dict) else None
