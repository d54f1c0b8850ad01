"""Which rows of a trace are kept: those of hot keys always, of the others a sample whose weights keep all sums true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from operator import add

RowKey = tuple[str, str, str | None, object, object]  # operation, table, index, logical key, stored key
Row = list[float]  # calls, read units, write units, throttled attempts
MOST_RECENT = 10_000  # keys whose last minute is known
_HALVED = 30  # seconds
_LEAST = 0.5  # a row has at least one call, so here all are kept


class Thinning:
    """Keeps about so many rows a second: each with a probability by what its key took lately."""

    def __init__(self, rows_per_second: float, draw: Callable[[], float]) -> None:
        self._wanted = rows_per_second
        self._draw = draw
        self._threshold = 1.0
        self.recent: defaultdict[tuple[object, ...], float] = defaultdict(float)
        self._halved = 0

    def keep(self, second: int, rows: Mapping[RowKey, Row]) -> list[tuple[RowKey, Row, float]]:
        """Return the rows of a second to keep, with weights; after them the exact total of each operation and place."""
        if abs(second - self._halved) >= _HALVED:
            self._halve()
            self._halved = second
        totals: defaultdict[RowKey, Row] = defaultdict(lambda: [0.0] * 4)
        for key, row in rows.items():
            place = (*key[:3], None, None)
            totals[place] = [*map(add, totals[place], row)]
            self.recent[key[1:4]] += max(row[0], row[1] + row[2]) + row[3]
        kept: list[tuple[RowKey, Row, float]] = []
        for key, row in rows.items():
            if key[3] is not None:
                probability = self.recent[key[1:4]] / self._threshold
                if probability >= 1.0 or self._draw() < probability:
                    kept.append((key, row, 1 / min(1.0, probability)))
        # Slowly: by the root, and at most a factor of 2. The 1 is for less than a row a second.
        step = ((len(kept) + 1) / (self._wanted + 1)) ** 0.5
        self._threshold = max(_LEAST, self._threshold * min(2.0, max(0.5, step)))
        while len(self.recent) > MOST_RECENT:
            self._halve()
        return kept + [(key, total, 1.0) for key, total in totals.items()]

    def _halve(self) -> None:
        self.recent = defaultdict(float, {key: size / 2 for key, size in self.recent.items() if size >= 1})
