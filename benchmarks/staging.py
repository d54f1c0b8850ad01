"""What order costs DynamoDB's own bulk writes: the source's order, with shards, and that of ``stage_items``.

AWS's reader is not known. The model is an ideal one: it reads some objects side by side, each in its order, and holds
``LOOK_AHEAD`` items of each that it has read and not written. In every millisecond, each of 20 partitions writes one of
the items held that belong to it, and the reader reads one more of the object from which that came. Nothing is throttled
and nothing takes time but the partitions, so no real reader with this look-ahead makes more of the same objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.measure import Figure
from benchmarks.sorted_orders import PARTITIONS, SortedOrders, ceiling
from benchmarks.stage_job import PROCESSES, staged

__all__ = ["OBJECTS_AT_ONCE", "Share", "draw", "simulated", "staging"]

WHOLE, SHORT = SortedOrders(2_500, 2_000, 10), SortedOrders(1_250, 400, 10)
CPU_MICROSECONDS, MEGABYTES = 20, 600
SOURCE_OBJECTS = 50
OBJECTS_AT_ONCE = (1, 8, 32)
LOOK_AHEAD = 1_000
OTHER_LOOK_AHEADS = (100, 10_000)
UNUSED = 10
"""Percent of the partitions' throughput that the staged order may leave."""

SOURCE, SHARDED, STAGED = "sorted source", "sorted source, 10 shards", "staged"


@dataclass(frozen=True)
class Share:
    """The share of the partitions' throughput that an order of the items can use, in %."""

    order: str
    at_once: int
    percent: float


def simulated(objects: Sequence[bytes], at_once: int, *, look_ahead: int = LOOK_AHEAD) -> float:
    """Return the share of the partitions' throughput that the objects' order can use.

    Args:
        objects: The partition of each item, in the order in which an object has them.
        at_once: How many objects are read side by side.
        look_ahead: How many items of each are read and not yet written.
    """
    waiting = iter(objects)
    read = [(place for one in waiting for place in one) for _ in range(at_once)]  # each goes on with the next object
    held: list[deque[Generator[int]]] = [deque() for _ in range(PARTITIONS)]
    for reader in read:
        for _ in range(look_ahead):
            place = next(reader, None)
            if place is not None:
                held[place].append(reader)
    items = left = sum(map(len, objects))
    milliseconds = 0
    while left:
        milliseconds += 1
        served = [queue.popleft() for queue in held if queue]
        left -= len(served)
        for reader in served:
            place = next(reader, None)
            if place is not None:
                held[place].append(reader)
    return items / (milliseconds * PARTITIONS)


def _cut(items: bytes) -> list[bytes]:
    each = -(-len(items) // SOURCE_OBJECTS)
    return [items[start : start + each] for start in range(0, len(items), each)]


def staging(*, short: bool, points: list[Share] | None = None) -> Iterator[Figure]:
    """CPU and memory of a stage, and the share of 20 partitions' throughput that orders of its items can use."""
    figure = partial(Figure, bench="staging")
    orders = SHORT if short else WHOLE
    took, objects = staged(orders)
    name = f"stage_items of {took.items:,} items by {PROCESSES} processes"
    yield figure(
        name=f"{name}: CPU an item",
        value=took.cpu,
        unit="µs",
        target=CPU_MICROSECONDS,
        note=(
            f"{took.seconds:,.0f} s; {took.raw_megabytes:,.0f} MB in {took.objects:,} objects, "
            f"{took.stored_megabytes:,.0f} MB as GZIP"
        ),
    )
    yield figure(name=f"{name}: memory of a process", value=took.megabytes, unit="MB", target=MEGABYTES)
    least = 100.0
    for order, read in {
        SOURCE: _cut(replace(orders, shards=1).partitions()),
        SHARDED: _cut(orders.partitions()),
        STAGED: objects,
    }.items():
        most = ceiling(b"".join(read))
        for at_once in OBJECTS_AT_ONCE:
            percent = 100 * simulated(read, at_once)
            others = [
                f"look-ahead {other:,}: {simulated(read, at_once, look_ahead=other):.1%}"
                for other in (() if short else OTHER_LOOK_AHEADS)
            ]
            if points is not None:
                points.append(Share(order, at_once, percent))
            if order == STAGED:
                least = min(least, percent)
            yield figure(
                name=f"{order}, {at_once} object{'s' * (at_once > 1)} at once: throughput used",
                value=percent,
                unit="%",
                note="; ".join([f"any order: at most {most:.1%}", *others]),
            )
    yield figure(name="staged: throughput not used, at the most", value=100 - least, unit="%", target=UNUSED)


def draw(points: Sequence[Share]) -> None:
    """Draw the shares into the documentation."""
    from benchmarks.pictures import draw_both
    from shardkit.cli.pictures import BLUE, GREEN, GREY

    least = min(point.percent for point in points if point.order == STAGED)
    title = f"The staged order can use {least:.0f}% of 20 partitions, however many objects are read at once"

    def drawn(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, colour) in enumerate(((SOURCE, GREY), (SHARDED, BLUE), (STAGED, GREEN))):
            shares = [point.percent for point in points if point.order == name]
            places = [place + (number - 1) * 0.27 for place in range(len(shares))]
            bars = axes.bar(places, shares, 0.25, color=colour, label=name)
            axes.bar_label(bars, [f"{share:.0f}%" for share in shares], padding=2)
        axes.set(
            xlabel="objects read at once",
            ylabel="% of the partitions' throughput",
            xticks=range(len(OBJECTS_AT_ONCE)),
            xticklabels=map(str, OBJECTS_AT_ONCE),
            ylim=(0, 108),
            yticks=range(0, 101, 20),
        )
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
        figure.suptitle(title, x=0.01, ha="left")

    draw_both("staged-order", 3.6, drawn)
