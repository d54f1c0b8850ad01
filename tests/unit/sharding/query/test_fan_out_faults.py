"""A fan-out that meets throttles, slow shards and failures: who waits, how long, and what the caller gets."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.merge import Rows
from shardkit.errors import ConfigurationError, ShardQueryError, ShardTimeoutError
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import StreamOfShards
from tests.support.fakes import client_error
from tests.support.machines import FaultyShards, a_fan_out, page_machine, shard_of, stream_machine, throttled
from tests.support.model import ModelTable
from tests.support.tables import many

SHARDS = 4
K = Key("pk").eq("k")


def plan(**params: Any) -> QueryPlan:
    return QueryPlan.of(many(SHARDS), {"KeyConditionExpression": K, **params})


def sort_keys(rows: Rows) -> list[int]:
    return [int(item["sk"]) for item in rows.items]


def drain(service: FaultyShards, stream: StreamOfShards, found: list[int]) -> None:
    """Read a stream to its end."""
    while rows := service.run(stream):
        found += sort_keys(rows)


class TestThrottles:
    @pytest.mark.parametrize("error", [throttled("KeyRangeThroughput"), throttled()])
    def test_a_hot_key_range_slows_its_own_shard_only(self, error: ClientError) -> None:
        """From its first throttle on the shard waits longer each time; the others have long answered."""
        service = FaultyShards(SHARDS, lambda shard, nth: (0.01, error) if shard == 2 and nth <= 3 else None)
        page = service.run(page_machine(plan()))
        assert sort_keys(page.rows) == list(range(40))
        assert not page.errors
        assert service.requests == {1: 1, 2: 4, 3: 1, 4: 1}
        assert [service.times(shard) for shard in (1, 3, 4)] == [[0.0]] * 3
        waits = [later - earlier for earlier, later in zip(service.times(2), service.times(2)[1:], strict=False)]
        assert waits == sorted(waits)
        assert waits[0] < 0.1

    @pytest.mark.parametrize("limit", ["ProvisionedThroughput", "MaxOnDemandThroughput"])
    def test_a_table_short_of_throughput_slows_all(self, limit: str) -> None:
        """What has not been asked yet waits with the shard that was throttled."""
        service = FaultyShards(SHARDS, lambda shard, nth: (0.01, throttled(limit)) if (shard, nth) == (1, 1) else None)
        page = service.run(page_machine(plan(), concurrency=2))
        assert sort_keys(page.rows) == list(range(40))
        assert all(at > 0.04 for at in (*service.times(1)[1:], *service.times(3), *service.times(4)))

    def test_the_accounts_limit_is_not_waited_for(self) -> None:
        """It would meet every request: the fan-out stops at once and says so."""
        service = FaultyShards(SHARDS, lambda shard, _: (0.01, throttled("AccountLimit")) if shard == 3 else None)
        with pytest.raises(ShardQueryError, match="shard 3: ProvisionedThroughput") as caught:
            service.run(page_machine(plan()))
        assert service.requests[3] == 1
        assert service.now < 0.02
        assert len(caught.value.partial_items) == 30

    def test_a_shard_that_stays_throttled_fails(self) -> None:
        """The tries are bounded; the error is the service's own, with the others' items."""
        service = FaultyShards(SHARDS, lambda shard, _: (0.01, throttled("KeyRangeThroughput")) if shard == 4 else None)
        with pytest.raises(ShardQueryError) as caught:
            service.run(page_machine(plan()))
        assert service.requests[4] == ATTEMPTS
        assert caught.value.errors[4].response["ThrottlingReasons"]  # type: ignore[attr-defined]
        assert [item["sk"] for item in caught.value.partial_items] == [n for n in range(40) if n % SHARDS != 3]

    def test_a_stream_waits_for_its_throttled_shard(self) -> None:
        """A stream's shard is asked again from where it was."""
        service = FaultyShards(SHARDS, lambda shard, nth: (0.01, throttled()) if shard == 2 and nth in {1, 3} else None)
        stream = stream_machine(plan(Limit=8))
        found: list[int] = []
        drain(service, stream, found)
        assert found == list(range(40))


class TestDeadline:
    def test_one_deadline_for_the_whole_fan_out(self) -> None:
        """A shard that hangs fails at the deadline, with the others' items; its late answer is not wanted."""
        service = FaultyShards(SHARDS, lambda shard, _: (60.0, ValueError("too late")) if shard == 2 else None)
        machine = page_machine(plan(), timeout=0.5)
        with pytest.raises(TimeoutError, match=r"\(shard 2: did not answer within 0\.5 seconds\)") as raised:
            service.run(machine)
        assert service.now == 0.5
        assert isinstance(raised.value, ShardTimeoutError)
        assert (raised.value.errno, raised.value.strerror, raised.value.filename) == (None, None, None)
        assert isinstance(raised.value.errors[2], TimeoutError)
        assert len(raised.value.partial_items) == 30
        hung = next(send for _, send in service.sent if shard_of(send) == 2)
        machine.receive(hung, ValueError("too late"), 60.0)
        assert len(machine.errors) == 1

    def test_what_waits_for_a_connection_counts(self) -> None:
        """Shards that were never asked, because others hang, have failed too."""
        service = FaultyShards(SHARDS, lambda *_: (60.0, ValueError("too late")))
        with pytest.raises(ShardQueryError) as caught:
            service.run(page_machine(plan(), timeout=0.5, concurrency=2))
        assert caught.value.errors.keys() == {1, 2, 3, 4}
        assert len(service.sent) == 2

    def test_waits_for_throttled_shards_count(self) -> None:
        """A wait does not go beyond the deadline."""
        service = FaultyShards(SHARDS, lambda shard, _: (0.01, throttled()) if shard == 1 else None)
        page = service.run(page_machine(plan(), timeout=0.3, on_shard_error="partial"))
        assert service.now == 0.3
        assert page.errors.keys() == {1}

    def test_a_stream_does_not_count_the_callers_time(self) -> None:
        """Each wait for the next items has the whole deadline."""
        service = FaultyShards(SHARDS, lambda *_: None)
        stream = stream_machine(plan(Limit=4), timeout=0.5)
        found: list[int] = []
        while rows := service.run(stream):
            found += sort_keys(rows)
            service.now += 10.0
        assert found == list(range(40))

    def test_a_stream_that_hangs(self) -> None:
        """What the other shards hold goes with the error."""
        service = FaultyShards(SHARDS, lambda shard, nth: (60.0, ValueError()) if (shard, nth) == (2, 2) else None)
        stream = stream_machine(plan(Limit=8), timeout=0.5)
        found: list[int] = []
        with pytest.raises(ShardQueryError) as caught:
            drain(service, stream, found)
        rest = [item["sk"] for item in caught.value.partial_items]
        assert found == list(range(len(found)))
        assert rest
        assert min(rest) == len(found)


class TestLate:
    """A deadline of a partial answer."""

    def test_a_page_ends_where_it_stood(self) -> None:
        """A shard that hangs when it is asked again has not failed: the page is short, and its cursor goes on."""
        hot = ModelTable(many(SHARDS))
        for number in range(60):
            hot.put({"pk": "k", "sk": number}, 1 if number < 40 else 1 + number % SHARDS)
        service = FaultyShards(SHARDS, lambda shard, nth: (60.0, ValueError()) if (shard, nth) == (1, 2) else None)
        service.table = hot
        page = service.run(page_machine(plan(Limit=50), timeout=0.5, on_shard_error="partial"))
        assert page.errors == {}
        assert sort_keys(page.rows) == list(range(len(page.rows)))
        assert 0 < len(page.rows) < 40
        rest = FaultyShards(SHARDS, lambda *_: None)
        rest.table = hot
        start = QueryPlan.of(many(SHARDS), {"KeyConditionExpression": K, "ExclusiveStartKey": page.last_evaluated_key})
        assert sort_keys(page.rows) + sort_keys(rest.run(page_machine(start)).rows) == list(range(60))

    @pytest.mark.parametrize("budget", [1000, 64 * 2**20])
    def test_a_small_buffer_does_not_keep_the_others_from_being_asked(self, budget: int) -> None:
        """One shard hangs, and only its items are missing."""
        service = FaultyShards(SHARDS, lambda shard, _: (60.0, ValueError()) if shard == 1 else None)
        stream = stream_machine(plan(), timeout=0.5, on_shard_error="partial", max_buffer_bytes=budget)
        found: list[int] = []
        drain(service, stream, found)
        assert stream.errors.keys() == {1}
        assert found == [number for number in range(40) if number % SHARDS]

    def test_what_was_not_asked_says_so(self) -> None:
        """Two connections, both hang: the other shards were not asked."""
        service = FaultyShards(SHARDS, lambda *_: (60.0, ValueError()))
        with pytest.raises(ShardQueryError) as caught:
            service.run(page_machine(plan(), timeout=0.5, concurrency=2))
        said = ["was not queried" in str(error) for _, error in sorted(caught.value.errors.items())]
        assert said == [False, False, True, True]
        assert str(caught.value).startswith(
            "4 of 4 shards failed (shards 1, 2: did not answer within 0.5 seconds; shards 3, 4: was not queried within "
        )


class TestPartial:
    def test_the_others_are_read_to_their_end(self) -> None:
        """A shard that fails counts as ended: pages go on without it, and say what is missing."""
        service = FaultyShards(SHARDS, lambda shard, _: (0.01, client_error()) if shard == 2 else None)
        page = service.run(page_machine(plan(Limit=25), on_shard_error="partial"))
        assert sort_keys(page.rows) == [n for n in range(40) if n % SHARDS != 1][:25]
        assert page.last_evaluated_key
        assert page.errors.keys() == {2}

    def test_a_stream_goes_on(self) -> None:
        """A shard that fails half-way is missing from there on."""
        service = FaultyShards(SHARDS, lambda shard, nth: (0.01, client_error()) if (shard, nth) == (2, 2) else None)
        stream = stream_machine(plan(Limit=8), on_shard_error="partial")
        found: list[int] = []
        drain(service, stream, found)
        assert set(range(40)) - set(found) == {n for n in range(40) if n % SHARDS == 1} - set(found)
        assert found == sorted(found)
        assert len([n for n in found if n % SHARDS != 1]) == 30
        assert stream.errors.keys() == {2}

    @pytest.mark.parametrize("make", [page_machine, stream_machine])
    def test_all_failed(self, make: Any) -> None:
        """Where nothing was read there is nothing to return."""
        service = FaultyShards(SHARDS, lambda *_: (0.01, client_error("AccessDeniedException")))
        with pytest.raises(ClientError, match="AccessDenied"):
            service.run(make(plan(), on_shard_error="partial"))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("timeout", 0),
        ("timeout", -1.0),
        ("timeout", True),
        ("timeout", "1"),
        ("timeout", float("nan")),
        ("on_shard_error", "ignore"),
        ("on_shard_error", None),
        ("on_shard_error", ["raise"]),
        ("max_buffer_bytes", 0),
        ("max_buffer_bytes", 1.5),
        ("max_buffer_bytes", True),
    ],
)
def test_options_that_cannot_work(name: str, wrong: Any) -> None:
    """An option that cannot work is refused with its name and what was given."""
    with pytest.raises(ConfigurationError, match=name):
        a_fan_out(**{name: wrong})


def test_the_error_can_be_pickled() -> None:
    """With the shards that failed and the others' items."""
    error = ShardQueryError("2 of 3 shards failed", {1: TimeoutError("late")}, [{"pk": "k"}])
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(copy), copy.errors.keys(), copy.partial_items) == (str(error), {1}, [{"pk": "k"}])
