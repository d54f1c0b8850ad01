"""The strategies: promise 1 (round trip), golden values, and every way of building or asking wrongly."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import json
import pickle
import warnings
from _thread import start_new_thread
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardkit
from shardkit import aio, capacity, errors, table, testing
from shardkit import strategies as strategies_module
from shardkit.core.hashing import code_point_product, stable_hash
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, Unsharded
from tests.support.strategies import (
    DAY,
    STRATEGIES,
    length_of,
    old_formula,
    order_of,
    python_value,
    shards_of_key,
    vectors,
)

HUGE = pytest.param(10**6000, id="huge")  # Python refuses to print it
strategies = st.sampled_from(STRATEGIES)
texts = st.one_of(
    st.text(min_size=1, max_size=20),
    st.text(alphabet=".#:0123456789ab٣", min_size=1, max_size=12),
    st.sampled_from(["hot", "a.5", "a.5.1", ".", "1", "k.01", DAY, "#", "a#"]),
)
binaries = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.text(alphabet=".#:019", min_size=1, max_size=9).map(str.encode),
    st.just(b"hot"),
)
keys = st.one_of(texts, binaries)


# Promise 1


@given(strategy=strategies, key=keys, data=st.data())
def test_round_trip(strategy: Strategy, key: Any, data: st.DataObject) -> None:
    shard = data.draw(st.sampled_from(strategy.shards_for(key)))
    physical = strategy.physical_key(key, shard)
    assert type(physical) is type(key)
    assert strategy.split(physical) == (key, shard)


@given(strategy=strategies, key=keys)
def test_the_physical_keys_of_a_key_are_its_shards_in_order(strategy: Strategy, key: Any) -> None:
    physical = strategy.physical_keys(key)
    assert [strategy.split(one) for one in physical] == [(key, shard) for shard in strategy.shards_for(key)]
    assert len(set(physical)) == len(physical)
    assert physical == tuple(strategy.physical_key(key, shard) for shard in strategy.shards_for(key))


@given(strategy=strategies, stored=keys)
def test_split_loses_nothing_of_any_stored_key(strategy: Strategy, stored: Any) -> None:
    logical, shard = strategy.split(stored)
    assert (stored if shard is None else strategy.physical_key(logical, shard)) == stored
    assert shard is None or shard in strategy.shards_for(logical)


@given(key=keys, order=st.one_of(st.text(), st.binary(), st.integers(), st.decimals(-1000, 1000)), count=st.integers(1))
def test_a_calculated_shard_is_one_of_the_key(key: Any, order: Any, count: int) -> None:
    strategy = CalculatedSuffix("OrderId", count % 5000 + 1, first=3)
    shard = strategy.shard_of(key, {"OrderId": order})
    assert shard in strategy.shards_for(key)
    assert shard == stable_hash(order) % (count % 5000 + 1) + 3


def test_the_worked_example_of_the_guide() -> None:
    expected = tuple(f"2014-07-09.{number}" for number in range(1, 201))
    assert RandomSuffix(200).physical_keys(DAY) == expected
    assert CalculatedSuffix("OrderId", shards=200).physical_keys(DAY) == expected
    assert (expected[0], expected[-1]) == ("2014-07-09.1", "2014-07-09.200")
    # "the product of the UTF-8 code point values for the characters in the order ID, modulo 200 + 1"
    assert old_formula().shard_of(DAY, {"OrderId": "A17"}) == 65 * 49 * 55 % 200 + 1


@pytest.mark.parametrize(
    "stored",
    [
        *("k", "k.", ".5", ".", "k.0", "k.05", "k.201", "k.-1", "k.+1", "k. 1", "k.1_0", "k.٣", "k.²", "k.x"),
        *("k." + "9" * 5000, b"k", b".5", b"k.201", b"k.\xb2", b"k.007", 5, Decimal("1.5"), None),
    ],
)
def test_what_is_no_suffix_is_left_on_the_key(stored: Any) -> None:
    assert RandomSuffix(200).split(stored) == (stored, None)
    assert Unsharded().split(stored) == (stored, None)


def test_split_cuts_once_and_from_the_right() -> None:
    assert RandomSuffix(200).split("a.13.b.13") == ("a.13.b", 13)
    assert RandomSuffix(200).split("a.5.57") == ("a.5", 57)
    assert RandomSuffix(10, first=0).split("a.0") == ("a", 0)
    assert RandomSuffix(10, separator="##").split("a###5") == ("a#", 5)


def test_binary_keys_become_bytes() -> None:
    strategy = RandomSuffix(200)
    for key in (b"\xff\x00", bytearray(b"\xff\x00"), Binary(b"\xff\x00"), Binary(bytearray(b"\xff\x00"))):
        physical = strategy.physical_key(key, 57)
        assert (type(physical), physical) == (bytes, b"\xff\x00.57")
    assert strategy.split(Binary(b"k.57")) == (b"k", 57)


def test_a_text_subclass_keeps_its_text() -> None:
    class Color(str, Enum):  # noqa: UP042 - its str() is not its value
        RED = "red"

    assert RandomSuffix(2).physical_keys(Color.RED) == ("red.1", "red.2")
    assert stable_hash(Color.RED) == stable_hash("red")


# shards


def test_a_mapping_gives_each_key_its_count_and_others_one() -> None:
    counts = {"hot": 3, Binary(b"hot"): 2}
    strategy = RandomSuffix(counts)
    counts["hot"] = 99
    assert strategy.shards_for("hot") == range(1, 4)
    assert strategy.shards_for(Binary(b"hot")) == range(1, 3)
    assert strategy.physical_keys("cold") == ("cold.1",)
    assert strategy.split("hot.3") == ("hot", 3)
    assert strategy.split("cold.3") == ("cold.3", None)
    assert isinstance(strategy.shards, dict) is False
    assert len(strategy.shards) == 2  # type: ignore[arg-type]


def test_a_million_shards_are_the_most() -> None:
    most = 1_000_000
    assert RandomSuffix(most).physical_key("k", most) == "k.1000000"
    given: Any
    for given in (most + 1, {"k": most + 1}, 10**6000):
        with pytest.raises(ConfigurationError, match=r"shards(\[.*\])?: must be an integer from 1 to 1,000,000, got"):
            RandomSuffix(given)
    with pytest.raises(ConfigurationError, match=r"shards \(for key .*\): must be .* got 1000001"):
        RandomSuffix(lambda _: most + 1).shards_for("k")


def test_a_function_of_the_key_is_checked_when_used() -> None:
    assert RandomSuffix(shards_of_key).shards_for("ab")[-1] == 7
    for wrong in (0, True, 2.0, "3", None):
        answer: Any = wrong
        strategy = RandomSuffix(functools.partial(lambda answer, _: answer, answer))
        with pytest.raises(ConfigurationError, match=r"shards \(for key .*\): must be an integer"):
            strategy.shards_for("k")
        with pytest.raises(ConfigurationError):
            strategy.split("k.1")


@pytest.mark.parametrize("shards", [0, -1, True, False, 2.0, Decimal(2), "200", None, [2], {"k": 0}, {"k": "2"}])
def test_wrong_shards_are_refused(shards: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be an integer >= 1, got"):
        RandomSuffix(shards)
    with pytest.raises(ConfigurationError):
        CalculatedSuffix("a", shards)


@pytest.mark.parametrize("key", ["", b"", True, 5, ("a",)])
def test_wrong_keys_in_a_mapping_are_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError):
        RandomSuffix({key: 2})


def test_none_in_a_mapping_is_every_other_key() -> None:
    strategy = CalculatedSuffix("Id", {None: 200, "hot": 400})
    assert [len(strategy.shards_for(key)) for key in ("hot", "cold", b"hot")] == [400, 200, 200]
    assert Strategy.from_dict(json.loads(json.dumps(strategy.to_dict()))) == strategy
    with pytest.raises(ConfigurationError, match="None"):
        CalculatedSuffix("Id", {None: 0})
    with pytest.raises(ConfigurationError):
        RangeSuffix("Id", {None: ["F"]})


@pytest.mark.parametrize("separator", ["", "1", ".0.", "·", "٣", None, 5, b"."])
def test_wrong_separators_are_refused(separator: Any) -> None:
    with pytest.raises(ConfigurationError, match="separator: must be ASCII text without digits"):
        RandomSuffix(2, separator=separator)


@pytest.mark.parametrize("first", [-1, True, 1.0, "1", None])
def test_wrong_first_is_refused(first: Any) -> None:
    with pytest.raises(ConfigurationError, match="first: must be an integer >= 0, got"):
        CalculatedSuffix("a", 2, first=first)


@pytest.mark.parametrize("by", ["", (), ("a", ""), ("a", 5), ["a"], None, 5])
def test_wrong_by_is_refused(by: Any) -> None:
    with pytest.raises(ConfigurationError, match="by: must be an attribute name, a tuple of names or a function"):
        CalculatedSuffix(by, 2)


def test_wrong_hash_and_locate_are_refused() -> None:
    for wrong in (builtins.hash, None, "stable_hash"):
        with pytest.raises(ConfigurationError, match=r"hash: must be a function .*; use stable_hash"):
            CalculatedSuffix("a", 2, hash=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="locate: must be True or False, got 1"):
        RandomSuffix(2, locate=1)  # type: ignore[arg-type]


# keys and shards asked for


@pytest.mark.parametrize("shard", [0, 201, -1, None, True, 1.0, "1", HUGE])
def test_a_shard_outside_the_key_is_refused(shard: Any) -> None:
    with pytest.raises(ConfigurationError, match="shard: must be an integer from 1 to 200 for key"):
        RandomSuffix(200).physical_key("k", shard)


@pytest.mark.parametrize("key", [5, 1.5, Decimal(5), Decimal("NaN")])
def test_a_number_cannot_carry_a_suffix(key: Any) -> None:
    strategy = CalculatedSuffix("a", 2)
    for call in (strategy.shards_for, strategy.physical_keys, lambda key: strategy.physical_key(key, 1)):
        with pytest.raises(ConfigurationError, match="type S or B, such as the number's text"):
            call(key)


@pytest.mark.parametrize("key", ["", b"", Binary(b""), None, True, ("k",), {"S": "k"}])
def test_an_empty_key_or_none_is_refused(key: Any) -> None:
    for strategy in (RandomSuffix(2), Unsharded()):
        with pytest.raises(InvalidKeyError, match="key: must be a non-empty str or bytes, got"):
            strategy.physical_keys(key)


def test_unsharded_leaves_every_key_as_it_is() -> None:
    strategy = Unsharded()
    for key in ("k.1", b"k", Binary(b"k"), 5, Decimal("1.50")):
        assert strategy.physical_key(key, None) is key
        assert strategy.physical_keys(key) == (key,)
        assert strategy.shards_for(key) == (None,)
    assert strategy.shard_of("k", {}) is None
    assert (strategy.locate, strategy.by_attributes) == (False, None)
    with pytest.raises(ConfigurationError, match=r"shard: must be .*, got 1"):
        strategy.physical_key("k", 1)


# the shard of an item


def test_shard_of() -> None:
    item = {"OrderId": "A17", "Tenant": 7, "Order": {"Id": b"x"}}
    assert RandomSuffix(5).shard_of(DAY, item) is None
    assert Unsharded().shard_of(DAY, item) is None
    assert CalculatedSuffix("OrderId", 200).shard_of(DAY, item) == stable_hash("A17") % 200 + 1
    by_both = CalculatedSuffix(("OrderId", "Tenant"), 200, first=0)
    assert by_both.shard_of(DAY, item) == stable_hash(("A17", 7)) % 200
    assert CalculatedSuffix(order_of, 200).shard_of(DAY, item) == stable_hash(b"x") % 200 + 1
    pair = CalculatedSuffix(lambda item: (item["OrderId"], item["Tenant"]), 200, first=0)
    assert pair.shard_of(DAY, item) == by_both.shard_of(DAY, item)


def test_the_only_shard_of_a_key_is_known() -> None:
    assert RandomSuffix(1).shard_of(DAY, {}) == 1
    assert RandomSuffix(1, first=0, locate=True).shard_of(b"k", {}) == 0
    by_key = RandomSuffix({DAY: 2}, first=7)
    assert (by_key.shard_of(DAY, {}), by_key.shard_of("2014-07-10", {})) == (None, 7)
    assert RandomSuffix(len).shard_of("k", {}) == 1
    assert RandomSuffix(len).shard_of("kk", {}) is None
    with pytest.raises(InvalidKeyError, match="key: must be a non-empty str or bytes, got"):
        RandomSuffix(1).shard_of("", {})
    with pytest.raises(ConfigurationError, match="got the number"):
        RandomSuffix(1).shard_of(5, {})


def test_by_attributes_and_locate() -> None:
    assert CalculatedSuffix("a", 2).by_attributes == ("a",)
    assert CalculatedSuffix(("a", "b"), 2).by_attributes == ("a", "b")
    assert CalculatedSuffix(order_of, 2).by_attributes is None
    assert RandomSuffix(2).by_attributes is None
    assert RandomSuffix(2, locate=True).locate is True
    assert CalculatedSuffix("a", 2).locate is False


def test_a_written_and_a_read_item_hash_alike() -> None:
    seen: list[Any] = []
    strategy = CalculatedSuffix("a", 2, hash=lambda value: seen.append(value) or 0)  # type: ignore[func-returns-value]
    for value in (b"x", bytearray(b"x"), Binary(b"x")):
        strategy.shard_of("k", {"a": value})
    assert [(type(value), value) for value in seen] == [(bytes, b"x")] * 3


@pytest.mark.parametrize("by", ["OrderId", ("Date", "OrderId"), lambda item: item["OrderId"], order_of])
def test_a_missing_attribute_leaves_the_shard_unknown(by: Any) -> None:
    with pytest.raises(ShardUnknownError, match=r"add it to Item=, or to Key= .*; or give Shard=") as caught:
        CalculatedSuffix(by, 2).shard_of(DAY, {"Date": DAY})
    assert ("'Order'" if by is order_of else "'OrderId'") in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_misspelt_attribute_is_recognized() -> None:
    with pytest.raises(ShardUnknownError, match=r"found no 'Att' among .* \(did you mean At\?\); add it"):
        CalculatedSuffix("Att", 2).shard_of(DAY, {"Date": DAY, "At": 1})


def test_tuples_are_no_attribute_values_nor_empty_nor_nested() -> None:
    with pytest.raises(InvalidKeyError, match="a list in DynamoDB"):
        CalculatedSuffix("a", 2).shard_of("k", {"a": ("b",)})
    with pytest.raises(InvalidKeyError, match="empty tuple"):
        CalculatedSuffix(lambda _: (), 2).shard_of("k", {})
    with pytest.raises(InvalidKeyError):
        CalculatedSuffix(("a",), 2).shard_of("k", {"a": ("b",)})


@pytest.mark.parametrize("result", [-1, True, 1.0, None, "1", Decimal(1)])
def test_a_hash_must_give_a_non_negative_int(result: Any) -> None:
    with pytest.raises(ConfigurationError, match="it must return an int >= 0"):
        CalculatedSuffix("a", 2, hash=lambda _: result).shard_of("k", {"a": "b"})


def test_other_errors_of_a_function_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        CalculatedSuffix(lambda _: 1 // 0, 2).shard_of("k", {})


# golden values


@pytest.mark.parametrize("row", vectors("suffix.json"))
@pytest.mark.filterwarnings("ignore:code_point_product")
def test_golden_physical_keys(row: dict[str, Any]) -> None:
    strategy = Strategy.from_dict(row["strategy"])
    key, physical = python_value(row["key"]), python_value(row["physical"])
    item = {name: python_value(value) for name, value in row["item"].items()}
    shard = strategy.shard_of(key, item)
    assert strategy.physical_key(key, shard) == physical
    assert strategy.split(physical) == (key, shard)


def test_code_point_product_warns_where_it_is_chosen() -> None:
    with pytest.warns(UserWarning, match="nearly always divisible by 200") as caught:
        strategy = CalculatedSuffix("OrderId", 200, hash=code_point_product)
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(UserWarning, match="64%") as caught:
        Strategy.from_dict(strategy.to_dict())
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize(
    "decorate", [lambda made: made, dataclasses.dataclass(frozen=True)], ids=["plain", "dataclass"]
)
def test_code_point_product_warns_where_a_subclass_is_made(decorate: Callable[[type], type]) -> None:
    """Also if that is a line of the program itself, which nothing calls."""
    made, done = decorate(type("Made", (CalculatedSuffix,), {})), Event()
    line = compile("made('OrderId', 200, hash=hash), done.set()", "a program", "eval")
    with pytest.warns(UserWarning, match="64%") as caught:  # noqa: PT031
        start_new_thread(eval, (line, {"made": made, "hash": code_point_product, "done": done}))
        assert done.wait(5)
    assert [one.filename for one in caught] == ["a program"]


# immutable, comparable, picklable


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_strategies_are_values(strategy: Strategy) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a copy does not warn again
        copies = [pickle.loads(pickle.dumps(strategy)), copy.deepcopy(strategy), copy.copy(strategy)]  # noqa: S301
    for one in copies:
        assert one == strategy
        assert hash(one) == hash(strategy)
        assert repr(one) == repr(strategy)
        assert one.physical_keys("hot") == strategy.physical_keys("hot")
    assert [other for other in STRATEGIES if other == strategy] == [strategy]
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.first = 5


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(Unsharded()) == "Unsharded()"
    assert repr(RandomSuffix(200)) == "RandomSuffix(shards=200)"
    assert repr(CalculatedSuffix("a", {"k": 2}, first=0)) == "CalculatedSuffix(by='a', shards={'k': 2}, first=0)"
    assert repr(CalculatedSuffix(order_of, 2, hash=length_of)).count("<function") == 0


@pytest.mark.parametrize("module", [aio, capacity, errors, shardkit, strategies_module, table, testing])
def test_public_names_are_sorted(module: Any) -> None:
    assert module.__all__ == sorted(module.__all__)
