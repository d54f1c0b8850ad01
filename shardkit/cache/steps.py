"""What the programs of a cache yield: steps for the store, the table and other readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from shardkit.dynamodb.values import WireValue

T = TypeVar("T")
Status = Literal["miss", "fresh", "stale"]


@dataclass(frozen=True, slots=True)
class Look:
    """Get entries from the store; the answer is the time and their contents. A store that fails has none."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """Change the store. The answer is whether it did: a store may fail.

    ``put``: entries, for so many seconds, in place of the content that was seen. They are kept if they are popular
    enough, and ``allowed`` when the store takes them. ``replace``: entries, only where there is one. ``drop``: keys.
    ``clear``: all keys that begin so.
    """

    put: Sequence[tuple[bytes, bytes, float, bytes | None]] = ()
    allowed: Callable[[bytes], bool] = lambda _: True
    replace: Sequence[tuple[bytes, bytes, float]] = ()
    drop: Collection[bytes] = ()
    clear: bytes | None = None


@dataclass(frozen=True, slots=True)
class AskTable:
    """Read from the table; the answer is the response, or its exception is raised."""

    operation: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for a flight of another reader."""

    waiter: Any


@dataclass(frozen=True, slots=True)
class Later:
    """Run a program in the background."""

    program: CacheProgram[Any]


@dataclass(frozen=True, slots=True)
class Count:
    """Tell those who watch the client about lookups: the partition key, how each ended, and the units of the copy."""

    lookups: Sequence[tuple[WireValue | None, Status, float]]


CacheStep = Look | Change | AskTable | Join | Later | Count
CacheProgram = Generator[CacheStep, Any, T]
