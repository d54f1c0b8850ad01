"""``install``: sharded tables behind the clients, resources and sessions that other code holds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from weakref import WeakSet

import boto3
from botocore import register_initializer, unregister_initializer
from botocore.exceptions import ClientError

from shardkit.cache.installed import Caches, Uncached
from shardkit.cache.options import CacheOptions
from shardkit.core.checks import check_side_by_side
from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.requests import tables_of
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.units import table_name
from shardkit.errors import (
    CapacityBudgetError,
    ConfigurationError,
    MissingCredentialsError,
    ShardkitError,
    ShardQueryError,
    UnsupportedOperationError,
    brief,
)
from shardkit.runtime.client_error import as_client_error
from shardkit.runtime.hooks import Answered, LogicalCall, answered, restore, rewrite
from shardkit.runtime.leases import check_requests
from shardkit.runtime.observers import Call
from shardkit.runtime.runner import AsyncClientRunner, ClientRunner, draw_from
from shardkit.runtime.targets import Attachment, SessionAttachment, client_of, events_of_session, is_async
from shardkit.sharding.batches import batch_get, batch_write
from shardkit.sharding.form import WIRE_VALUES, Form
from shardkit.sharding.items import unsharded_response
from shardkit.sharding.layout import Sharding
from shardkit.sharding.leases import Held, leased
from shardkit.sharding.operations import decide
from shardkit.sharding.programs import Programs
from shardkit.sharding.seam import Operations
from shardkit.sharding.transactions import TRANSACTIONS
from shardkit.strategies import Strategy
from shardkit.tables import programs_of

__all__ = ["Installation", "install", "install_everywhere"]

_SEVERAL_TABLES = {
    "BatchGetItem": batch_get,
    "BatchWriteItem": batch_write,
    **TRANSACTIONS,
}


class Installation:
    """Sharded tables on a client, a session or everywhere; ``install()`` returns it.

    Example:
        with install(client, {"Orders": CalculatedSuffix("OrderId", shards=200)}):
            ...
    """

    def __init__(self, tables: Mapping[str, Strategy], uninstall: Callable[[], None]) -> None:
        self._tables = dict(tables)
        self._uninstall = uninstall

    def __repr__(self) -> str:
        return f"Installation({self._tables!r})"

    def uninstall(self) -> None:
        """Stop sharding the calls that begin from now on, and end its idle threads; calling it twice does nothing."""
        self._uninstall()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()


def install(
    target: Any,
    tables: Mapping[str, Strategy],
    *,
    indexes: Mapping[str, Mapping[str, Strategy]] | None = None,
    key_schemas: Mapping[str, Mapping[str, Any]] | None = None,
    max_concurrency: int | None = None,
    rng: random.Random | None = None,
    cache: Mapping[str, CacheOptions] | None = None,
    cursor_secret: bytes | Sequence[bytes] | None = None,
) -> Installation:
    """Shard the calls on tables through a client, a resource or a session, without a change to the code that calls.

    Example:
        resource = boto3.resource("dynamodb")
        install(resource, {"Orders": CalculatedSuffix("OrderId", shards=200)})
        resource.Table("Orders").query(KeyConditionExpression=Key("Date").eq("2014-07-09"))

    Single items, batches, transactions, Query, Scan and paginators have logical keys; batches and transactions may name
    several tables. PartiQL and imports are refused if they name a sharded table. Calls on other tables do not change.

    Args:
        target: A botocore client, boto3 resource or ``Table`` (its client: all tables made from the same resource), an
            aiobotocore client, an aioboto3 resource, or a session of any of them (its DynamoDB clients made from now
            on).
        tables: A strategy for each table name or ARN.
        indexes: By table, the sharded global secondary indexes: a strategy for the name of each, as for
            :class:`ShardedTable`.
        key_schemas: Key schemas by table, as for CreateTable. By default, one DescribeTable per client and table reads
            the key schema when it is first needed, and one GetItem looks for a shard map, as for :class:`ShardedTable`.
        max_concurrency: Concurrent requests of one fan-out, 1 to 1,000; by default the client's
            ``max_pool_connections``.
        rng: The source of random suffixes and jitter; seed it to repeat a run.
        cache: For tables whose popular items are read from memory: how (see ``shardkit.cache.CachedTable``). GetItem,
            BatchGetItem and Query are answered from copies, which each client has of its own. Give a table whose keys
            have no suffix the strategy ``Unsharded()``.
        cursor_secret: Signs ``LastEvaluatedKey``, as for :class:`ShardedTable`. Its one attribute is ``shardkit`` then,
            and a key is refused as ``ExclusiveStartKey``.

    Returns:
        The installation, whose ``uninstall()`` ends it; also a context manager.

    Raises:
        ConfigurationError: An argument is invalid, or the target has an installation already.

    Errors of shardkit that calls raise are also ClientErrors, with the code ``ValidationException``.
    Without ``cursor_secret``, ``LastEvaluatedKey`` has the names of the key's attributes: pass it back unchanged. Its
    partition key has a suffix in a Scan, and in a Query if the shard cannot be calculated from the key.

    Cost: a call whose shard is known is one request, as before; a Query is fanned out (see :meth:`ShardedTable.query`).
    IAM: the permissions of the operations, and ``dynamodb:DescribeTable``.
    """
    given = _Given.checked(tables, indexes, key_schemas, max_concurrency, rng, cache, cursor_secret)
    events = events_of_session(target)
    attachment = _on_client(client_of(target), given) if events is None else _OnSession(events, given)
    return Installation(tables, attachment.detach)


def install_everywhere(
    tables: Mapping[str, Strategy],
    *,
    indexes: Mapping[str, Mapping[str, Strategy]] | None = None,
    key_schemas: Mapping[str, Mapping[str, Any]] | None = None,
    max_concurrency: int | None = None,
    rng: random.Random | None = None,
    cache: Mapping[str, CacheOptions] | None = None,
    cursor_secret: bytes | Sequence[bytes] | None = None,
) -> Installation:
    """Shard the calls on tables through all sessions that are made from now on, for libraries that make their own.

    Example:
        install_everywhere({"Orders": CalculatedSuffix("OrderId", shards=200)})

    Call it before the libraries make their sessions. Of the sessions that exist, it includes only boto3's default one.

    Args:
        tables: As for :func:`install`.
        indexes: As for :func:`install`.
        key_schemas: As for :func:`install`.
        max_concurrency: As for :func:`install`.
        rng: As for :func:`install`.
        cache: As for :func:`install`.
        cursor_secret: As for :func:`install`.

    Returns:
        The installation, as for :func:`install`.

    Raises:
        ConfigurationError: An argument is invalid, or tables are installed everywhere already.

    Cost and IAM are those of :func:`install`. Source: botocore, ``register_initializer``.
    """
    return Installation(
        tables,
        _Everywhere(_Given.checked(tables, indexes, key_schemas, max_concurrency, rng, cache, cursor_secret)).detach,
    )


_lock = threading.RLock()
_sessions: WeakSet[Any] = WeakSet()  # the event emitters of those with an installation
_everywhere: list[_Everywhere] = []  # at most one


@dataclass(frozen=True)
class _Given:
    """What ``install()`` was given, checked."""

    tables: Mapping[str, Strategy]
    indexes: Mapping[str, Mapping[str, Strategy]]
    key_schemas: Mapping[str, Mapping[str, Any]]
    max_concurrency: int | None
    draw: Callable[[], float]
    caches: Mapping[str, CacheOptions]
    form: Form

    @classmethod
    def checked(
        cls,
        tables: Any,
        indexes: Any,
        key_schemas: Any,
        max_concurrency: int | None,
        rng: random.Random | None,
        cache: Any,
        cursor_secret: Any,
    ) -> _Given:
        if not isinstance(tables, Mapping) or not tables or not all(isinstance(name, str) and name for name in tables):
            raise ConfigurationError(
                f"tables: must map table names to strategies, got {brief(tables, 200)}; "
                'for example {"Orders": CalculatedSuffix("OrderId", shards=200)}, or {"Orders": Unsharded()} for a '
                "table that only has a cache or sharded indexes"
            )
        of_tables = {
            name: {} if given is None else given for name, given in (("indexes", indexes), ("key_schemas", key_schemas))
        }
        for name, what in (("indexes", "indexes with strategies"), ("key_schemas", "key schemas")):
            if not isinstance(of_tables[name], Mapping) or of_tables[name].keys() - tables.keys():
                raise ConfigurationError(
                    f"{name}: must map names of tables= ({sorted(tables)}) to {what}, got {brief(of_tables[name], 200)}"
                )
        if max_concurrency is not None:
            check_side_by_side("max_concurrency", max_concurrency)
        caches = {} if cache is None else cache
        if not isinstance(caches, Mapping) or caches.keys() - tables.keys() or not _all_options(caches.values()):
            raise ConfigurationError(
                f"cache: must map names of tables= ({sorted(tables)}) to CacheOptions, got {brief(cache, 200)}; for "
                'example {"Orders": CacheOptions(ttl=30, max_bytes=64_000_000)}'
            )
        made = cls(
            dict(tables),
            dict(of_tables["indexes"]),
            dict(of_tables["key_schemas"]),
            max_concurrency,
            draw_from(rng),
            dict(caches),
            WIRE_VALUES.signing(cursor_secret),
        )
        for name in tables:
            made.programs(name, name, {})
        return made

    def programs(self, table: str, named: str, shardings: dict[str, Sharding]) -> Programs:
        """Return the programs of a table, for calls that name it so: by its name or its ARN."""
        schema, indexes = self.key_schemas.get(table), self.indexes.get(table)
        return programs_of(named, self.tables[table], schema, self.draw, self.form, shardings, indexes)


def _all_options(given: Iterable[Any]) -> bool:
    return all(isinstance(one, CacheOptions) for one in given)


@dataclass(frozen=True)
class _CachedRead:
    """A call that a cache answers: what its program yields in place of a request."""

    operation: str
    params: dict[str, Any]


class _Tables(Attachment):
    """The sharded tables of a client; a :class:`shardkit.runtime.hooks.Rewriter`."""

    def __init__(self, client: Any, given: _Given) -> None:
        self.shardings: dict[str, Sharding] = {}
        self._client = client
        self._given = given
        self._names: dict[str, list[str]] = {}  # by plain name
        for name in given.tables:
            self._names.setdefault(table_name(name), []).append(name)
        # By the names that calls use; None: a table of the same name elsewhere.
        self._programs: dict[str, Programs | None] = {}
        self.redefined(None)
        self._runner = self._runner_of(client)
        self._mapped = {table_name(name) for name, one in self._programs.items() if one is not None and one.leased}
        if self._mapped:
            check_requests(client)
        self._fan_out = self._runner.fan_out(given.draw)
        uncached = Uncached(client, self._call, self._names_of, self.shardings, given.form)
        self._caches = Caches(uncached, given.caches)

    @property
    def strategies(self) -> Mapping[str, Strategy]:
        return self._given.tables

    def _call(self, operation: str, params: dict[str, Any]) -> Any:
        return self._runner.run(self._uncached(operation, params))

    def _names_of(self, table: str) -> Any:
        return self._runner.run(self._names_read(table))

    def _names_read(self, table: str) -> Program[tuple[str, ...]]:
        programs = yield from self._programs_of(table)
        assert programs is not None
        return (yield from programs.key_names())

    def _runner_of(self, client: Any) -> Any:
        return ClientRunner(client, self.shardings, self._given.max_concurrency)

    def detach(self) -> None:
        restore(self._client, self)
        self._close()

    def _close(self) -> None:
        self._runner.close()
        self._caches.close()

    def concerns(self, operation: str, params: Mapping[str, Any]) -> bool:
        name = params.get("TableName")
        # Fast path: this runs for every call of the client.
        if type(name) is str:
            plain = name if ":" not in name else table_name(name)
            if plain not in self._names:
                return False
            sharded = {plain}
        else:
            try:
                sharded = tables_of(Call(operation, dict(params))) & self._names.keys()
            except (AttributeError, LookupError, TypeError):
                return False  # botocore refuses the parameters
        decision = decide(operation)
        if not sharded or decision.action == "forward":
            return False
        if decision.action == "refuse":
            refusal = UnsupportedOperationError(
                f"{operation}: is not supported on the sharded table {min(sharded)!r}: {decision.reason}"
            )
            raise self.error(refusal, operation)
        return True

    def program(self, operation: str, params: dict[str, Any]) -> Program[Response]:
        if self._caches.answers(operation, params):
            return _from_cache(_CachedRead(operation, params))
        return self._uncached(operation, params)

    def _uncached(self, operation: str, params: dict[str, Any]) -> Program[Response]:
        several = _SEVERAL_TABLES.get(operation)
        if several is None:
            return self._on_one(operation, params)
        if self._mapped.isdisjoint(tables_of(Call(operation, params))):
            return several(params, self._known, WIRE_VALUES, self._fan_out)
        return leased(lambda held: several(params, partial(self._known, held=held), WIRE_VALUES, self._fan_out))

    def _on_one(self, operation: str, params: dict[str, Any]) -> Program[Response]:
        programs = yield from self._programs_of(params["TableName"])
        response: Response
        if programs is None:
            response = unsharded_response((yield Send(operation, params)))
        elif operation == "Scan":
            response = yield from programs.scan(params, return_shards=False)
        else:
            run = programs.query if operation == "Query" else partial(programs.item, operation)
            response = yield from run(params, shard=None, return_shards=False, fan_out=self._fan_out)
        return response

    def _known(self, named: str, held: Held | None = None) -> Program[Operations | None]:
        programs = yield from self._programs_of(named)
        if programs is None:
            return None
        return (yield from (programs if held is None else programs.under(held)).known())

    def _programs_of(self, named: str) -> Program[Programs | None]:
        """Return the programs of the table that a call names; None: it is not sharded.

        A name and an ARN name the same table if DescribeTable of the name returns the ARN.
        """
        plain = table_name(named)
        if named in self._programs or plain not in self._names:
            return self._programs.get(named)
        try:
            answer = yield Send("DescribeTable", {"TableName": plain}, joins=True)
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
            return None  # not remembered: another client may create it
        if named in self._programs:  # another thread has described it meanwhile
            return self._programs[named]
        description: Mapping[str, Any] = answer["Table"]
        arn = description.get("TableArn")
        programs = None
        for table in self._names[plain]:
            if all(name in {plain, arn} for name in (table, named)):
                programs = self._given.programs(table, named, self.shardings)
                if table not in self._given.key_schemas:
                    yield from programs.checked(description, waits=False)
        self._programs[named] = programs
        return programs

    def redefined(self, table: str | None) -> None:
        """Forget what is known of a table; None: of all."""
        self._programs = {
            name: programs for name, programs in self._programs.items() if table not in {None, table_name(name)}
        } | {
            name: self._given.programs(name, name, self.shardings)
            for plain, names in self._names.items()
            for name in names
            if table in {None, plain}
        }

    def answer(self, call: LogicalCall) -> Any:
        assert call.program is not None
        begun: Any = call.begun
        with self._errors(call):
            if isinstance(begun, _CachedRead):
                return answered(self._caches.answer(begun.operation, begun.params))
            return answered(self._runner.run(call.program, begun))

    @contextmanager
    def _errors(self, call: LogicalCall) -> Iterator[None]:
        try:
            yield
        except ShardkitError as error:
            raise self.error(error, call.operation) from error.__cause__

    def error(self, error: ShardkitError, operation: str) -> Exception:
        # A budget refuses other calls with the same error, and without credentials there is no ClientError either.
        if isinstance(error, CapacityBudgetError | MissingCredentialsError):
            return error
        cause = next(iter(error.errors.values()), None) if isinstance(error, ShardQueryError) else error
        response = getattr(cause, "response", None) or {
            "Error": {"Code": "ValidationException", "Message": str(error)},
            # What libraries read of any error; no request has this id.
            "ResponseMetadata": {"RequestId": "", "HTTPStatusCode": 400, "HTTPHeaders": {}, "RetryAttempts": 0},
        }
        kind = self._client.exceptions.from_code(response.get("Error", {}).get("Code"))
        return as_client_error(error, kind, response, operation)


class _AsyncTables(_Tables):
    """The sharded tables of an async client."""

    def _close(self) -> None:
        pass  # it has no threads

    def _runner_of(self, client: Any) -> Any:
        return AsyncClientRunner(client, self.shardings, self._given.max_concurrency)

    async def answer(self, call: LogicalCall) -> Answered:
        assert call.program is not None
        begun: Any = call.begun
        with self._errors(call):
            if isinstance(begun, _CachedRead):
                return answered(await self._caches.answer(begun.operation, begun.params))
            return answered(await self._runner.run(call.program, begun))


def _from_cache(read: Any) -> Program[Response]:
    # Not a request, so the call is not sent: ``answer`` is asked, as for every program of several requests.
    response: Response = yield read
    return response


class _OnSession(SessionAttachment):
    """Installs tables on all clients that a session makes from now on."""

    def __init__(self, events: Any, given: _Given) -> None:
        with _lock:
            if events in _sessions:
                raise ConfigurationError(
                    "target: this session has sharded tables installed already; give all tables to one install(), or "
                    "call uninstall() first"
                )
            _sessions.add(events)
        super().__init__(events, lambda client: _on_client(client, given))

    def detach(self) -> None:
        super().detach()
        _sessions.discard(self._events)


class _Everywhere(Attachment):
    """Installs tables on all sessions that are made from now on, and on boto3's default session."""

    def __init__(self, given: _Given) -> None:
        self._given = given
        self._attached: WeakSet[Attachment] = WeakSet()
        with _lock:
            if _everywhere:
                raise ConfigurationError(
                    "tables: sharded tables are installed everywhere already; give all tables to one "
                    "install_everywhere(), or call uninstall() first"
                )
            if boto3.DEFAULT_SESSION is not None:
                self._install(boto3.DEFAULT_SESSION)
            _everywhere.append(self)
        register_initializer(self._install)

    def _install(self, session: Any) -> None:
        self._attached.add(_OnSession(events_of_session(session), self._given))

    def detach(self) -> None:
        with _lock:
            if self not in _everywhere:
                return
            _everywhere.remove(self)
        unregister_initializer(self._install)
        for attached in list(self._attached):
            attached.detach()


def _on_client(client: Any, given: _Given) -> Attachment:
    tables = (_AsyncTables if is_async(client) else _Tables)(client, given)
    rewrite(client, tables)
    return tables
