"""The table behind a cache: a boto3 ``Table``, a ``ShardedTable``, or an object with the methods of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from boto3.resources.base import ServiceResource

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.runner import AsyncRunner, Runner, draw_from, runner_of
from shardkit.runtime.targets import is_async
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.programs import Programs
from shardkit.strategies import Unsharded

_BATCH = "batch_get_items"


@dataclass(frozen=True, kw_only=True)
class CachedSource:
    """The table behind a cache.

    Args:
        client: Its client.
        name: Its name.
        named: Its name or ARN, as requests have it.
        is_part: Returns whether a table of some name is one of those that it is made of; None: it is one table.
        load: Reads from it: an operation and its parameters.
        names: Returns the names of its key attributes, or an awaitable of them.
        shardings: Those of its tables that are known so far, as requests name them.
        form: The caller's form, with the secrets of the table's cursors.
    """

    client: Any
    name: str
    named: str
    is_part: Callable[[str], bool] | None
    load: Callable[[str, Mapping[str, Any]], Any]
    names: Callable[[], Any]
    shardings: Mapping[str, Sharding]
    form: Form

    def follows(self, name: str) -> bool:
        """Return whether a table of this name is the table, or part of it."""
        return name == self.name or (self.is_part is not None and self.is_part(name))


def source_of(table: Any, key_schema: Mapping[str, Any] | None = None) -> CachedSource:
    """Return a sync table as what a cache reads from.

    Raises:
        ConfigurationError: It is not a sync table.
    """
    client = _client_of(table)
    if client is None or is_async(client):
        give = "give boto3.resource('dynamodb').Table('…')" if client is None else "use shardkit.aio.CachedTable for it"
        raise ConfigurationError(f"table: must be a boto3 Table or a ShardedTable, got {brief(table)}; {give}")
    runner = getattr(table, "runner", None)
    if isinstance(table, ServiceResource):
        runner = runner_of(table)
        if key_schema is not None:
            runner.programs.describe(key_schema)
    sharded = runner if isinstance(runner, Runner) else None

    def load(operation: str, params: Mapping[str, Any]) -> Any:
        if operation != _BATCH or sharded is None or hasattr(table, _BATCH):
            return getattr(table, operation)(**params)
        return sharded.run(_batch(sharded, **params))

    def names() -> tuple[str, ...]:
        if sharded is not None:
            return sharded.run(sharded.programs.key_names())
        return _schema(table, table.key_schema if key_schema is None else key_schema["KeySchema"])

    return _source(table, sharded, load, names)


def async_source_of(table: Any, key_schema: Mapping[str, Any] | None = None) -> CachedSource:
    """Return an async table as what a cache reads from.

    Raises:
        ConfigurationError: It is not an async table.
    """
    client = _client_of(table)
    if client is None or not is_async(client):
        of_client = "give shardkit.aio.ShardedTable(client, strategy, table_name='…')"
        give = of_client if client is None else "use shardkit.cache.CachedTable for it"
        raise ConfigurationError(
            f"table: must be an aioboto3 Table or an async ShardedTable, got {brief(table)}; {give}"
        )
    runner = getattr(table, "runner", None)
    if isinstance(table, ServiceResource):
        name = cast("Any", table).name
        runner = AsyncRunner(client, Programs(name, Unsharded(), key_schema, draw_from(None)), None)
    sharded = runner if isinstance(runner, AsyncRunner) else None

    async def load(operation: str, params: Mapping[str, Any]) -> Any:
        if operation != _BATCH or sharded is None or hasattr(table, _BATCH):
            return await getattr(table, operation)(**params)
        return await sharded.run(_batch(sharded, **params))

    async def names() -> tuple[str, ...]:
        if sharded is not None:
            return await sharded.run(sharded.programs.key_names())
        return _schema(table, await table.key_schema if key_schema is None else key_schema["KeySchema"])

    return _source(table, sharded, load, names)


def _client_of(table: Any) -> Any:
    meta = getattr(table, "meta", None)
    return getattr(meta, "client", None) if hasattr(table, "get_item") and hasattr(table, "name") else None


def _source(
    table: Any, runner: Runner | AsyncRunner | None, load: Callable[..., Any], names: Callable[[], Any]
) -> CachedSource:
    programs, name = None if runner is None else runner.programs, table_name(table.name)
    # Of an object with a table's methods, it is not known how many tables it has.
    is_part = programs.is_part if programs is not None else lambda table: table.startswith(f"{name}-")
    return CachedSource(
        client=table.meta.client,
        name=name,
        named=table.name,
        is_part=is_part,
        load=load,
        names=names,
        shardings={} if programs is None else programs.shardings,
        form=PYTHON_VALUES if programs is None else programs.form,
    )


def _batch(runner: Runner | AsyncRunner, keys: Any, **options: Any) -> Program[Response]:
    """Return the program that reads many items of a plain table, whose class has no such method."""
    programs = runner.programs
    return programs.batch_get_items(keys, options, fan_out=runner.fan_out(programs.draw))


def _schema(table: Any, key_schema: Any) -> tuple[str, ...]:
    return KeySchema.of(key_schema, f"table {table.name!r}").names
