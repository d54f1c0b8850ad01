"""A caller's parameters in wire form, checked for what every operation refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkit.codec import to_wire_params
from shardkit.errors import ConfigurationError
from shardkit.expressions import build_conditions, refuse_partition_key
from shardkit.sharding import Sharding
from shardkit.suffix import Unsharded

__all__ = ["refuse_stored_keys", "wire_request"]


def wire_request(sharding: Sharding, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give a request for the sharded table; another table's name is refused."""
    given = params.get("TableName", sharding.table)
    if given != sharding.table:
        raise ConfigurationError(
            f"TableName={given!r:.200} was given to the sharded table {sharding.table!r}; leave it out, or use that "
            "table's own object"
        )
    return {**to_wire_params(build_conditions(params)), "TableName": sharding.table}


def refuse_stored_keys(sharding: Sharding, wire: Mapping[str, Any], *parameters: str) -> None:
    """Refuse expressions that would see the partition key as it is stored; one without a suffix may be seen."""
    if not isinstance(sharding.strategy, Unsharded):
        for parameter in parameters:
            refuse_partition_key(wire, sharding.partition_key, parameter)
