"""A table with simulated partitions: decides whether they take a request, and counts the units of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shardkit.capacity.charge import KeyValue, keys_of
from shardkit.core.heavy_hitters import HeavyHitters
from shardkit.dynamodb.estimator import ItemChange, TableUnits
from shardkit.dynamodb.service_errors import Kind, Throttle
from shardkit.dynamodb.units import table_name
from shardkit.partitions.admission import Admission, Demand
from shardkit.partitions.model import Partitions, hash_of
from shardkit.partitions.partition import LIMITS

Item = Mapping[str, Any]
"""An item, or a key, in wire values."""

Key = tuple["str | None", KeyValue, int]
"""A global index's name (None: the table), a partition key's value there, and its hash."""

_KEYS = 10_000  # counted separately; exact if there are no more keys


class Cost(NamedTuple):
    """What a read or a write costs: units for the answer, demands on partitions, and the keys of these demands."""

    units: TableUnits
    demands: Sequence[Demand]
    keys: Sequence[Key]
    stored: ItemChange = ItemChange(None, None)


class PartitionedTable:
    """A table with simulated partitions: those of the table (None), and of each global index by its name."""

    def __init__(self, description: Mapping[str, Any], partitions: Mapping[str | None, Partitions]) -> None:
        self.name = table_name(str(description["TableName"]))
        self.admission = Admission(description, partitions)
        self.partitions = partitions
        self.asked: Mapping[Kind, HeavyHitters[Key]] = {kind: HeavyHitters(_KEYS) for kind in LIMITS}
        self.refused: Mapping[Kind, HeavyHitters[Key]] = {kind: HeavyHitters(_KEYS) for kind in LIMITS}
        self.throttles: Counter[str] = Counter()
        self._names = {id(of): name for name, of in partitions.items()}

    def primary_key(self, attributes: Item) -> dict[str, Any]:
        return {name: attributes[name] for name in self.admission.keys.names}

    def write(
        self, key: Item, change: ItemChange, *, transactional: bool = False, units: TableUnits | None = None
    ) -> Cost:
        """Return what a write costs: ``units``, or by its change."""
        taken = units or self.admission.units_of(change, transactional=transactional)
        demands = list(self.admission.of_write(key, change, taken))
        return Cost(taken, demands, list(self._keys(demands, (key, *change))), change)

    def read(self, index: str | None, key: Item, units: TableUnits) -> Cost:
        demands = [self.admission.of_read(index, key, units.total)]
        return Cost(units, demands, list(self._keys(demands, (key,))))

    def take(self, cost: Cost, now: float) -> Throttle | None:
        """Take the expected cost of a request and return None, or take nothing and return the throttle."""
        throttle = self.admission.take(cost.demands, now)
        if throttle is not None:
            self.throttles[throttle.reason] += 1
            for key, demand in zip(cost.keys, cost.demands, strict=False):
                if demand.partitions.resource == throttle.resource:
                    self.asked[demand.kind].add(key, demand.units, second=int(now))
                    self.refused[demand.kind].add(key, demand.units, second=int(now))
        return throttle

    def settle(self, expected: Cost, took: Cost, now: float) -> None:
        """Correct the expected cost of a request to what it took, and store its data."""
        left: dict[Demand, float] = {}
        for sign, demands in ((1.0, took.demands), (-1.0, expected.demands)):
            for demand in demands:
                place = demand._replace(units=0.0)
                left[place] = left.get(place, 0.0) + sign * demand.units
        for (partitions, hashed, kind, _), units in left.items():
            if units:
                partitions.take(hashed, kind, units, now)
        for key, demand in zip(took.keys, took.demands, strict=False):
            self.asked[demand.kind].add(key, demand.units, second=int(now))
        self.admission.store(took.stored, now)

    def _keys(self, demands: Iterable[Demand], images: Sequence[Item | None]) -> Iterator[Key]:
        for partitions, hashed, _, _ in demands:
            name = self._names[id(partitions)]
            schema = self.admission.keys if name is None else self.admission.indexes[name].keys
            for image in images:
                values = [] if image is None else [image[part] for part in schema.partition if part in image]
                if len(values) == len(schema.partition) and hash_of(*values) == hashed:
                    shown = [keys_of(next(iter(value.items())), None)[0] for value in values]
                    yield name, shown[0] if len(shown) == 1 else tuple(shown), hashed
                    break
