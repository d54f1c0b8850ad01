"""The rule of ``shardkit tune`` in virtual time: nine loads on four placements of keys, against hindsight.

``python -m benchmarks.tuning`` prints the rows of docs/reference/tuning.md.

Steps of 10 seconds on 16 partitions of 1,000 write units. A key's writes are even over its shards, which land by a
hash. Each minute, the rule sees what was asked for and what was refused. A growth takes two waits of 11 minutes and a
lease, as the shard map has them. Then the mover reads the table for an hour, and another wait follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkit.analysis.tuning import Fleet, Growth, Heat, Memory, Rule, shards_planned
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS

__all__ = ["DESIGN", "LOADS", "PLACEMENTS", "Load", "Outcome", "at_best", "ceilings", "outcomes", "played", "table"]

Rates = NDArray[np.float64]
STEP, HOUR, BURST = 10, 3600, 300
PARTITIONS = 16
PLACEMENTS = (1, 2, 3, 4)
MOST_READ_UNITS = (1000, 2000, 4000)
SWITCH, MOVE, MOVER, REST = 660, 1320 + 30, 1320 + 660, 660  # seconds from the start of a growth; the last: between two
QUERIES = 1 / 20  # for each write
MOVER_READ_UNITS = 100.0


@dataclass(frozen=True)
class Load:
    """Hours, keys, each key's write units at a second; keys whose first shards are together on one partition."""

    hours: int
    keys: int
    rates: Callable[[float], Rates]
    together: Sequence[int] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a load.

    Args:
        refused: percent of its writes.
        queries: read units a second that queries took beyond one shard.
        moves: those of moves: a read for each write, and the mover.
        changes: growths.
        most: the most shards of a key.
        reasons: why there was no change, each once.
    """

    refused: float
    queries: float
    moves: float
    changes: int
    most: int
    reasons: tuple[str, ...]


def _loads() -> dict[str, Load]:
    base = 150 / np.arange(1, 51)

    def hot(rate: Callable[[float], float]) -> Callable[[float], Rates]:
        def rates(t: float) -> Rates:
            out = base.copy()
            out[0] += rate(t)
            return out

        return rates

    def moving(t: float) -> Rates:
        out = np.concatenate([base, np.zeros(12)])
        out[50 + int(t // (2 * HOUR)) % 12] = 2000
        return out

    def shifting(t: float) -> Rates:
        order = np.random.default_rng(int(t // (8 * HOUR))).permutation(50)
        rates: Rates = (2200 / np.arange(1, 51) ** 1.2)[order]
        return rates

    def warm(_: float) -> Rates:
        out = base.copy()
        out[40:46] = 300
        return out

    noise = np.random.default_rng(4).normal(0, 60, 100_000)
    return {
        "trend, 300 to 3,500 writes/s in a day": Load(24, 50, hot(lambda t: 300 + 3200 * t / (24 * HOUR))),
        "step, 300 to 2,500": Load(24, 50, hot(lambda t: 300 if t < 6 * HOUR else 2500)),
        "daily wave to 1,700": Load(72, 50, hot(lambda t: 900 + 800 * np.sin(2 * np.pi * t / (24 * HOUR)))),
        "5 minutes of each hour, 2,500": Load(24, 50, hot(lambda t: 2500 if t % HOUR < BURST else 200)),
        "Zipf, other keys every 8 h": Load(24, 50, shifting),
        "moving hotspot, 2 h each": Load(24, 62, moving),
        "flash crowd, 5 minutes": Load(24, 50, hot(lambda t: 4000 if 0 <= t - 10 * HOUR < BURST else 200)),
        "six warm keys on one partition": Load(24, 50, warm, range(40, 46)),
        "noise near the limit": Load(24, 50, hot(lambda t: 560 + noise[int(t // STEP)])),
    }


LOADS = _loads()
_DESIGNED = ((0.11, 605), (1.4, 1399), (0.06, 130), (1.6, 350), (3.9, 1066), (10.2, 548), (1.2, 0), (35, 0), (0, 35))
DESIGN = dict(zip(LOADS, _DESIGNED, strict=True))
"""The percent refused, and the read units a second of queries, that the rule was designed for."""


class _Table:
    """Partitions that serve so many units each; a key's writes are even over its shards."""

    def __init__(self, load: Load, placement: int, shards: NDArray[np.int64] | None = None) -> None:
        draw = np.random.default_rng(placement)
        self._at = draw.random((load.keys, 64))
        for key in load.together:
            self._at[key, 0] = (0.5 + draw.random() * 0.2) / PARTITIONS
        self.shards = np.ones(load.keys, int) if shards is None else shards.copy()
        self.changed()

    def changed(self) -> None:
        self._key = np.repeat(np.arange(len(self.shards)), self.shards)
        number = np.concatenate([np.arange(n) for n in self.shards])
        self._place = (self._at[self._key, number] * PARTITIONS).astype(int)

    def refused(self, rates: Rates) -> Rates:
        load: Rates = (rates / self.shards)[self._key]
        asked = np.bincount(self._place, load, PARTITIONS)
        over = np.maximum(0, asked - PARTITION_WRITE_UNITS) / np.maximum(asked, 1e-9)
        found: Rates = np.bincount(self._key, load * over[self._place], len(rates)).astype(float)
        return found


def played(load: Load, placement: int, rule: Rule | None = None, shards: NDArray[np.int64] | None = None) -> Outcome:
    """Play a load with a rule, or without one."""
    table, memory = _Table(load, placement, shards), Memory()
    names = [f"S:{key}" for key in range(load.keys)]
    began, growth, free, changes = 0, Growth(0.0, {}, {}), 0, 0
    reasons: dict[str, None] = {}
    refused = total = queries = moves = 0.0
    asked, lost = np.zeros(load.keys), np.zeros(load.keys)
    for t in range(0, load.hours * HOUR, STEP):
        rates = load.rates(t)
        since = t - began if growth.shards else -1
        if since >= MOVE and growth.effect is None:
            growth.effect = float(t)
            for name, number in growth.shards.items():
                table.shards[names.index(name)] = number
            table.changed()
        losing = table.refused(rates)
        if since >= SWITCH:  # a write reads its old place first, which serves so many reads
            for name, before in growth.before.items():
                key = names.index(name)
                moves += rates[key] * STEP
                losing[key] = max(losing[key], rates[key] - PARTITION_READ_UNITS * before)
            moves += MOVER_READ_UNITS * STEP * (since >= MOVER)
        if since >= MOVER + HOUR:
            growth, free = Growth(0.0, {}, {}), t + REST
        refused += losing.sum() * STEP
        total += rates.sum() * STEP
        queries += (rates * QUERIES * 0.5 * (table.shards - 1)).sum() * STEP
        asked, lost = np.maximum(asked, rates), np.maximum(lost, losing)
        if rule is not None and t % 60 == 60 - STEP:
            heats = {
                name: Heat(asked[key] - lost[key], lost[key], asked[key] * QUERIES, 0.0)
                for key, name in enumerate(names)
                if asked[key]
            }
            has = dict(zip(names, map(int, table.shards), strict=True))
            fleet = Fleet(1, 1, heats, has)
            memory.take(t, fleet)
            asked, lost = np.zeros(load.keys), np.zeros(load.keys)
            if not growth.shards and t >= free:
                grown, reason, _ = rule.decide(memory, t, fleet)
                reasons |= {} if grown else {reason: None}
                if grown:
                    began, changes = t, changes + 1
                    growth = Growth(t, {name: has[name] for name in grown}, grown)
                    memory.growths.append(growth)
    seconds = load.hours * HOUR
    most = int(table.shards.max())
    return Outcome(100 * refused / total, queries / seconds, moves / seconds, changes, most, tuple(reasons))


def at_best(load: Load, placement: int) -> Outcome:
    """Return the best fixed numbers in hindsight: the plan for each key's peak, times what serves best."""
    every = [load.rates(t) for t in range(0, load.hours * HOUR, 30)]
    peak, total = np.max(every, axis=0), np.mean([rates.sum() for rates in every])
    tried = []
    for scale in (0, 0.5, 0.75, 1, 1.25, 1.5, 2, 3):
        shards = np.array([min(64, shards_planned(int(-(-scale * units // 100) * 100), PARTITIONS)) for units in peak])
        tried.append(played(load, placement, shards=shards))
    # A refused write weighs as 20 read units.
    return min(tried, key=lambda one: 20 * one.refused / 100 * total + one.queries)


def outcomes(names: Iterable[str] = LOADS) -> dict[str, list[tuple[Outcome, Outcome, Outcome]]]:
    """Play loads on each placement: without a rule, with it, and with the best fixed numbers."""
    return {name: [_ways(LOADS[name], placement) for placement in PLACEMENTS] for name in names}


def _ways(load: Load, placement: int) -> tuple[Outcome, Outcome, Outcome]:
    return played(load, placement), played(load, placement, Rule(partitions=PARTITIONS)), at_best(load, placement)


def table(found: Mapping[str, Sequence[tuple[Outcome, Outcome, Outcome]]]) -> str:
    """Return the outcomes as the table of docs/reference/tuning.md."""
    rows = []
    for name, each in found.items():
        nothing, rule, best = zip(*each, strict=True)
        cells = (
            *(_range(f"{one.refused:.2f}" for one in ways) + "%" for ways in (nothing, rule, best)),
            *(_range(f"{one:,.0f}" for one in units) for units in (
                [one.queries for one in rule],
                [one.moves for one in rule],
                [one.queries for one in best],
            )),
            _range(str(one.changes) for one in rule),
        )  # fmt: skip
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _range(texts: Iterable[str]) -> str:
    low, *_, high = sorted(texts, key=lambda text: float(text.replace(",", "")))
    return low if low == high else f"{low} to {high}"


def ceilings() -> str:
    """Return what becomes of the loads with a ceiling of read units, on the first placement, as a table's rows."""
    rows = []
    for name, load in LOADS.items():
        found = [
            played(load, PLACEMENTS[0], Rule(partitions=PARTITIONS, max_read_units=units)) for units in MOST_READ_UNITS
        ]
        cells = [f"{one.refused:.2f}%, {one.changes} change{'' if one.changes == 1 else 's'}" for one in found]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(f"{table(outcomes())}\n\n{ceilings()}")
