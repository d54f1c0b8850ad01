"""The async ShardedCounter.

Generated from shardkit/counter.py by .ci/generate_aio.py: change it there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Never, Self, TypeVar
from uuid import uuid4

from shardkit.core.calls import explains_calls
from shardkit.core.machine import Program
from shardkit.errors import ConfigurationError
from shardkit.runtime.client_table import table_of
from shardkit.runtime.runner import AsyncRunner, draw_from
from shardkit.sharding import counter
from shardkit.sharding.counter import CounterPlace, CounterValue
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs
from shardkit.strategies import RandomSuffix

__all__ = ["CounterValue", "ShardedCounter"]

T = TypeVar("T")


@explains_calls
class ShardedCounter:
    """Count in one attribute of one key, spread over shards: each add goes to a random one, a read adds them up.

    Example:
        views = ShardedCounter(client, {"Page": "home"}, "Views", shards=20, table_name="Pages")
        await views.add()
        seen = await views.value()
        seen.total

    Each shard is an item of its own, under the key with a suffix (``home.1`` to ``home.20``); the first add creates it.

    Args:
        table: An aiobotocore client or aioboto3 ``Table``; or an async ``ShardedTable`` with ``RandomSuffix``, whose shards of the key are used.
        key: The logical primary key.
        attribute: The attribute that holds the count, a number.
        shards: The number of shards, 1 to 1,000,000; needed without a ``ShardedTable``. You may raise it while the counter
            is in use, first where it is read, then where it is added to. Never lower it: the shards above it would no
            longer be read.
        table_name: The table's name, with a client.
        key_schema: As for ``ShardedTable``, if ``table`` is not one.
        rng: The source of random shards and jitter; seed it to repeat a run.

    Raises:
        ConfigurationError: An argument is invalid; in every method, ``attribute``.
        InvalidKeyError: In every method: ``key`` is not a primary key of the table.

    Cost: none. Before the first call one DescribeTable, unless the key schema is given.
    """

    def __init__(
        self,
        table: Any,
        key: Mapping[str, Any],
        attribute: str,
        *,
        shards: int | None = None,
        table_name: str | None = None,
        key_schema: Mapping[str, Any] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        runner = getattr(table, "runner", None)
        if isinstance(runner, AsyncRunner):
            options = {"shards": shards, "table_name": table_name, "key_schema": key_schema, "rng": rng}
            if given := [name for name, value in options.items() if value is not None]:
                raise ConfigurationError(
                    f"{', '.join(given)}: must not be given with a ShardedTable, which has its own; omit it, or give "
                    "the wrapped table (orders.table)"
                )
            counter.check_strategy(runner.programs.strategy)
            self._fan_out: FanOutOptions = table.fan_out
        elif shards is None:
            raise ConfigurationError("shards: missing; it is needed without a ShardedTable; give, for example, shards=10")
        else:
            table = table_of(table, table_name)
            client = table.meta.client
            runner = AsyncRunner(client, Programs(table.name, RandomSuffix(shards), key_schema, draw_from(rng)), None)
            self._fan_out = runner.fan_out(runner.programs.draw)
        self._runner = runner
        self._key = dict(key) if isinstance(key, Mapping) else key
        self._attribute = attribute

    def __repr__(self) -> str:
        programs = self._runner.programs
        return f"ShardedCounter({programs.table!r}, {self._key!r}, {self._attribute!r}, {programs.strategy!r})"

    async def add(self, amount: int | Decimal = 1, *, token: str | None = None, **refused: Never) -> None:
        """Add a number to the counter.

        Example:
            await views.add()
            await views.add(5, token=str(request_id))

        An add is sent once. If it is throttled, it is sent again, to another shard, because it was not made. If the
        answer is lost (a timeout, a closed connection, a server error), the add may have been made or not, so it is not
        repeated: not by shardkit, and not by botocore.

        Args:
            amount: What to add; negative to subtract.
            token: 1 to 36 characters that are unique to this add. The add is then a transaction, which the service
                makes once per token: shardkit repeats it after a lost answer, and you can repeat the call for ten
                minutes. Keep the number of shards the same for that time.
            refused: Nothing else may be given. Conditions and ``ReturnValues`` would see one shard, not the total.

        Raises:
            UnknownOutcomeError: The answer was lost (without ``token``).
            UnsupportedExpressionError: A condition, or ``ReturnValues``, was given.
            UnsupportedParameterError: Another keyword was given.
            InvalidValueError: ``amount`` is not an int or a finite Decimal of at most 38 digits.
            ConfigurationError: ``token`` is not a str of 1 to 36 characters.

        Cost: one UpdateItem, 1 write unit (per KB of the shard's item); with ``token`` one TransactWriteItems, 2 write
        units.
        IAM: ``dynamodb:UpdateItem``.
        """
        counter.refuse(refused)
        number = counter.amount_of(amount)
        if token is None:
            await self._run(lambda place: counter.add(place, number, self._fan_out))
        else:
            await self._run(lambda place: counter.add_with_token(place, number, token, self._fan_out))

    async def value(self, *, ConsistentRead: bool = False) -> CounterValue:
        """Read the counter.

        Example:
            seen = await views.value()
            print(seen.total, "views, read for", seen.read_units, "read units")

        The shards are read one by one, not at one moment. If ``ConsistentRead`` is True, all amounts are positive, and
        nobody resets meanwhile, the total is at least that at the start of the call, and at most that at its end.

        Args:
            ConsistentRead: As for boto3's ``batch_get_item``.

        Returns:
            The total, the read units that it consumed, and the count of each shard.

        Raises:
            ConfigurationError: The attribute is not a number in a shard.
            ShardQueryError: Some shards could not be read.

        Cost: one BatchGetItem per 100 shards; 0.5 read units per shard (``ConsistentRead=True``: 1), also for shards
        without an item.
        IAM: ``dynamodb:BatchGetItem``.
        """
        return await self._run(lambda place: counter.value(place, self._fan_out, consistent=ConsistentRead))

    async def reset(self) -> Decimal:
        """Subtract what the counter holds, and return it.

        Example:
            store_daily_views(await views.reset())

        Nothing is lost: an add that is made meanwhile is in the returned sum, or stays in the counter. Two resets at
        once never return the same add. Each shard that was reset gets the attribute ``shardkit:reset``.

        Returns:
            The sum of what was subtracted from the shards.

        Raises:
            ConfigurationError: The attribute is not a number in a shard; nothing was subtracted.
            ShardQueryError: Some shards could not be read; nothing was subtracted.
            IncompleteResetError: A shard could not be reset; ``taken`` is what was subtracted from those before it, and
                ``unknown`` what may have been subtracted from it.

        Cost: a consistent read of all shards, as for :meth:`value`; then one UpdateItem (1 write unit) for each shard
        that is not 0, one after another.
        IAM: ``dynamodb:BatchGetItem``, ``dynamodb:UpdateItem``.
        """
        return await self._run(lambda place: counter.reset(place, uuid4().hex, self._fan_out))

    async def close(self) -> None:
        """Close what the counter has opened, as ``ShardedTable.close``; a later call opens it again."""
        await self._runner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, program: Callable[[CounterPlace], Program[T]]) -> T:
        value: T = await self._runner.run(self._placed(program))
        return value

    def _placed(self, program: Callable[[CounterPlace], Program[T]]) -> Program[T]:
        sharding = yield from self._runner.programs.known()
        return (yield from program(CounterPlace.of(sharding, self._key, self._attribute)))
