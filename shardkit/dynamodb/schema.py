"""Parts of a table's description: key schemas, indexes, throughput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardkit.dynamodb.sizes import SizedItem, sized
from shardkit.dynamodb.units import write_units
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ConfigurationError, brief


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The key attributes of a table (one of each at most) or of an index (up to four of each)."""

    partition: tuple[str, ...]
    sort: tuple[str, ...] = ()

    @property
    def partition_key(self) -> str:
        return self.partition[0]

    @property
    def names(self) -> tuple[str, ...]:
        return self.partition + self.sort

    @classmethod
    def of(cls, elements: Any, where: str) -> KeySchema:
        """Read boto3's list of ``{"AttributeName", "KeyType"}``; ``where`` names its owner in errors."""
        try:
            schema = cls(
                tuple(str(element["AttributeName"]) for element in elements if element["KeyType"] == "HASH"),
                tuple(str(element["AttributeName"]) for element in elements if element["KeyType"] == "RANGE"),
            )
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f"key_schema: of {where}: not a key schema: {brief(elements, 200)}; give boto3's list, "
                '[{"AttributeName": "Date", "KeyType": "HASH"}, …]'
            ) from error
        if not schema.partition:
            raise ConfigurationError(
                f"key_schema: of {where}: not a key schema, without HASH key: {brief(elements, 200)}"
            )
        return schema


def control_keys(argument: str, table: str, key_schema: Any, definitions: Any) -> tuple[str, ...]:
    """Return the names of a control table's key attributes: a partition key and a sort key, both strings."""
    names = KeySchema.of(key_schema, f"table {table!r}").names
    types = {each["AttributeName"]: each["AttributeType"] for each in definitions}
    if [types.get(name) for name in names] != ["S", "S"]:
        raise ConfigurationError(f"{argument}: table {table!r} must have two keys, both strings; give another")
    return names


_KINDS = {"LocalSecondaryIndexes": True, "GlobalSecondaryIndexes": False}


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index: ``projected`` are the attributes that it contains, including keys (None: all)."""

    name: str
    keys: KeySchema
    local: bool
    projected: frozenset[str] | None

    def entry(self, image: SizedItem | None) -> SizedItem | None:
        """Return the item's entry in the index; None if an index key is missing: an index is sparse."""
        if image is None or not all(name in image.item for name in self.keys.names):
            return None
        if self.projected is None:
            return image
        return sized({name: value for name, value in image.item.items() if name in self.projected})

    def write_units(self, before: SizedItem | None, after: SizedItem | None) -> float:
        """Return what a write of an item costs in this index."""
        old, new = self.entry(before), self.entry(after)
        if old is None or new is None:
            present = old or new
            return write_units(present.size) if present is not None else 0.0
        if self._key(old) != self._key(new):
            # The entry moves: one write deletes the old entry, another puts the new one.
            return write_units(old.size) + write_units(new.size)
        if old.item == new.item or comparable_item(old.item) == comparable_item(new.item):
            return 0.0
        return write_units(max(old.size, new.size))

    def _key(self, entry: SizedItem) -> Any:
        return comparable_item({name: entry.item[name] for name in self.keys.names})


def indexes_of(description: Mapping[str, Any], keys: KeySchema) -> tuple[Index, ...]:
    """Read the indexes of a table's description, as DescribeTable returns it or CreateTable takes it."""
    try:
        return tuple(
            Index(
                str(index["IndexName"]),
                schema := KeySchema.of(index["KeySchema"], f"index {index['IndexName']!r}"),
                local,
                _projected(index["Projection"], keys.names + schema.names),
            )
            for kind, local in _KINDS.items()
            for index in description.get(kind) or ()
        )
    except (KeyError, TypeError) as error:
        raise ConfigurationError(
            f'description: invalid indexes ({error!r}): {brief(description, 200)}; give the "Table" that DescribeTable '
            "returns, where each index has its IndexName, KeySchema and Projection"
        ) from error


def _projected(projection: Mapping[str, Any], keys: tuple[str, ...]) -> frozenset[str] | None:
    kind = projection["ProjectionType"]
    if kind == "ALL":
        return None
    if kind not in {"KEYS_ONLY", "INCLUDE"}:
        raise ConfigurationError(f"ProjectionType: must be ALL, KEYS_ONLY or INCLUDE, got {kind!r}")
    return frozenset((*keys, *(projection.get("NonKeyAttributes") or ())))


_CREATED = ("AttributeDefinitions", "KeySchema")
_CREATED_INDEX = ("IndexName", "KeySchema", "Projection")
_UNITS = ("ReadCapacityUnits", "WriteCapacityUnits")


def definition_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of CreateTable for a table like this one: keys, indexes and billing.

    ``description`` is what DescribeTable returns, or has these arguments already.
    """
    made: dict[str, Any] = {name: description[name] for name in _CREATED if name in description}
    for kind in _KINDS:
        if indexes := description.get(kind):
            made[kind] = [
                {name: index[name] for name in _CREATED_INDEX if name in index} | _provisioned(index)
                for index in indexes
            ]
    described = (description.get("BillingModeSummary") or {}).get("BillingMode")
    provisioned = _provisioned(description)
    mode = description.get("BillingMode") or described or ("PROVISIONED" if provisioned else None)
    return made | provisioned | ({"BillingMode": mode} if mode else {})


def _provisioned(described: Mapping[str, Any]) -> dict[str, Any]:
    units = described.get("ProvisionedThroughput") or {}
    if not all(units.get(name) for name in _UNITS):  # of an on-demand table, 0
        return {}
    return {"ProvisionedThroughput": {name: units[name] for name in _UNITS}}


class UnitsPerSecond(NamedTuple):
    """Read and write units a second; None: not described."""

    read: float | None
    write: float | None


class DescribedThroughput(NamedTuple):
    """The throughput of a table or an index: provisioned, available at once, and the limit set for an on-demand one."""

    provisioned: UnitsPerSecond
    warm: UnitsPerSecond
    maximum: UnitsPerSecond


def throughput_of(described: Mapping[str, Any]) -> DescribedThroughput:
    """Read a ``TableDescription``, or a ``GlobalSecondaryIndexDescription`` in it (API reference)."""
    return DescribedThroughput(
        _read(described, "ProvisionedThroughput", "ReadCapacityUnits", "WriteCapacityUnits"),
        _read(described, "WarmThroughput", "ReadUnitsPerSecond", "WriteUnitsPerSecond"),
        _read(described, "OnDemandThroughput", "MaxReadRequestUnits", "MaxWriteRequestUnits"),
    )


def _read(described: Mapping[str, Any], name: str, read: str, write: str) -> UnitsPerSecond:
    found = described.get(name) or {}
    # -1 means that no maximum is set; an on-demand table has 0 provisioned units.
    values = [found.get(key) for key in (read, write)]
    return UnitsPerSecond(*(float(value) if value is not None and value > 0 else None for value in values))
