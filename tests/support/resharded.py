"""Operations on a table whose items move, as the model checker runs them, and what each does to the logical items."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardkit import CalculatedSuffix, Resharding, Strategy, Unsharded
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.migrate.between import described
from shardkit.migrate.marks import MARK, STUB, Moving, is_frozen, is_stub, unmarked
from shardkit.migrate.mover import Mover
from shardkit.sharding.batches import batch_write
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.stream import QueryRows
from shardkit.sharding.seam import Operations
from shardkit.strategies import Stage
from tests.support.checker import Key, Operation, Search
from tests.support.histories import CANCELLED, IN_TRANSACTION, answered
from tests.support.stepwise import Request

TABLE = "orders"
KEYS = ("pk", "sk")
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in KEYS],
}


def key(name: Key) -> WireItem:
    """Return the logical primary key of an item: all are of one partition key."""
    return {"pk": {"S": "d"}, "sk": {"S": name}}


def item(name: Key, value: str = "0") -> WireItem:
    return {**key(name), "v": {"S": value}}


@dataclass(frozen=True)
class Moves:
    """A move between two strategies, and its operations, each of a stage."""

    old: Strategy = field(default_factory=Unsharded)
    new: Strategy = field(default_factory=lambda: CalculatedSuffix("sk", 2))

    def programs(self, stage: Stage) -> Programs:
        return Programs(
            TABLE, Resharding(self.old, self.new, stage=stage), SCHEMA, lambda: 0.5, WIRE_VALUES, described=described
        )

    def sharding(self, stage: Stage) -> Operations:
        made = self.programs(stage).known()
        try:
            next(made)
        except StopIteration as done:
            sharding: Operations = done.value
            return sharding
        raise AssertionError("the key schema is given")

    def at_old(self, wire: WireItem, **more: Mapping[str, Any]) -> tuple[str, WireItem]:
        """Return an item as it is stored at its old home."""
        return TABLE, {**self._stored(wire, self.old), **more}

    def at_new(self, wire: WireItem) -> tuple[str, WireItem]:
        return TABLE, self._stored(wire, self.new)

    def stub(self, name: Key) -> tuple[str, WireItem]:
        return self.at_old(key(name), **{MARK: STUB})

    def _stored(self, wire: WireItem, strategy: Strategy) -> WireItem:
        sharding = Sharding.described(TABLE, strategy, SCHEMA, WIRE_VALUES)
        return sharding.stored(wire, sharding.known_shard(wire, WIRE_VALUES.python(wire))[0])

    # Operations on one item.
    def one(self, stage: Stage, operation: str, name: Key, **params: Any) -> Operation:
        given = {"Item" if operation == "PutItem" else "Key": key(name), **params}

        def program() -> Program[Response]:
            return self.programs(stage).item(operation, given, shard=None, return_shards=False, fan_out=a_fan_out())

        eventual = operation == "GetItem" and not params.get("ConsistentRead")
        return Operation(
            f"{operation} {name}, {stage}",
            program,
            {name: (operation, given)},
            lambda result: {name: answered(result)},
            eventual=eventual,
        )

    def get(self, stage: Stage, name: Key = "a", *, consistent: bool = True) -> Operation:
        return self.one(stage, "GetItem", name, **({"ConsistentRead": True} if consistent else {}))

    def put(self, stage: Stage, value: str, name: Key = "a", **params: Any) -> Operation:
        return self.one(stage, "PutItem", name, Item=item(name, value), ReturnValues="ALL_OLD", **params)

    def put_new(self, stage: Stage, value: str, name: Key = "a") -> Operation:
        """Put an item that must not exist."""
        return self.put(
            stage,
            value,
            name,
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    def update(self, stage: Stage, attribute: str, name: Key = "a", **params: Any) -> Operation:
        """Set one attribute: the updates of other attributes must stay."""
        return self.one(
            stage,
            "UpdateItem",
            name,
            UpdateExpression=f"SET {attribute} = :new",
            ExpressionAttributeValues={":new": {"S": attribute}},
            ReturnValues="ALL_NEW",
            **params,
        )

    def update_existing(self, stage: Stage, attribute: str, name: Key = "a") -> Operation:
        return self.update(stage, attribute, name, ConditionExpression="attribute_exists(pk)")

    def delete(self, stage: Stage, name: Key = "a", **params: Any) -> Operation:
        return self.one(stage, "DeleteItem", name, ReturnValues="ALL_OLD", **params)

    # Operations on several items.
    def batch_get(self, stage: Stage, names: Iterable[Key] = "ab", *, consistent: bool = True) -> Operation:
        keys = [key(name) for name in names]
        params = {"ConsistentRead": True} if consistent else {}
        return Operation(
            f"batch_get_items, {stage}",
            lambda: self.programs(stage).batch_get_items(keys, params, fan_out=a_fan_out()),
            dict.fromkeys(names, ("GetItem", {})),
            lambda result: as_gets(names, [one for one in ok(result)["Items"] if one is not None]),
            eventual=not consistent,
        )

    def batch_write(self, stage: Stage, puts: Mapping[Key, str], deletes: Iterable[Key] = ()) -> Operation:
        requests = [{"PutRequest": {"Item": item(name, value)}} for name, value in puts.items()]
        requests += [{"DeleteRequest": {"Key": key(name)}} for name in deletes]

        def known(_: str) -> Program[Operations]:
            return (yield from self.programs(stage).known())

        effects: dict[Key, tuple[str, Mapping[str, Any]]] = {
            name: ("PutItem", {"Item": item(name, value)}) for name, value in puts.items()
        }
        effects |= {name: ("DeleteItem", {"Key": key(name)}) for name in deletes}

        def outcomes(result: Any) -> dict[Key, Hashable]:
            assert not ok(result)["UnprocessedItems"]
            return dict.fromkeys(effects, answered({}))

        return Operation(
            f"batch_write, {stage}",
            lambda: batch_write({"RequestItems": {TABLE: requests}}, known, WIRE_VALUES, a_fan_out()),
            effects,
            outcomes,
        )

    def transact(self, stage: Stage, **actions: tuple[str, Mapping[str, Any]]) -> Operation:
        """A TransactWriteItems: by item, the action and its parameters beside the key."""
        parts = [
            {action: {"Key": key(name), **params} if action != "Put" else dict(params)}
            for name, (action, params) in actions.items()
        ]
        effects = {
            name: (
                IN_TRANSACTION + {"ConditionCheck": action}.get(action, f"{action}Item"),
                {"Key": key(name), **params},
            )
            for name, (action, params) in actions.items()
        }

        def outcomes(result: Any) -> dict[Key, Hashable]:
            reasons = getattr(result, "response", {}).get("CancellationReasons")
            if reasons is None:
                ok(result)
                return dict.fromkeys(effects, answered({}))
            codes = [reason["Code"] for reason in reasons]
            assert {"ConditionalCheckFailed"} <= {*codes} <= {"ConditionalCheckFailed", "None"}, reasons
            failed = [
                CANCELLED
                if reason["Code"] == "None"
                else (reason["Code"] + "Exception", None if "Item" not in reason else comparable_item(reason["Item"]))
                for reason in reasons
            ]
            return dict(zip(effects, failed, strict=True))

        return Operation(
            f"transact_write_items, {stage}",
            lambda: self.programs(stage).transact("TransactWriteItems", {"TransactItems": parts}, fan_out=a_fan_out()),
            effects,
            outcomes,
        )

    def transact_get(self, stage: Stage, names: Sequence[Key] = "ab") -> Operation:
        parts = [{"Get": {"Key": key(name)}} for name in names]
        return Operation(
            f"transact_get_items, {stage}",
            lambda: self.programs(stage).transact("TransactGetItems", {"TransactItems": parts}, fan_out=a_fan_out()),
            dict.fromkeys(names, ("GetItem", {})),
            lambda result: as_gets(names, [one["Item"] for one in ok(result)["Responses"] if one.get("Item")]),
        )

    def pages(
        self,
        stages: Sequence[Stage],
        names: Sequence[Key] = "ab",
        *,
        limit: int | None = None,
        forward: bool = True,
        consistent: bool = True,
        **params: Any,
    ) -> Operation:
        """All pages of a Query, each in the next of the stages; the last stage reads the rest."""
        given = {
            "KeyConditionExpression": "pk = :d",
            "ExpressionAttributeValues": {":d": {"S": "d"}},
            "ScanIndexForward": forward,
            "ConsistentRead": consistent,
            **({} if limit is None else {"Limit": limit}),
            **params,
        }

        def program() -> Program[list[WireItem]]:
            found: list[WireItem] = []
            cursor: dict[str, Any] = {}
            for page in range(3 * len(names)):
                stage = stages[min(page, len(stages) - 1)]
                asked = {**given, **cursor}
                response = yield from self.programs(stage).query(
                    asked, shard=None, return_shards=False, fan_out=a_fan_out()
                )
                assert limit is None or len(response["Items"]) <= limit
                found += response["Items"]
                if "LastEvaluatedKey" not in response:
                    return found
                cursor = {"ExclusiveStartKey": response["LastEvaluatedKey"]}
            raise AssertionError("the pages do not end")

        def outcomes(result: Any) -> dict[Key, Hashable]:
            sort_keys = [one["sk"]["S"] for one in ok(result)]
            assert sort_keys == sorted(set(sort_keys), reverse=not forward), f"the pages have {sort_keys}"
            return as_gets(names, result)

        return Operation(
            f"query, {', '.join(stages)}",
            program,
            dict.fromkeys(names, ("GetItem", {})),
            outcomes,
            eventual=not consistent,
        )

    def stream(
        self, stage: Stage, names: Sequence[Key] = "ab", *, max_items: int | None = None, **params: Any
    ) -> Operation:
        """``query_items``, to its end or to so many items, which must be the first ones."""
        given = {
            "KeyConditionExpression": "pk = :d",
            "ExpressionAttributeValues": {":d": {"S": "d"}},
            "ConsistentRead": True,
            **params,
        }

        def program() -> Program[list[WireItem]]:
            made = yield from self.programs(stage).stream(given, None, max_items=max_items, fan_out=a_fan_out())
            rows = QueryRows(return_shards=False, max_items=max_items)
            read = rows.begin(made)
            found: list[WireItem] = []
            while True:
                while rows.wanting:
                    rows.add((yield read))
                try:
                    found.append(rows.take())
                except StopIteration:
                    return found

        def outcomes(result: Any) -> dict[Key, Hashable]:
            sort_keys = [one["sk"]["S"] for one in ok(result)]
            assert sort_keys == sorted(set(sort_keys)), f"the stream has {sort_keys}"
            return as_gets(known, [one for one in result if one["sk"]["S"] in known])

        # Behind the last item that was asked for, nothing is said.
        known = names if max_items is None else names[:max_items]
        return Operation(f"query_items, {stage}", program, dict.fromkeys(known, ("GetItem", {})), outcomes)

    def pass_of_mover(self, token: str, *, streamed: bool = False, workers: int = 1, fails: bool = False) -> Operation:
        """One pass of the mover over the table; ``fails``: it may report an item that cannot move."""

        def program() -> Program[Mover]:
            moving = self.sharding("move")
            assert isinstance(moving, Moving)
            tokens = (f"{token}{number}" for number in itertools.count())
            mover = Mover(
                moving,
                token=lambda: next(tokens),
                streamed=streamed,
                workers=workers,
                draw=lambda: 0.5,
                segments=1,
                write_units=1000,
            )
            while not mover.ended:
                yield mover
            return mover

        def outcomes(result: Any) -> dict[Key, Hashable]:
            assert fails or not ok(result).report.failures, result.report
            return {}

        return Operation("mover", program, outcomes=outcomes)

    # What must hold.
    def search(
        self, *processes: Any, stored: Iterable[tuple[str, WireItem]], names: Sequence[Key] = "a", **options: Any
    ) -> Search:
        """Return a search from what is stored; at its end, a consistent read in each of the stages ``ends``."""
        stored = list(stored)
        ends: Sequence[Stage] = options.pop("ends", ("move",))
        logical: dict[Key, WireItem | None] = {}
        for name in names:
            homes = [dict(one) for _, one in stored if one["sk"]["S"] == name and not is_stub(one)]
            logical[name] = {**unmarked(homes[0]), **key(name)} if homes else None
        return Search(
            {TABLE: KEYS},
            stored,
            logical,
            processes,
            last=[self.get(stage, name) for stage in ends for name in names],
            invariant=self.invariant(names),
            final=final if options.pop("moved", True) else (lambda _, __: None),
            **{"may_be_late": may_be_late, **options},
        )

    def invariant(self, names: Iterable[Key]) -> Callable[[Mapping[tuple[str, Hashable], WireItem]], str | None]:
        """N holds an item only if O is absent, a stub, or frozen with the same content."""
        homes = [(self._place(name, self.old), self._place(name, self.new)) for name in names]

        def wrong(contents: Mapping[tuple[str, Hashable], WireItem]) -> str | None:
            for old, new in homes:
                at_old, at_new = contents.get(old), contents.get(new)
                if old == new or at_old is None or at_new is None or is_stub(at_old):
                    continue
                if not is_frozen(at_old) or _values(at_old) != _values(at_new):
                    return f"{at_new} is at its new home, and {at_old} at its old one"
            return None

        return wrong

    def _place(self, name: Key, strategy: Strategy) -> tuple[str, Hashable]:
        return TABLE, comparable_item(self._stored(key(name), strategy))


def a_fan_out() -> FanOutOptions:
    return FanOutOptions(10, lambda: 0.5)


def ok(result: Any) -> Any:
    assert not isinstance(result, Exception), f"raised {result!r}"
    return result


def as_gets(names: Iterable[Key], items: Iterable[WireItem]) -> dict[Key, Hashable]:
    """Return for each item what a GetItem would have answered."""
    found: dict[Key, WireItem] = {}
    for one in items:
        name = one["sk"]["S"]
        assert name not in found, f"{name} is there twice"
        found[name] = one
    assert found.keys() <= set(names), f"unexpected items: {found.keys()}"
    return {name: answered({"Item": found[name]} if name in found else {}) for name in names}


def final(contents: Mapping[tuple[str, Hashable], WireItem], crashed: bool) -> str | None:
    """Without a crash, no item stays frozen, and no copy keeps its mark."""
    frozen = [one for one in contents.values() if is_frozen(one)]
    return f"left behind: {frozen}" if frozen and not crashed else None


def may_be_late(request: Request) -> bool:
    """Return whether a request is one of the move itself: a freeze, a copy, the deletion of a frozen item, a stub."""
    return request.writes and MARK in request.text and "#shardkit_m" not in request.text


def _values(wire: WireItem) -> Hashable:
    return comparable_item({name: value for name, value in unmarked(wire).items() if name != "pk"})
