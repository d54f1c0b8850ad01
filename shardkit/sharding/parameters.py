"""Check a caller's parameters and convert them to wire values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shardkit.core.checks import check_count, check_number, did_you_mean
from shardkit.core.machine import Machine
from shardkit.dynamodb.expressions.rewrite import (
    build_conditions,
    refuse_attributes,
    refuse_partition_key,
    select_instead,
)
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError, UnsupportedParameterError, brief
from shardkit.sharding.hedging import QUANTILES, Hedgeable, HedgeAfter, Hedges, Hedging
from shardkit.sharding.layout import Sharding
from shardkit.sharding.operations import KEYWORDS
from shardkit.sharding.spread import plain
from shardkit.strategies import Unsharded
from shardkit.strategies.suffixes import check_shard

T = TypeVar("T")
Params = Mapping[str, Any]
"""The parameters of a request, in the caller's form or in wire form."""

PROJECTIONS = ("AttributesToGet", "ProjectionExpression")
_LEGACY = ("AttributeUpdates", "Expected", "KeyConditions", "QueryFilter", "ScanFilter")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "AttributesToGet": ((list, tuple), "a list of names"),
    "IndexName": ((str,), "a str"),
    **dict.fromkeys(("ExpressionAttributeNames", "ExpressionAttributeValues"), ((Mapping,), "a dict of placeholders")),
    **dict.fromkeys(_LEGACY, ((Mapping,), "a dict of conditions by attribute")),
}
"""Parameters that shardkit reads before botocore validates them; expressions are checked where they are parsed."""


class AddedToken(str):
    """A ``ClientRequestToken`` that botocore added to a caller's transaction."""

    __slots__ = ()


_ADDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"), ("ReturnShards", "Shard")),
    "Scan": ("ReturnShards",),
}
"""The keywords that the methods of ShardedTable add."""

NOT_OF_WHOLE_SCANS = ("ExclusiveStartKey", "Segment", "TotalSegments")
"""Parameters of Scan that ``scan_items`` refuses."""


def wire_request(sharding: Sharding, operation: str, params: Params) -> dict[str, Any]:
    """Return the wire parameters of a request; refuse unknown parameters and another table's name."""
    check_keywords(operation, params)
    given = params.get("TableName", sharding.table)
    if given != sharding.table:
        raise ConfigurationError(
            f"TableName: {brief(given, 200)} is not this sharded table ({sharding.table!r}); omit it, or call the "
            "other table's object"
        )
    wire = {**sharding.form.params(build_conditions(checked_types(params))), "TableName": sharding.table}
    refuse_kept(sharding, wire)
    return wire


def refuse_kept(sharding: Sharding, options: Params) -> None:
    """Refuse projections that mention the attributes which shardkit keeps for indexes."""
    refuse_attributes(options, sharding.sharded.kept, *PROJECTIONS)


def check_keywords(operation: str, params: Params, *added: str, refused: Iterable[str] = ()) -> None:
    """Refuse unknown parameters; those that are ``refused`` later, for another reason, are not suggested."""
    known = KEYWORDS[operation].union(added)
    if params.keys() <= known:
        return
    unknown = sorted(params.keys() - known)
    known = known.difference(refused)
    given = ", ".join(name + did_you_mean(name, (*known, *_ADDED.get(operation, ()))) for name in unknown)
    raise UnsupportedParameterError(f"{given}: not a parameter of {operation}; give one of {', '.join(sorted(known))}")


def checked_types(params: Params) -> Mapping[str, Any]:
    """Refuse parameters of a wrong type, as boto3 would, where shardkit reads them first."""
    if _TYPES.keys().isdisjoint(params):  # fast path: most writes have none of them
        return params
    for name, (types, what) in _TYPES.items():
        if name in params and not isinstance(params[name], types):
            raise _wrong_type(name, params[name], what)
    for name in _LEGACY:
        for attribute, condition in params.get(name, {}).items():
            if not isinstance(condition, Mapping):
                raise _wrong_type(f"{name}[{brief(attribute)}]", condition, "a dict")
            values = condition.get("AttributeValueList", [])
            if not isinstance(values, list | tuple):
                raise _wrong_type(f"{name}[{brief(attribute)}]['AttributeValueList']", values, "a list")
    return params


def _wrong_type(name: str, given: Any, what: str) -> UnsupportedParameterError:
    return UnsupportedParameterError(f"{name}: must be {what}, got {type(given).__name__}: {brief(given)}")


def shard_given(sharding: Sharding, logical: WireValue, shard: Any) -> int:
    """Return the shard given as ``Shard=``; refuse one that the key does not have."""
    check_shard("Shard", shard, sharding.shards(logical), plain(logical))
    return int(shard)


def refuse_stored_keys(sharding: Sharding, wire: Mapping[str, Any], *parameters: str) -> None:
    """Refuse expressions that read the partition key, which is stored with a suffix (not with ``Unsharded``)."""
    if not isinstance(sharding.strategy, Unsharded):
        for parameter in parameters:
            refuse_partition_key(wire, sharding.partition_key, parameter)


def stored_filters(sharding: Sharding, wire: dict[str, Any], *parameters: str) -> dict[str, Any]:
    """Return a read whose filters compare stored values; refuse those that cannot."""
    refuse_stored_keys(sharding, wire, *parameters)
    index = sharding.sharded.get(wire.get("IndexName"))
    if index is not None and index.strategy.source is not None:
        # An index may have no copy of the source, and then the filter would drop all items.
        why = f"it is the partition key of index {index.name!r}; query the index, or scan the table"
        refuse_attributes(wire, {index.logical_name} - {*sharding.keys.names}, *parameters, why=why)
    return sharding.sharded.filtered(wire, *parameters) if sharding.sharded else wire


def projected(sharding: Sharding, wire: dict[str, Any]) -> dict[str, Any]:
    """Return a read of an index whose projection has its stored key instead of the source.

    The service refuses to select an attribute that the index does not have, and an index of keys has no source.
    """
    index = sharding.sharded.get(wire.get("IndexName"))
    if index is None or index.strategy.source in {None, *sharding.keys.names}:
        return wire
    return select_instead(wire, index.logical_name, index.stored_name)


MAX_BUFFER_BYTES = 64 * 2**20
_CONNECTIONS_A_HEDGE = 10


def _ignore(operation: str, table: str, what: str, code: str, wait: float | None) -> None:
    pass


@dataclass(frozen=True)
class FanOutOptions:
    """How a table's fan-outs are run; ``ShardedTable.with_options`` documents the options.

    ``draw`` returns a random number from [0, 1), for suffixes and jitter. ``on_retry`` is called for each retry, with
    the operation, table, shard or keys, error code, and the wait in seconds (None: given up). A table's views share
    ``hedges``. ``cancels``: the driver can cancel requests in flight, so a failure is raised at once. Otherwise, it is
    raised when the other requests have been answered.
    """

    connections: int
    draw: Callable[[], float]
    timeout: float | None = None
    on_shard_error: str = "raise"
    max_buffer_bytes: int = MAX_BUFFER_BYTES
    hedge_after: HedgeAfter | None = None
    hedges: Hedges = field(default_factory=Hedges)
    on_retry: Callable[[str, str, str, str, float | None], object] = _ignore
    cancels: bool = False

    def __post_init__(self) -> None:
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
        ):
            raise ConfigurationError(f"timeout: must be a number > 0 (seconds) or None, got {timeout!r}")
        if self.on_shard_error not in ("raise", "partial"):
            raise ConfigurationError(f"on_shard_error: must be 'raise' or 'partial', got {self.on_shard_error!r}")
        check_count("max_buffer_bytes", self.max_buffer_bytes, "bytes")
        if self.hedge_after is None:
            return
        if isinstance(self.hedge_after, str):
            if self.hedge_after not in QUANTILES:
                raise ConfigurationError(
                    f"hedge_after: must be a number > 0 (seconds), 'p95', 'p99' or None, got {brief(self.hedge_after)}"
                )
        else:
            check_number("hedge_after", self.hedge_after, "seconds", above=True)
        if not self.concurrency:
            raise ConfigurationError(
                f"hedge_after: must be None with max_concurrency=1, got {self.hedge_after!r}; set max_concurrency=2 or "
                "more, because hedges need their own connection"
            )

    @property
    def concurrency(self) -> int:
        """The number of concurrent requests of a fan-out, without hedges."""
        return self.connections - self._reserved

    @property
    def _reserved(self) -> int:
        # Without reserved connections, a hedge would wait for the slow requests that it should overtake.
        return 0 if self.hedge_after is None else max(1, self.connections // _CONNECTIONS_A_HEDGE)

    def hedged(self, machine: Hedgeable[T]) -> Machine[T]:
        """Return the machine, with hedges if ``hedge_after`` is set."""
        if self.hedge_after is None:
            return machine
        return Hedging(machine, self.hedges, after=self.hedge_after, connections=self._reserved)
