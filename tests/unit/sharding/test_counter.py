"""Counters against a service in which requests of many callers interleave, are throttled, and lose their answers."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, cast

import pytest
from botocore.exceptions import ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from shardkit import RandomSuffix
from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Done, ProgramMachine, Send
from shardkit.errors import (
    ConfigurationError,
    IncompleteResetError,
    InvalidKeyError,
    InvalidValueError,
    UnknownOutcomeError,
    UnsupportedExpressionError,
    UnsupportedParameterError,
    brief,
)
from shardkit.partitions.simulator import draws
from shardkit.sharding import counter
from shardkit.sharding.counter import RESET, CounterPlace
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from tests.support.fakes import client_error

SCHEMA = {"KeySchema": [{"AttributeName": "Page", "KeyType": "HASH"}]}
SHARDING = Sharding.described("Pages", RandomSuffix(3), SCHEMA)
PLACE = CounterPlace.of(SHARDING, {"Page": "home"}, "Views")
Item = dict[str, Any]


@dataclass
class Pages:
    """A table in memory that knows a counter's requests, and what it did for each add."""

    items: dict[str, Item] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    applied: list[Decimal] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)

    def answer(self, send: Send) -> Answer:
        self.operations[send.operation] += 1
        if send.operation == "BatchGetItem":
            (table,) = send.params["RequestItems"]
            keys = [key["Page"]["S"] for key in send.params["RequestItems"][table]["Keys"]]
            assert send.params["RequestItems"][table]["ConsistentRead"] in {True, False}
            found = [{"Page": {"S": key}, **self.items[key]} for key in keys if key in self.items]
            consumed = [{"TableName": "Pages", "CapacityUnits": len(keys) / 2}]
            return {"Responses": {table: found}, "UnprocessedKeys": {}, "ConsumedCapacity": consumed}
        if send.operation == "TransactWriteItems":
            if send.params["ClientRequestToken"] in self.tokens:
                return {}
            self.tokens.add(send.params["ClientRequestToken"])
            ((part,),) = (entry.values() for entry in send.params["TransactItems"])
            return self.update(part)
        assert send.once  # neither adds nor resets may be repeated by botocore
        return self.update(send.params)

    def update(self, params: Any) -> Answer:
        names, values = params["ExpressionAttributeNames"], params["ExpressionAttributeValues"]
        page = params["Key"]["Page"]["S"]
        item = self.items.get(page)
        condition = params.get("ConditionExpression")
        if condition is not None:
            seen = values.get(":seen")
            assert condition == "attribute_exists(#k) AND " + ("#r = :seen" if seen else "attribute_not_exists(#r)")
            if item is None or item.get(RESET) != seen:
                error: Any = client_error("ConditionalCheckFailedException")
                error.response.update({"Item": {"Page": {"S": page}, **item}} if item else {})
                return cast("Exception", error)
        item = self.items[page] = dict(item or {})
        amount = Decimal(values[":n"]["N"])
        before = Decimal(item.get(names["#a"], {"N": "0"})["N"])
        item[names["#a"]] = {"N": f"{Context(prec=300).add(before, amount):f}"}
        if "SET" in params["UpdateExpression"]:
            assert params["UpdateExpression"] == "ADD #a :n SET #r = :name"
            item[names["#r"]] = values[":name"]
        else:
            assert params["UpdateExpression"] == "ADD #a :n"
            self.applied.append(amount)
        return {}

    @property
    def total(self) -> Decimal:
        return sum((Decimal(item["Views"]["N"]) for item in self.items.values()), Decimal(0))


class Call:
    """One call of a counter, which advances by one request at a time; ``ended`` is its result or its error."""

    def __init__(self, program: Any) -> None:
        self.machine = ProgramMachine(program)
        self.ended: Any = None
        self.now = 0.0

    def step(self, pages: Pages, fate: str) -> None:
        while self.ended is None:
            try:
                step = self.machine.next(self.now)
            except Exception as error:  # noqa: BLE001 - the caller looks at it
                self.ended = error
                return
            if isinstance(step, Done):
                self.ended = step
                return
            if not isinstance(step, Send):
                self.now = step.until or self.now
                continue
            answer: Answer
            if fate == "throttled":
                answer = client_error("ProvisionedThroughputExceededException")
            elif fate == "lost before":
                answer = client_error("InternalServerError")
            else:
                answer = pages.answer(step)
                if fate == "lost after":
                    answer = ReadTimeoutError(endpoint_url="https://dynamodb")
            self.machine.receive(step, answer, self.now)
            return


def fan_out(seed: object) -> FanOutOptions:
    return FanOutOptions(4, draws(seed))


FATES = st.sampled_from(["done"] * 6 + ["throttled", "lost before", "lost after"])


@pytest.mark.long_search
@given(
    amounts=st.lists(st.integers(-5, 9), max_size=12),
    tokens=st.lists(st.integers(1, 9), max_size=4),
    resets=st.integers(0, 3),
    turns=st.lists(st.tuples(st.integers(0, 30), FATES), max_size=120),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_or_counted_twice(
    amounts: list[int], tokens: list[int], resets: int, turns: list[tuple[int, str]], seed: int
) -> None:
    """What is in the table, what resets returned and what they may have taken is exactly what adds have added."""
    pages = Pages()
    adds = [Call(counter.add(PLACE, Decimal(n), fan_out((seed, at)))) for at, n in enumerate(amounts)]
    safe = [
        Call(counter.add_with_token(PLACE, Decimal(n), f"token-{at}", fan_out((seed, "t", at))))
        for at, n in enumerate(tokens)
    ]
    taking = [Call(counter.reset(PLACE, f"reset-{at}", fan_out((seed, "r", at)))) for at in range(resets)]
    calls = [*adds, *safe, *taking]
    for at, fate in turns:
        if calls:
            calls[at % len(calls)].step(pages, fate)
    for call in calls:
        while call.ended is None:
            call.step(pages, "done")

    unknown: list[Any] = [call.ended for call in adds if isinstance(call.ended, Exception)]
    assert {type(error) for error in unknown} <= {UnknownOutcomeError}
    known = sum(n for n, call in zip(amounts, adds, strict=True) if isinstance(call.ended, Done)) + sum(tokens)
    assert all(isinstance(call.ended, Done) for call in safe)
    added = sum(pages.applied)
    # An add without an error was made exactly once; one with an unknown outcome at most once.
    assert added - known in sums([error.amount for error in unknown])
    assert len(pages.applied) <= len(amounts) + len(tokens)

    taken = sum(call.ended.value if isinstance(call.ended, Done) else call.ended.taken for call in taking)
    maybe = [call.ended.unknown for call in taking if not isinstance(call.ended, Done)]
    assert added - pages.total - taken in sums(maybe)


def sums(amounts: list[Decimal]) -> set[Decimal]:
    """The sums of every choice of amounts."""
    found = {Decimal(0)}
    for amount in amounts:
        found |= {amount + before for before in found}
    return found


def run(program: Any, pages: Pages, *fates: str) -> Any:
    call = Call(program)
    for fate in fates:
        call.step(pages, fate)
    while call.ended is None:
        call.step(pages, "done")
    if isinstance(call.ended, Exception):
        raise call.ended
    return call.ended.value


def test_a_value_is_the_sum_and_its_cost() -> None:
    pages = Pages()
    amounts = [Decimal(2), Decimal("0.5"), Decimal(-1), Decimal(40)]
    for at, amount in enumerate(amounts):
        run(counter.add(PLACE, amount, fan_out(at)), pages)
    seen = run(counter.value(PLACE, fan_out(0), consistent=True), pages)
    assert (seen.total, seen.read_units) == (Decimal("41.5"), 1.5)
    assert sum(seen.shards.values()) == seen.total
    assert set(seen.shards) <= {1, 2, 3}
    assert run(counter.value(PLACE, fan_out(0), consistent=False), Pages()).total == 0


def test_a_sum_keeps_all_digits() -> None:
    pages = Pages({f"home.{shard}": {"Views": {"N": str(10**37 + shard)}} for shard in (1, 2, 3)})
    assert run(counter.value(PLACE, fan_out(0), consistent=True), pages).total == 3 * 10**37 + 6
    assert run(counter.reset(PLACE, "reset-0", fan_out(0)), pages) == 3 * 10**37 + 6


def test_a_sum_is_exact_over_all_magnitudes() -> None:
    """Services write large numbers in full, with more than 38 digits."""
    pages = Pages({"home.1": {"Views": {"N": f"{Decimal('1E125'):f}"}}, "home.2": {"Views": {"N": "1E-130"}}})
    exact = Decimal("1" + "0" * 125 + "." + "0" * 129 + "1")
    assert run(counter.value(PLACE, fan_out(0), consistent=True), pages).total == exact
    assert run(counter.reset(PLACE, "reset-0", fan_out(0)), pages) == exact
    assert [Decimal(item["Views"]["N"]) for item in pages.items.values()] == [0, 0]


def test_a_reset_with_a_shard_that_is_no_number_subtracts_nothing() -> None:
    pages = Pages({"home.1": {"Views": {"N": "5"}}, "home.3": {"Views": {"S": "many"}}})
    with pytest.raises(ConfigurationError, match="must be a number in every shard, got type S in shard 3"):
        run(counter.reset(PLACE, "reset-0", fan_out(0)), pages)
    assert pages.operations == {"BatchGetItem": 1}


def test_a_throttled_add_goes_to_another_shard() -> None:
    """It was refused, so it is made again, ten times in all; then the throttle is raised, and nothing is counted."""
    pages = Pages()
    call = Call(counter.add(PLACE, Decimal(1), fan_out(1)))
    tries = 0
    while call.ended is None:
        call.step(pages, "throttled")
        tries += call.ended is None
    assert tries == ATTEMPTS
    assert "ProvisionedThroughputExceededException" in str(call.ended)
    assert (pages.applied, pages.operations) == ([], Counter())
    assert call.now > 13
    run(counter.add(PLACE, Decimal(1), fan_out(1)), pages, "throttled", "throttled")
    assert pages.applied == [1]


@pytest.mark.parametrize(("fate", "applied"), [("lost before", []), ("lost after", [7])])
def test_an_add_whose_answer_is_lost_is_not_repeated(fate: str, applied: list[int]) -> None:
    pages = Pages()
    with pytest.raises(UnknownOutcomeError, match=r"adding 7 was lost .* may or may not contain it") as raised:
        run(counter.add(PLACE, Decimal(7), fan_out(0)), pages, fate)
    assert pages.applied == applied
    assert raised.value.amount == 7
    assert raised.value.shard in {1, 2, 3}
    copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own
    assert (str(copy), copy.amount, copy.shard) == (str(raised.value), 7, raised.value.shard)


@pytest.mark.parametrize("fate", ["lost before", "lost after", "throttled"])
def test_an_add_with_a_token_is_repeated(fate: str) -> None:
    pages = Pages()
    for _ in range(2):  # the caller repeats it too
        run(counter.add_with_token(PLACE, Decimal(7), "t", fan_out(0)), pages, fate)
    assert pages.applied == [7]


def test_a_transaction_that_meets_another_is_repeated() -> None:
    error: Any = client_error("TransactionCanceledException")
    error.response.update({"CancellationReasons": [{"Code": "TransactionConflict"}]})
    other: Any = client_error("TransactionCanceledException")
    other.response.update({"CancellationReasons": [{"Code": "ValidationError"}]})
    machine = ProgramMachine(counter.add_with_token(PLACE, Decimal(1), "t", fan_out(0)))
    first = machine.next(0.0)
    assert isinstance(first, Send)
    machine.receive(first, error, 0.0)
    machine.next(0.0)
    again = machine.next(1.0)
    assert isinstance(again, Send)
    assert again.params == first.params
    machine.receive(again, other, 1.0)
    with pytest.raises(type(other), match="TransactionCanceledException"):
        machine.next(1.0)


def test_a_reset_whose_answers_are_lost_knows_what_it_took() -> None:
    pages = Pages({"home.2": {"Views": {"N": "17"}}, "home.3": {"Views": {"N": "0"}}})
    assert (
        run(counter.reset(PLACE, "reset-0", fan_out(0)), pages, "done", "lost after", "lost before", "throttled") == 17
    )
    assert pages.total == 0
    assert pages.operations == {"BatchGetItem": 1, "UpdateItem": 2}  # none for a shard that is 0


def test_a_reset_gives_up_when_others_always_win() -> None:
    """Adds and resets of others come between its own tries for ever: it has taken nothing of that shard."""
    pages = Pages({"home.1": {"Views": {"N": "1"}}, "home.2": {"Views": {"N": "2"}}})
    call = Call(counter.reset(PLACE, "reset-0", fan_out(0)))
    call.step(pages, "done")
    call.step(pages, "done")
    for number in range(100):
        pages.items["home.2"] = {"Views": {"N": "5"}, RESET: {"S": f"other-{number}"}}
        call.step(pages, "done")
    error = call.ended
    assert isinstance(error, IncompleteResetError)
    assert [error.taken, error.unknown] == [1, 0]
    assert pages.operations == {"BatchGetItem": 1, "UpdateItem": 1 + ATTEMPTS}


def test_a_reset_that_cannot_go_on_says_what_it_took() -> None:
    pages = Pages({f"home.{shard}": {"Views": {"N": str(shard)}} for shard in (1, 2, 3)})
    call = Call(counter.reset(PLACE, "reset-0", fan_out(0)))
    for fate in ["done", "done", *["lost before"] * 12]:
        call.step(pages, fate)
    error = call.ended
    assert isinstance(error, IncompleteResetError)
    assert [error.taken, error.unknown, pages.total] == [1, 2, 5]
    assert "stopped at shard 2" in str(error)
    assert "1 was subtracted, and 2 more may have been" in str(error)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copy), copy.taken, copy.unknown) == (str(error), 1, 2)


@pytest.mark.parametrize("fate", ["lost before", "lost after"])
def test_a_reset_that_meets_another_after_a_lost_answer_cannot_know(fate: str) -> None:
    """The name of the other reset is there now, whether this one had been made or not."""
    pages = Pages({"home.2": {"Views": {"N": "17"}}})
    call = Call(counter.reset(PLACE, "reset-0", fan_out(0)))
    call.step(pages, "done")
    call.step(pages, fate)
    run(counter.add(PLACE, Decimal(0), fan_out(0)), pages)
    pages.items["home.2"]["Views"] = {"N": "4"}
    assert run(counter.reset(PLACE, "reset-1", fan_out(1)), pages) == 4
    for _ in range(2):
        call.step(pages, "done")
    assert isinstance(call.ended, IncompleteResetError)
    assert [call.ended.taken, call.ended.unknown] == [0, 17]


def test_a_shard_that_is_deleted_meanwhile_stays_deleted() -> None:
    pages = Pages({"home.1": {"Views": {"N": "5"}}})
    call = Call(counter.reset(PLACE, "reset-0", fan_out(0)))
    call.step(pages, "done")
    del pages.items["home.1"]
    call.step(pages, "done")
    call.step(pages, "done")
    assert (call.ended.value, pages.items) == (0, {})


@pytest.mark.parametrize(
    "amount",
    [True, 1.5, "1", None, *map(Decimal, ["NaN", "sNaN", "Infinity", "1E127", "1." + "1" * 38]), 10**38 + 1, 10**5000],
    ids=brief,
)
def test_an_amount_is_a_number_that_dynamodb_can_hold(amount: Any) -> None:
    with pytest.raises(
        InvalidValueError, match=r"amount: must be an int or a finite Decimal of at most 38 digits.* got"
    ):
        counter.amount_of(amount)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("ConditionExpression", UnsupportedExpressionError, "the count of one shard, not the total, so no bound"),
        ("Expected", UnsupportedExpressionError, "use one item and a conditional update"),
        ("ReturnValues", UnsupportedExpressionError, "call value()"),
        ("Amount", UnsupportedParameterError, "not a parameter of add; give one of amount, token"),
    ],
)
def test_what_is_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=rf"^{name}( \(did you mean amount\?\))?: .*{re.escape(says)}"):
        counter.refuse({name: "x"})


@pytest.mark.parametrize(
    ("key", "attribute", "error", "says"),
    [
        ("home", "Views", InvalidKeyError, "key: must be a mapping"),
        ({}, "Views", InvalidKeyError, "Page: missing in the key"),
        ({"Page": ""}, "Views", InvalidKeyError, "Page: empty"),
        ({"Page": "home", "Day": "x"}, "Views", InvalidKeyError, "Day: is in the key, but is not a key"),
        ({"Page": "home"}, "Page", ConfigurationError, "attribute: must be the name"),
        ({"Page": "home"}, "", ConfigurationError, "attribute: must be the name"),
        ({"Page": "home"}, RESET, ConfigurationError, "attribute: must be the name"),
    ],
)
def test_a_place_that_cannot_be(key: Any, attribute: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        CounterPlace.of(SHARDING, key, attribute)


def test_a_count_that_is_no_number() -> None:
    pages = Pages({"home.2": {"Views": {"S": "x"}}})
    with pytest.raises(
        ConfigurationError, match="attribute: 'Views' must be a number in every shard, got type S in shard 2"
    ):
        run(counter.value(PLACE, fan_out(0), consistent=True), pages)


@pytest.mark.parametrize("token", ["", "x" * 37, 5])
def test_a_token_has_a_length(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="token: must be a str of 1 to 36 characters"):
        run(counter.add_with_token(PLACE, Decimal(1), token, fan_out(0)), Pages())
