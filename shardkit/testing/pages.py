"""A page of a Query or a Scan: of which partitions it is read, and what it costs by all that it evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardkit.dynamodb.estimator import TableUnits
from shardkit.dynamodb.expressions.tokens import name_of, parts, rebuilt, taken_placeholders
from shardkit.dynamodb.requests import equals_of
from shardkit.dynamodb.schema import Index
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import apportion, read_units, table_name
from shardkit.partitions.admission import Demand
from shardkit.partitions.model import HASHES
from shardkit.testing.actions import Request, Tables
from shardkit.testing.partitioned import Cost, Item, Key, PartitionedTable

__all__ = ["Page", "page_of"]

# What only says which of the evaluated items are shown, and how.
_SHOWN = frozenset({"AttributesToGet", "ConditionalOperator", "FilterExpression", "ProjectionExpression", "QueryFilter",
                    "ReturnConsumedCapacity", "ScanFilter", "Select"})  # fmt: skip
_WHOLE = frozenset({"ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"})


@dataclass(frozen=True, kw_only=True)
class Page:
    """One request of a Query or a Scan.

    Args:
        request: the request.
        table: its table.
        index: the index that it reads, if it does.
        expected: the least that it costs, and of which partition: of a Scan, that where it goes on.
        fetch: it asks a local index for attributes that are not projected.
    """

    request: Request
    table: PartitionedTable
    index: Index | None
    expected: Cost
    fetch: bool

    def evaluated(self, body: Mapping[str, Any]) -> Request | None:
        """Give the request that answers with all that was evaluated; None: the answer has it."""
        params = self.request.params
        shown = _SHOWN.intersection(params) - {"ReturnConsumedCapacity"}
        scanned = body.get("ScannedCount", 0)
        if not scanned or not shown or (shown == {"Select"} and params["Select"] in _WHOLE):
            return None
        kept = {name: value for name, value in params.items() if name not in _SHOWN}
        whole = rebuilt({**kept, "Limit": scanned}, {}, released=taken_placeholders(params))
        return Request(self.request.operation, {**whole, **({"Select": "ALL_ATTRIBUTES"} if self.fetch else {})})

    def cost(self, items: Sequence[Item]) -> Cost:
        """Say what the page cost that evaluated these items, each partition for its share."""
        params = self.request.params
        name = None if self.index is None else self.index.name
        units = self.table.admission.estimator.query(
            items, index=name, consistent=bool(params.get("ConsistentRead")), fetch=self.fetch
        )
        if self.request.operation == "Query" or not items:
            (demand,) = self.expected.demands
            return self.expected._replace(units=units, demands=[demand._replace(units=units.total)])
        sizes: dict[tuple[Demand, Key], float] = {}
        for item in items:
            _, demands, keys, _ = self.table.read(name, item, TableUnits())
            place = demands[0], keys[0]
            sizes[place] = sizes.get(place, 0.0) + item_size(item)
        shares = apportion(units.total, sizes)
        demands = [demand._replace(units=share) for (demand, _), share in shares.items()]
        return Cost(units, demands, [key for _, key in shares])


def page_of(request: Request, tables: Tables) -> Page:
    """Read a Query or a Scan of a table that is simulated.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: it is no such request; the engine says what is wrong.
    """
    params = request.params
    table = tables[table_name(params["TableName"])]
    name = params.get("IndexName")
    index = None if name is None else table.admission.indexes[name]
    least = TableUnits(read_units(0, consistent=bool(params.get("ConsistentRead"))))
    if request.operation == "Query":
        expected = table.read(name, equals_of(params), least)
    elif params.get("ExclusiveStartKey"):
        expected = table.read(name, params["ExclusiveStartKey"], least)
    else:
        begin = HASHES * params.get("Segment", 0) // params.get("TotalSegments", 1)
        partitions = table.partitions[None if index is None or index.local else name]
        expected = Cost(least, [Demand(partitions, begin, "read", least.total)], ())
    return Page(request=request, table=table, index=index, expected=expected, fetch=_fetches(params, index))


def _fetches(params: Mapping[str, Any], index: Index | None) -> bool:
    """Say whether a local index is asked for what it does not hold."""
    if index is None or not index.local or index.projected is None:
        return False
    return params.get("Select") == "ALL_ATTRIBUTES" or not index.projected.issuperset(_asked(params))


def _asked(params: Mapping[str, Any]) -> Iterable[str]:
    text = params.get("ProjectionExpression", "")
    return [
        *(name_of(params, part.text) for part in parts(text) if part.kind == "path"),
        *params.get("AttributesToGet", ()),
    ]
