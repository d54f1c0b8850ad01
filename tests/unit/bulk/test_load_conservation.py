"""Promise 3: every item that a bulk load takes ends as written or as failed, whatever happens."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, Strategy, Unsharded
from shardkit.bulk.load_machine import Load
from shardkit.sharding.layout import Sharding
from tests.support.fakes import Fault, Service, client_error, drive, throttled

FAULTS: list[Fault] = [
    "none", "throttle", "unprocessed", "unprocessed by ARN", "500", "lost", "500 after", "lost after"
]  # fmt: skip
ALONE: list[Any] = [
    throttled(),
    throttled("KeyRangeThroughput"),
    throttled("ProvisionedThroughput"),
    client_error("AccessDeniedException"),
    client_error("InternalServerError"),
]
ITEMS = st.lists(
    st.tuples(
        st.sampled_from(["U1", "U2", "U3"]),
        st.integers(0, 12).map(str),
        st.sampled_from(["good"] * 12 + ["refused by the service", "refused here"]),
    ),
    max_size=120,
)
STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(
    [Unsharded(), CalculatedSuffix("sk", shards=3), RandomSuffix(3)]
)
KEYS = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}


@given(
    rows=ITEMS,
    strategy=STRATEGIES,
    faults=st.lists(st.sampled_from(FAULTS), max_size=60),
    alone=st.lists(st.sampled_from([None, *ALONE]), max_size=30),
    fatal=st.booleans(),
    workers=st.integers(1, 4),
    window=st.integers(1, 150),
    rng=st.randoms(use_true_random=False),
)
def test_conservation(
    rows: list[tuple[str, str, str]],
    strategy: Strategy,
    faults: list[Fault],
    alone: list[Any],
    fatal: bool,
    workers: int,
    window: int,
    rng: Random,
) -> None:
    """Each place has one result, and a key none of whose writes failed holds the last of them."""
    items: list[Any] = [
        {"pk": pk, "sk": sk, "n": number, **({"bad": 0.5} if kind == "refused here" else {}), "kind": kind}
        for number, (pk, sk, kind) in enumerate(rows)
    ]
    service = Service(
        [*faults, *(["denied"] if fatal else [])],  # type: ignore[list-item]
        refuses=lambda item: item.get("kind") == {"S": "refused by the service"},
        alone=alone,
    )
    load = Load(Sharding.described("T", strategy, KEYS), workers=workers, draw=rng.random, window=window)
    results = drive(load, items, service, rng)
    report = load.report

    places = [result.place for result in results]
    assert sorted(places) == list(range(report.items))
    assert all(result.item == items[result.place] for result in results)
    assert report.written + report.failed + report.duplicates == report.items <= len(items)
    assert report.written == sum(result.ok and not result.superseded for result in results)
    assert report.duplicates == sum(result.superseded for result in results)
    assert report.failed == len(report.failures) == sum(result.error is not None for result in results)
    if load.fatal is None:
        assert report.items == len(items)
        assert all(result.ok for result in results if items[result.place]["kind"] == "good") or len(faults) >= 10
    assert sum(tally.items for tally in report.per_shard.values()) == report.written

    wanted: dict[Any, Any] = {}
    uncertain: set[Any] = set()
    for result in sorted(results, key=lambda result: result.place):
        item = items[result.place]
        shard = result.shard
        key = (item["pk"] if shard is None else strategy.physical_key(item["pk"], shard), item["sk"])
        if result.superseded:
            continue
        if result.ok:
            wanted[key] = {"N": str(result.place)}
        else:
            # It may have been written before its answer was lost; where no shard is known, nothing was sent.
            uncertain.add(key)
    stored = {key: item["n"] for key, item in service.items.items()}
    assert {key: value for key, value in stored.items() if key not in uncertain} == {
        key: value for key, value in wanted.items() if key not in uncertain
    }
