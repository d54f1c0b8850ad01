"""The shard map in a table, and what changes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from shardkit.core.calls import explains_calls
from shardkit.core.machine import Response, Send
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, StageError, brief
from shardkit.migrate.between import described
from shardkit.runtime.drivers import through_client
from shardkit.runtime.targets import client_of, is_async
from shardkit.sharding.layout import Sharding
from shardkit.sharding.shard_map import GENERATION, MAP, ShardMapState, created, grown, map_key
from shardkit.strategies import Strategy, Unsharded

__all__ = ["ShardMapAdmin"]


def service_time(answer: Mapping[str, Any]) -> float:
    """Return the time at which the service answered, in whole seconds since 1970."""
    told = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return time.time() if told is None else parsedate_to_datetime(told).timestamp()


class TooEarlyError(StageError):
    """The step is the right one, and may be taken later: a command can wait for it."""


@explains_calls
class ShardMapAdmin:
    """Create and change the shard map of a table, on which all processes with a :class:`ShardMap` act.

    Example:
        admin = ShardMapAdmin(boto3.resource("dynamodb").Table("Orders"))
        admin.create(CalculatedSuffix("OrderId", shards=200))  # the table's strategy until now
        admin.grow("2014-07-09", shards=400)  # with ShardMap() in every process; again until the stage is "move"

    A change is made on the condition that the map is as it was read. It is refused until every process has left the
    stage before the last one: 630 seconds after the last change. The times are those of DynamoDB's answers, so that
    changes may be made from several machines.

    Args:
        table: A boto3 ``Table``, or a ``ShardedTable``.
        key_schema: The key schema as for CreateTable. By default, one DescribeTable reads it.
        clock: For tests: returns the time in seconds since 1970.

    Raises:
        ConfigurationError: ``table`` is not a boto3 ``Table``, or its map cannot be read.

    Cost: a change is one strongly consistent GetItem and two writes of 1 write unit each.
    IAM: ``dynamodb:GetItem``, ``dynamodb:PutItem``, ``dynamodb:DescribeTable``; to delete it ``dynamodb:DeleteItem``.
    """

    def __init__(
        self, table: Any, *, key_schema: Mapping[str, Any] | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        client, name = client_of(table), getattr(table, "name", None)
        if is_async(client) or not isinstance(name, str):
            raise ConfigurationError(
                f"table: must be a boto3 Table, got {brief(table)}; give boto3.resource('dynamodb').Table('…')"
            )
        self._name = name
        self._through = through_client(client, {})
        self._clock = clock
        self._schema = key_schema
        self._now = 0.0  # of the last answer
        self._seen = ""  # the map's text, as it was read or written last

    def __repr__(self) -> str:
        return f"ShardMapAdmin({self._name!r})"

    def create(self, strategy: Strategy) -> ShardMapState:
        """Create the map of a table that has none.

        Example:
            admin.create(Unsharded())

        Do it before you deploy ``ShardMap()``. Processes that still have the strategy in their code go on as before.

        Args:
            strategy: The strategy of the table's items now.

        Returns:
            The map.

        Raises:
            StageError: The table has a map.
            ConfigurationError: ``strategy`` is not the strategy of a table.

        Cost: 1 write unit. IAM: ``dynamodb:PutItem``.
        """
        state = created(strategy)
        Sharding.described(self._name, strategy, self._described())
        self._put(state, after=None)
        return self._recorded(state)

    def delete(self) -> None:
        """Delete a map by which no move was ever started, such as one of a wrong strategy.

        Example:
            admin.delete()

        First deploy the strategy by which the items are stored in place of ``ShardMap()``: a process that still has it
        acts as before for at most 30 seconds, and then raises ConfigurationError. A map of another strategy refuses
        the right one until it is deleted.

        Raises:
            StageError: A move was started, even if it was taken back; or the map was changed meanwhile.
            ConfigurationError: As :meth:`read`.

        Cost: 1 read unit and 1 write unit. IAM: ``dynamodb:GetItem``, ``dynamodb:DeleteItem``.
        """
        state = self.read()
        if state.new is not None:
            raise StageError(
                f"stage: the shard map of table {self._name!r} has had a move, to {state.new!r}, so a process "
                "or a request may still act on it; keep the map: start(new) moves to another strategy",
                state.stage,
            )
        self._put(None, after=state)

    def read(self) -> ShardMapState:
        """Read the map.

        Example:
            admin.read().stage  # "old"

        Returns:
            The map.

        Raises:
            ConfigurationError: The table has no map, or one that cannot be read.

        Cost: 1 read unit. IAM: ``dynamodb:GetItem``.
        """
        return self._read()[0]

    def exists(self) -> bool:
        """Return whether the table has a map.

        Example:
            admin.exists()  # True

        Cost: 1 read unit. IAM: ``dynamodb:GetItem``.
        """
        return "Item" in self._send("GetItem", Key=self._map_key(), ConsistentRead=True)

    def wait(self) -> float:
        """Return the seconds until the next stage may begin, or another move after the end of one.

        Example:
            time.sleep(admin.wait())

        Returns:
            0 to 631 seconds; 0 in ``"old"``.

        Raises:
            ConfigurationError: As :meth:`read`.

        Cost: 1 read unit. IAM: ``dynamodb:GetItem``.
        """
        state, now = self._read()
        return state.rest(now)

    def start(self, new: Strategy) -> ShardMapState:
        """Start a move of all items to another strategy, with the stage ``"guard"``.

        Example:
            admin.start(CalculatedSuffix("OrderId", shards=400))

        Every process that uses the table must have ``ShardMap()`` as its strategy before: others would miss items.

        Args:
            new: The strategy to move to.

        Returns:
            The map.

        Raises:
            ConfigurationError: Items cannot move from the table's strategy to ``new``.
            StageError: A move is under way, or the last one ended less than 630 seconds ago.

        Cost: as the class.
        """
        return self._change(lambda state: state.started(new))

    def advance(self) -> ShardMapState:
        """Go on to the next stage: from ``"guard"`` to ``"switch"``, and to ``"move"``.

        Example:
            admin.advance().stage  # "switch"

        Returns:
            The map.

        Raises:
            StageError: It is too early (the message says how many seconds), the map was changed meanwhile, no move is
                under way (:meth:`start` begins one, also after :meth:`back`), or the stage is ``"move"``:
                :meth:`finish` ends it.

        Cost: as the class.
        """

        def advanced(state: ShardMapState) -> ShardMapState:
            if state.stage == "move":
                raise StageError(
                    f"stage: table {self._name!r} is in 'move', and items that did not move would not be found "
                    "any more; move all, verify the table, then call finish()",
                    state.stage,
                )
            return state.advanced()

        return self._change(advanced)

    def finish(self) -> ShardMapState:
        """End a move: go on from ``"move"`` to ``"new"``, after all items have moved and the table was verified.

        Example:
            admin.finish().stage  # "new"

        In ``"new"``, items that did not move are not found. So let ``shardkit.migrate.verify`` find none, first.

        Returns:
            The map.

        Raises:
            StageError: As :meth:`advance`; or the stage is not ``"move"``.

        Cost: as the class.
        """

        def finished(state: ShardMapState) -> ShardMapState:
            if state.stage != "move":
                raise StageError(
                    f"stage: must be 'move', got {state.stage!r}; advance to it, and move the items", state.stage
                )
            return state.advanced()

        return self._change(finished)

    def back(self) -> ShardMapState:
        """Go back to the stage before, as far as no item can be lost.

        Example:
            admin.back().stage  # "old": nothing was written to new places

        From ``"guard"`` to ``"old"``, unless the move has been in ``"switch"``. From ``"switch"`` to ``"guard"``,
        unless it has been in ``"move"``. From ``"move"`` to ``"switch"``, with the mover stopped. From ``"new"`` to
        ``"move"``. The last change can be taken back at once.

        Returns:
            The map.

        Raises:
            StageError: Items would be lost; or as :meth:`advance`.

        Cost: as the class.
        """
        return self._change(ShardMapState.returned)

    def grow(
        self,
        key: str | bytes | Mapping[str | bytes, int],
        *,
        shards: int | None = None,
        generation: int | None = None,
    ) -> ShardMapState:
        """Give a logical key, or several, more shards, without moving an item: take the step that is due.

        Example:
            while admin.grow("2014-07-09", shards=400).stage != "move":
                time.sleep(admin.wait())

        Every process that uses the table must have ``ShardMap()`` as its strategy before: others would miss items of
        the key, and store some twice. Call it again, with the same arguments, until the stage is ``"move"``: then all
        processes write new items of the key to its new shards, and read both. That takes 21 minutes. The other keys do
        not change. The table may stay in ``"move"`` for good. Others can grow after the move is finished, which needs
        the mover.

        Args:
            key: The logical partition key; or several, ``{"2014-07-09": 400, "2014-07-10": 200}``.
            shards: How many shards the key gets. With a multiple of those it has, more items keep their place.
            generation: Only if the map still has this generation, as :meth:`read` returned it.

        Returns:
            The map.

        Raises:
            ConfigurationError: The table's strategy is not a CalculatedSuffix or RandomSuffix whose shards are a number
                or a mapping, or the key has as many shards already.
            InvalidKeyError: The key is not of the type of the table's partition key.
            StageError: Another move is under way, it is too early for the next step, or the map has another generation.

        Cost: as the class. Afterwards, a write of a CalculatedSuffix reads the key's old place first (1 read unit).
        """
        name, form = self._plain.partition_key, self._plain.form
        more: Mapping[Any, Any] = key if isinstance(key, Mapping) else {key: shards}
        if not more:
            raise ConfigurationError('key: must name one key or more, got {}; give for example {"2014-07-09": 400}')
        for each in more:
            self._plain.checked(name, form.item({name: each})[name], kind="key")

        def step(state: ShardMapState) -> ShardMapState:
            if generation not in {None, state.generation}:
                had = f"generation: the shard map of table {self._name!r} has {state.generation}, got {generation}"
                raise StageError(f"{had}; read it again", state.stage)
            begun = state.new is not None and state.stage not in {"old", "new"}
            if begun and state.new == grown(state.old, more):
                return state if state.stage == "move" else state.advanced()
            strategy = state.new if state.stage == "new" and state.new is not None else state.old
            return state.started(grown(strategy, more))

        return self._change(step)

    def _change(self, changed: Callable[[ShardMapState], ShardMapState]) -> ShardMapState:
        state, now = self._read()
        to = changed(state)
        if to is state:
            return state
        # Refuse a strategy that the table cannot have, before any process reads it.
        described(self._name, to.strategy, self._described())
        if state.since is None:
            # The process that made the last change ended before it could record when the change was there.
            state = self._recorded(state)
        if seconds := state.wait(to, now):
            raise TooEarlyError(
                f"stage: table {self._name!r} cannot go from {state.stage!r} to {to.stage!r} yet, because requests may "
                f"be under way that were sent in stage {state.before!r}; try again in {seconds:.0f} seconds",
                state.stage,
            )
        self._put(to, after=state)
        return self._recorded(to)

    def _recorded(self, state: ShardMapState) -> ShardMapState:
        """Record the time at which a change was in the map for certain: after the answer to it, or to a read of it."""
        # Not in the change itself: it may take effect long after it was sent.
        known = replace(state, since=self._now + 1.0)  # the service tells whole seconds
        self._put(known, after=state)
        return known

    def _read(self) -> tuple[ShardMapState, float]:
        answer = self._send("GetItem", Key=self._map_key(), ConsistentRead=True)
        state = ShardMapState.of(answer.get("Item"), self._name)
        self._seen = answer["Item"][MAP]["S"]
        return state, self._now

    def _put(self, state: ShardMapState | None, *, after: ShardMapState | None) -> None:
        """Write the map (None: delete it) on condition that what is stored is still ``after`` (None: no map)."""
        key = self._map_key()
        names = {"#name": next(iter(key))}
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#name)"}
        if after is not None:
            # A map that was made after this one was deleted may have the same generation: a late request would replace
            # its strategy. The time may be recorded meanwhile, but tells two maps to delete apart.
            text = self._seen if state is None else self._seen.rpartition('"since":')[0]
            names = {"#name": GENERATION, "#map": MAP}
            condition["ConditionExpression"] = "#name = :seen AND begins_with(#map, :map)"
            condition["ExpressionAttributeValues"] = {":seen": {"N": str(after.generation)}, ":map": {"S": text}}
        item = None if state is None else {**key, **state.to_attributes()}
        self._seen = "" if item is None else item[MAP]["S"]
        operation, given = ("DeleteItem", {"Key": key}) if item is None else ("PutItem", {"Item": item})
        try:
            self._send(operation, **given, ExpressionAttributeNames=names, **condition)
        except Exception as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise
            if self._send("GetItem", Key=key, ConsistentRead=True).get("Item") == item:
                return  # the answer was lost and botocore sent it again, or another process made the same change
            raise StageError(
                f"stage: the shard map of table {self._name!r} "
                + ("exists already; read it" if after is None else "was changed by another process; read it again"),
                "old" if state is None else state.stage,
            ) from error

    def _send(self, operation: str, **params: Any) -> Response:
        answer = self._through(Send(operation, {"TableName": self._name, **params}))
        if isinstance(answer, Exception):
            raise answer
        self._now = service_time(answer) if self._clock is None else self._clock()
        return answer

    def _described(self) -> Mapping[str, Any]:
        if self._schema is None:
            self._schema = self._send("DescribeTable")["Table"]
        return self._schema

    def _map_key(self) -> WireItem:
        return map_key(self._plain.keys, self._plain.types)

    @cached_property
    def _plain(self) -> Sharding:
        """What is known of the table without its map."""
        return Sharding.described(self._name, Unsharded(), self._described())
