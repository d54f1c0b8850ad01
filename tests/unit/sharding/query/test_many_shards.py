"""What a merged read costs by the number of shards: calls of functions and comparisons, not seconds."""

from __future__ import annotations

from collections import Counter, deque
from cProfile import Profile
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit.core.machine import Done, Machine, Send
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.plan import QueryPlan
from shardkit.strategies import RandomSuffix, RangeSuffix
from tests.support.machines import page_machine, stream_machine
from tests.support.tables import described


class Text(str):
    """A sort key whose comparisons are calls that the profiler counts."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def requests(machine: Machine[Any], *, pages: int) -> int:
    """Run a machine to its end on shards that have so many pages of one item; return the number of requests."""
    asked: deque[Send] = deque()
    answered: Counter[int] = Counter()
    while True:
        step = machine.next(0.0)
        if isinstance(step, Send):
            asked.append(step)
        elif not isinstance(step, Done):
            send = asked.popleft()
            (stored,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values() if "S" in value)
            _, suffix = stored.split(".")
            shard = int(bytes.fromhex(suffix[1:]) or 0) if suffix[0] == "x" else int(suffix)
            answered[shard] += 1
            places = (shard, answered[shard]) if suffix[0] == "x" else (answered[shard], shard)
            item = {"pk": {"S": stored}, "sk": {"S": Text("{:06}{:06}".format(*places))}}
            last = {"LastEvaluatedKey": item} if answered[shard] < pages else {}
            machine.receive(send, send.answer({"Items": [item], "Count": 1, "ScannedCount": 1, **last}), 0.0)
        elif step.value is machine or not step.value:
            return answered.total()


def calls(sharding: Sharding, make: Any, *, pages: int) -> float:
    """Return the calls per request of a read."""
    profile = Profile()
    profile.enable()
    sent = requests(make(QueryPlan.of(sharding, {"KeyConditionExpression": Key("pk").eq("k")})), pages=pages)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats()) / sent


def ranges(shards: int) -> RangeSuffix:
    return RangeSuffix("sk", [f"{number:06}" for number in range(1, shards)])


@pytest.mark.parametrize(
    ("strategy", "make", "pages"),
    [
        (RandomSuffix, page_machine, 1),
        (RandomSuffix, stream_machine, 1),
        (RandomSuffix, stream_machine, 2),
        (ranges, stream_machine, 1),
    ],
)
def test_a_request_costs_the_same_with_any_number_of_shards(strategy: Any, make: Any, pages: int) -> None:
    """1,000 shards instead of 100: only the comparisons of binary searches are more."""
    few, many = (described(strategy(shards), {"pk": "S", "sk": "S"}, ["pk", "sk"]) for shards in (100, 1000))
    assert calls(many, make, pages=pages) < 1.2 * calls(few, make, pages=pages)


def test_a_key_is_looked_up_once_a_query() -> None:
    """Not once a shard: a function of ``shards=`` may be slow, and no cache has room for the keys of all shards."""
    looked_up: list[Any] = []

    def shards(key: Any) -> int:
        looked_up.append(key)
        return 2000

    sharding = described(RandomSuffix(shards), {"pk": "S", "sk": "S"}, ["pk", "sk"])
    plan = QueryPlan.of(sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    assert requests(page_machine(plan), pages=1) == 2000
    assert len(looked_up) <= 2
