"""What the calls of a client write to a cached table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from shardkit.cache.entries import Entry, pages_key
from shardkit.cache.reads import CachedReads, entry_of
from shardkit.dynamodb.requests import OPERATIONS, Access, accesses_of, tables_of, writes
from shardkit.dynamodb.units import table_name
from shardkit.dynamodb.values import WireItem
from shardkit.sharding.layout import Sharding, sharding_named

_READ = frozenset({"check", "get"})
_VALUES = "ReturnValues"


class WrittenCall(Protocol):
    """A call of a client: its wire parameters, with keys as they are stored, and the shardings of its tables."""

    operation: str
    params: dict[str, Any]
    shardings: Mapping[str, Sharding]


def written(
    call: WrittenCall, follows: Callable[[str], bool], shardings: Mapping[str, Sharding]
) -> list[tuple[Access, WireItem]]:
    """Return what a call writes to the tables that ``follows``: each access, with its item or key as readers see it.

    ``shardings`` are those of the cached table, whose stored keys other calls may name.
    """
    if not OPERATIONS.get(call.operation):
        return []
    return [
        (access, _shown(call, shardings, access.table, access.attributes))
        for access in accesses_of(call.operation, call.params)
        if access.kind not in _READ and follows(table_name(access.table))
    ]


def rewrites(call: WrittenCall, follows: Callable[[str], bool]) -> bool:
    """Return whether a call may change any item of the tables: PartiQL that writes, or the end of a table."""
    if call.operation == "DeleteTable":
        return follows(table_name(call.params["TableName"]))
    return OPERATIONS.get(call.operation, False) is None and writes(call) and any(map(follows, tables_of(call)))


def changes_of(
    call: WrittenCall,
    parsed: Mapping[str, Any],
    written_items: list[tuple[Access, WireItem]],
    reads: CachedReads,
    shardings: Mapping[str, Sharding],
    named: str,
    holds: Callable[[bytes], bool],
) -> dict[bytes, Entry | None]:
    """Return what is known of each written item after a call: its entry, or None if that is unknown.

    ``parsed`` is the wire response, or the error under ``Error``; ``named`` is the name or ARN of the cached table;
    ``holds`` returns whether there is a copy to replace.
    """
    changes: dict[bytes, Entry | None] = {}
    # A transaction may have been made earlier: one with the same token is not made again, and succeeds all the same.
    unknown = "Error" in parsed or bool(parsed.get("UnprocessedItems")) or call.operation == "TransactWriteItems"
    for access, item in written_items:
        entry: Entry | None = None
        key = reads.key(item)
        # By another name, it may be another account's table of the same plain name.
        if unknown or access.table != named or not holds(key):
            pass
        elif access.kind == "put":
            entry = entry_of(item)
        elif access.kind == "delete":
            entry = entry_of(None)
        elif call.params.get(_VALUES) == "ALL_NEW" and "Attributes" in parsed:
            entry = entry_of(_shown(call, shardings, access.table, parsed["Attributes"]))
        changes[key] = entry
    return changes | dict.fromkeys(keys_of_pages(written_items, reads))


def keys_of_pages(written_items: list[tuple[Access, WireItem]], reads: CachedReads) -> Iterator[bytes]:
    """Yield the keys of the versions of the pages that writes make old."""
    if reads.cache.options.query_ttl is not None:
        for _, item in written_items:
            yield pages_key(reads.prefix, item[reads.names[0]])
        if written_items:
            yield pages_key(reads.prefix, None)


def _shown(call: WrittenCall, shardings: Mapping[str, Sharding], table: str, item: Mapping[str, Any]) -> WireItem:
    sharding = call.shardings.get(table) or sharding_named(shardings, table)
    return dict(item) if sharding is None else sharding.logical_item(dict(item))
