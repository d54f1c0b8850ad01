"""A whole Scan as a machine: its segments side by side, and what a failure means."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.machine import Done, Send, Wait
from shardkit.errors import ShardQueryError, UnsupportedExpressionError
from shardkit.sharding.scan import StreamOfSegments
from tests.support.fakes import client_error
from tests.support.machines import a_fan_out
from tests.support.tables import many


def sent(stream: StreamOfSegments, count: int) -> list[Send]:
    sends = [stream.next(0.0) for _ in range(count)]
    assert stream.next(0.0) == Wait()
    return [send for send in sends if isinstance(send, Send)]


def page(number: int, **more: Any) -> dict[str, Any]:
    return {"Items": [{"pk": {"S": "k.1"}, "sk": {"N": str(number)}}], **more}


def test_segments_side_by_side() -> None:
    """All segments are asked at once, a page is handed out as it comes, and each segment goes on where it ended."""
    stream = StreamOfSegments(many(), {"Limit": 1}, 2, a_fan_out())
    sends = sent(stream, 2)
    assert [send.params["Segment"] for send in sends] == [0, 1]
    last = {"pk": {"S": "k.1"}, "sk": {"N": "1"}}
    stream.receive(sends[1], page(1, LastEvaluatedKey=last), 0.0)
    stream.receive(sends[0], {"Items": []}, 0.0)
    assert stream.next(0.0) == Done([({"pk": "k", "sk": 1}, 1)])
    (more,) = sent(stream, 1)
    assert (more.params["Segment"], more.params["ExclusiveStartKey"]) == (1, last)
    stream.receive(more, {"Items": []}, 0.0)
    assert stream.next(0.0) == Done([])


def test_all_segments_failed_alike() -> None:
    """Where no segment answered and all failed alike, the service's own error is raised."""
    stream = StreamOfSegments(many(), {}, 2, a_fan_out())
    sends = sent(stream, 2)
    error = client_error("AccessDeniedException")
    stream.receive(sends[0], error, 0.0)
    assert stream.next(0.0) == Wait()
    stream.receive(sends[1], client_error("AccessDeniedException"), 0.0)
    with pytest.raises(ClientError) as caught:
        stream.next(0.0)
    assert caught.value is error


def test_some_segments_failed() -> None:
    """What the others brought comes first, then the error that says which failed."""
    stream = StreamOfSegments(many(), {}, 2, a_fan_out())
    sends = sent(stream, 2)
    stream.receive(sends[0], client_error(), 0.0)
    stream.receive(sends[1], page(1), 0.0)
    assert stream.next(0.0) == Done([({"pk": "k", "sk": 1}, 1)])
    with pytest.raises(ShardQueryError, match="1 of 2 segments") as caught:
        stream.next(0.0)
    assert caught.value.errors.keys() == {0}


@pytest.mark.parametrize("own", [{"Segment": 0}, {"TotalSegments": 2}, {"ExclusiveStartKey": {}}, {"Select": "COUNT"}])
def test_what_is_the_streams_own(own: dict[str, Any]) -> None:
    """What scan_items() decides itself cannot be given."""
    with pytest.raises(UnsupportedExpressionError, match="use scan"):
        StreamOfSegments(many(), own, 2, a_fan_out())


def test_segments_side_by_side_are_bounded() -> None:
    """No more segments are asked at once than there are connections."""
    stream = StreamOfSegments(many(), {}, 5, a_fan_out(2))
    assert [type(stream.next(0.0)) for _ in range(3)] == [Send, Send, Wait]


def test_a_segment_that_hangs() -> None:
    """The deadline is for each wait: it ends, with what hangs in the error; what comes later is not looked at."""
    stream = StreamOfSegments(many(), {}, 2, a_fan_out(timeout=1.0))
    sends = [step for step in (stream.next(5.0), stream.next(5.0)) if isinstance(step, Send)]
    assert stream.next(5.5) == Wait(6.0)
    stream.receive(sends[1], page(1, LastEvaluatedKey={"pk": {"S": "k.1"}, "sk": {"N": "1"}}), 5.9)
    assert stream.next(5.9) == Done([({"pk": "k", "sk": 1}, 1)])
    more = stream.next(50.0)
    assert isinstance(more, Send)
    assert stream.next(50.0) == Wait(51.0)
    stream.receive(more, {"Items": []}, 50.5)
    with pytest.raises(ShardQueryError, match=r"1 of 2 segments.*within 1\.0 seconds") as caught:
        stream.next(51.0)
    assert caught.value.errors.keys() == {0}
    stream.receive(sends[0], page(2), 51.5)
