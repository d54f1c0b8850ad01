"""BatchWriteItem and BatchGetItem over several tables, some of them sharded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardkit.core.machine import Program, ProgramMachine, Response, Send, SideBySide
from shardkit.dynamodb.service_errors import CONFLICTS, code_of, is_throttle
from shardkit.dynamodb.units import add_consumed, table_name
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import (
    ConfigurationError,
    ShardkitError,
    ShardQueryError,
    UnsupportedParameterError,
    brief,
)
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.form import Form
from shardkit.sharding.items import primary_key, with_shown_collection
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, check_keywords, refuse_kept

if TYPE_CHECKING:
    from shardkit.sharding.seam import Operations

Known = Callable[[str], "Program[Operations | None]"]
"""Returns a table's operations, by its name or ARN in a request; None: the table is not sharded."""

_WRITES = {"DeleteRequest": ("DeleteItem", "Key"), "PutRequest": ("PutItem", "Item")}
"""The operation on one item that has the parameters of a batch's write, and which of them is the key or the item."""
_Sent = tuple[WireItem, Params]
"""An item or a key as it is stored, and as the caller gave it."""
_REPORTS = ("ReturnConsumedCapacity", "ReturnItemCollectionMetrics")


@dataclass
class _Writes:
    """The writes of a batch, by table."""

    batch: dict[str, list[Any]] = field(default_factory=dict)
    sent: dict[str, list[_Sent]] = field(default_factory=dict)
    # Those that are requests of their own: because they must find the item first (locate), or because it moves.
    single: list[tuple[str, Any, ProgramMachine[Response]]] = field(default_factory=list)
    sent_singly: dict[str, list[_Sent]] = field(default_factory=dict)
    unprocessed: dict[str, list[Any]] = field(default_factory=dict)
    reads: list[BatchGet] = field(default_factory=list)

    def add(self, table: str, request: Any, program: Program[Response], form: Form, *, batched: bool) -> None:
        """Add a write, whose ``program`` has the request for a batch as its first step, if it may be in one."""
        kind, body = _write_of(request)
        source = _WRITES[kind][1]
        step = next(program)
        if batched and isinstance(step, Send):
            program.close()
            stored = step.params[source]
            self.sent.setdefault(table, []).append((stored, body[source]))
            self.batch.setdefault(table, []).append({kind: {source: stored}})
            return
        self.sent_singly.setdefault(table, []).append((form.item(body[source]), body[source]))
        self.single.append((table, _shown(request, form), ProgramMachine(program, step)))


def named(known: Known, table: str) -> Program[Operations | None]:
    """Return a table's operations for requests that name the table as the caller does."""
    found = yield from known(table)
    return found if found is None or found.table == table else replace(found, table=table)


def batch_write(params: Params, known: Known, form: Form, fan_out: FanOutOptions) -> Program[Response]:
    """Write several items. A write that must find its item first (``locate``) is a request of its own.

    Those are sent first. So a program whose first step is the BatchWriteItem has no other request.
    """
    reports = {name: params[name] for name in _REPORTS if name in params}
    tables: dict[str, Sharding | None] = {}
    writes = _Writes()
    for table, requests in params["RequestItems"].items():
        sharding = tables[table] = yield from named(known, table)
        if sharding is None:
            plain = [(kind, form.params(body), body) for kind, body in map(_write_of, requests)]
            writes.batch[table] = [{kind: wire} for kind, wire, _ in plain]
            writes.sent[table] = [(wire[_WRITES[kind][1]], body[_WRITES[kind][1]]) for kind, wire, body in plain]
            continue
        singles = [(_WRITES[kind][0], {**body, **reports}) for kind, body in map(_write_of, requests)]
        try:
            programs, read = yield from sharding.batched(singles, fan_out)
        except ShardQueryError as error:
            if not _throttled(error):
                raise
            writes.unprocessed[table] = [_shown(request, form) for request in requests]
            continue
        writes.reads += [] if read is None else [read]
        for request, (program, in_batch) in zip(requests, programs, strict=True):
            writes.add(table, request, program, form, batched=in_batch)
    written, unprocessed = yield from _write_singly(writes, tables, fan_out)
    response: Response = {}
    if writes.batch:
        response = yield Send("BatchWriteItem", {**params, "RequestItems": writes.batch})
    for name, requests in response.get("UnprocessedItems", {}).items():
        table = requested_name(tables, name)
        show = _as_given(tables[table], writes.sent.get(table, ()), form)
        unprocessed.setdefault(table, []).extend(
            {kind: {source: show(value)}}
            for request in requests
            for kind, body in request.items()
            for source, value in body.items()
        )
    result = {**shown_metrics(response, tables, form), "UnprocessedItems": unprocessed}
    for table, one in written:
        if one.get("ItemCollectionMetrics"):
            result.setdefault("ItemCollectionMetrics", {}).setdefault(table, []).append(one["ItemCollectionMetrics"])
        _add_capacity(result, one)
    for read in writes.reads:
        _add_capacity(result, {"ConsumedCapacity": read.consumed, "ResponseMetadata": read.metadata})
    return result


def _refuse_two_writes(writes: _Writes, tables: Mapping[str, Sharding | None]) -> None:
    """Refuse a batch that the service would refuse, before single writes are made.

    The key of an unsharded table is not known: of its writes, only equal ones are refused.
    """
    for sent in (writes.sent, writes.sent_singly):
        for table, items in sent.items():
            twice = first_twice(_identity(tables[table], stored) for stored, _ in items)
            if twice is not None:
                raise ConfigurationError(
                    f"RequestItems: must write an item once, got two writes of {brief(dict(items[twice][1]), 200)} on "
                    f"table {table!r}; send them one after the other, because a batch has no order"
                )


def _identity(sharding: Sharding | None, item: WireItem) -> Hashable:
    if sharding is not None:
        return _key_of(sharding, item)
    try:
        return comparable_item(item)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return id(item)  # no item: the service refuses it


def _write_singly(
    writes: _Writes, tables: Mapping[str, Sharding | None], fan_out: FanOutOptions
) -> Program[tuple[list[tuple[str, Response]], dict[str, list[Any]]]]:
    """Make the single writes; return their responses, and the requests that are left unprocessed, by table."""
    written: list[tuple[str, Response]] = []
    unprocessed = writes.unprocessed
    if not writes.single:
        return written, unprocessed
    _refuse_two_writes(writes, tables)
    last: Exception | None = None
    steps = [one for *_, one in writes.single]
    answers = yield SideBySide(steps, fan_out.concurrency)
    for (table, request, _), answer in zip(writes.single, answers, strict=True):
        if not isinstance(answer, Exception):
            written.append((table, answer))
            continue
        if _throttled(answer):
            last = answer
        elif code_of(answer) not in CONFLICTS:  # with a transaction, for example: a batch has no such error
            raise answer
        unprocessed.setdefault(table, []).append(request)
    if last is not None and not written and not writes.batch:
        raise last  # the service does the same if it can process nothing of a batch
    return written, unprocessed


def batch_get(params: Params, known: Known, form: Form, fan_out: FanOutOptions) -> Program[Response]:
    """Read several items. Each table whose items must be searched for (``locate``), or move, has its own requests.

    Those are sent first. So a program whose first step is the BatchGetItem has no other request.
    """
    reports = {name: params[name] for name in _REPORTS if name in params}
    tables: dict[str, Sharding | None] = {}
    batch: dict[str, dict[str, Any]] = {}
    sent: dict[str, list[_Sent]] = {}
    read: dict[str, Response] = {}
    for table, asked in params["RequestItems"].items():
        sharding = tables[table] = yield from named(known, table)
        if sharding is None:
            batch[table] = {**asked, "Keys": [form.item(key) for key in asked["Keys"]]}
            continue
        check_keywords("BatchGetItem", _options(params, table))
        refuse_kept(sharding, asked)
        keys = sharding.keys_in_batch(asked["Keys"])
        if keys is None:
            _refuse_repeated(table, asked["Keys"], [primary_key(sharding, form.item(key)) for key in asked["Keys"]])
            options = {**_options(params, table), **reports}
            read[table] = yield from sharding.get_many(asked["Keys"], options, fan_out)
            continue
        sent[table] = list(zip(keys, asked["Keys"], strict=True))
        batch[table] = {**asked, "Keys": keys}
    response: Response = {}
    if batch:
        response = yield Send("BatchGetItem", {**params, "RequestItems": batch})
    found: dict[str, list[Any]] = {}
    for name, items in response.get("Responses", {}).items():
        table = requested_name(tables, name)
        found[table] = [*map(shows(tables[table], form), items)]
    unprocessed: dict[str, Any] = {}
    for name, left in response.get("UnprocessedKeys", {}).items():
        table = requested_name(tables, name)
        show = _as_given(tables[table], sent.get(table, ()), form)
        unprocessed[table] = {**_options(params, table), "Keys": [*map(show, left["Keys"])]}
    result = {**response, "Responses": found, "UnprocessedKeys": unprocessed}
    for table, one in read.items():
        found[table] = one["Items"]
        if one["UnprocessedKeys"]:
            keys = [form.shown(form.item(key)) for key in one["UnprocessedKeys"]]
            unprocessed[table] = {**_options(params, table), "Keys": keys}
        _add_capacity(result, one)
    return result


def _refuse_repeated(table: str, given: Sequence[Mapping[str, Any]], keys: Iterable[WireItem]) -> None:
    """Refuse what the service refuses, where it is not asked for the keys as they were given."""
    twice = first_twice(map(comparable_item, keys))
    if twice is not None:
        raise repeated(table, given[twice])


def first_twice(keys: Iterable[Hashable]) -> int | None:
    """Return the place of the first key that came before; None: each is there once."""
    seen: set[Hashable] = set()
    for place, key in enumerate(keys):
        if key in seen:
            return place
        seen.add(key)
    return None


def repeated(table: str, key: Mapping[str, Any]) -> ConfigurationError:
    """Return the error for a key that a BatchGetItem names twice."""
    return ConfigurationError(
        f"RequestItems: Provided list of item keys contains duplicates: {brief(dict(key), 200)} on table {table!r}; "
        "give each key once"
    )


def requested_name(names: Collection[str], answered: str) -> str:
    """Return a table's name as the request gave it; the response may have its ARN instead, or its plain name."""
    if answered in names:
        return answered
    alike = (name for name in names if table_name(name) == table_name(answered))
    return next((name for name in alike if ":" not in name or ":" not in answered), answered)  # two ARNs: two tables


def shows(sharding: Sharding | None, form: Form) -> Callable[[WireItem], dict[str, Any]]:
    """Return the function that shows the items of a table in the caller's form."""
    return form.shown if sharding is None else sharding.to_caller


def shown_metrics(response: Params, tables: Mapping[str, Sharding | None], form: Form) -> Response:
    """Return a response whose ``ItemCollectionMetrics``, by table, have logical keys in the caller's form."""
    shown: dict[str, list[Any]] = {}
    for name, metrics in (response.get("ItemCollectionMetrics") or {}).items():
        table = requested_name(tables, name)
        shown[table] = [with_shown_collection(one, shows(tables[table], form)) for one in metrics]
    return {**response, "ItemCollectionMetrics": shown} if shown else dict(response)


def _write_of(request: Params) -> tuple[str, Params]:
    if len(request) != 1 or not _WRITES.keys() >= request.keys():
        raise UnsupportedParameterError(
            f"RequestItems: must have dicts with either {' or '.join(sorted(_WRITES))}, got {brief(request)}; give one "
            "dict for each write"
        )
    ((kind, body),) = request.items()
    return kind, body


def _shown(request: Params, form: Form) -> dict[str, Any]:
    """Return a write of a batch for the caller, who may send it again."""
    kind, body = _write_of(request)
    source = _WRITES[kind][1]
    return {kind: {source: form.shown(form.item(body[source]))}}


def _options(params: Params, table: str) -> dict[str, Any]:
    """Return the options of a table in a BatchGetItem."""
    return {name: value for name, value in params["RequestItems"][table].items() if name != "Keys"}


def _as_given(sharding: Sharding | None, sent: Iterable[_Sent], form: Form) -> Callable[[WireItem], dict[str, Any]]:
    """Return the function that shows an unprocessed item or key as the caller gave it."""
    if sharding is None:
        return form.shown
    given = {_key_of(sharding, stored): item for stored, item in sent}
    return lambda stored: form.shown(form.item(given[_key_of(sharding, stored)]))


def _key_of(sharding: Sharding, item: WireItem) -> Hashable:
    return comparable_item({name: item[name] for name in sharding.key_names})


def _throttled(error: Exception) -> bool:
    """Return whether a located write was throttled: the write, or the search before it."""
    if isinstance(error, ShardQueryError):
        # A ShardkitError there is of keys that the service left unprocessed.
        return all(isinstance(one, ShardkitError) or is_throttle(one) for one in error.errors.values())
    return is_throttle(error)


def _add_capacity(result: Response, one: Response) -> None:
    """Add the consumed capacity of another response to a batch's response."""
    result.setdefault("ResponseMetadata", one.get("ResponseMetadata", {}))
    consumed = one.get("ConsumedCapacity")
    if not consumed:
        return
    parts = result["ConsumedCapacity"] = list(result.get("ConsumedCapacity", ()))
    names = {consumed["TableName"], table_name(consumed["TableName"])}
    for place, part in enumerate(parts):
        if not names.isdisjoint({part["TableName"], table_name(part["TableName"])}):
            parts[place] = add_consumed(part, consumed)
            return
    parts.append(consumed)
