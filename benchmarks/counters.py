"""``python -m benchmarks.counters``: a counter that gets 5,000 adds a second, on simulated partitions, by its shards.

``--write-docs`` writes the table of docs/counters.md. The adds are those of ShardedCounter, in virtual time. They come
at a steady rate, and are tried again as the counter does. It takes some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import quantiles

from benchmarks.report import write_docs
from shardkit import RandomSuffix
from shardkit.core.machine import Answer, Program, ProgramMachine, Send, Wait
from shardkit.partitions.model import Partitions, hash_of
from shardkit.partitions.simulator import Simulator, draws
from shardkit.sharding import counter
from shardkit.sharding.counter import CounterPlace
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions

__all__ = ["Outcome", "rows", "simulate"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "counters.md"
PER_SECOND = 5_000
SECONDS = 10
PARTITIONS = 16
KEYS = 20
SHARDS = (1, 5, 10, 20, 50, 100)
_SCHEMA = {"KeySchema": [{"AttributeName": "Page", "KeyType": "HASH"}]}


@dataclass(frozen=True)
class Outcome:
    """What became of the adds: how many were asked for and made in time, how many requests it took, and the waits."""

    asked: int
    in_time: int
    requests: int
    given_up: int
    slowest: float


def simulate(shards: int, *, key: str = "home", seconds: float = SECONDS, per_second: int = PER_SECOND) -> Outcome:
    """Let adds arrive at a steady rate, and follow them until each is made or given up."""
    partitions = Partitions(read_units=None, write_units=None, count=PARTITIONS, on_demand=True, burst_seconds=0)
    place = CounterPlace.of(Sharding.described("Pages", RandomSuffix(shards), _SCHEMA), {"Page": key}, "Hits")
    requests = 0

    def answer(send: Send, now: float) -> Answer:
        nonlocal requests
        requests += 1
        stored = hash_of(send.params["Key"]["Page"])
        throttle = partitions.serve(stored, "write", 1, now)
        return {} if throttle is None else throttle.error(send.operation)

    simulator = Simulator(answer, seed=key)
    fan_out = FanOutOptions(1, draws(key))
    waits: list[float] = []
    ends: list[float] = []

    def arriving(at: float) -> Program[None]:
        yield Wait(at)
        try:
            yield from counter.add(place, Decimal(1), fan_out)
        except Exception:  # noqa: BLE001 - a throttle, after ten tries
            return
        waits.append(simulator.now - at)
        ends.append(simulator.now)

    asked = int(seconds * per_second)
    simulator.run_all([ProgramMachine(arriving(number / per_second)) for number in range(asked)])
    return Outcome(
        asked=asked,
        in_time=sum(end <= seconds for end in ends),
        requests=requests,
        given_up=asked - len(waits),
        slowest=quantiles(waits, n=100)[98],
    )


def rows() -> Iterator[str]:
    """Make the lines of the page's table: for each number of shards, the worst of several keys."""
    yield "| shards | adds made per second | requests per add | adds given up | slowest 1% | `value()` costs |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for shards in SHARDS:
        # With one shard, one key is as any other.
        outcomes = [simulate(shards, key=f"page-{number}") for number in range(KEYS if shards > 1 else 1)]
        made = min(outcome.in_time for outcome in outcomes) / SECONDS
        requests = max(outcome.requests / outcome.asked for outcome in outcomes)
        given_up = max(outcome.given_up / outcome.asked for outcome in outcomes)
        slowest = max(outcome.slowest for outcome in outcomes)
        wait = f"{slowest:.1f} s" if slowest >= 1 else f"{slowest * 1000:.0f} ms"
        yield f"| {shards} | {made:,.0f} | {requests:.2f} | {given_up:.1%} | {wait} | {shards / 2:g} read units |"


def main() -> None:
    """Print the table; with ``--write-docs``, write it into the page."""
    made = "\n".join(rows())
    print(made)
    if "--write-docs" in sys.argv[1:]:
        write_docs(PAGE, {"counters": made})


if __name__ == "__main__":
    main()
