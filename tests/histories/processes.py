"""The processes of a history: workers on each face, loads that are resumed, and movers."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from shardkit import ShardedTable, ShardMap, bulk_load
from shardkit.cache import CachedTable, MemoryStore
from shardkit.migrate import move
from shardkit.sharding.shard_map import EFFECT_SECONDS, MAP_LEASE_SECONDS
from tests.functional.contract.faces import AsyncFace, InstalledFace, SyncFace
from tests.histories.faults import plant
from tests.histories.linearizable import ANY, FAILED
from tests.histories.records import Recorder, lines

SESSION = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name="us-east-1")
# What gets no answer is not sent again by the client: the operation has an unknown outcome.
OPTIONS: dict[str, Any] = {"retries": {"total_max_attempts": 1}, "connect_timeout": 5, "read_timeout": 5}

LEASE_SECONDS = 0.6
"""What the 30 seconds of a lease take here: its clocks run so much faster."""
AGE_SECONDS = 1.8
"""How old a signature may be here, for 600 seconds."""
LEASE_RATE = MAP_LEASE_SECONDS / LEASE_SECONDS
ADMIN_RATE = (MAP_LEASE_SECONDS + EFFECT_SECONDS) / (LEASE_SECONDS + AGE_SECONDS)
TTL_SECONDS = 0.4

PARTITIONS = ("k0", "k1")
REGISTERS = tuple(f"r{number}" for number in range(8))
"""The sort keys of items that are written again and again."""
STEADY = tuple(f"p{number:02}" for number in range(30))
"""Those of items that are there all the time."""
LOADED, LOAD_SECONDS = 40, 0.8  # the items of a load, and the rest after it

WORKERS = ["client", "direct", "installed client", "installed resource", "cached"]
if find_spec("aiobotocore") is not None:
    WORKERS += ["aio", "direct aio"]

Key = tuple[str, str]


@dataclass(frozen=True)
class Job:
    """What a process is to do.

    ``stop`` and ``ahead`` are in shared memory: whether it is over, and by how many seconds its clock is ahead.
    """

    name: str
    kind: str
    table: str
    endpoint: str
    folder: Path
    seed: int
    fault: str
    trusted: bool
    """Whether the engine's DeleteItem returns the old item as it was (DynamoDB Local's does not)."""
    stop: Any
    ahead: Any

    def run(self) -> None:
        plant(self.fault)
        # A load goes on where a process before this one was killed.
        name = self.kind if self.kind == "load" else self.name
        recorder = Recorder(self.folder / f"{name}.jsonl", name)
        {"load": load, "mover": mover}.get(self.kind, work)(self, recorder)

    def clocks(self) -> tuple[float, float]:
        """Return the clocks of leases: one that goes on, and one that is set back and forth."""
        return time.monotonic() * LEASE_RATE, (time.time() + self.ahead.value) * LEASE_RATE

    def sharded(self, **options: Any) -> ShardedTable:
        return ShardedTable(self.resource().Table(self.table), ShardMap(clock=self.clocks), **options)

    @property
    def connection(self) -> dict[str, Any]:
        """What a client is made with. By the access key, the proxy tells the process."""
        keys = {"aws_access_key_id": self.name.replace("#", "").replace(" ", ""), "aws_secret_access_key": "testing"}
        return {"endpoint_url": self.endpoint, **keys}

    def resource(self) -> Any:
        return SESSION.resource("dynamodb", config=Config(**OPTIONS, max_pool_connections=20), **self.connection)


@contextmanager
def face_table(job: Job) -> Iterator[Any]:
    """Open the table through the face of a worker."""
    resource, name, strategy = job.resource(), job.kind, ShardMap(clock=job.clocks)
    table = resource.Table(job.table)
    if name == "cached":
        store = MemoryStore(10_000_000, clock=time.monotonic)  # the clock of the records
        yield CachedTable(job.sharded(), store=store, ttl=TTL_SECONDS, absent_ttl=TTL_SECONDS)
    elif name.endswith("aio"):
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        loop, config = asyncio.new_event_loop(), AioConfig(**OPTIONS)
        opening = get_session().create_client("dynamodb", region_name="us-east-1", config=config, **job.connection)
        client = loop.run_until_complete(opening.__aenter__())
        face = AsyncFace(resource, client, loop, "direct" if name.startswith("direct") else "client")
        yield face.sharded(table, strategy)
        loop.run_until_complete(opening.__aexit__(None, None, None))
    elif name.startswith("installed"):
        target = resource
        if name == "installed client":
            target = SESSION.client("dynamodb", config=Config(**OPTIONS), **job.connection)
        yield InstalledFace(resource, target).sharded(table, strategy)
    else:
        yield SyncFace(resource, "direct" if name == "direct" else "client").sharded(table, strategy)


def work(job: Job, recorder: Recorder) -> None:
    """Make one operation after another, until it is over."""
    with face_table(job) as table:
        kind = CachedWorker if job.kind == "cached" else Worker
        # An event loop has one thread.
        made = [kind(job, table, recorder, str(number)) for number in range(1 if job.kind.endswith("aio") else 3)]
        threads = [threading.Thread(target=worker.run, daemon=True) for worker in made[1:]]
        for thread in threads:
            thread.start()
        made[0].run()
        for thread in threads:
            thread.join()


@dataclass
class Worker:
    """Makes operations, and writes each down before and after."""

    job: Job
    table: Any
    recorder: Recorder
    name: str
    seen: dict[Key, Any] = field(default_factory=dict)
    written: int = 0

    def run(self) -> None:
        self.rng = Random(f"{self.job.seed} {self.job.name} {self.name}")
        kinds = self.kinds()
        while not self.job.stop.value:
            self.rng.choices([*kinds], [*kinds.values()])[0]()

    def kinds(self) -> dict[Callable[[], None], int]:
        every = {
            self.get: 24, self.put: 10, self.put_new: 8, self.swap: 8, self.set: 6, self.add: 10, self.delete: 8,
            self.batch_get: 4, self.batch_write: 1, self.query: 8, self.query_local: 3, self.query_global: 2,
            self.query_items: 6, self.scan_items: 3,
        }  # fmt: skip
        # An installed client refuses a Scan while items move, and its paginators are its pages.
        return {kind: share for kind, share in every.items() if "_items" not in kind.__name__ or not self.installed}

    @property
    def installed(self) -> bool:
        return self.job.kind.startswith("installed")

    def record(self, kind: str, *given: Any, run: Callable[[], Any]) -> Any:
        """Make an operation; return its answer, or None."""
        number = self.recorder.begin(kind, *given)
        try:
            answer = run()
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                self.recorder.end(number, FAILED)
            else:
                self.recorder.lost(number, error)
        except Exception as error:  # noqa: BLE001 - the check says which may be
            self.recorder.lost(number, error)
        else:
            self.recorder.end(number, answer)
            return answer
        return None

    def key(self) -> Key:
        return self.rng.choice(PARTITIONS), self.rng.choice(REGISTERS)

    def value(self) -> str:
        self.written += 1
        return f"{self.job.name}.{self.name}.{self.written}"

    # One item.

    def get(self, kind: str = "get", **options: Any) -> None:
        key = self.key() if self.rng.random() < 0.8 else (self.rng.choice(PARTITIONS), self.rng.choice(STEADY))
        options = options or {"ConsistentRead": True}
        found = self.record(kind, key, run=lambda: shown(self.table.get_item(Key=named(key), **options).get("Item")))
        self.seen[key] = found[0] if found else None

    def put(self, kind: str = "put", *before: Any, key: Key | None = None, **condition: Any) -> None:
        key, value = key or self.key(), self.value()

        def run() -> str:
            self.table.put_item(Item=item(key, value), **condition)
            return ANY

        self.record(kind, key, *before, value, run=run)

    def put_new(self) -> None:
        self.put("put_new", ConditionExpression="attribute_not_exists(pk)")

    def swap(self) -> None:
        key = self.key()
        old = self.seen.get(key) or "none"
        self.put("swap", old, key=key, ConditionExpression="v = :v", ExpressionAttributeValues={":v": old})

    def set(self) -> None:
        value = self.value()
        self.update("set", value, "SET v = :v", {":v": value}, ConditionExpression="attribute_exists(pk)")

    def add(self) -> None:
        self.update("add", None, "ADD n :v", {":v": 1}, ReturnValues="ALL_NEW")

    def update(self, kind: str, value: str | None, expression: str, values: dict[str, Any], **more: Any) -> None:
        key = self.key()
        # With the keys of the indexes, where it is a new item.
        expression = f"{expression}, l = :l, g = :g" if kind == "set" else f"SET l = :l, g = :g {expression}"
        values |= {f":{name}": item(key, "")[name] for name in "lg"}

        def run() -> Any:
            given = {"UpdateExpression": expression, "ExpressionAttributeValues": values, **more}
            found = self.table.update_item(Key=named(key), **given)
            return found["Attributes"]["n"] if kind == "add" else ANY

        self.record(kind, key, *filter(None, [value]), run=run)

    def delete(self) -> None:
        key, trusted = self.key(), self.job.trusted

        def run() -> Any:
            found = self.table.delete_item(Key=named(key), **({"ReturnValues": "ALL_OLD"} if trusted else {}))
            return shown(found.get("Attributes")) if trusted else ANY

        self.record("delete", key, run=run)

    # Several items.

    def batch_get(self) -> None:
        keys = [*{self.key() for _ in range(4)}]

        def run() -> Any:
            found = self.table.batch_get_items([*map(named, keys)], ConsistentRead=True)
            return [placed(one) for one in found]

        self.record("batch get", keys, run=run)

    def batch_write(self) -> None:
        """Write items that nobody else writes: a batch sends again what was not written."""
        value = self.value()
        keys = [(self.rng.choice(PARTITIONS), f"b{value}.{number}") for number in range(3)]

        def run() -> str:
            self.table.write([item(key, value) for key in keys])
            return ANY

        self.record("puts", keys, value, run=run)

    def query(self, order: str = "sk", **given: Any) -> None:
        partition, forward = self.rng.choice(PARTITIONS), self.rng.random() < 0.5
        given |= of_partition(partition) | {"ScanIndexForward": forward, "Limit": self.rng.choice([4, 15, 60])}
        run = partial(self.pages, **given)
        self.record("query", partition, order, forward, run=lambda: [one for page in run() for one in page])

    def query_local(self) -> None:
        self.query("l", IndexName="by-l")

    def query_global(self) -> None:
        values = {":g": "g"}
        given = {"KeyConditionExpression": "g = :g", "ExpressionAttributeValues": values, "Limit": 40}
        self.record("index", run=lambda: self.pages(IndexName="by-g", **given))

    def pages(self, **given: Any) -> list[list[Any]]:
        pages: list[list[Any]] = []
        start: dict[str, Any] = {}
        while True:
            page = self.table.query(**given, **start)
            pages.append([placed(one) for one in page["Items"]])
            if "LastEvaluatedKey" not in page:
                return pages
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def query_items(self) -> None:
        partition, forward = self.rng.choice(PARTITIONS), self.rng.random() < 0.5
        given = of_partition(partition) | {"ScanIndexForward": forward}
        run = partial(self.table.query_items, **given)
        self.record("query", partition, "sk", forward, run=lambda: [placed(one) for one in run()])

    def scan_items(self) -> None:
        given = {"ConsistentRead": True, "segments": self.rng.choice([1, 3])}
        self.record("scan", run=lambda: [placed(one) for one in self.table.scan_items(**given)])


class CachedWorker(Worker):
    """One of the threads that share a cache."""

    def kinds(self) -> dict[Callable[[], None], int]:
        reads = {self.cached: 60, self.get: 5}
        return {**reads, self.put: 8, self.put_new: 4, self.swap: 4, self.set: 4, self.add: 6, self.delete: 4}

    def cached(self) -> None:
        self.get("cached", ConsistentRead=False)


def load(job: Job, recorder: Recorder) -> None:
    """Load items that nobody else writes, one load after another; continue the one that a kill has ended."""
    own = job.folder / "load.jsonl"
    number = 1 + max((line["i"] for line in lines(own) if {"r", "e"} & {*line}), default=0)
    table = job.sharded(max_concurrency=4)
    while not job.stop.value:
        keys = [(PARTITIONS[one % 2], f"l{number}.{one:03}") for one in range(LOADED)]
        recorder.begin("puts", keys, f"load {number}", number=number)
        try:
            report = bulk_load(
                table, [item(key, f"load {number}") for key in keys], journal=job.folder / f"{number}.journal"
            )
            assert not report.failed, report
        except Exception as error:  # noqa: BLE001 - the check says which may be
            recorder.lost(number, error)
        else:
            recorder.end(number, ANY)
        number += 1
        time.sleep(LOAD_SECONDS)


def mover(job: Job, recorder: Recorder) -> None:
    """Move all items; end with an error if it is over before they are."""
    while not job.stop.value:
        number = recorder.begin("move")
        try:
            report = move(job.sharded(max_concurrency=10), write_units=None, read_units=None)
        except Exception as error:  # noqa: BLE001 - the check says which may be
            recorder.lost(number, error)
            time.sleep(0.05)
            continue
        recorder.end(number, [report.moved, report.stubs, report.conflicts])
        if report.complete:
            return
    sys.exit(1)


def named(key: Key) -> dict[str, str]:
    return dict(zip(("pk", "sk"), key, strict=True))


def item(key: Key, value: str) -> dict[str, str]:
    """Return an item as it is put; its indexes' keys are always the same."""
    return {**named(key), "v": value, "l": key[1][::-1], "g": "g"}


def of_partition(partition: str) -> dict[str, Any]:
    given = {"ExpressionAttributeValues": {":pk": partition}, "ConsistentRead": True}
    return {"KeyConditionExpression": "pk = :pk", **given}


def shown(found: Any) -> Any:
    """Return an item's value and count."""
    if not found:
        return None
    strange = {*found} - {"pk", "sk", "v", "n", "l", "g"}
    return [f"an item with {strange}" if strange else found.get("v"), found.get("n")]


def placed(found: Any) -> list[Any]:
    return [[found["pk"], found["sk"]], shown(found)]
