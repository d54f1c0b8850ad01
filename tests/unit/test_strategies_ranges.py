"""RangeSuffix: which shards sort keys and conditions have, boundaries from samples, and what is refused."""

from __future__ import annotations

import random
import warnings
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.expressions.key_condition import KeyCondition, SortCondition, matches
from shardkit.dynamodb.values import Binary, WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError, UnsupportedExpressionError
from shardkit.strategies import RangeSuffix
from tests.support.strategies import DAY
from tests.support.tables import described

ORDERS = RangeSuffix("OrderId", ["F", "N"])
OPS = ("=", "<", "<=", ">", ">=", "BETWEEN", "begins_with")
letters = st.text("ab\x7f\uffff\U0001f600", max_size=3)
texts = letters.filter(bool)
any_text = st.text("\x00a\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff", min_size=1, max_size=4)
binaries = st.binary(min_size=1, max_size=3)
halves = st.integers(-9, 9).map(lambda number: Decimal(number) / 2)


def touched(strategy: RangeSuffix, letter: str, condition: SortCondition) -> list[int | None]:
    key: WireValue = {"S": "k"}
    whole = KeyCondition({"pk": key}, ("sk", condition))
    if condition.op == "=":
        whole = KeyCondition({"pk": key, "sk": condition.values[0]})
    return list(described(strategy, {"pk": "S", "sk": letter}, ["pk", "sk"]).touched(key, whole))


def condition(op: str, low: Any, high: Any) -> SortCondition:
    values = (low, high) if op == "BETWEEN" else (low,)
    return SortCondition(op, tuple(to_wire_item({"v": value})["v"] for value in values))


@given(
    bounds=st.sets(texts, max_size=5) | st.sets(binaries, max_size=5),
    op=st.sampled_from(OPS),
    data=st.data(),
)
def test_a_condition_never_misses_a_shard(bounds: set[Any], op: str, data: st.DataObject) -> None:
    values: st.SearchStrategy[Any] = binaries if any(isinstance(bound, bytes) for bound in bounds) else texts
    low, high = sorted((data.draw(values), data.draw(values)))
    strategy = RangeSuffix("sk", sorted(bounds))
    letter = "B" if isinstance(low, bytes) else "S"
    asked = condition(op, low, high)
    found = touched(strategy, letter, asked)
    assert found == list(range(found[0] or 0, (found[-1] or 0) + 1))
    longer: Any = [low * 9]
    for value in [*bounds, low, high, *longer, *data.draw(st.lists(values, max_size=9))]:
        if matches(asked, to_wire_item({"v": value})["v"]):
            assert strategy.shard_of("k", {"sk": value}) in found


@given(bounds=st.sets(halves, max_size=6), op=st.sampled_from(OPS[:-1]), one=halves, other=halves)
def test_a_condition_asks_no_shard_in_vain(bounds: set[Decimal], op: str, one: Decimal, other: Decimal) -> None:
    """Between any two numbers there is another one, so the shards with a match are exactly those to ask."""
    strategy = RangeSuffix("sk", sorted(bounds))
    asked = condition(op, min(one, other), max(one, other))
    everything = [Decimal(number) / 8 for number in range(-50, 51)]
    matching = {
        strategy.shard_of("k", {"sk": value}) for value in everything if matches(asked, to_wire_item({"v": value})["v"])
    }
    assert touched(strategy, "N", asked) == sorted(matching)


@given(bounds=st.sets(any_text, max_size=6), values=st.lists(any_text, max_size=9))
def test_shards_are_in_the_order_of_utf8_bytes(bounds: set[str], values: list[str]) -> None:
    boundaries, ordered = (sorted(texts, key=lambda text: text.encode()) for texts in (bounds, values))
    strategy = RangeSuffix("sk", boundaries)
    shards = [strategy.shard_of("k", {"sk": value}) for value in ordered]
    assert shards == sorted(shards)


def test_a_number_is_compared_with_all_its_digits() -> None:
    close = [Decimal("9" * 37 + "8"), Decimal("9" * 38)]
    strategy = RangeSuffix("sk", [close[1]])
    assert [strategy.shard_of("k", {"sk": value}) for value in close] == [1, 2]
    assert RangeSuffix("sk", [Decimal("1E+1")]) == RangeSuffix("sk", [10]) == RangeSuffix("sk", [Decimal("10.0")])


def test_an_inverted_range_asks_one_shard() -> None:
    """DynamoDB refuses it, and its error is the answer."""
    assert touched(RangeSuffix("sk", ["b", "c"]), "S", condition("BETWEEN", "z", "a")) == [3]


def test_a_condition_that_no_sort_key_can_meet_is_refused() -> None:
    """Before a shard is calculated from it; with more than 38 digits it is the service that refuses it."""
    numbers = RangeSuffix("sk", [1, 2])
    assert touched(numbers, "N", SortCondition("<", ({"N": "1" * 45},))) == [1, 2, 3]
    wrong: list[tuple[str, dict[str, Any]]] = [("=", {"N": "abc"}), ("begins_with", {"N": "1"}), ("=", {"BOOL": True})]
    for op, value in wrong:
        with pytest.raises(UnsupportedExpressionError, match="must be a string"):
            touched(numbers, "N", SortCondition(op, (value,)))
    with pytest.raises(InvalidKeyError, match="sk: must be a number, as the boundaries are, got '1', text"):
        touched(numbers, "N", SortCondition("=", ({"S": "1"},)))


def test_a_new_last_boundary_renames_nothing() -> None:
    grown = RangeSuffix("OrderId", ["F", "N", "T"])
    assert grown.physical_keys(DAY)[:3] == ORDERS.physical_keys(DAY) == (f"{DAY}.x", f"{DAY}.x46", f"{DAY}.x4e")
    split = RangeSuffix("OrderId", ["C", "F", "N"])
    assert set(ORDERS.physical_keys(DAY)) < set(split.physical_keys(DAY))


def test_each_key_can_have_its_own_boundaries() -> None:
    by_key = RangeSuffix("sk", {"hot": ["b"], b"hot": [b"x", b"y"]})
    assert [len(by_key.shards_for(key)) for key in ("hot", b"hot", "cold")] == [2, 3, 1]
    assert by_key.split("cold.x62") == ("cold.x62", None)
    assert by_key.split("hot.x62") == ("hot", 2)
    of_day = RangeSuffix("sk", lambda day: [f"{day}T12"])
    assert of_day.physical_key("07-09", of_day.shard_of("07-09", {"sk": "07-09T12"})) == "07-09.x30372d3039543132"
    with pytest.raises(ConfigurationError, match=r"boundaries \(for key 'k'\): must be a list"):
        RangeSuffix("sk", lambda _: "abc").shards_for("k")


@pytest.mark.parametrize("stored", ["k.X46", "k.x4", "k.x4E", "k.x47", "k.1", "k.", ".x46", "k.x46 ", "kx46", "k.x٤٦"])
def test_what_is_not_the_name_of_a_range_is_left_on_the_key(stored: str) -> None:
    assert ORDERS.split(stored) == (stored, None)


@pytest.mark.parametrize(
    "boundaries",
    [
        *("FN", None, 5, {"F", "N"}, {"k": "F"}, {"": ["F"]}),
        *(["N", "F"], ["F", "F"], ["F", 5], [1, Decimal("1.0")]),
        *([""], ["x" * 65], ["é" * 33], [Decimal("1" * 39)]),
        *([True], [1.5], [None], [("a",)], [Decimal("NaN")], ["\ud800"]),
    ],
)
def test_wrong_boundaries_are_refused(boundaries: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"boundaries.*: (must be|.* has an invalid key)"):
        RangeSuffix("OrderId", boundaries)


@pytest.mark.parametrize("separator", ["", "1", "a", ".x", "-f-", None])
def test_wrong_separators_are_refused(separator: Any) -> None:
    with pytest.raises(ConfigurationError, match="separator: must"):
        RangeSuffix("OrderId", ["F"], separator=separator)


@pytest.mark.parametrize("by", ["", ("OrderId",), len, None])
def test_ranges_are_of_one_attribute(by: Any) -> None:
    with pytest.raises(ConfigurationError, match="by: must be the name of the table's sort key"):
        RangeSuffix(by, ["F"])


@pytest.mark.parametrize("keys", [["OrderId"], ["pk"], ["pk", "Other"]])
def test_ranges_are_of_the_tables_sort_key(keys: list[str]) -> None:
    """Of another attribute they would not keep the order; with the partition key they would be one."""
    with pytest.raises(ConfigurationError, match="by: must be the sort key of table 'orders'"):
        described(ORDERS, dict.fromkeys(keys, "S"), keys)


@pytest.mark.parametrize("value", [5, b"F", Binary(b"F"), True, None, ["F"], ("F",)])
def test_a_sort_key_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidKeyError, match=r"^(OrderId|value|by): "):
        ORDERS.shard_of("k", {"OrderId": value})
    with pytest.raises(ShardUnknownError):
        ORDERS.shard_of("k", {"Other": "F"})


# From a sample


@pytest.mark.parametrize("kind", ["text", "numbers", "binary"])
def test_a_sample_is_cut_evenly(kind: str) -> None:
    """The next day's sort keys fall evenly too."""
    rng = random.Random(7)

    def draw() -> Any:
        number = rng.randrange(10**6)
        return {"text": f"A{number:07}", "numbers": Decimal(number), "binary": f"A{number:07}".encode()}[kind]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy = RangeSuffix.from_sample([draw() for _ in range(5000)], 50, by="sk")
    assert len(strategy.shards_for("k")) == 50
    assert 1 < strategy.skew("k", [draw() for _ in range(20_000)]) < 1.5


@given(values=st.lists(texts, min_size=3, max_size=20), shards=st.integers(1, 3))
def test_boundaries_of_a_sample_are_as_good_as_its_values(values: list[str], shards: int) -> None:
    """A shortened boundary puts every value of the sample into the range where the whole value would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategy = RangeSuffix.from_sample(values, shards, by="sk")
    ordered = sorted(values)
    whole = sorted({ordered[number * len(ordered) // shards] for number in range(1, shards)} - {ordered[0]})
    longer = RangeSuffix("sk", whole)
    assert [strategy.shard_of("k", {"sk": value}) for value in values] == [
        longer.shard_of("k", {"sk": value}) for value in values
    ]


def test_boundaries_of_a_sample_are_short() -> None:
    values = [f"order-{number:020}" for number in range(100)]
    random.Random(1).shuffle(values)
    assert RangeSuffix.from_sample(values, 2, by="sk").boundaries == ("order-0000000000000000005",)


@pytest.mark.parametrize(("step", "only"), [(1, "grow.*last range"), (-1, "fall.*first range")])
def test_keys_that_only_grow_or_fall_warn(step: int, only: str) -> None:
    """Also if they come a little out of order."""
    values = [step * (10 * number + random.Random(number).randrange(50)) for number in range(300)]
    with pytest.warns(UserWarning, match=f"keys that only {only}"):
        RangeSuffix.from_sample(values, 10, by="sk")


def test_a_sample_with_few_values_warns() -> None:
    with pytest.warns(UserWarning, match="12 with 9 repetitions make 2 ranges of 5, and the fullest has 1 times"):
        RangeSuffix.from_sample(["b", "a", "c"] * 2 + ["a", "b", "a", "a", "b", "a"], 5, by="sk")


def test_samples_that_cannot_be_cut_are_refused() -> None:
    given: list[tuple[Any, int, str]] = [
        ([], 1, "at least as many"),
        (["a"], 2, "at least as many"),
        (["a"], 0, "shards: "),
        ("orders.csv", 2, "values: must be an iterable of sort keys, got 'orders.csv'"),
        (5, 2, "values: must be an iterable of sort keys, got 5"),
    ]
    for values, shards, wrong in given:
        with pytest.raises(ConfigurationError, match=wrong):
            RangeSuffix.from_sample(values, shards, by="sk")
    with pytest.raises(InvalidKeyError, match="values: must be of one type"):
        RangeSuffix.from_sample(["a", 1], 2, by="sk")
    with pytest.raises(ConfigurationError, match="must be of 1 to 64 bytes"):
        RangeSuffix.from_sample(["p" * 70 + "a", "p" * 70 + "b"], 2, by="sk")
    with pytest.raises(ConfigurationError, match="values: must not be empty"):
        ORDERS.skew("k", [])
