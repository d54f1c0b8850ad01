"""A scenario's items: their sizes, their distribution over keys, their order, and where they are stored."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, Unsharded
from shardkit.capacity import CapacityEstimator, item_size
from shardkit.dynamodb.decode import from_wire, from_wire_item
from shardkit.dynamodb.schema import KeySchema
from shardkit.errors import ConfigurationError, InvalidKeyError, InvalidValueError
from shardkit.partitions.scenarios.distributions import Distribution, EachValue, Weighted
from shardkit.partitions.scenarios.items import FILLER, Kept, ScenarioItems, SpreadItems, generated, key_text
from shardkit.partitions.scenarios.running import in_turn
from shardkit.partitions.scenarios.scenario import ItemsSettings
from shardkit.sharding.layout import Sharding

STRATEGIES: list[Strategy] = [
    Unsharded(),
    RandomSuffix(7),
    CalculatedSuffix("Id", shards=7),
    RandomSuffix({"b": 3}),
    RangeSuffix("Id", ["00000100"]),
]
DESCRIPTION: dict[str, Any] = {
    "TableName": "T",
    "KeySchema": [{"AttributeName": "Key", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": name,
            "KeySchema": [{"AttributeName": "User", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": projection},
        }
        for name, projection in (("All", "ALL"), ("Keys", "KEYS_ONLY"))
    ],
}


def made(
    keys: Distribution, number: int | None = None, *, size: tuple[int, int] = (100, 100), **others: Distribution
) -> ScenarioItems:
    wanted = ItemsSettings(number=number, size=size, attributes={"Key": keys, **others})
    return generated(wanted, KeySchema(("Key",), ("Id",)), Random(1).random)


# -- generated ---------------------------------------------------------------------------------------------------------


@given(st.integers(60, 2000), st.integers(0, 2000), st.integers(1, 30))
def test_items_are_as_large_as_they_are_to_be(least: int, more: int, number: int) -> None:
    items = made(Weighted(("a", "bü"), (1.0, 3.0)), number, size=(least, least + more))
    sizes = [item_size(items[place]) for place in range(len(items))]
    assert sizes == list(items.sizes)
    assert len(sizes) == number
    assert all(least <= size <= least + more for size in sizes)
    assert len({items[place]["Id"] for place in range(number)}) == number


def test_a_size_that_does_not_hold_the_attributes_is_refused() -> None:
    keys = Weighted(("abc", "a"), (1.0, 1.0))
    needed = len("Key") + len("abc") + len("Id") + 9 + len(FILLER)
    assert item_size(made(keys, 1, size=(needed, needed))[0]) == needed
    with pytest.raises(ConfigurationError, match=rf"size: .* {needed} bytes .* Key, Id .* got {needed - 1}$"):
        made(keys, 1, size=(needed - 1, needed))


def test_weighted_values_come_by_their_weights() -> None:
    items = made(Weighted(("a", "b", "c"), (6.0, 3.0, 1.0)), 20_000)
    counts = Counter(items.columns["Key"][place] for place in range(len(items)))
    assert {key: round(count / 20_000, 1) for key, count in counts.items()} == {"a": 0.6, "b": 0.3, "c": 0.1}


def test_the_last_draw_is_the_last_value() -> None:
    weighted = Weighted(("a", "b", "c"), (0.1, 0.2, 0.7))
    assert weighted.places(1, lambda: 1 - 2**-53) == [2]
    assert weighted.places(1, lambda: 0.0) == [0]


def test_each_value_has_its_items() -> None:
    items = made(EachValue([f"U{number:03}" for number in range(200)], (100, 200)))
    keys = [items.columns["Key"][place] for place in range(len(items))]
    counts = Counter(keys)
    assert keys == sorted(keys)
    assert (min(counts.values()), max(counts.values()), len(counts)) == (100, 200, 200)
    assert len(made(EachValue(["a", "b"], (5, 5)), 7)) == 7


def test_other_attributes_are_distributed_by_themselves() -> None:
    items = made(Weighted(("a",), (1.0,)), 1000, User=Weighted(("x", "y"), (1.0, 1.0)))
    assert 400 < Counter(items.attributes(place)["User"] for place in range(1000))["x"] < 600


# -- real ones ---------------------------------------------------------------------------------------------------------

real_items = st.fixed_dictionaries(
    {"Key": st.text(min_size=1, max_size=5) | st.integers(-(10**9), 10**9), "Id": st.integers(0, 10**9)},
    optional={"User": st.text(max_size=3), "Note": st.text(max_size=50), "Tags": st.lists(st.booleans(), max_size=3)},
)


@given(st.lists(real_items, min_size=1, max_size=10))
def test_what_is_kept_of_real_items(real: list[dict[str, Any]]) -> None:
    kept = Kept(["Key", "Id"])
    for item in real:
        kept.add(item)
    items = kept.items()
    for place, item in enumerate(real):
        again = items[place]
        assert item_size(again) == item_size(item)
        assert {name: again[name] for name in ("Key", "Id")} == {name: item[name] for name in ("Key", "Id")}


def test_kept_items_are_counted_typed_and_checked() -> None:
    kept = Kept(["Key", "Total", "Nothing"], needed=["Key"], number=2)
    with pytest.raises(ConfigurationError, match="source: has no items to simulate"):
        kept.items()
    with pytest.raises(InvalidValueError):
        kept.add({"Key": 1.5})
    with pytest.raises(InvalidKeyError, match="the item has no 'Key', a key of the table; it has Total, Note"):
        kept.add({"Total": 5, "Note": "x"})
    for number in range(5):
        kept.add({"Key": "a", "Total": Decimal(number)})
    with pytest.raises(ConfigurationError, match="none of 2 items has the attribute 'Nothing'; choose one that they"):
        kept.items()
    assert ScenarioItems({"Key": ["a"], "Total": [None, 5], "Raw": [b"x"]}, [9, 9]).types == {
        "Key": "S",
        "Total": "N",
        "Raw": "B",
    }


# -- order -------------------------------------------------------------------------------------------------------------


def test_orders() -> None:
    items = made(Weighted(("a", "b", "c"), (1.0, 1.0, 1.0)), 300)
    keys = items.columns["Key"]
    draw = Random(1).random
    given_order, by_key, mixed = (items.order(order, "Key", draw) for order in ("as given", "sorted", "random"))
    assert list(given_order) == list(range(300))
    assert [keys[place] for place in by_key] == sorted(keys[place] for place in range(300))
    assert all(a < b for a, b in pairwise(by_key) if keys[a] == keys[b])
    assert sorted(mixed) == list(range(300))
    assert list(mixed) not in (list(by_key), list(given_order))


@given(st.integers(0, 50), st.integers(1, 60))
def test_cursors_read_in_turn(number: int, cursors: int) -> None:
    found = in_turn(range(number), cursors)
    assert sorted(found) == list(range(number))
    each = -(-number // cursors) or 1
    assert list(found) == sorted(range(number), key=lambda one: (one % each, one // each))


# -- stored ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_where_items_are_stored_and_what_their_keys_take(strategy: Strategy) -> None:
    items = made(Weighted(("a", "b"), (1.0, 3.0)), 400, size=(900, 1200), User=Weighted(("x", "longer"), (1.0, 1.0)))
    sharding = Sharding.described("T", strategy, DESCRIPTION)
    spread = SpreadItems(items, sharding, seed=3)
    estimator = CapacityEstimator(DESCRIPTION)
    expected: Counter[Any] = Counter()
    for place in range(len(items)):
        stored = spread[place]
        assert spread[place] == stored
        assert spread.key(place) == {name: stored[name] for name in ("Key", "Id")}
        logical, shard = strategy.split(from_wire(stored["Key"]))
        assert {**from_wire_item(stored), "Key": logical} == items[place]
        assert shard in strategy.shards_for(logical)
        expected[stored["Key"]["S"]] += int(estimator.put_item(stored).table)
    found = spread.key_units()
    assert Counter({key[0][1]: units for key, units in found.items()}) == expected
    ((hottest, units),) = found.most_common(1)
    assert (key_text(hottest), units) == expected.most_common(1)[0]
    if isinstance(strategy, RandomSuffix) and strategy.shards == 7:
        assert len(expected) == 14
