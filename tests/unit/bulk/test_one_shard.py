"""A calculated suffix that puts all items of a partition key on one shard: a load says so, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy
from shardkit.bulk.one_shard import MOST_KEYS, OneShard
from shardkit.bulk.writes import Write
from shardkit.sharding.layout import Sharding
from tests.support.fakes import Service, a_load, drive, sharding, some


def loaded(strategy: Strategy, *sources: list[dict[str, Any]]) -> tuple[str, ...]:
    """What a load of these items advises."""
    load = a_load(sharding(strategy))
    drive(load, [item for source in sources for item in source], Service())
    return load.report.advice


def day(item: Any) -> Any:
    return item["pk"]


@pytest.mark.parametrize("by", ["Status", day, lambda _: "x"], ids=["a constant attribute", "the key", "a constant"])
def test_a_load_of_which_nothing_is_spread(by: Any) -> None:
    strategy = CalculatedSuffix(by, 20)
    shard = strategy.shard_of("A", {"pk": "A", "Status": "new"})
    (advice,) = loaded(strategy, some(150, "A", Status="new"))
    assert advice.startswith(f"'A' has 150 items, all on shard {shard} of its 20: CalculatedSuffix(by=")
    assert "RandomSuffix" in advice
    (advice,) = loaded(strategy, some(100, "A", Status="new"), some(120, "B", Status="new"), some(9, "C", Status="new"))
    assert advice.startswith("'B' has 120 items, all on shard ")
    assert "; the same holds for 1 more partition key" in advice


def test_a_load_whose_sort_keys_only_grow() -> None:
    strategy = RangeSuffix("sk", {"A": ["-", "-1"]})
    (advice,) = loaded(strategy, some(150, "A"), some(150, "B"))
    assert advice.startswith("'A' has 150 items, all in range 3 of its 3 (RangeSuffix(by='sk', ")
    assert "if sk only grows, all new items have the last range: use CalculatedSuffix" in advice


@pytest.mark.parametrize("kind", [RandomSuffix, partial(CalculatedSuffix, "sk")], ids=["random", "calculated"])
def test_a_key_that_shards_names_and_no_item_has(kind: Callable[..., Strategy]) -> None:
    items = [*some(90, "acme-corp"), *some(90, "other")]
    assert loaded(kind(shards={"acme": 8, "other": 4, None: 2}), items) == (
        "no item has the key 'acme', which shards names (did you mean acme-corp?)",
    )
    (advice,) = loaded(kind(shards={"acme": 8, "zeta": 4}), items)
    assert advice.endswith("(did you mean acme-corp?); the same holds for 1 more")
    assert loaded(kind(shards={"acme-corp": 8, "other": 4}), items) == ()
    assert loaded(kind(shards={"acme": 8}), items[:90]) == ()  # too few to tell


@pytest.mark.parametrize(
    "strategy",
    [
        RangeSuffix("sk", ["0100"]),
        CalculatedSuffix("sk", 2),
        CalculatedSuffix("Status", 1),
        CalculatedSuffix("Status", {"A": 1, None: 20}),
        RandomSuffix(1),
        RandomSuffix(20),
    ],
    ids=repr,
)
def test_a_load_that_is_as_it_was_meant(strategy: Strategy) -> None:
    """It is spread, or is not to be."""
    assert loaded(strategy, some(150, "A", Status="new")) == ()


def test_few_items_say_nothing() -> None:
    assert loaded(CalculatedSuffix("Status", 20), some(99, "A", Status="new"), some(99, "B", Status="new")) == ()


def test_one_item_elsewhere_is_enough() -> None:
    """Wherever it comes."""
    strategy = CalculatedSuffix("Status", 20)
    shards = [strategy.shard_of("A", {"Status": status}) for status in ("new", "old")]
    assert shards[0] != shards[1]
    for at in (0, 75, 149):
        items = some(150, "A", Status="new")
        items[at] = {**items[at], "Status": "old"}
        assert loaded(strategy, items) == ()


def watched(items: Iterable[tuple[str | bytes, int]], separator: str = ".") -> Iterator[str]:
    """What is said of stored keys and shards; how many are held."""
    one = OneShard(Sharding.described("T", CalculatedSuffix("by", 20, separator=separator), KEYS))
    for key, shard in items:
        suffix = f"{separator}{shard}"
        identity = (key + suffix if isinstance(key, str) else key + suffix.encode(), "1")
        one.add([Write(b"", 0, shard, identity, identity, 1)])
        assert len(one) <= 3 * MOST_KEYS
    return one.advice()


KEYS = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]}


def test_of_many_keys_in_turn_the_first_are_watched() -> None:
    """Round-robin over four times as many keys as are held: of those that are, all is seen."""
    (advice,) = watched((f"K{number}", 7) for _ in range(100) for number in range(4 * MOST_KEYS))
    assert advice.startswith("'K0' has 100 items, all on shard 7 of its 20")
    assert f"; the same holds for {MOST_KEYS - 1:,} more partition keys" in advice


def test_a_key_that_comes_late_is_watched() -> None:
    """Behind many that have few items."""
    small = ((f"K{number}", number % 20 + 1) for number in range(10 * MOST_KEYS))
    (advice,) = watched([*small, *[("hot", 3)] * 100])
    assert advice.startswith("'hot' has 100 items, all on shard 3 of its 20")


def test_suffixes_of_any_form() -> None:
    (advice,) = watched([(b"A", 12)] * 100, separator="::")
    assert advice.startswith("b'A' has 100 items, all on shard 12 of its 20")
