"""Read many items by key, in chunks of 100; unprocessed keys are requested again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.in_flight import InFlight
from shardkit.core.machine import Answer, Done, Send, Step
from shardkit.dynamodb.expressions.rewrite import project
from shardkit.dynamodb.service_errors import code_of, is_transient, retry_after
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import ShardkitError, ShardQueryError, brief, shard_error
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions

BATCH_GET_KEYS = 100
"""Keys in one BatchGetItem (API reference)."""

Lookup: TypeAlias = tuple[WireItem, "int | None"]
"""A logical primary key, and the shard to read it from."""


class BatchGet:
    """Reads items; the result is the machine itself, with ``found`` and ``unprocessed``."""

    def __init__(
        self,
        sharding: Sharding,
        places: Sequence[Lookup],
        options: Mapping[str, Any],
        fan_out: FanOutOptions,
    ) -> None:
        options = {name: value for name, value in options.items() if name != "TableName"}
        self._asks = options.pop("ReturnConsumedCapacity", None)
        self._options, self._hidden = project(options, sharding.keys.names)
        self._sharding = sharding
        self._fan_out = fan_out
        self._stored = {self._id(stored): (place, stored) for place in places for stored in [sharding.stored(*place)]}
        keys = [stored for _, stored in self._stored.values()]
        self._chunks = [keys[at : at + BATCH_GET_KEYS] for at in range(0, len(keys), BATCH_GET_KEYS)]
        """The keys of each chunk that are still to be read."""
        numbers = range(len(self._chunks))
        self._requests = InFlight(numbers, concurrency=fan_out.concurrency, timeout=fan_out.timeout)
        self._items: dict[Hashable, WireItem] = {}
        self._errors: dict[int | None, Exception] = {}
        self._error: Exception | None = None
        self._answered = False
        self.consumed: dict[str, Any] | None = None
        self.metadata: dict[str, Any] = {}
        self.unprocessed: list[Lookup] = []

    def next(self, now: float) -> Step[BatchGet]:
        requests = self._requests
        if requests.busy and requests.late(now):
            self._time_is_over()
        if self._error is not None:
            if requests.in_flight and not self._fan_out.cancels:
                return requests.wait(now, answers_only=True)
            for missed in requests.busy:
                self._missed(self._chunks[missed], self._error)
            raise self._failure(self._error)
        number = requests.next(now)
        if number is None:
            return requests.wait(now) if requests.busy else Done(self)
        asked = {**self._options, "Keys": self._chunks[number]}
        params: dict[str, Any] = {"RequestItems": {self._sharding.table: asked}}
        if self._asks is not None:
            params["ReturnConsumedCapacity"] = self._asks
        send = Send("BatchGetItem", params, paced=True)
        requests.sent(send)
        return send

    def may_hedge(self, send: Send, now: float) -> bool:
        """Return whether a request may be sent again (:mod:`shardkit.sharding.hedging`)."""
        # Unprocessed keys are throttled ones: while any wait or are read again, nothing is hedged.
        return send in self._requests.in_flight and self._error is None and not self._requests.tries

    def _time_is_over(self) -> None:
        error = TimeoutError(f"BatchGetItem did not answer within {self._fan_out.timeout} seconds")
        for number in self._requests.busy:
            self._failed(self._chunks[number], error)
        self._requests.drop(self._requests.busy)

    def _failed(self, keys: list[WireItem], error: Exception) -> None:
        self._error = self._error or error
        self._missed(keys, error)

    def _missed(self, keys: list[WireItem], error: Exception) -> None:
        self._errors.update((self._stored[self._id(key)][0][1], error) for key in keys)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        number = self._requests.answered(send)
        if number is None:
            return  # it arrived after the deadline
        chunk = self._chunks[number]
        if isinstance(answer, Exception):
            if not is_transient(answer) or not self._again(number, chunk, answer, now):
                self._requests.done(number)
                self._failed(chunk, answer)
            return
        self._answered = True
        self.metadata = self.metadata or answer.get("ResponseMetadata", {})
        if self._asks not in {None, "NONE"}:
            for consumed in answer.get("ConsumedCapacity", ()):
                self.consumed = add_consumed(self.consumed, consumed)
        # The answer's key is the table's name or its ARN; only one table was requested.
        items = [item for of_table in answer.get("Responses", {}).values() for item in of_table]
        left = [key for of_table in answer.get("UnprocessedKeys", {}).values() for key in of_table["Keys"]]
        for item in items:
            self._items[self._id(item)] = item
        if len(left) < len(chunk):
            self._requests.answered_in_part(number)
        if not left or not self._again(number, left, answer, now):
            self._requests.done(number)
            self.unprocessed += [self._stored[self._id(key)][0] for key in left]
            self._missed(left, ShardkitError(f"the service left keys unprocessed after {ATTEMPTS} tries"))

    @property
    def found(self) -> list[tuple[Lookup, WireItem]]:
        """The items that exist, as stored, each with its place, in the order of the places."""
        return [
            (place, {name: value for name, value in self._items[id_].items() if name not in self._hidden})
            for id_, (place, _) in self._stored.items()
            if id_ in self._items
        ]

    def raise_unprocessed(self) -> None:
        if self.unprocessed:
            shards = [shard for _, shard in self.unprocessed]
            raise ShardQueryError(
                f"{len(shards)} keys were left unprocessed after {ATTEMPTS} tries (shards {brief(shards)}); the table "
                "is short of read units; try again later, or raise its throughput",
                self._errors,
                self._partial(),
            )

    def _failure(self, error: Exception) -> Exception:
        if not self._answered and not isinstance(error, TimeoutError):
            return error
        failure = shard_error(error)(
            f"some of {len(self._stored)} keys could not be read ({error}); partial_items has the items that were, "
            "errors the failed shards; fix the cause and read the rest again",
            self._errors,
            self._partial(),
        )
        failure.__cause__ = error
        return failure

    def _partial(self) -> list[dict[str, Any]]:
        return [self._sharding.to_caller(item) for _, item in self.found]

    def _again(self, number: int, keys: list[WireItem], answer: Answer, now: float) -> bool:
        """Read the keys that are left of a chunk again after a wait, unless it was tried often enough."""
        wait = self._requests.again(number, now, self._fan_out.draw(), asked=retry_after(answer), pause=True)
        if wait is None:
            return False
        code = code_of(answer) if isinstance(answer, Exception) else "UnprocessedKeys"
        self._fan_out.on_retry("BatchGetItem", self._sharding.table, f"{len(keys)} keys", code, wait)
        self._chunks[number] = keys
        return True

    def _id(self, item: WireItem) -> Hashable:
        return comparable_item({name: item[name] for name in self._sharding.keys.names})
