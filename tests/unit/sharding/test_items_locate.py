"""Whatever the service answers: a located write ends, makes no second copy, and says when it may have been lost."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Program, ProgramMachine, Response, Send
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ShardQueryError, ShardUnknownError
from shardkit.sharding import items
from shardkit.sharding.parameters import FanOutOptions
from shardkit.strategies import RandomSuffix
from tests.support.fakes import client_error
from tests.support.machines import Timed, throttled
from tests.support.tables import described

SHARDS = 4
SHARDING = described(RandomSuffix(SHARDS, locate=True), {"pk": "S", "sk": "N"}, ["pk", "sk"])
LOST = HTTPClientError(error="the answer was lost")
REFUSALS = (
    throttled("KeyRangeThroughput"),
    client_error("InternalServerError"),
    client_error(),
    HTTPClientError(error="no way"),
)
WRITES: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "PutItem": (items.put_item, {"Item": {"pk": "k", "sk": 1}}),
    "UpdateItem": (items.update_item, {"Key": {"pk": "k", "sk": 1}, "UpdateExpression": "REMOVE v"}),
    "DeleteItem": (items.delete_item, {"Key": {"pk": "k", "sk": 1}}),
}


class Unsteady(Timed):
    """Refuses, leaves keys unprocessed, and carries writes out whose answers are lost."""

    def __init__(self, stored: set[str], rng: random.Random, faulty: float) -> None:
        self.stored, self._rng, self._faulty = stored, rng, faulty
        self.written: list[str] = []
        super().__init__(self._answer)

    def _answer(self, send: Send) -> tuple[float, Answer]:
        assert len(self.sent) < 500, "it asks for ever"
        seconds = self._rng.choice((0.001, 0.1))
        if self._rng.random() < self._faulty:
            return seconds, self._rng.choice(REFUSALS)
        return seconds, self._located(send) if send.operation == "BatchGetItem" else self._written(send)

    def _located(self, send: Send) -> Response:
        (asked,) = send.params["RequestItems"].values()
        assert asked["ConsistentRead"] is True
        keys: list[WireItem] = asked["Keys"]
        left = self._rng.sample(keys, self._rng.randint(1, len(keys))) if self._rng.random() < self._faulty else []
        response: Response = {
            "Responses": {"orders": [key for key in keys if key not in left and key["pk"]["S"] in self.stored]}
        }
        return {**response, "UnprocessedKeys": {"orders": {"Keys": left}}} if left else response

    def _written(self, send: Send) -> Answer:
        stored = send.params.get("Key", send.params.get("Item"))["pk"]["S"]
        wanted = "attribute_exists" in send.params["ConditionExpression"]
        if wanted is not (stored in self.stored):
            return client_error("ConditionalCheckFailedException")
        (self.stored.discard if send.operation == "DeleteItem" else self.stored.add)(stored)
        self.written.append(stored)
        return LOST if self._rng.random() < self._faulty else {}


@pytest.mark.long_search
@given(
    operation=st.sampled_from(sorted(WRITES)),
    there=st.none() | st.integers(1, SHARDS),
    faulty=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    concurrency=st.sampled_from([1, 5]),
    timeout=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_a_located_write_ends(
    *, operation: str, there: int | None, faulty: float, concurrency: int, timeout: float | None, seed: int
) -> None:
    rng = random.Random(seed)
    service = Unsteady(set() if there is None else {f"k.{there}"}, rng, faulty)
    write, params = WRITES[operation]
    program: Program[Response] = write(SHARDING, params, None, FanOutOptions(concurrency, rng.random, timeout))
    failed: Exception | None = None
    response: Response = {}
    try:
        response = service.run(ProgramMachine(program))
    except (ShardUnknownError, ShardQueryError, ClientError, HTTPClientError) as error:
        failed = error
    if isinstance(failed, ShardUnknownError):
        assert (operation, there) == ("UpdateItem", None)
    assert len(service.stored) <= 1
    assert there is None or service.stored <= {f"k.{there}"}
    if faulty == 0.0:  # unless the look took too long
        unknown = operation == "UpdateItem" and there is None
        assert (failed is None) != unknown
    if failed is None:
        assert service.written == [f"k.{response['Shard']}"]
        assert len(service.stored) == (operation != "DeleteItem")
    else:
        assert len(service.written) == (failed is LOST)
