"""Who reads wire values takes binary in each form that it comes in, and hands it on as JSON has it."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Send, Step
from shardkit.dynamodb.body import binary_bytes, binary_text, encode
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.expressions.key_condition import sort_value
from shardkit.dynamodb.requests import estimates_of
from shardkit.dynamodb.sizes import item_size, sized
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, InvalidKeyError, InvalidValueError
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.cursor import made_for
from shardkit.strategies import Strategy
from tests.support.fakes import a_load, outcome, some
from tests.support.strategies import STRATEGIES
from tests.support.tables import described

FORMS: list[Callable[[bytes], Any]] = [binary_text, bytes, bytearray, Binary]
KEYS = st.one_of(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), st.binary(min_size=1, max_size=9))
ITEM = {"OrderId": "A17", "Tenant": "T", "Order": {"Id": "A17"}}


def table(strategy: Strategy, letter: str = "B") -> Sharding:
    sort = [] if strategy.ordered_by is None else [strategy.ordered_by]
    return described(strategy, {"pk": letter, **dict.fromkeys(sort, "S")}, ["pk", *sort])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", [one for one in STRATEGIES if one.ordered_by is None], ids=repr)
def test_a_binary_key(strategy: Strategy, form: Callable[[bytes], Any]) -> None:
    """It is stored in one shard, and in JSON's form, however it is given; and it is read back."""
    sharding = table(strategy)
    raw = b"\xff.5"
    key: WireItem = {"pk": {"B": form(raw)}}
    assert sharding.key_of(key) == key
    shards = sharding.shards(key["pk"])
    assert shards == strategy.shards_for(raw)
    for shard in shards:
        stored = sharding.stored(key, shard)
        assert stored == to_wire_item({"pk": strategy.physical_key(raw, shard)})
        for again in FORMS:
            value, found = sharding.logical({"B": again(base64.b64decode(stored["pk"]["B"]))})
            assert (binary_bytes(value["B"]), found) == (raw, shard)
    if strategy.by_attributes is not None:
        assert sharding.shard_of(key["pk"], ITEM) == strategy.shard_of(raw, ITEM)


@given(st.sampled_from(STRATEGIES), KEYS, st.data())
def test_what_a_suffix_weighs(strategy: Strategy, key: Any, data: st.DataObject) -> None:
    """The size of what is stored is that of the item and its suffix."""
    item = {"pk": key, "a": 1}
    wire, size = sized(item)
    shard = data.draw(st.sampled_from(strategy.shards_for(key)))
    sharding = table(strategy, "S" if isinstance(key, str) else "B")
    stored = {**item, "pk": from_wire(sharding.physical(wire["pk"], shard))}
    assert item_size(stored) == size + sharding.suffix_bytes(wire["pk"], shard)


def test_a_known_key_is_checked_like_a_new_one() -> None:
    """What is kept of a shard 1 does not let through what only equals 1."""
    sharding = table(STRATEGIES[2], "S")
    assert sharding.physical({"S": "k"}, 1) == {"S": "k.1"}
    for wrong in (True, 1.0, 201):
        with pytest.raises(ConfigurationError, match="shard: must be"):
            sharding.physical({"S": "k"}, wrong)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(sharding))  # noqa: S301 - what was just made here
    assert again == sharding
    assert again.physical({"S": "k"}, 1) == {"S": "k.1"}


@pytest.mark.parametrize("content", ["", b"", Binary(b"")])
def test_an_empty_binary_key(content: Any) -> None:
    with pytest.raises(InvalidKeyError, match="pk: empty"):
        table(STRATEGIES[2]).key_of({"pk": {"B": content}})


@pytest.mark.parametrize("form", FORMS)
def test_one_value_for_the_order_the_cursor_and_the_meter(form: Callable[[bytes], Any]) -> None:
    """Binary is the same by its bytes: for the merge, for a cursor's purpose, for what came back unprocessed."""
    raw = b"\xfb\xff"
    assert sort_value({"B": form(raw)}) == raw
    assert made_for({"pk": {"B": form(raw)}}) == made_for({"pk": {"B": "+/8="}})
    put = [{"PutRequest": {"Item": {"pk": {"B": content}, "a": {"BS": [content]}}}} for content in (form(raw), "+/8=")]
    call = SimpleNamespace(operation="BatchWriteItem", params={"RequestItems": {"orders": put[:1]}})
    assert list(estimates_of(call, {"UnprocessedItems": {"orders": put[1:]}})) == []


def test_a_text_that_a_caller_gives_for_binary() -> None:
    """Of a client's caller botocore takes it, and the meter does not mind."""
    put = [{"PutRequest": {"Item": {"pk": {"B": "any text"}, "a": {"BS": ["any text"]}}}}]
    call = SimpleNamespace(operation="BatchWriteItem", params={"RequestItems": {"orders": put}})
    assert len(list(estimates_of(call, {}))) == 1


def test_an_item_that_cannot_be_sent_fails_alone() -> None:
    """An unpaired surrogate is noticed when the batch is written; the batch is halved until it stands alone."""
    load = a_load()
    for item in [*some(9), {"pk": "U1", "sk": "x", "a": "\ud800"}, *some(9, pk="U2")]:
        load.put(item)
    load.close()
    results = []
    while not load.ended:
        step: Step[Any] = load.next(0.0)
        if not isinstance(step, Send):
            results += step.value  # type: ignore[union-attr]
            continue
        try:
            encode(step.params)
        except InvalidValueError as error:
            load.receive(step, error, 0.0)
        else:
            load.receive(step, {}, 0.0)
    assert outcome(results) == [(place, place != 9) for place in range(19)]
