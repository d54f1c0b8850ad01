"""Whatever the service answers, and whatever was asked for: a merged read ends, and loses nothing unsaid."""

from __future__ import annotations

import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Send
from shardkit.errors import ShardQueryError
from shardkit.sharding.query.plan import QueryPlan
from tests.support.fakes import client_error
from tests.support.machines import Timed, page_machine, stream_machine, throttled
from tests.support.model import ModelTable
from tests.support.tables import many

FAULTS = (
    throttled("KeyRangeThroughput"),
    throttled("ProvisionedThroughput"),
    throttled("AccountLimit"),
    throttled(),
    client_error("InternalServerError"),
)
MOST_STEPS = 5_000


class Unsteady(Timed):
    """Answers late, and now and then not at all."""

    def __init__(self, table: ModelTable, rng: random.Random, *, faulty: float, kinds: list[int]) -> None:
        self.table, self._rng, self._faulty, self._kinds = table, rng, faulty, kinds
        super().__init__(self._answer)

    def _answer(self, send: Send) -> tuple[float, Answer]:
        assert len(self.sent) < MOST_STEPS, "it asks for ever"
        seconds = self._rng.choice((0.001, 0.01, 0.01, 0.2, 3.0))
        if self._kinds and self._rng.random() < self._faulty:
            return seconds, FAULTS[self._rng.choice(self._kinds)]
        return seconds, self.table.answer(send)


@pytest.mark.long_search
@settings(max_examples=settings().max_examples * 2 // 3)
@given(
    shards=st.sampled_from([1, 2, 5, 20]),
    items=st.integers(0, 120),
    page=st.sampled_from([1, 4, 1000]),
    limit=st.none() | st.integers(1, 150),
    filtered=st.booleans(),
    descending=st.booleans(),
    streamed=st.booleans(),
    max_items=st.none() | st.integers(1, 150),
    concurrency=st.sampled_from([1, 3, 50]),
    budget=st.sampled_from([1, 2000, 64 * 1024, 2**26]),
    timeout=st.sampled_from([None, 0.005, 1.0]),
    partial=st.booleans(),
    faulty=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    kinds=st.lists(st.sampled_from(range(len(FAULTS))), max_size=3),
    seed=st.integers(0, 2**32),
)
# The deadline passed while the shard that held all others back was not even asked: the stream ended as if complete.
@example(
    shards=5,
    items=69,
    page=1,
    limit=None,
    filtered=False,
    descending=True,
    streamed=True,
    max_items=7,
    concurrency=1,
    budget=1,
    timeout=1.0,
    partial=True,
    faulty=0.0,
    kinds=[],
    seed=1174055,
)
def test_a_merged_read_ends(
    *,
    shards: int,
    items: int,
    page: int,
    limit: int | None,
    filtered: bool,
    descending: bool,
    streamed: bool,
    max_items: int | None,
    concurrency: int,
    budget: int,
    timeout: float | None,
    partial: bool,
    faulty: float,
    kinds: list[int],
    seed: int,
) -> None:
    rng = random.Random(seed)
    table = ModelTable(many(shards), page=page)
    for number in range(items):
        table.put({"pk": "k", "sk": number, "keep": number % 3 == 1}, rng.choice((1, rng.randint(1, shards))))
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "ScanIndexForward": not descending}
    if limit is not None:
        params["Limit"] = limit
    if filtered:
        params["FilterExpression"] = "keep = :yes"
        params["ExpressionAttributeValues"] = {":yes": True}
    wanted = [number for number in range(items) if not filtered or number % 3 == 1]
    if descending:
        wanted.reverse()
    plan = QueryPlan.of(table.sharding, params)
    service = Unsteady(table, rng, faulty=faulty, kinds=kinds)
    options: dict[str, Any] = {
        "concurrency": concurrency,
        "timeout": timeout,
        "on_shard_error": "partial" if partial else "raise",
        "max_buffer_bytes": budget,
    }
    found: list[int] = []
    failed: ShardQueryError | ClientError | None = None
    machine: Any
    try:
        if streamed:
            machine = stream_machine(plan, max_items=max_items, **options)
            while rows := service.run(machine):
                found += [int(item["sk"]) for item in rows.items]
        else:
            machine = page_machine(plan, **options)
            found += [int(item["sk"]) for item in service.run(machine).rows.items]
    except (ShardQueryError, ClientError) as error:
        failed = error
        assert kinds or timeout is not None
    most = max_items if streamed else limit
    assert most is None or len(found) <= most
    in_order = [number for number in wanted if number in set(found)]
    assert found == in_order, "out of order, twice, or never stored"
    if failed is None and not machine.errors:
        assert found == wanted[: len(found)], "an item is missing"
        if streamed:
            assert len(found) == min(len(wanted), len(wanted) if max_items is None else max_items)
        elif machine.last_evaluated_key is None:
            assert found == wanted, "it ended before the last item"
        elif not filtered:  # of a filter, nothing of a page may be left
            # At the timeout, a page ends at the position that it has reached.
            assert found or timeout is not None
            assert limit is None or len(found) == limit or timeout is not None
    else:
        assert kinds or timeout is not None, "it failed without a fault"
