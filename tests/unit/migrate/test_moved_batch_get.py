"""Reading many items that move: which places are read, how, and what is there of it when a part fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.machine import ProgramMachine, Send
from shardkit.errors import ShardQueryError, UnsupportedExpressionError
from shardkit.migrate.batch_get import get_many
from shardkit.migrate.marks import MARK, STUB
from tests.support.machines import Timed, a_fan_out
from tests.support.moving import TOKEN, homes, moving

KEYS = [{"pk": "k", "sk": f"s{number:03}"} for number in range(130)]
LIVE, MOVED, FROZEN, MISSING = KEYS[:4]


class Store:
    """Answers BatchGetItem from what it holds, by stored key; ``failing`` is raised for a key."""

    def __init__(self, *items: Mapping[str, Any], failing: str = "") -> None:
        self.items = {self._key(item): dict(item) for item in items}
        self.failing = failing
        self.sent: list[Send] = []

    def _key(self, item: Mapping[str, Any]) -> tuple[str, str]:
        return item["pk"]["S"], item["sk"]["S"]

    def __call__(self, send: Send) -> tuple[float, Any]:
        self.sent.append(send)
        ((table, asked),) = send.params["RequestItems"].items()
        keys = [self._key(key) for key in asked["Keys"]]
        if any(sort == self.failing and partition != "k" for partition, sort in keys):
            return 0.0, ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetItem")
        found = [self.items[key] for key in keys if key in self.items]
        consumed = [{"TableName": table, "CapacityUnits": len(keys) / 2}]
        return 0.0, {"Responses": {table: found}, "UnprocessedKeys": {}, "ConsumedCapacity": consumed}

    @property
    def places(self) -> list[list[str]]:
        return [[key["sk"]["S"] for key in send.params["RequestItems"]["Table"]["Keys"]] for send in self.sent]


def run(stage: Any, store: Store, keys: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    fan_out = a_fan_out()
    made: dict[str, Any] = Timed(store).run(ProgramMachine(get_many(moving(stage), keys, options, fan_out)))
    return made


def held() -> Store:
    n = {"n": {"N": "1"}}
    return Store(
        {**homes(LIVE).old, **n},
        {**homes(MOVED).old, MARK: STUB},
        {**homes(MOVED).new, **n},
        {**homes(FROZEN).old, **n, MARK: {"S": TOKEN}},
    )


@pytest.mark.parametrize(("stage", "second"), [("guard", [MOVED]), ("switch", [MOVED, MISSING]),
                                               ("move", [MOVED, MISSING])])  # fmt: skip
def test_the_second_read_is_of_what_is_not_at_the_old_place(stage: Any, second: list[dict[str, str]]) -> None:
    """It is consistent; units are summed, and the mark is not shown."""
    store = held()
    response = run(stage, store, [*KEYS[:4], LIVE], ReturnConsumedCapacity="TOTAL")
    assert response["Items"] == [{**key, "n": 1} for key in (LIVE, MOVED, FROZEN)]
    assert store.places == [[key["sk"] for key in KEYS[:4]], [key["sk"] for key in second]]
    asked = [send.params["RequestItems"]["Table"] for send in store.sent]
    assert ["ConsistentRead" in one for one in asked] == [False, True]
    assert response["ConsumedCapacity"] == {"TableName": "Table", "CapacityUnits": 2 + len(second) / 2}


def test_a_projection_shows_no_mark() -> None:
    """It is asked for, to tell a stub, and taken away; nobody else may ask for it."""
    store = held()
    response = run("switch", store, KEYS[:3], ProjectionExpression="n")
    assert response["Items"] == [{"n": 1}] * 3
    with pytest.raises(UnsupportedExpressionError, match="must not mention 'shardkit:move'"):
        run("switch", store, KEYS[:3], AttributesToGet=["n", MARK])


def test_what_was_read_before_a_failure_is_in_the_error() -> None:
    """At the old places, and in the other requests at the new ones."""
    n = {"n": {"N": "1"}}
    store = Store({**homes(LIVE).old, **n}, {**homes(MOVED).new, **n}, failing=KEYS[-1]["sk"])
    with pytest.raises(ShardQueryError, match="AccessDenied") as raised:
        run("move", store, KEYS)
    assert raised.value.partial_items == [{**LIVE, "n": 1}, {**MOVED, "n": 1}]
