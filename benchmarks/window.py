"""How large a load's window must be: the load's own machine in virtual time, over modelled partitions.

The source is the guide's bad case: messages sorted by user, each user with 100 to 200 of 1 KB. The window is what mixes
them. Whatever its size, the users that it holds do not fall on the partitions evenly, and it fills with those of the
busiest partition until the others have too little to do: the larger it is, the less that costs.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks import messages
from benchmarks.measure import Figure
from benchmarks.simulate import DESCRIPTION, KEPT_SECONDS, WRITE_UNITS, a_table
from shardkit import Unsharded
from shardkit.bulk.load_machine import Load
from shardkit.capacity import item_size
from shardkit.core.machine import Done
from shardkit.partitions import Simulator
from shardkit.sharding.layout import Sharding

__all__ = ["Used", "first_request", "item_bytes", "load", "message", "window"]

WINDOWS = (1_000, 10_000, 25_000, 50_000, 100_000, 200_000)
ITEM_BYTES = 1024
ITEMS = 1_000_000
"""Of a load. A larger one loses a little more: a large window fills slowly (50,000 lose 1.2% of two million)."""
USERS_OF_ITEMS = sum(messages.MESSAGES) // 2

FIRST = 1000
"""Items, at the most, that are read before the first request leaves."""

_BODY = "x" * (ITEM_BYTES - item_size({"pk": {"S": "U" + 6 * "0"}, "sk": {"N": 6 * "9"}, "body": {"S": ""}}))


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a load made of the table: its share of the write units that there were, and of its items sent again."""

    share: float
    again: float


def message(user: int, number: int) -> dict[str, Any]:
    """Give a message of 1 KB at the most."""
    return {"pk": f"U{user:06}", "sk": number, "body": _BODY}


def load(window: int, items: int) -> Used:
    """Load so many messages through a window, and give what was used of the table until the last of them was read.

    What is written after that, while the window empties, counts in a small load only.
    """
    simulator = Simulator(a_table(), seed=messages.SEED)
    loading = simulator.loading(messages.in_order(messages.counts(items, items // USERS_OF_ITEMS)), window=window)
    report = simulator.run(loading)
    if report.written != items:
        raise RuntimeError(f"{report.written} messages were written of {items}")
    read = loading.read
    assert read is not None
    return Used(
        share=read.written / ((read.seconds + KEPT_SECONDS) * WRITE_UNITS),
        again=read.retried / read.written,
    )


def item_bytes(items: int = 10_000) -> float:
    """Give the bytes of memory that a message takes while it waits in the window."""
    sharding = Sharding.described("Messages", Unsharded(), DESCRIPTION)
    machine = Load(sharding, workers=1, draw=Random(messages.SEED).random, window=items)
    tracemalloc.start()
    for number in range(items):
        machine.put(message(number // USERS_OF_ITEMS, number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if machine.report.failed:
        raise RuntimeError(f"messages are refused: {machine.report.failures[0].error}")
    return held / items


def first_request() -> int:
    """Give how many items a load with the default window has read when its first request leaves."""
    machine = Load(Sharding.described("Messages", Unsharded(), DESCRIPTION), workers=10, draw=Random(1).random)
    read = 0
    while isinstance(machine.next(0.0), Done):
        machine.put(message(read // USERS_OF_ITEMS, read))
        read += 1
    return read


def window(*, short: bool) -> Iterator[Figure]:
    """The share of the provisioned write units that a load uses, by its window."""
    read = first_request()
    yield Figure(bench="window", name="items read before the first request", value=read, unit="", target=FIRST)
    each = item_bytes()
    for size in WINDOWS[1:3] if short else WINDOWS:
        used = load(size, ITEMS // 10 if short else ITEMS)
        yield Figure(
            bench="window",
            name=f"window of {size:,} items",
            value=used.share * 100,
            unit="%",
            note=f"{size * each / 1e6:,.0f} MB; {used.again:.1%} of the items were sent again",
        )
