"""A bulk load's machine, with scripted answers and a clock that costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import cycle
from typing import Any

import pytest
from boto3.dynamodb.types import Binary

from shardkit import CalculatedSuffix, InvalidKeyError, RandomSuffix, ShardTally, ShardUnknownError
from shardkit.bulk.load_end import raise_failures
from shardkit.bulk.load_window import BATCH_ITEMS
from shardkit.bulk.report import BulkLoadError, BulkReport
from shardkit.core.machine import Done, Send, Wait
from shardkit.errors import ShardkitError
from tests.support.fakes import (
    Service,
    a_load,
    all_written,
    drive,
    key_of,
    outcome,
    sharding,
    some,
    written,
)


def sent(service: Service) -> list[tuple[Any, ...]]:
    return [key_of(request) for batch in service.batches for request in batch]


def requests(send: Send) -> list[Any]:
    return list(send.params["RequestItems"]["Messages"])


# The order, and the batches.


def test_the_guide_s_upload_order() -> None:
    """U1 with 100 messages, U2 with 200, U3 with 300: every item once, one of every user in turn."""
    users = {"U1": 100, "U2": 200, "U3": 300}
    source = [{"pk": user, "sk": f"{number:04}"} for user, count in users.items() for number in range(count)]
    service, load = Service(), a_load()
    results = drive(load, source, service)
    wanted = [(user, f"{number:04}") for number in range(300) for user, count in users.items() if number < count]
    assert sent(service) == wanted
    assert wanted[:4] == [("U1", "0000"), ("U2", "0000"), ("U3", "0000"), ("U1", "0001")]
    assert outcome(results) == all_written(600)
    assert {len(batch) for batch in service.batches} == {BATCH_ITEMS}


def test_the_order_is_that_of_stored_partition_keys() -> None:
    """One hot key is spread over its shards, and these take turns."""
    service = Service()
    drive(a_load(sharding(CalculatedSuffix("sk", shards=5, hash=int))), some(25), service)
    partitions = [pk for pk, _ in sent(service)]
    assert partitions == [f"U1.{shard}" for shard in range(1, 6)] * 5


def test_a_source_beyond_the_window() -> None:
    """Nothing leaves before the window is full, then 25 at a time; the rest leaves when it is closed."""
    load = a_load(window=30)
    for item in some(29):
        load.put(item)
        assert load.next(0.0) == Done([])
    load.put({"pk": "U2", "sk": "1"})
    wants = [load.wants]
    step = load.next(0.0)
    assert isinstance(step, Send)
    assert step.operation == "BatchWriteItem"
    assert step.params["ReturnConsumedCapacity"] == "INDEXES"
    assert len(step.params["RequestItems"]["Messages"]) == 25
    wants.append(load.wants)
    assert wants == [False, True]
    assert load.next(0.0) == Wait()  # one worker, and it is at work
    load.receive(step, {}, 1.0)
    results = load.next(1.0)
    assert isinstance(results, Done)
    assert len(results.value) == 25
    assert load.next(1.0) == Done([])
    load.close()
    assert not load.wants
    rest = load.next(1.0)
    assert isinstance(rest, Send)
    assert len(rest.params["RequestItems"]["Messages"]) == 5


def test_the_first_request_leaves_after_1000_items_and_the_window_fills() -> None:
    """The source is sorted, 40 items a key: in every batch, all keys that were read take turns."""
    source = (item for user in range(200) for item in some(40, pk=f"U{user}"))
    load, read = a_load(window=5000), 0
    read_before: list[int] = []
    while len(read_before) < 23:
        while load.wants:
            load.put(next(source))
            read += 1
        if isinstance(step := load.next(0.0), Send):
            read_before.append(read)
            assert len({request["PutRequest"]["Item"]["pk"]["S"] for request in requests(step)}) == 25
            load.receive(step, {}, 0.0)
    assert read_before == [*range(1000, 5501, 225), 5525, 5550]


def test_a_window_that_fills_reads_other_keys_when_all_rest() -> None:
    """One key comes first: what may be in flight of it leaves, then items are read until others come."""
    source = iter([*some(3000), *some(3000, pk="U2")])
    load, read, keys = a_load(window=5000, workers=10), 0, []
    while not isinstance(step := load.next(0.0), Wait):
        if isinstance(step, Send):
            keys.append({key_of(request)[0] for request in requests(step)})
        while load.wants:
            load.put(next(source))
            read += 1
    assert keys == [*[{"U1"}] * 4, *[{"U2"}] * 4]
    assert read == 5000 + 8 * 25


def test_workers_are_batches_side_by_side() -> None:
    """As many are sent as there are workers, and no more."""
    load = a_load(workers=3)
    for item in some(100):
        load.put(item)
    load.close()
    steps = [load.next(0.0) for _ in range(4)]
    assert [type(step) for step in steps] == [Send, Send, Send, Wait]


def test_two_writes_of_one_key_are_never_in_one_batch() -> None:
    """The second waits for the first, whatever the first one's luck; the last one wins."""
    for faults in (["none"], ["lost after"], ["unprocessed"], ["throttle", "500 after", "lost", "unprocessed by ARN"]):
        service = Service(faults)  # type: ignore[arg-type]
        source = [{"pk": "U1", "sk": "1", "n": number} for number in range(5)]
        results = drive(a_load(workers=4), source, service)
        assert outcome(results) == all_written(5)
        assert service.items["U1", "1"]["n"] == {"N": "4"}
        numbers = [batch[0]["PutRequest"]["Item"]["n"]["N"] for batch in service.batches]
        assert numbers == sorted(numbers)


def test_one_and_one_point_zero_are_one_key() -> None:
    """Numbers are one key where DynamoDB says so, and an unprocessed one is known in any spelling."""
    table = sharding(pk="N", sk="N")
    service = Service()
    source: list[dict[str, Any]] = [{"pk": Decimal(1), "sk": Decimal("1.0")}, {"pk": Decimal("1.00"), "sk": 1, "n": 2}]
    load = a_load(table)
    assert outcome(drive(load, source, service)) == all_written(2)
    assert load.report.duplicates == 1
    assert list(service.items.values()) == [{"pk": {"N": "1.00"}, "sk": {"N": "1"}, "n": {"N": "2"}}]
    load = a_load(table)
    load.put(source[0])
    load.close()
    send = load.next(0.0)
    assert isinstance(send, Send)
    left = {"PutRequest": {"Item": {"pk": {"N": "1"}, "sk": {"N": "1"}}}}
    load.receive(send, {"UnprocessedItems": {"Messages": [left]}}, 0.0)
    assert load.report.written == 0


def test_what_is_unprocessed_and_unknown_resends_all() -> None:
    """An answer that cannot be understood must not count as written."""
    load = a_load()
    for item in some(2):
        load.put(item)
    load.close()
    send = load.next(0.0)
    assert isinstance(send, Send)
    left = {"PutRequest": {"Item": {"pk": {"S": "?"}, "sk": {"S": "?"}}}}
    load.receive(send, {"UnprocessedItems": {"Messages": [left]}}, 0.0)
    service = Service()
    drive(load, [], service, now=1.0)
    assert len(service.items) == 2


def test_puts_and_deletes_keep_their_order() -> None:
    """A delete behind a put of its key removes it, and a put behind the delete brings it back."""
    for writes, there in (("pd", False), ("pdp", True), ("dp", True)):
        load, service = a_load(sharding(pk="B", sk="B"), workers=3), Service(["unprocessed"])
        for number, letter in enumerate(writes):
            sk = bytearray(b"1") if number else b"1"
            (load.put if letter == "p" else load.delete)({"pk": Binary(b"U1"), "sk": sk})
        assert outcome(drive(load, [], service)) == all_written(len(writes))
        assert bool(service.items) == there


def test_a_delete_needs_its_shard() -> None:
    """It is calculated from the key and what ``by`` reads beside it; one that is drawn cannot be known."""
    load, service = a_load(sharding(CalculatedSuffix("by", shards=9, hash=int))), Service()
    load.delete({"pk": "U1", "sk": "1", "by": 12})
    assert outcome(drive(load, [], service)) == [(0, True)]
    assert service.batches == [[{"DeleteRequest": {"Key": {"pk": {"S": "U1.4"}, "sk": {"S": "1"}}}}]]
    load = a_load(sharding(RandomSuffix(9)))
    load.delete({"pk": "U1", "sk": "1"})
    load.close()
    load.next(0.0)
    assert isinstance(load.report.failures[0].error, ShardUnknownError)


def test_random_shards_are_drawn() -> None:
    """The caller of the pure room supplies the draws."""
    draws = cycle([0.0, 0.5, 0.99])
    service = Service()
    results = drive(a_load(sharding(RandomSuffix(4)), draw=lambda: next(draws)), some(6), service)
    assert Counter(result.shard for result in results) == {1: 2, 3: 2, 4: 2}


# What is wrong before anything is sent.


class NoMapping:
    pass


@pytest.mark.parametrize(
    ("item", "kind", "says"),
    [
        ({"sk": "1"}, InvalidKeyError, "pk: missing"),
        ({"pk": "U1"}, InvalidKeyError, "sk: missing"),
        ({"pk": "", "sk": "1"}, InvalidKeyError, "empty"),
        ({"pk": 1, "sk": "1"}, InvalidKeyError, "must be a string"),
        ({"pk": "U1", "sk": b"1"}, InvalidKeyError, "must be a string"),
        ({"pk": "U1", "sk": "1", "a": 1.5}, TypeError, "Float"),
        ({"pk": "U1", "sk": "1", "a": set()}, TypeError, "empty set"),
        ({"pk": "U1", "sk": "1", "a": [{"b": [set()]}]}, TypeError, "empty set"),
        ({"pk": "U1", "sk": "1", "a": "x" * 409_600}, InvalidKeyError, "400 KB"),
        ({"pk": "U1", "sk": "1", 5: "x"}, InvalidKeyError, "str"),
        (["pk", "sk"], InvalidKeyError, "list"),
        ("pk", InvalidKeyError, "str"),
        (None, InvalidKeyError, "NoneType"),
        (NoMapping(), InvalidKeyError, "NoMapping"),
    ],
)
def test_a_bad_item_is_found_before_it_is_sent(item: Any, kind: type[Exception], says: str) -> None:
    """It fails with its reason and place; the others do not notice."""
    service, load = Service(), a_load()
    results = drive(load, [*some(3), item, *some(3, pk="U2")], service)
    assert outcome(results) == [(place, place != 3) for place in range(7)]
    (failure,) = load.report.failures
    assert failure.item is item
    assert isinstance(failure.error, kind)
    assert says in str(failure.error)
    assert len(service.batches) == 1


def test_sets_lists_and_maps_are_no_bad_items() -> None:
    """Empty lists and maps are values, and so are sets with members."""
    item = {"pk": "U1", "sk": "1", "l": [], "m": {}, "s": {"a"}, "d": {"n": {1, 2}, "b": [{b"x"}, None, True]}}
    service = Service()
    assert outcome(drive(a_load(), [item], service)) == [(0, True)]


def test_bad_items_do_not_pile_up() -> None:
    """Their results are handed on before more than a window of items is read."""
    load = a_load(window=10)
    source = iter(range(1000))
    while load.wants:
        load.put(next(source))  # type: ignore[arg-type]
    assert next(source) == 10


def test_an_item_may_be_changed_after_it_was_given() -> None:
    """A source that fills one dict again and again loads what it gave."""

    def rows() -> Iterable[Mapping[str, Any]]:
        row: dict[str, Any] = {"pk": "U1"}
        for number in range(30):
            row["sk"] = str(number)
            yield row

    service = Service()
    drive(a_load(), rows(), service)
    assert len(service.items) == 30


# Replacing, and the report.


def test_a_later_write_replaces_an_earlier_one_that_was_not_sent() -> None:
    """As boto3's ``overwrite_by_pkeys``: by attributes of the caller's choice; what was sent is sent."""
    service, load = Service(), a_load(window=2, replace_by=("pk", "sk"))
    for number in range(10):
        load.put({"pk": "U1", "sk": "1", "n": number})
        step = load.next(0.0)
        assert isinstance(step, Done)
        assert [result.superseded for result in step.value] == [True] * bool(number)
        assert load.wants
    load.put({"pk": "U1", "sk": "2"})
    assert not load.wants
    load.delete({"pk": "U1", "sk": "2"})
    results = drive(load, [{"pk": "U1", "sk": "1", "n": number} for number in (11, 12)], service)
    assert written(results) == [9, 11, 13]
    report = load.report
    assert (report.items, report.written, report.duplicates) == (14, 3, 11)
    assert service.items["U1", "1"]["n"] == {"N": "12"}
    assert [len(batch) for batch in service.batches] == [2, 1]


def test_replacing_by_any_attribute() -> None:
    """Also one that is not in the key, of any type, or not there."""
    service, load = Service(), a_load(window=9, replace_by=("tag",))
    tags: list[dict[str, Any]] = [{}, {"tag": [1]}, {"tag": [1]}, {"tag": {"x"}}, {}, {"tag": b"x"}]
    for number, tag in enumerate(tags):
        load.put({"pk": "U1", "sk": str(number), **tag})
    results = drive(load, [], service)
    assert written(results) == [2, 3, 4, 5]
    assert len(service.items) == load.report.written == 4


def test_replacing_holds_no_more_than_the_window() -> None:
    """What was sent is forgotten, and a key that comes back is a new write."""
    load = a_load(window=25, replace_by=("pk", "sk"))
    results = drive(load, [*some(500), *some(500)], Service(cycle(["none", "unprocessed"])))
    assert outcome(results) == all_written(1000)


def test_the_report() -> None:
    """It counts what happened, per shard too; a batch's units are apportioned by the items' sizes."""
    load, service = a_load(sharding(CalculatedSuffix("sk", shards=2, hash=int))), Service()
    source = [{"pk": "U1", "sk": "0", "a": "x" * 2900}, {"pk": "U1", "sk": "1"}, {"pk": "U1"}]
    assert load.report == BulkReport()
    drive(load, source, service)
    report = load.report
    assert (report.items, report.written, report.failed, report.requests) == (3, 2, 1, 1)
    assert report.per_shard == {1: ShardTally(1, 1.5), 2: ShardTally(1, 0.5)}
    assert sum(tally.write_units for tally in report.per_shard.values()) == report.write_units == 2.0
    assert report.seconds == 0.001
    assert str(report) == (
        "3 items: 2 written, 1 failed; 2.0 write units in 1 requests (0 items retried, 0 throttles); "
        "0.00 s, 2,000 items/s"
    )
    assert "items/s" not in str(BulkReport())


def test_the_end_of_a_load() -> None:
    """Failures are raised unless they are collected; a source that failed always is."""
    load = a_load()
    drive(load, [*some(2), {"pk": "U1"}], Service())
    raise_failures(load, collect=True)
    with pytest.raises(BulkLoadError, match="1 of 3 items were not written; the first, at place 2"):
        raise_failures(load)
    load = a_load()
    load.put({"pk": "U1", "sk": "1"})
    load.close(OSError("disk"))
    with pytest.raises(
        BulkLoadError, match="the source ended in an error after 1 items: disk; 0 of them are written"
    ) as raised:
        raise_failures(load, collect=True)
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.parametrize(("duplicates", "kept", "failed"), [("last", 4, 0), ("first", 0, 0), ("error", 0, 4)])
def test_duplicates(duplicates: Any, kept: int, failed: int) -> None:
    """Of writes of one key that are held together one stays; each has its result."""
    load, service = a_load(duplicates=duplicates), Service()
    results = drive(load, [{"pk": "U1", "sk": "1", "n": number} for number in range(5)], service)
    report = load.report
    assert (report.items, report.written, report.failed, report.duplicates) == (5, 1, failed, 4 - failed)
    assert service.items["U1", "1"]["n"] == {"N": str(kept)}
    assert written(results) == [kept]
    assert [result.item["n"] for result in sorted(results, key=lambda one: one.place)] == list(range(5))
    assert all("same primary key" in str(result.error) for result in results if not result.ok)


@pytest.mark.parametrize("duplicates", ["last", "first", "error"])
def test_a_write_of_a_key_that_is_done_is_no_duplicate(duplicates: Any) -> None:
    """What was written, or has failed, is forgotten: the next write of its key is written."""
    refused = {"pk": "U1", "sk": "no"}
    for before, fails in (({"pk": "U1", "sk": "1"}, 0), (refused, 1)):
        load = a_load(duplicates=duplicates, window=1)
        service = Service(refuses=lambda item: item["sk"]["S"] == "no" and "n" not in item)
        results = drive(load, [before, *some(3, pk="U2"), {**before, "n": 1}], service)
        assert outcome(results) == [(0, not fails), *((place, True) for place in range(1, 5))]
        assert service.items["U1", before["sk"]]["n"] == {"N": "1"}
        assert (load.report.written, load.report.failed, load.report.duplicates) == (5 - fails, fails, 0)


def test_too_many_failures_end_the_load() -> None:
    """Those beyond what was allowed are not waited for."""
    load = a_load(max_failures=2, window=10)
    items = [{"pk": "U1"} if number % 2 else one for number, one in enumerate(some(1000))]
    drive(load, items, Service())
    assert isinstance(load.fatal, ShardkitError)
    assert "max_failures=2" in str(load.fatal)
    assert load.report.items < 30
