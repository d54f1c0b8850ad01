"""A counter that is spread over the shards of a key: each shard holds a part, and the parts add up to the total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from shardkit.core.backoff import ATTEMPTS, backoff_seconds
from shardkit.core.checks import did_you_mean
from shardkit.core.hashing import stable_hash
from shardkit.core.machine import Program, Send, Wait
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.service_errors import (
    CONFLICTS,
    PASSING_REASONS,
    code_of,
    is_throttle,
    may_be_done,
    refused_parts,
    retry_after,
)
from shardkit.dynamodb.values import WireItem, WireValue, to_number
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
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.items import primary_key
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.strategies import RandomSuffix, Strategy

RESET = "shardkit:reset"
"""The attribute that names a shard's last reset: two resets at once never subtract the same count twice."""

_EXACT = Context(prec=300)  # enough for every sum: DynamoDB's numbers are from 1E-130 to below 1E+126
_MOST_TOKEN = 36
_PART = "it would see the count of one shard, not the total"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("ConditionExpression", "ConditionalOperator", "Expected"),
        f"{_PART}, so no bound of the total can be kept; for a bound, use one item and a conditional update (up to "
        "1,000 writes a second), or give each shard its own quota with update_item(Shard=…)",
    ),
    "ReturnValues": f"{_PART}; call value()",
}


@dataclass(frozen=True, slots=True)
class CounterValue:
    """A counter's value.

    Args:
        total: The sum of all shards.
        read_units: The read capacity units that reading it consumed; None if the service did not report them.
        shards: The count of each shard that was ever added to.
    """

    total: Decimal
    read_units: float | None
    shards: dict[int, Decimal] = field(default_factory=dict)


@dataclass(frozen=True)
class CounterPlace:
    """Where a counter is: a logical primary key, as wire values, and an attribute."""

    sharding: Sharding
    key: WireItem
    attribute: str

    @classmethod
    def of(cls, sharding: Sharding, key: Mapping[str, Any], attribute: str) -> CounterPlace:
        if not isinstance(key, Mapping):
            raise InvalidKeyError(f"key: must be a mapping of the key attributes to values, got {brief(key)}")
        wire = sharding.form.item(key)
        if not isinstance(attribute, str) or not attribute or attribute in (*sharding.key_names, RESET):
            raise ConfigurationError(
                f"attribute: must be the name of an attribute that is not part of the key, got {brief(attribute)}"
            )
        return cls(sharding, primary_key(sharding, wire), attribute)

    @property
    def logical(self) -> WireValue:
        """The logical partition key."""
        return self.key[self.sharding.partition_key]

    def update(self, shard: int | None, expression: str, amount: Decimal) -> dict[str, Any]:
        """Return the parameters of an UpdateItem; ``#a`` is the attribute, ``:n`` the amount."""
        return {
            "TableName": self.sharding.table,
            "Key": self.sharding.stored(self.key, shard),
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {"#a": self.attribute},
            "ExpressionAttributeValues": {":n": {"N": f"{amount:f}"}},
        }

    def addition(self, shard: int | None, amount: Decimal, draw: Callable[[], float]) -> dict[str, Any]:
        """Return the parameters of an UpdateItem that adds, and gives a new item the attributes of sharded indexes."""
        params = self.update(shard, "ADD #a :n", amount)
        if not self.sharding.sharded:
            return params
        logical = {**params, "Key": self.key}
        return {
            **self.sharding.sharded.rewritten("UpdateItem", logical, from_wire_item(self.key), draw),
            "Key": params["Key"],
        }

    def count_in(self, item: WireItem, shard: int | None) -> Decimal:
        value = item.get(self.attribute, {"N": "0"})
        if "N" not in value:
            raise ConfigurationError(
                f"attribute: {self.attribute!r} must be a number in every shard, got type {next(iter(value))} in shard "
                f"{shard} of {self}; choose another attribute or key"
            )
        return Decimal(value["N"])

    def __str__(self) -> str:
        return f"counter {self.attribute!r} of {brief(self.key, 200)} in table {self.sharding.table!r}"


def check_strategy(strategy: Strategy) -> None:
    if not isinstance(getattr(strategy, "new", strategy), RandomSuffix):
        raise ConfigurationError(
            f"table: must be sharded by RandomSuffix, got {strategy!r}: an add may go to any shard, and reads of "
            "single items would look in another one; give the boto3 table (orders.table) and shards="
        )


def amount_of(amount: Any) -> Decimal:
    number = Decimal("NaN")
    if isinstance(amount, int | Decimal) and not isinstance(amount, bool):
        with suppress(ArithmeticError):
            number = to_number(amount)
    if not number.is_finite():
        raise InvalidValueError(
            f"amount: must be an int or a finite Decimal of at most 38 digits, got {brief(amount)}; give a number that "
            "DynamoDB can hold"
        )
    return number


def refuse(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in _REFUSED:
            raise UnsupportedExpressionError(f"{name}: not supported by a counter: {_REFUSED[name]}")
        near = did_you_mean(name, ("amount", "token"))
        raise UnsupportedParameterError(f"{name}{near}: not a parameter of add; give one of amount, token")


def add(place: CounterPlace, amount: Decimal, fan_out: FanOutOptions) -> Program[None]:
    """Add to a random shard, once: after a lost answer the add is not repeated, because it may have been made."""
    tries = 0
    while True:
        # Each try draws again: the shard that was throttled has the rest of its second to recover.
        shard = place.sharding.drawn(place.logical, fan_out.draw())
        params = place.addition(shard, amount, fan_out.draw)
        try:
            yield Send("UpdateItem", params, paced=True, once=True)
        except Exception as error:
            if may_be_done(error):
                raise UnknownOutcomeError(
                    f"add: the answer to adding {amount} was lost ({code_of(error)}: {error}), so shard {shard} of "
                    f"{place} may or may not contain it; accept the difference, or use token=, which can be repeated",
                    amount,
                    shard,
                ) from error
            tries += 1
            if not _refused(error) or tries >= ATTEMPTS:
                raise
            yield from _pause(place, "UpdateItem", tries, error, fan_out)
        else:
            return


def add_with_token(place: CounterPlace, amount: Decimal, token: str, fan_out: FanOutOptions) -> Program[None]:
    """Add in a transaction, which the service makes once per token, so that it can be repeated."""
    if not isinstance(token, str) or not 1 <= len(token) <= _MOST_TOKEN:
        raise ConfigurationError(f"token: must be a str of 1 to {_MOST_TOKEN} characters, got {brief(token)}")
    # The same shard at each repetition: the service refuses another transaction with the same token.
    drawn = (stable_hash(token) >> 11) / 2**53  # as random.random(): below 1
    shard = place.sharding.drawn(place.logical, drawn)
    update = place.addition(shard, amount, lambda: drawn)
    params = {"TransactItems": [{"Update": update}], "ClientRequestToken": token}
    send = Send("TransactWriteItems", params, paced=True)
    tries = 0
    while True:
        try:
            yield send
        except Exception as error:
            tries += 1
            if not (_refused(error) or may_be_done(error)) or tries >= ATTEMPTS:
                raise
            yield from _pause(place, "TransactWriteItems", tries, error, fan_out)
        else:
            return


def value(place: CounterPlace, fan_out: FanOutOptions, *, consistent: bool) -> Program[CounterValue]:
    batch = yield from _read(place, fan_out, consistent=consistent)
    shards = {shard: place.count_in(item, shard) for (_, shard), item in batch.found if shard is not None}
    units = (batch.consumed or {}).get("CapacityUnits")
    return CounterValue(_sum(shards.values()), None if units is None else float(units), shards)


def reset(place: CounterPlace, name: str, fan_out: FanOutOptions) -> Program[Decimal]:
    """Subtract from each shard what was read from it, and return the sum; adds made meanwhile stay.

    ``name``: that of no other reset.
    """
    batch = yield from _read(place, fan_out, consistent=True)
    for (_, shard), item in batch.found:
        place.count_in(item, shard)  # refuse a shard without a number before anything is subtracted
    taken = Decimal(0)
    for (_, shard), item in batch.found:
        try:
            taken = _EXACT.add(taken, (yield from _take(place, shard, item, name, fan_out)))
        except _LostTakeError as lost:
            raise _incomplete(place, shard, taken, lost.amount, lost.cause) from lost.cause
        except Exception as error:
            raise _incomplete(place, shard, taken, Decimal(0), error) from error
    return taken


class _LostTakeError(Exception):
    def __init__(self, amount: Decimal, cause: Exception) -> None:
        self.amount, self.cause = amount, cause


def _take(
    place: CounterPlace, shard: int | None, item: WireItem, name: str, fan_out: FanOutOptions
) -> Program[Decimal]:
    """Subtract a shard's count, on the condition that no other reset has done so since it was read.

    Adds do not touch the condition, so it does not fail for them. If it fails, the shard's item tells who was there:
    this reset itself, in a try whose answer was lost, or another one.
    """
    lost: Exception | None = None
    tries = 0
    while True:
        count = place.count_in(item, shard)
        if not count:
            return count
        params = place.update(shard, "ADD #a :n SET #r = :name", count.copy_negate())
        params["ExpressionAttributeNames"].update({"#r": RESET, "#k": place.sharding.partition_key})
        params["ExpressionAttributeValues"][":name"] = {"S": name}
        unchanged = "attribute_not_exists(#r)"
        if RESET in item:
            unchanged = "#r = :seen"
            params["ExpressionAttributeValues"][":seen"] = item[RESET]
        params["ConditionExpression"] = f"attribute_exists(#k) AND {unchanged}"
        params["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        try:
            yield Send("UpdateItem", params, paced=True, once=True)
        except Exception as error:
            tries += 1
            overtaken = code_of(error) == "ConditionalCheckFailedException"
            if overtaken and _item_of(error).get(RESET) == {"S": name}:
                return count
            if may_be_done(error):
                lost = error
            again = lost is None if overtaken else _refused(error) or may_be_done(error)
            if not again or tries >= ATTEMPTS:
                if lost is not None:
                    raise _LostTakeError(count, lost) from error
                raise
            if overtaken:
                item = _item_of(error)
            else:
                yield from _pause(place, "UpdateItem", tries, error, fan_out)
        else:
            return count


def _item_of(error: Exception) -> WireItem:
    """Return the item of a condition that failed; empty if it does not exist."""
    response: Any = getattr(error, "response", {})
    return dict(response.get("Item") or {})


def _incomplete(
    place: CounterPlace, shard: int | None, taken: Decimal, unknown: Decimal, cause: Exception
) -> IncompleteResetError:
    lost = f", and {unknown} more may have been" if unknown else ""
    return IncompleteResetError(
        f"reset: stopped at shard {shard} of {place} ({code_of(cause)}: {cause}); {taken} was subtracted{lost}; count "
        f"{taken}, and reset again"
        + (f"; if the next reset lacks {unknown} of what value() said before, count that, too" if unknown else ""),
        taken,
        unknown,
    )


def _read(place: CounterPlace, fan_out: FanOutOptions, *, consistent: bool) -> Program[BatchGet]:
    options = {
        "ConsistentRead": consistent,
        "ProjectionExpression": "#a, #r",
        "ExpressionAttributeNames": {"#a": place.attribute, "#r": RESET},
        "ReturnConsumedCapacity": "TOTAL",
    }
    shards = place.sharding.shards(place.logical)
    batch = BatchGet(place.sharding, [(place.key, shard) for shard in shards], options, fan_out)
    yield fan_out.hedged(batch)
    batch.raise_unprocessed()
    return batch


def _refused(error: Exception) -> bool:
    """Return whether the service refused the write, and may accept it later."""
    if code_of(error) == "TransactionCanceledException":
        reasons = refused_parts(error)
        return bool(reasons) and reasons <= PASSING_REASONS
    return is_throttle(error) or code_of(error) in CONFLICTS


def _pause(place: CounterPlace, operation: str, tries: int, error: Exception, fan_out: FanOutOptions) -> Program[None]:
    seconds = backoff_seconds(tries, fan_out.draw(), asked=retry_after(error))
    fan_out.on_retry(operation, place.sharding.table, f"counter {place.attribute!r}", code_of(error), seconds)
    now = yield Wait()
    yield Wait(now + seconds)


def _sum(counts: Iterable[Decimal]) -> Decimal:
    total = Decimal(0)
    for count in counts:
        total = _EXACT.add(total, count)
    return total
