"""A caller's parameters in wire form, checked for what every operation refuses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from shardkit.core.checks import check_count
from shardkit.dynamodb.expressions.rewrite import build_conditions, refuse_partition_key
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError, UnsupportedParameterError
from shardkit.sharding.layout import Sharding
from shardkit.sharding.operations import KEYWORDS
from shardkit.strategies import Unsharded

__all__ = [
    "MAX_BUFFER_BYTES",
    "FanOut",
    "check_keywords",
    "checked_types",
    "refuse_stored_keys",
    "shard_given",
    "wire_request",
]

_LEGACY = ("AttributeUpdates", "Expected", "KeyConditions", "QueryFilter", "ScanFilter")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "AttributesToGet": ((list, tuple), "a list of names"),
    "IndexName": ((str,), "a text"),
    **dict.fromkeys(("ExpressionAttributeNames", "ExpressionAttributeValues"), ((Mapping,), "a dict of placeholders")),
    **dict.fromkeys(_LEGACY, ((Mapping,), "a dict of conditions by attribute")),
}
"""What is read here before botocore's validation sees it; expressions are checked where they are parsed."""


def wire_request(sharding: Sharding, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give a request for the sharded table; another table's name is refused, and what the operation does not know."""
    check_keywords(operation, params)
    given = params.get("TableName", sharding.table)
    if given != sharding.table:
        raise ConfigurationError(
            f"TableName={given!r:.200} was given to the sharded table {sharding.table!r}; leave it out, or use that "
            "table's own object"
        )
    return {**sharding.form.params(build_conditions(checked_types(params))), "TableName": sharding.table}


def check_keywords(operation: str, params: Mapping[str, Any]) -> None:
    """Refuse parameters that an operation does not know, with the name that is probably meant."""
    known = KEYWORDS[operation]
    unknown = sorted(params.keys() - known)
    if not unknown:
        return
    # What the methods take beside them, as far as all of the operation's do.
    own = {"BatchGetItem": (), "Scan": ("ReturnShards",)}.get(operation, ("ReturnShards", "Shard"))
    by_folded = {name.casefold(): name for name in (*known, *own)}
    meant = [get_close_matches(name.casefold(), by_folded, n=1) for name in unknown]
    suggestions = ", ".join(by_folded[close] for found in meant for close in found)
    raise UnsupportedParameterError(
        f"{', '.join(unknown)}: {operation} does not know this parameter; "
        + (f"did you mean {suggestions}?" if suggestions else f"give one of {', '.join(sorted(known))}")
    )


def checked_types(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse parameters of a type that boto3 would refuse, as far as shardkit reads them itself."""
    for name, (types, what) in _TYPES.items():
        if name in params and not isinstance(params[name], types):
            raise _wrong_type(name, params[name], what)
    for name in _LEGACY:
        for attribute, condition in params.get(name, {}).items():
            if not isinstance(condition, Mapping):
                raise _wrong_type(f"{name}[{attribute!r:.100}]", condition, "a dict")
            values = condition.get("AttributeValueList", [])
            if not isinstance(values, list | tuple):
                raise _wrong_type(f"{name}[{attribute!r:.100}]['AttributeValueList']", values, "a list")
    return params


def _wrong_type(name: str, given: Any, what: str) -> UnsupportedParameterError:
    return UnsupportedParameterError(
        f"{name} is a {type(given).__name__}: {given!r:.100}; give {what}, or leave it out"
    )


def shard_given(sharding: Sharding, logical: WireValue, shard: Any) -> int:
    """Give the shard that a caller asks for; one that the key has not is refused."""
    # Physical keys are cached, and what has no hash is not looked up there.
    number: Any = shard if isinstance(shard, Hashable) else repr(shard)
    sharding.physical(logical, number)
    return int(number)


def refuse_stored_keys(sharding: Sharding, wire: Mapping[str, Any], *parameters: str) -> None:
    """Refuse expressions that would see the partition key as it is stored; one without a suffix may be seen."""
    if not isinstance(sharding.strategy, Unsharded):
        for parameter in parameters:
            refuse_partition_key(wire, sharding.partition_key, parameter)


MAX_BUFFER_BYTES = 64 * 2**20


def _nobody(operation: str, table: str, what: str, code: str, wait: float | None) -> None:
    """Hear of a retry, and do nothing."""


@dataclass(frozen=True)
class FanOut:
    """How the fan-outs of a table are carried out: ``ShardedTable.with_options`` documents each option.

    ``on_retry`` hears what is asked again: operation, table, which shard or keys, why, and after how many seconds
    (None: a throttle that is not waited for any more).
    """

    concurrency: int
    timeout: float | None = None
    on_shard_error: str = "raise"
    max_buffer_bytes: int = MAX_BUFFER_BYTES
    on_retry: Callable[[str, str, str, str, float | None], object] = _nobody

    def __post_init__(self) -> None:
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
        ):
            raise ConfigurationError(f"timeout={timeout!r} is not a number of seconds above 0; give one, or None")
        if self.on_shard_error not in ("raise", "partial"):
            raise ConfigurationError(f"on_shard_error={self.on_shard_error!r} is neither 'raise' nor 'partial'")
        check_count("max_buffer_bytes", self.max_buffer_bytes, "bytes")
