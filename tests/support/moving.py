"""A table whose items move, and its items in every state that a stage allows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from shardkit import CalculatedSuffix, ShardedTable, Unsharded
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.migrate.between import Between, described
from shardkit.migrate.marks import MARK, Homes
from shardkit.strategies import Resharding, Stage, Strategy

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table

ADOPT = (Unsharded(), CalculatedSuffix("sk", shards=4))
BETWEEN: tuple[Stage, ...] = get_args(Stage)[1:-1]
TOKEN = "0" * 32
STATES = {
    "guard": ("absent", "live", "stub"),
    "switch": ("absent", "live", "stub", "frozen", "copied"),
    "move": ("absent", "live", "stub", "frozen", "copied", "moved"),
}
"""Where an item can be, by stage: ``copied`` is frozen with its copy already made, ``moved`` only at the new home."""
PLACES: list[tuple[Stage, str]] = [(stage, state) for stage in BETWEEN for state in STATES[stage]]
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}


def every_stage(old: Strategy, new: Strategy) -> dict[str, Strategy]:
    """A strategy for each stage between the first and the last, for long runs of suites: SHARDKIT_CONTRACT_STAGES=1."""
    wanted = BETWEEN if os.environ.get("SHARDKIT_CONTRACT_STAGES") else ()
    return {stage: Resharding(old, new, stage=stage) for stage in wanted}


def resharding(stage: Stage, old: Strategy = ADOPT[0], new: Strategy = ADOPT[1]) -> Resharding:
    return Resharding(old, new, stage=stage)


def moving(stage: Stage, *strategies: Strategy, table: str = "Table", **options: Any) -> Between:
    made = described(table, resharding(stage, *strategies), SCHEMA, **options)
    assert isinstance(made, Between)
    return made


def homes(key: Mapping[str, Any], *strategies: Strategy) -> Homes:
    """The homes of an item, by its logical key in Python values."""
    return moving("guard", *strategies).homes(to_wire_item({name: key[name] for name in ("pk", "sk")}))


def stored(item: Mapping[str, Any], state: str, *strategies: Strategy) -> list[dict[str, Any]]:
    """What the table stores of an item in a state."""
    made = homes(item, *strategies)
    rest = {name: value for name, value in item.items() if name not in {"pk", "sk"}}
    old, new = ({**from_wire_item(home)} for home in (made.old, made.new))
    return {
        "absent": [],
        "live": [{**old, **rest}],
        "stub": [{**old, MARK: "stub"}, {**new, **rest}],
        "emptied": [{**old, MARK: "stub"}],
        "frozen": [{**old, **rest, MARK: TOKEN}],
        "copied": [{**old, **rest, MARK: TOKEN}, {**new, **rest}],
        "moved": [{**new, **rest}],
    }[state]


def stored_in(table: Any) -> int:
    """The items that a table stores, but for stubs."""
    return sum(one.get(MARK) != "stub" for one in table.scan()["Items"])


@dataclass(frozen=True)
class Held:
    """What a table holds of an item."""

    table: Table

    def put(self, item: Mapping[str, Any], state: str, *strategies: Strategy) -> None:
        for one in stored(item, state, *strategies):
            self.table.put_item(Item=one)

    def clear(self) -> None:
        for one in self.table.scan()["Items"]:
            self.table.delete_item(Key={name: one[name] for name in ("pk", "sk")})

    def places(self) -> dict[str, dict[str, Any]]:
        """All items, by stored partition key, without their keys."""
        return {
            str(one["pk"]): {name: value for name, value in one.items() if name not in {"pk", "sk"}}
            for one in self.table.scan(ConsistentRead=True)["Items"]
        }


# Several items: one of each name in each state, with the state as its partition key.


def key(state: str, name: str = "s1") -> dict[str, Any]:
    return {"pk": state, "sk": name}


def fill(table: Table, stage: Stage, *names: str) -> None:
    """Put an item of each name in each state of the stage."""
    for state in STATES[stage]:
        for name in names:
            Held(table).put({**key(state, name), "n": 1}, state)


def contents(table: Table, stage: Stage) -> dict[tuple[str, str], int]:
    """The items as a caller sees them; each must be in one place, with nothing left frozen."""
    found: dict[tuple[str, str], int] = {}
    moved = ShardedTable(table, resharding(stage), key_schema=SCHEMA, max_concurrency=1)
    items: list[dict[str, Any]] = [*table.scan(ConsistentRead=True)["Items"]]
    for one in items:
        assert one.get(MARK) in {None, "stub"}
        if MARK not in one:
            logical = str(one["pk"]).split(".")[0], str(one["sk"])
            assert logical not in found
            found[logical] = int(one["n"])
    keys = [key(*logical) for logical in found]
    read = moved.batch_get_items(keys)["Items"] if keys else []
    assert {(one["pk"], one["sk"]): one["n"] for one in read} == found
    return found


def batch(stage: Stage) -> list[dict[str, Any]]:
    """A put of each item ``put`` and a delete of each item ``delete``, for a BatchWriteItem."""
    puts = [{"PutRequest": {"Item": {**key(state, "put"), "n": 7}}} for state in STATES[stage]]
    return [*puts, *({"DeleteRequest": {"Key": key(state, "delete")}} for state in STATES[stage])]


def actions(stage: Stage) -> list[Any]:
    """Each action of a transaction, on items of these names in every state."""
    made: list[Any] = []
    for state in STATES[stage]:
        there = "attribute_not_exists(pk)" if state == "absent" else "attribute_exists(pk) AND n = :one"
        values = {} if state == "absent" else {"ExpressionAttributeValues": {":one": 1}}
        add = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 5}}
        made += [
            {"Put": {"Item": {**key(state, "put"), "n": 7}, "ConditionExpression": there, **values}},
            {"Update": {"Key": key(state, "update"), **add}},
            {"Delete": {"Key": key(state, "delete")}},
            {"ConditionCheck": {"Key": key(state, "check"), "ConditionExpression": there, **values}},
        ]
    return made


def after_actions(stage: Stage) -> dict[tuple[str, str], int]:
    """The items after them."""
    expected: dict[tuple[str, str], int] = {}
    for state in STATES[stage]:
        expected |= {(state, "put"): 7, (state, "update"): 5 if state == "absent" else 6}
        expected |= {} if state == "absent" else {(state, "check"): 1}
    return expected
