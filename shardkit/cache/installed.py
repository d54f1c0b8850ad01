"""The cached tables of an installed client: which of its calls are answered from copies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardkit.cache.options import CacheOptions
from shardkit.cache.reads import CachedReads
from shardkit.cache.runner import AsyncCacheRunner, CacheRunner
from shardkit.cache.source import CachedSource
from shardkit.cache.steps import CacheProgram
from shardkit.core.machine import Response
from shardkit.dynamodb.units import table_name
from shardkit.runtime.targets import is_async
from shardkit.sharding.form import WIRE_VALUES, Form
from shardkit.sharding.layout import Sharding

_BATCH = "BatchGetItem"
_ASKS = "ReturnConsumedCapacity"


@dataclass(frozen=True)
class Uncached:
    """What an installed client offers to its caches.

    Args:
        client: The client.
        call: Makes a call on its tables, past the caches; of an async client, returns an awaitable.
        names: Returns the names of a table's key attributes, or an awaitable of them.
        shardings: Those of its tables that are known so far.
        form: The form of its calls.
    """

    client: Any
    call: Callable[[str, dict[str, Any]], Any]
    names: Callable[[str], Any]
    shardings: Mapping[str, Sharding]
    form: Form


class Caches:
    """The caches of an installed client, by the names of their tables.

    A call that names a table otherwise (by its ARN) goes to the table: that may be another account's of the same name.
    """

    def __init__(self, uncached: Uncached, options: Mapping[str, CacheOptions]) -> None:
        self._uncached = uncached
        self._async = is_async(uncached.client)
        self._runners: dict[str, Any] = {name: self._runner(name, one) for name, one in options.items()}

    def close(self) -> None:
        """End the idle threads of a sync client's caches."""
        for runner in self._runners.values():
            runner.close()

    def _runner(self, name: str, options: CacheOptions) -> CacheRunner | AsyncCacheRunner:
        source = CachedSource(
            client=self._uncached.client,
            name=table_name(name),
            named=name,
            is_part=None,
            load=partial(_load_async if self._async else _load, self._uncached.call),
            names=partial(self._uncached.names, name),
            shardings=self._uncached.shardings,
            form=self._uncached.form,
        )
        return AsyncCacheRunner(source, options) if self._async else CacheRunner(source, options)

    def answers(self, operation: str, params: Mapping[str, Any]) -> bool:
        """Return whether a call reads a cached table in a way that a cache may answer."""
        if operation == _BATCH:
            return any(table in self._runners for table in params["RequestItems"])
        return operation in {"GetItem", "Query"} and params["TableName"] in self._runners

    def answer(self, operation: str, params: dict[str, Any]) -> Any:
        """Return the response to such a call; of an async client, an awaitable."""
        if operation == _BATCH:
            return self._batch_async(params) if self._async else self._batch(params)

        def read(reads: CachedReads) -> CacheProgram[Response]:
            return (reads.get if operation == "GetItem" else reads.query)(operation, params)

        return self._runners[params["TableName"]].run(read)

    def _batch(self, params: dict[str, Any]) -> Response:
        parts, rest = self._parts(params)
        answers = {table: runner.run(read) for table, (runner, read) in parts.items()}
        return _joined(answers, self._uncached.call(_BATCH, rest) if rest else {})

    async def _batch_async(self, params: dict[str, Any]) -> Response:
        parts, rest = self._parts(params)
        answers = {table: await runner.run(read) for table, (runner, read) in parts.items()}
        return _joined(answers, await self._uncached.call(_BATCH, rest) if rest else {})

    def _parts(self, params: dict[str, Any]) -> tuple[dict[str, tuple[Any, Any]], dict[str, Any]]:
        """Return the reads of the cached tables in a batch, and the batch of the others, if there are any."""
        reports = {name: params[name] for name in (_ASKS,) if name in params}
        parts: dict[str, tuple[Any, Any]] = {}
        rest: dict[str, Any] = {}
        for table, part in params["RequestItems"].items():
            runner = self._runners.get(table)
            if runner is None:
                rest[table] = part
            else:
                options = {name: value for name, value in part.items() if name != "Keys"}
                parts[table] = runner, partial(_read_many, table, part["Keys"], options | reports)
        return parts, {**params, "RequestItems": rest} if rest else {}


def _read_many(table: str, keys: Any, options: dict[str, Any], reads: CachedReads) -> CacheProgram[Response]:
    response = yield from reads.get_many(table, keys, options, once=True)
    response["Options"] = {name: value for name, value in options.items() if name != _ASKS}
    return response


def _load(call: Callable[[str, dict[str, Any]], Any], operation: str, params: Mapping[str, Any]) -> Response:
    if "keys" not in params:
        response: Response = call(operation, dict(params))
        return response
    # A part of a batch is loaded under its table's name.
    return _of_table(operation, call(_BATCH, _request(operation, params)))


async def _load_async(
    call: Callable[[str, dict[str, Any]], Awaitable[Any]], operation: str, params: Mapping[str, Any]
) -> Response:
    if "keys" not in params:
        response: Response = await call(operation, dict(params))
        return response
    return _of_table(operation, await call(_BATCH, _request(operation, params)))


def _request(table: str, params: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in params.items() if name not in {"keys", _ASKS}}
    reports = {name: params[name] for name in (_ASKS,) if name in params}
    return {"RequestItems": {table: {**options, "Keys": params["keys"]}}, **reports}


def _of_table(table: str, response: Response) -> Response:
    """Return a batch's response as that of ``ShardedTable.batch_get_items``."""
    left = response.get("UnprocessedKeys", {}).get(table, {})
    answer: Response = {
        "Items": response.get("Responses", {}).get(table, []),
        "UnprocessedKeys": left.get("Keys", []),
        "ResponseMetadata": response.get("ResponseMetadata", {}),
    }
    if response.get("ConsumedCapacity"):
        (answer["ConsumedCapacity"],) = response["ConsumedCapacity"]
    return answer


def _joined(answers: Mapping[str, Response], rest: Response) -> Response:
    """Return the response to the whole batch."""
    response = {**rest}
    response["Responses"] = {**rest.get("Responses", {}), **{table: one["Items"] for table, one in answers.items()}}
    response["UnprocessedKeys"] = {
        **rest.get("UnprocessedKeys", {}),
        **{
            table: {**one["Options"], "Keys": [*map(WIRE_VALUES.shown, one["UnprocessedKeys"])]}
            for table, one in answers.items()
            if one["UnprocessedKeys"]
        },
    }
    consumed = [one["ConsumedCapacity"] for one in answers.values() if "ConsumedCapacity" in one]
    if consumed:
        response["ConsumedCapacity"] = [*rest.get("ConsumedCapacity", ()), *consumed]
    response.setdefault("ResponseMetadata", next(iter(answers.values()))["ResponseMetadata"])
    return response
