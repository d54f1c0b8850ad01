"""Whatever the service answers: a Scan of all segments ends, and says so when it has not read all."""

from __future__ import annotations

import random

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Response, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ShardQueryError
from shardkit.sharding.scan import StreamOfSegments
from tests.support.fakes import client_error
from tests.support.machines import Timed, a_fan_out
from tests.support.tables import many

FAULTS: tuple[Exception, ...] = (client_error("ValidationException"), HTTPClientError(error="the connection was lost"))


@pytest.mark.long_search
@given(
    segments=st.sampled_from([1, 2, 5, 20]),
    items=st.integers(0, 60),
    page=st.sampled_from([1, 3, 1000]),
    concurrency=st.sampled_from([1, 3, 50]),
    filtered=st.booleans(),
    eager=st.booleans(),
    timeout=st.sampled_from([None, 0.1]),
    faulty=st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    kinds=st.lists(st.sampled_from(range(len(FAULTS))), min_size=1, max_size=2),
    seed=st.integers(0, 2**32),
)
def test_a_scan_ends(
    *,
    segments: int,
    items: int,
    page: int,
    concurrency: int,
    filtered: bool,
    eager: bool,
    timeout: float | None,
    faulty: float,
    kinds: list[int],
    seed: int,
) -> None:
    rng = random.Random(seed)
    stored: list[list[int]] = [[] for _ in range(segments)]
    for number in range(items):
        rng.choice(stored).append(number)
    failed: set[int | None] = set()

    def answer(send: Send) -> tuple[float, Answer]:
        seconds = rng.choice((0.001, 0.2))
        segment = send.params.get("Segment", 0)
        assert send.params.get("TotalSegments", 1) == segments
        if rng.random() < faulty:
            failed.add(send.params.get("Segment"))
            return seconds, FAULTS[rng.choice(kinds)]
        start = send.params.get("ExclusiveStartKey")
        at = 0 if start is None else stored[segment].index(int(start["sk"]["N"])) + 1
        read = stored[segment][at : at + page]
        rows = [to_wire_item({"pk": "k.1", "sk": one}) for one in read if not filtered or one % 3 == 1]
        response: Response = {"Items": rows, "Count": len(rows), "ScannedCount": len(read)}
        if len(read) == page and (eager or at + page < len(stored[segment])):
            response["LastEvaluatedKey"] = to_wire_item({"pk": "k.1", "sk": read[-1]})
        return seconds, response

    service = Timed(answer)
    stream = StreamOfSegments(many(), {}, segments, a_fan_out(concurrency, timeout=timeout))
    found: list[int] = []
    raised: Exception | None = None
    try:
        while rows := service.run(stream):
            found += [int(item["sk"]) for item, _ in rows]
    except (ShardQueryError, ClientError, HTTPClientError) as error:
        raised = error
    if isinstance(raised, ShardQueryError):
        late = {one for one, error in raised.errors.items() if isinstance(error, TimeoutError)}
        assert raised.errors.keys() - late <= failed <= raised.errors.keys()
        assert segments > 1 or late
    elif raised is not None:
        assert failed
        assert segments == 1 or not found
    wanted = [number for number in range(items) if not filtered or number % 3 == 1]
    assert len(found) == len(set(found))
    assert set(found) <= set(wanted)
    assert raised or not failed
    assert raised or sorted(found) == wanted
