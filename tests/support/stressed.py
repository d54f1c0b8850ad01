"""A table on an engine whose items move through all stages, under threads of every face; and whether it was right.

Every operation is recorded with the time when it began and the time when it ended. An item's history is right if there
is an order of its operations, each at some time between these two, which explains every answer (linearizability).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from shardkit import Resharding, Strategy
from shardkit.core.machine import Send, Wait
from shardkit.dynamodb.encode import to_wire_item, to_wire_params
from shardkit.dynamodb.values import comparable_item
from shardkit.migrate.between import described
from shardkit.migrate.marks import Moving
from shardkit.migrate.mover import Mover
from shardkit.strategies import Stage
from tests.functional.contract.faces import Face, FaceTable
from tests.support.histories import CANCELLED, IN_TRANSACTION, Histories, answered
from tests.support.stepwise import Tables

PHASES: Sequence[tuple[Stage, Stage]] = [
    ("old", "guard"),
    ("guard", "switch"),
    ("switch", "move"),
    ("move", "move"),
    ("move", "new"),
]
"""In each phase, every worker goes from the first stage to the second, at a time of its own."""
PARTITIONS, ITEMS = 4, 10
DELAY_SECONDS = 0.002

Name = tuple[str, str]
NAMES: list[Name] = [(f"k{one}", f"s{other}") for one in range(PARTITIONS) for other in range(ITEMS)]


class Record(NamedTuple):
    """An operation on one item: what it does, when it began and ended, and how it ended."""

    worker: int
    began: int
    ended: int
    effect: tuple[str, Mapping[str, Any]]
    outcome: Hashable


@dataclass
class Stress:
    """The table, what was done so far, and what went wrong.

    ``client``: a client of its engine, for movers.
    ``deleted``: the engine's DeleteItem returns the old item as it was (DynamoDB Local's does not).
    """

    table: Any
    client: Any
    old: Strategy
    new: Strategy
    seed: int
    deleted: bool = True
    records: dict[Name, list[Record]] = field(default_factory=lambda: defaultdict(list))
    done: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    problems: list[str] = field(default_factory=list)
    _delays: Random = field(default_factory=Random)

    def run(self, faces: Sequence[Face], each: int) -> None:
        """Let a worker on each face make so many operations in every phase; movers run, and crash, while items move."""
        barrier = threading.Barrier(len(faces) + 1)
        workers = [
            threading.Thread(target=self._guarded, args=(partial(self._work, number, face, each, barrier), barrier))
            for number, face in enumerate(faces)
        ]
        for worker in workers:
            worker.start()
        rng = Random(f"{self.seed} movers")
        try:
            for phase, (_, last) in enumerate(PHASES):
                over = threading.Event()
                movers = []
                if last == "move":
                    movers = [
                        threading.Thread(target=self._guarded, args=(partial(self._move, name, over), barrier))
                        for name in (f"{phase} 1", f"{phase} 2")
                    ]
                for mover in movers:
                    mover.start()
                barrier.wait()
                over.set()
                for mover in movers:
                    mover.join()
                if phase == 3:
                    while not self._pass(rng, 0.0, verify=True):
                        self._pass(rng, 0.0)
                barrier.wait()
        except threading.BrokenBarrierError:
            pass
        for worker in workers:
            worker.join()

    def _guarded(self, work: Callable[[], None], barrier: threading.Barrier) -> None:
        try:
            work()
        except threading.BrokenBarrierError:
            pass
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.problems.append(f"{type(error).__name__}: {error}")
            barrier.abort()

    # Workers.

    def _work(self, number: int, face: Face, each: int, barrier: threading.Barrier) -> None:
        rng = Random(f"{self.seed} {number}")
        for first, last in PHASES:
            client = self._at(face, first)
            turn = rng.randrange(each)
            for operation in range(each):
                if operation == turn and first != last:
                    client = self._at(face, last)
                _Operations(self, number, client, rng).one()
            barrier.wait()  # all have made their operations
            barrier.wait()  # the movers have ended

    def _at(self, face: Face, stage: Stage) -> FaceTable:
        client = face.sharded(self.table, Resharding(self.old, self.new, stage=stage))
        # Not on the transport past the client: with a handler for this event, its requests would go through the client.
        if getattr(face, "transport", "client") == "client":
            client.client.meta.events.register("before-send.dynamodb", self._delay, unique_id="delay")
        return client

    def _delay(self, **_: Any) -> None:
        time.sleep(self._delays.random() * DELAY_SECONDS)

    # Movers.

    def _move(self, name: str, over: threading.Event) -> None:
        rng = Random(f"{self.seed} {name}")
        while not over.is_set():
            self._pass(rng, 0.02)

    def _pass(self, rng: Random, crash: float, *, verify: bool = False) -> bool:
        """Run a pass of the mover, which crashes before or after any of its requests with that probability."""
        description: Any = self.client.describe_table(TableName=self.table.name)["Table"]
        moving = described(self.table.name, Resharding(self.old, self.new, stage="move"), description)
        assert isinstance(moving, Moving)
        mover = Mover(
            moving,
            token=lambda: uuid.uuid4().hex,
            workers=1,
            draw=rng.random,
            segments=2,
            write_units=None,
            verify=verify,
        )
        while not mover.ended:
            step = mover.next(time.monotonic())
            if isinstance(step, Send):
                time.sleep(rng.random() * DELAY_SECONDS)
                if rng.random() < crash / 2:
                    self.crashes += 1
                    return False
                answer: Any
                try:
                    answer = _sent(self.client, step)
                except ClientError as error:
                    answer = error
                if rng.random() < crash / 2:
                    self.crashes += 1
                    return False
                mover.receive(step, answer, time.monotonic())
            elif isinstance(step, Wait):
                assert step.until is not None
                time.sleep(max(0.0, step.until - time.monotonic()))
        if mover.report.failures:
            self.problems.append(f"the mover: {mover.report.failures}")
        return not mover.report.left

    # Judgement.

    def judged(self) -> list[str]:
        """Return the items whose history no order of the operations explains."""
        tables = Tables({})
        wrong = []
        for name, records in self.records.items():
            histories = Histories(1 + max(record.worker for record in records), ever=False)
            history = histories.start(0)
            events = [(record.began, 0, record) for record in records] + [
                (record.ended, 1, record) for record in records
            ]
            for _, kind, record in sorted(events, key=lambda event: event[:2]):
                if kind == 0:
                    what = histories.effect(record.effect, tables, eventual=False)
                else:
                    what = histories.outcome(record.outcome)
                history = histories.after(history, record.worker, kind, what)
                if not history:
                    wrong.append(f"{name}: {record}")
                    break
        return wrong


def _sent(client: Any, send: Send) -> Any:
    methods = {
        "DeleteItem": client.delete_item,
        "DescribeTable": client.describe_table,
        "GetItem": client.get_item,
        "Scan": client.scan,
        "TransactWriteItems": client.transact_write_items,
        "UpdateItem": client.update_item,
    }
    return methods[send.operation](**send.params)


@dataclass
class _Operations:
    """The operations of a worker, through one face in one stage."""

    stress: Stress
    worker: int
    client: FaceTable
    rng: Random

    def one(self) -> None:
        kinds = {
            self.get: 25, self.put: 12, self.put_new: 8, self.update: 12, self.add: 12, self.update_existing: 5,
            self.delete: 8, self.batch_get: 5, self.batch_write: 5, self.pages: 4, self.stream: 4,
        }  # fmt: skip
        if hasattr(self.client, "table"):  # an installed client takes wire values
            kinds |= {self.transact: 5, self.transact_get: 4}
        (kind,) = self.rng.choices([*kinds], [*kinds.values()])
        kind()
        self.stress.done[kind.__name__] += 1

    def name(self) -> Name:
        return self.rng.choice(NAMES)

    def names(self) -> list[Name]:
        return self.rng.sample(NAMES, self.rng.randint(2, 5))

    def value(self) -> str:
        return f"{self.worker}-{self.rng.getrandbits(32):x}"

    # Single items.

    def _single(self, operation: str, name: Name, **params: Any) -> None:
        given = {"Item" if operation == "PutItem" else "Key": _key(name), **params}
        method = {
            "DeleteItem": self.client.delete_item,
            "GetItem": self.client.get_item,
            "PutItem": self.client.put_item,
            "UpdateItem": self.client.update_item,
        }[operation]
        began = time.perf_counter_ns()
        try:
            outcome = _outcome(method(**given))
        except ClientError as error:
            outcome = answered(error)
        self._record(name, began, (operation, to_wire_params(given)), outcome)

    def get(self) -> None:
        self._single("GetItem", self.name(), ConsistentRead=True)

    def put(self) -> None:
        name = self.name()
        self._single("PutItem", name, Item={**_key(name), "v": self.value()}, ReturnValues="ALL_OLD")

    def put_new(self) -> None:
        name = self.name()
        new = "attribute_not_exists(pk)"
        self._single("PutItem", name, Item={**_key(name), "v": self.value()}, ConditionExpression=new)

    def update(self, **more: Any) -> None:
        self._single(
            "UpdateItem",
            self.name(),
            UpdateExpression=f"SET {self.rng.choice('xyz')} = :new",
            ExpressionAttributeValues={":new": self.value()},
            ReturnValues="ALL_NEW",
            **more,
        )

    def update_existing(self) -> None:
        self.update(ConditionExpression="attribute_exists(pk)")

    def add(self) -> None:
        self._single(
            "UpdateItem",
            self.name(),
            UpdateExpression="ADD n :one",
            ExpressionAttributeValues={":one": 1},
            ReturnValues="ALL_NEW",
        )

    def delete(self) -> None:
        self._single("DeleteItem", self.name(), **({"ReturnValues": "ALL_OLD"} if self.stress.deleted else {}))

    # Several items.

    def batch_get(self) -> None:
        names = self.names()
        began = time.perf_counter_ns()
        found = self.client.batch_get_items([*map(_key, names)], ConsistentRead=True)
        self._read(names, began, found)

    def batch_write(self) -> None:
        names = self.names()
        puts = {name: {**_key(name), "v": self.value()} for name in names[:-1]}
        began = time.perf_counter_ns()
        self.client.write(puts.values(), [_key(names[-1])])
        for name, item in puts.items():
            self._record(name, began, ("PutItem", to_wire_params({"Item": item})), answered({}))
        self._record(names[-1], began, ("DeleteItem", to_wire_params({"Key": _key(names[-1])})), answered({}))

    def pages(self) -> None:
        partition = f"k{self.rng.randrange(PARTITIONS)}"
        given = {
            **_of_partition(partition),
            "Limit": self.rng.randint(1, 6),
            "ScanIndexForward": self.rng.random() < 0.5,
        }
        found: list[Any] = []
        began = time.perf_counter_ns()
        cursor: dict[str, Any] = {}
        while True:
            page = self.client.query(**given, **cursor)
            found += page["Items"]
            if "LastEvaluatedKey" not in page:
                break
            cursor = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        self._all(partition, began, found, descending=not given["ScanIndexForward"])

    def stream(self) -> None:
        partition = f"k{self.rng.randrange(PARTITIONS)}"
        began = time.perf_counter_ns()
        self._all(partition, began, self.client.query_items(**_of_partition(partition)))

    def transact(self) -> None:
        put, update, *checked = self.names()
        bodies: dict[Name, tuple[str, dict[str, Any]]] = {
            put: ("Put", {"Item": {**_key(put), "v": self.value()}}),
            update: (
                "Update",
                {
                    "Key": _key(update),
                    "UpdateExpression": "ADD n :one",
                    "ExpressionAttributeValues": {":one": 1},
                    "ConditionExpression": "attribute_exists(pk)",
                },
            ),
            **{
                name: ("ConditionCheck", {"Key": _key(name), "ConditionExpression": "attribute_not_exists(x)"})
                for name in checked[:1]
            },
        }
        began = time.perf_counter_ns()
        outcomes: dict[Name, Hashable] = dict.fromkeys(bodies, answered({}))
        try:
            self.client._call("transact_write_items", TransactItems=[{one: body} for one, body in bodies.values()])  # noqa: SLF001
        except ClientError as error:
            codes = [reason["Code"] for reason in error.response["CancellationReasons"]]
            if "ConditionalCheckFailed" not in codes:
                raise
            failed = {"None": CANCELLED, "ConditionalCheckFailed": ("ConditionalCheckFailedException", None)}
            outcomes = {name: failed[code] for name, code in zip(bodies, codes, strict=True)}
        for name, (action, body) in bodies.items():
            operation = action if action == "ConditionCheck" else f"{action}Item"
            self._record(name, began, (IN_TRANSACTION + operation, to_wire_params(body)), outcomes[name])

    def transact_get(self) -> None:
        names = self.names()
        began = time.perf_counter_ns()
        parts = [{"Get": {"Key": _key(name)}} for name in names]
        responses = self.client._call("transact_get_items", TransactItems=parts)["Responses"]  # noqa: SLF001
        self._read(names, began, [one["Item"] for one in responses if one.get("Item")])

    # Records.

    def _record(self, name: Name, began: int, effect: tuple[str, Mapping[str, Any]], outcome: Hashable) -> None:
        self.stress.records[name].append(Record(self.worker, began, time.perf_counter_ns(), effect, outcome))

    def _read(self, names: Iterable[Name], began: int, found: Iterable[Mapping[str, Any]]) -> None:
        by_name: dict[Name, Any] = {}
        for item in found:
            name = item["pk"], item["sk"]
            assert name not in by_name, f"{name} is there twice"
            by_name[name] = item
        for name in names:
            self._record(name, began, ("GetItem", {}), _outcome({"Item": by_name[name]} if name in by_name else {}))

    def _all(self, partition: str, began: int, found: list[Any], *, descending: bool = False) -> None:
        sort_keys = [item["sk"] for item in found]
        assert sort_keys == sorted(set(sort_keys), reverse=descending), sort_keys
        self._read([(partition, f"s{number}") for number in range(ITEMS)], began, found)


def _key(name: Name) -> dict[str, Any]:
    return dict(zip(("pk", "sk"), name, strict=True))


def _of_partition(partition: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": partition},
        "ConsistentRead": True,
    }


def _outcome(response: Mapping[str, Any]) -> Hashable:
    """Return what an operation on one item answered, given in Python values."""
    shown = [response.get(name) for name in ("Item", "Attributes")]
    return tuple(None if not item else comparable_item(to_wire_item(item)) for item in shown)
