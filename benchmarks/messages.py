"""The guide's bulk load: messages of users, as writes that are made already.

A write is what a load keeps of an item. Of its bytes only the keys are made: no partition looks at the rest, and a
message of 1,000 bytes takes one write unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

from shardkit import CalculatedSuffix
from shardkit.bulk.writes import Write
from shardkit.dynamodb.values import WireItem

__all__ = ["DAY", "MESSAGES", "SEED", "counts", "in_order", "in_random_order", "of_one_day", "stored"]

MESSAGES = (100, 200)
"""Of a user, from and to."""
SEED = 1
DAY = "2014-07-09"
_CHUNK = 100_000


def counts(items: int, users: int) -> list[int]:
    """Draw how many messages each user has, so that they are so many in all."""
    draw = Random(SEED)
    drawn = [draw.randint(*MESSAGES) for _ in range(users)]
    while (missing := items - sum(drawn)) != 0:
        step = 1 if missing > 0 else -1
        for user in draw.sample(range(users), min(users, abs(missing))):
            if MESSAGES[0] <= drawn[user] + step <= MESSAGES[1]:
                drawn[user] += step
    return drawn


def in_order(messages: Sequence[int], users: Sequence[int] | None = None) -> Iterator[Write]:
    """Give the messages sorted by user, as one reads them from their source; of all users, or of these."""
    for user in range(len(messages)) if users is None else users:
        key, body = _user(user)
        for number in range(messages[user]):
            yield _write(key, body, number)


def in_random_order(messages: Sequence[int]) -> Iterator[Write]:
    """Give all messages, shuffled."""
    import numpy as np

    begins = np.fromiter(accumulate(messages), dtype=np.int64)
    order = np.random.default_rng(SEED).permutation(begins[-1])
    for at in range(0, len(order), _CHUNK):
        places = order[at : at + _CHUNK]
        users = np.searchsorted(begins, places, side="right")
        numbers = begins[users] - places
        for user, number in zip(users.tolist(), numbers.tolist(), strict=True):
            yield _write(*_user(user), number)


def of_one_day(items: int, shards: int) -> Iterator[Write]:
    """Give orders of one day, each in the shard that its id says."""
    strategy = CalculatedSuffix("OrderId", shards=shards)
    made = [(str(key), _body(str(key))) for key in strategy.physical_keys(DAY)]
    for number in range(items):
        shard = strategy.shard_of(DAY, {"OrderId": number})
        assert shard is not None
        yield _write(*made[shard - 1], number)


def stored(write: Write) -> WireItem:
    """Give the item of a write, in wire form."""
    user, number = write.identity
    return {"pk": {"S": user}, "sk": {"N": str(number)}}


def _user(user: int) -> tuple[str, bytes]:
    key = f"U{user:06}"
    return key, _body(key)


def _body(key: str) -> bytes:
    return b'{"PutRequest":{"Item":{"pk":{"S":"%s"},"sk":{"N":"' % key.encode()


def _write(key: str, body: bytes, number: int) -> Write:
    identity = (key, number)
    return Write(body + b'%d"}}}}' % number, None, None, identity, identity, 1)
