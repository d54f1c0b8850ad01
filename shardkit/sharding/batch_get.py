"""Read many items by key, in chunks of 100; unprocessed keys are requested again."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from shardkit.core.backoff import ATTEMPTS, backoff_seconds
from shardkit.core.machine import Answer, Done, Send, Step, Wait
from shardkit.dynamodb.expressions.rewrite import project
from shardkit.dynamodb.service_errors import code_of, is_transient, retry_after
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import ShardkitError, ShardQueryError
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOut

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
        fan_out: FanOut,
    ) -> None:
        options = {name: value for name, value in options.items() if name != "TableName"}
        self._asks = options.pop("ReturnConsumedCapacity", None)
        self._options, self._hidden = project(options, sharding.keys.names)
        self._sharding = sharding
        self._fan_out = fan_out
        self._deadline: float | None = None
        self._stored = {self._id(stored): (place, stored) for place in places for stored in [sharding.stored(*place)]}
        keys = [stored for _, stored in self._stored.values()]
        self._chunks = deque(keys[at : at + BATCH_GET_KEYS] for at in range(0, len(keys), BATCH_GET_KEYS))
        self._asked: dict[Send, list[WireItem]] = {}
        self._items: dict[Hashable, WireItem] = {}
        self._tries = 0
        self._not_before = 0.0
        self._errors: dict[int | None, Exception] = {}
        self._error: Exception | None = None
        self._answered = False
        self.consumed: dict[str, Any] | None = None
        self.metadata: dict[str, Any] = {}
        self.unprocessed: list[Lookup] = []

    def next(self, now: float) -> Step[BatchGet]:
        if self._deadline is None and self._fan_out.timeout is not None:
            self._deadline = now + self._fan_out.timeout
        if self._deadline is not None and now >= self._deadline and (self._asked or self._chunks):
            self._time_is_over()
        if self._error is not None:
            if self._asked and not self._fan_out.cancels:
                return Wait(self._deadline)
            for chunk in self._chunks:
                self._missed(chunk, self._error)
            raise self._failure(self._error)
        if self._chunks and len(self._asked) < self._fan_out.concurrency:
            if now < self._not_before:
                return Wait(self._not_before if self._deadline is None else min(self._deadline, self._not_before))
            chunk = self._chunks.popleft()
            params: dict[str, Any] = {"RequestItems": {self._sharding.table: {**self._options, "Keys": chunk}}}
            if self._asks is not None:
                params["ReturnConsumedCapacity"] = self._asks
            send = Send("BatchGetItem", params, paced=True)
            self._asked[send] = chunk
            return send
        return Wait(self._deadline) if self._asked else Done(self)

    def may_hedge(self, send: Send, now: float) -> bool:
        """Return whether a request may be sent again (:mod:`shardkit.sharding.hedging`)."""
        # Unprocessed keys are throttled ones: while any wait or are read again, nothing is hedged.
        return send in self._asked and self._error is None and not self._tries

    def _time_is_over(self) -> None:
        error = TimeoutError(f"BatchGetItem did not answer within {self._fan_out.timeout} seconds")
        for chunk in (*self._asked.values(), *self._chunks):
            self._failed(chunk, error)
        self._asked.clear()
        self._chunks.clear()

    def _failed(self, chunk: list[WireItem], error: Exception) -> None:
        self._error = self._error or error
        self._missed(chunk, error)

    def _missed(self, keys: list[WireItem], error: Exception) -> None:
        self._errors.update((self._stored[self._id(key)][0][1], error) for key in keys)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        chunk = self._asked.pop(send, None)
        if chunk is None:
            return  # it arrived after the deadline
        if isinstance(answer, Exception):
            if is_transient(answer) and self._tries < ATTEMPTS:
                self._again(chunk, answer, now)
            else:
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
            self._tries = 0
        if left and self._tries < ATTEMPTS:
            self._again(left, answer, now)
        else:
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
                f"{len(shards)} keys were left unprocessed after {ATTEMPTS} tries (shards {shards!r:.100}); the table "
                "is short of read units; try again later, or raise its throughput",
                self._errors,
                self._partial(),
            )

    def _failure(self, error: Exception) -> Exception:
        if not self._answered and not isinstance(error, TimeoutError):
            return error
        failure = ShardQueryError(
            f"some of {len(self._stored)} keys could not be read ({error}); partial_items has the items that were, "
            "errors the failed shards; fix the cause and read the rest again",
            self._errors,
            self._partial(),
        )
        failure.__cause__ = error
        return failure

    def _partial(self) -> list[dict[str, Any]]:
        return [self._sharding.to_caller(item) for _, item in self.found]

    def _again(self, keys: list[WireItem], answer: Answer, now: float) -> None:
        self._tries += 1
        wait = backoff_seconds(self._tries, self._fan_out.draw(), asked=retry_after(answer))
        code = code_of(answer) if isinstance(answer, Exception) else "UnprocessedKeys"
        self._fan_out.on_retry("BatchGetItem", self._sharding.table, f"{len(keys)} keys", code, wait)
        self._not_before = max(self._not_before, now + wait)
        self._chunks.append(keys)

    def _id(self, item: WireItem) -> Hashable:
        return comparable_item({name: item[name] for name in self._sharding.keys.names})
