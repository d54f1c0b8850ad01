"""A pass of updates in virtual time: which share of a table's throughput it reaches, beside a naive one and a load.

Items of 500 bytes, each with its own key, on 10 partitions of 100 write units, without burst credit. The pass and the
load are the project's own machines; the naive one scans, and updates the items where the scan is, with as many
requests in flight and botocore's waits.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any

from benchmarks.simulate import EndlessRetries
from shardkit.core.machine import Answer, Program, ProgramMachine, Send
from shardkit.dynamodb.values import WireItem
from shardkit.partitions import Partitions, Simulator
from shardkit.partitions.model import HASHES, hash_of
from shardkit.partitions.scenarios.clients import ATTEMPTS
from shardkit.partitions.simulated_table import SimulatedTable
from shardkit.passes.changing import Changing
from shardkit.passes.choosing import SEGMENTS, Wanted
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Unsharded

PARTITIONS, WRITE_UNITS, ITEMS, WORKERS = 10, 1000, 40_000, 20
_PAGE = 2000  # items of 500 bytes in a page of 1 MB
DESCRIPTION = {
    "TableName": "Orders",
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "ProvisionedThroughput": {"ReadCapacityUnits": 100_000, "WriteCapacityUnits": WRITE_UNITS},
}


class Table:
    """Answers Scans in the order of hashes, and UpdateItem, as the partitions let them."""

    def __init__(self, items: int) -> None:
        self.partitions = Partitions(
            read_units=100_000, write_units=WRITE_UNITS, count=PARTITIONS, burst_seconds=0, adaptive_seconds=None
        )
        keys = [{"S": f"order-{number}"} for number in range(items)]
        self.keys = sorted(((hash_of(key), key) for key in keys), key=itemgetter(0))
        self.updated = self.throttled = 0
        self.ended = 0.0

    def answer(self, send: Send, now: float) -> Answer:
        """Answer a request."""
        params = send.params
        if send.operation == "Scan":
            return self._scan(**params)
        throttle = self.partitions.serve(hash_of(params["Key"]["id"]), "write", 1, now)
        if throttle is not None:
            self.throttled += 1
            return throttle.error(send.operation)
        self.updated, self.ended = self.updated + 1, now
        return {"ConsumedCapacity": {"CapacityUnits": 1.0}}

    def _scan(
        self, *, Segment: int, TotalSegments: int, Limit: int = _PAGE, ExclusiveStartKey: Any = None, **_: Any
    ) -> Answer:
        starts = (HASHES * number // TotalSegments for number in (Segment, Segment + 1))
        first, end = (bisect_left(self.keys, start, key=itemgetter(0)) for start in starts)
        if ExclusiveStartKey is not None:
            first = bisect_right(self.keys, hash_of(ExclusiveStartKey["id"]), key=itemgetter(0))
        items = [self._item(key) for _, key in self.keys[first : min(end, first + min(Limit, _PAGE))]]
        more = {"LastEvaluatedKey": {"id": items[-1]["id"]}} if items and first + len(items) < end else {}
        return {"Items": items, "ScannedCount": len(items), "ConsumedCapacity": {"CapacityUnits": 1.0}, **more}

    @staticmethod
    def _item(key: Any) -> WireItem:
        return {"id": key, "n": {"N": "1"}}

    @property
    def share(self) -> float:
        """Of the provisioned write units, in %."""
        return 100 * self.updated / (WRITE_UNITS * (self.ended + 1))


def passed(items: int = ITEMS, segments: int = SEGMENTS) -> Table:
    """Update every item by a pass."""
    table = Table(items)
    sharding = Sharding.described("Orders", Unsharded(), DESCRIPTION, WIRE_VALUES)
    values = {"ExpressionAttributeValues": {":n": {"N": "2"}}}
    update, draw = Wanted.of(sharding, "UpdateItem", values, "SET n = :n"), random.Random(0).random
    machine = Changing(sharding, update, workers=WORKERS, draw=draw, segments=segments)
    simulator = Simulator(table.answer)
    while not machine.ended:
        simulator.run(machine)
    return table


def loaded(items: int = ITEMS) -> float:
    """Load as many items, mixed, and return the share of the provisioned write units, in %."""
    table = SimulatedTable.described(DESCRIPTION, count=PARTITIONS, burst_seconds=0, adaptive_seconds=None)
    report = Simulator(table).load(({"id": f"order-{number}"} for number in range(items)), workers=WORKERS)
    return 100 * report.written / (WRITE_UNITS * (report.seconds + 1))


def naive(items: int = ITEMS) -> Table:
    """Scan, and update each item where the scan is, with as many requests in flight."""
    table = Table(items)
    simulator = Simulator(table.answer)
    retries = EndlessRetries(ATTEMPTS, simulator.draw)
    keys = iter(table.keys)

    def updates() -> Program[None]:
        for _, key in keys:
            yield from retries.call(Send("UpdateItem", {"Key": {"id": key}}))

    simulator.run_all([ProgramMachine(updates()) for _ in range(WORKERS)])
    return table


def main() -> None:
    """Print what each reaches."""
    print(f"a mixed load: {loaded():.1f}% of the provisioned write units")
    runs = {"naive": naive(), **{f"{number} segments": passed(segments=number) for number in (1, 10, 50, 100, 200)}}
    for name, table in runs.items():
        print(f"{name}: {table.share:.1f}%, {table.throttled:,} throttles, {table.ended:.1f} s")


if __name__ == "__main__":
    main()
