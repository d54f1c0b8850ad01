"""What a table's description says: key schemas, indexes, throughput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardkit.dynamodb.sizes import SizedItem, sized
from shardkit.dynamodb.units import write_units
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The key attributes of a table (one of each at most) or of an index (up to four of each)."""

    partition: tuple[str, ...]
    sort: tuple[str, ...] = ()

    @property
    def partition_key(self) -> str:
        """The partition key's name."""
        return self.partition[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, the partition key first."""
        return self.partition + self.sort

    @classmethod
    def of(cls, elements: Any, where: str) -> KeySchema:
        """Read boto3's list of ``{"AttributeName", "KeyType"}``."""
        try:
            schema = cls(
                tuple(str(element["AttributeName"]) for element in elements if element["KeyType"] == "HASH"),
                tuple(str(element["AttributeName"]) for element in elements if element["KeyType"] == "RANGE"),
            )
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f"the key schema of {where} cannot be read: {elements!r:.200}; give boto3's list, "
                '[{"AttributeName": "Date", "KeyType": "HASH"}, …]'
            ) from error
        if not schema.partition:
            raise ConfigurationError(f"the key schema of {where} names no HASH key: {elements!r:.200}")
        return schema


_KINDS = {"LocalSecondaryIndexes": True, "GlobalSecondaryIndexes": False}


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index.

    Args:
        name: its name.
        keys: its own key schema.
        local: whether it is a local secondary index, which shares the table's partitions.
        projected: the names of the attributes that it holds, keys among them; None: all of the item's.
    """

    name: str
    keys: KeySchema
    local: bool
    projected: frozenset[str] | None

    def entry(self, image: SizedItem | None) -> SizedItem | None:
        """Give what the index holds of an item; None where it holds nothing: an index is sparse."""
        if image is None or not all(name in image.item for name in self.keys.names):
            return None
        if self.projected is None:
            return image
        return sized({name: value for name, value in image.item.items() if name in self.projected})

    def write_units(self, before: SizedItem | None, after: SizedItem | None) -> float:
        """Give what a write of an item costs here, by what the index held of it before and holds after."""
        old, new = self.entry(before), self.entry(after)
        if old is None or new is None:
            present = old or new
            return write_units(present.size) if present is not None else 0.0
        if self._key(old) != self._key(new):
            # Its entry moves: one write deletes the old one, another puts the new one.
            return write_units(old.size) + write_units(new.size)
        if old.item == new.item or comparable_item(old.item) == comparable_item(new.item):
            return 0.0
        return write_units(max(old.size, new.size))

    def _key(self, entry: SizedItem) -> Any:
        return comparable_item({name: entry.item[name] for name in self.keys.names})


def indexes_of(description: Mapping[str, Any], keys: KeySchema) -> tuple[Index, ...]:
    """Read the indexes of what DescribeTable answers under ``Table``, or of what CreateTable takes.

    Raises:
        ConfigurationError: an index cannot be read.
    """
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
            f"the indexes of a table cannot be read ({error!r}): {description!r:.200}; give what DescribeTable answers "
            'under "Table", where each index has its IndexName, KeySchema and Projection'
        ) from error


def _projected(projection: Mapping[str, Any], keys: tuple[str, ...]) -> frozenset[str] | None:
    kind = projection["ProjectionType"]
    if kind == "ALL":
        return None
    if kind not in {"KEYS_ONLY", "INCLUDE"}:
        raise ConfigurationError(f"the projection of an index is ALL, KEYS_ONLY or INCLUDE, got {kind!r}; give one")
    return frozenset((*keys, *(projection.get("NonKeyAttributes") or ())))


class UnitsPerSecond(NamedTuple):
    """Read and write units a second; None: not said."""

    read: float | None
    write: float | None


class Throughput(NamedTuple):
    """What is said of a table or of an index.

    Args:
        provisioned: what it has; an on-demand one has none.
        warm: what it can take at once.
        maximum: what an on-demand one is let take at the most.
    """

    provisioned: UnitsPerSecond
    warm: UnitsPerSecond
    maximum: UnitsPerSecond


def throughput_of(described: Mapping[str, Any]) -> Throughput:
    """Read a ``TableDescription``, or a ``GlobalSecondaryIndexDescription`` in it.

    Source:
        DynamoDB API reference, ``ProvisionedThroughputDescription``, ``TableWarmThroughputDescription``,
        ``OnDemandThroughput``.
    """
    return Throughput(
        _read(described, "ProvisionedThroughput", "ReadCapacityUnits", "WriteCapacityUnits"),
        _read(described, "WarmThroughput", "ReadUnitsPerSecond", "WriteUnitsPerSecond"),
        _read(described, "OnDemandThroughput", "MaxReadRequestUnits", "MaxWriteRequestUnits"),
    )


def _read(described: Mapping[str, Any], name: str, read: str, write: str) -> UnitsPerSecond:
    found = described.get(name) or {}
    # -1 is how the service says that there is no maximum; 0 is what an on-demand table has provisioned.
    values = [found.get(key) for key in (read, write)]
    return UnitsPerSecond(*(float(value) if value is not None and value > 0 else None for value in values))
