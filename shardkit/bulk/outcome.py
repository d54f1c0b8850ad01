"""What became of each item of a load: the results that are handed out, and what a journal may hold as done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from shardkit.bulk.report import BulkResult, Encoded
from shardkit.bulk.tally import Tally
from shardkit.bulk.writes import Identity, Write
from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.errors import ShardkitError
from shardkit.sharding.layout import Sharding

__all__ = ["Outcome", "duplicate", "stalled", "too_many"]

Settled = tuple[list[Any], list[tuple[Any, BulkResult]]]


class _Results(Sequence[BulkResult]):
    """Results that are made when they are looked at: a load that is only counted makes none."""

    def __init__(self, ended: list[Write | BulkResult], result: Callable[[Write], BulkResult]) -> None:
        self._ended = ended
        self._result = result

    def __len__(self) -> int:
        return len(self._ended)

    @overload
    def __getitem__(self, at: int) -> BulkResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[BulkResult]: ...
    def __getitem__(self, at: int | slice) -> BulkResult | list[BulkResult]:
        return list(self)[at]

    def __iter__(self) -> Iterator[BulkResult]:
        return (self._result(one) if isinstance(one, Write) else one for one in self._ended)


class Outcome:
    """Collects results until they are handed out.

    Args:
        sharding: The table's.
        tally: Where failures and duplicates are counted.
        where: Says to a reader what a place is.
    """

    def __init__(self, sharding: Sharding, tally: Tally, where: Callable[[Any], Any] | None) -> None:
        self._sharding = sharding
        self._tally = tally
        self._where = where
        self._ended: list[Write | BulkResult] = []
        self._settled: Settled = ([], [])
        self._outlived: dict[Identity, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def results(self) -> Sequence[BulkResult]:
        """Hand out the results since the last time."""
        ended, self._ended = self._ended, []
        return _Results(ended, self._result)

    def settled(self) -> Settled:
        """Hand out the places since the last time: of what is done, and of what failed for good, with its result."""
        settled, self._settled = self._settled, ([], [])
        return settled

    def written(self, writes: Sequence[Write]) -> None:
        """Note writes that are done."""
        done = self._settled[0]
        # What failed of a key before is done too: a load that is resumed shall not write it over this.
        if self._outlived:
            for write in writes:
                done.extend(self._outlived.pop(write.same, ()))
        done.extend([write.place for write in writes])
        self._ended.extend(writes)

    def superseded(self, write: Write) -> None:
        """Note a write that was left out for another one of its key."""
        self._tally.duplicates += 1
        write.superseded = True
        self.written([write])

    def failed(self, write: Write, error: Exception, *, final: bool) -> None:
        """Note a write that failed; not ``final``: it can be loaded another time."""
        if final:
            self._outlived.setdefault(write.same, []).append(write.place)
        self.refused(Encoded(write.body, self._sharding), write.place, error, final=final, shard=write.shard)

    def refused(self, given: Any, place: Any, error: Exception, *, final: bool, shard: int | None = None) -> None:
        """Note what was given and never became a write, or failed."""
        result = BulkResult(given, self.shown(place), shard, ok=False, error=error)
        if final:
            self._settled[1].append((place, result))
        else:
            self._tally.stopped += 1
        self._tally.failures.append(result)
        self._ended.append(result)

    def _result(self, write: Write) -> BulkResult:
        given = Encoded(write.body, self._sharding)
        return BulkResult(given, self.shown(write.place), write.shard, ok=True, superseded=write.superseded)

    def shown(self, place: Any) -> Any:
        """Give a place as a reader sees it."""
        return place if self._where is None else self._where(place)


def duplicate(place: Any) -> ShardkitError:
    """Give the reason of the second item of a key."""
    return ShardkitError(
        f"the item at place {place!r} has the same primary key, which duplicates='error' refuses; take one of them out "
        "of the source, or let duplicates= be 'last' or 'first'"
    )


def too_many(failed: int, most: int) -> ShardkitError:
    """Give the reason of a load with more failures than were allowed."""
    return ShardkitError(
        f"{failed:,} items failed, and max_failures={most:,} allows no more; look at their reasons, mend the source, "
        "or give a higher max_failures"
    )


def stalled(error: Exception | None, seconds: float) -> ShardkitError:
    """Give the reason of a load to which only throttles came; ``error`` is the last of them, if one was heard."""
    reasons = ", ".join(sorted(throttle_reasons(error))) if error else ""
    stall = ShardkitError(
        f"nothing was written for {seconds:.0f} s, because the service throttles every write "
        f"({reasons or 'it gives no reason'}); raise the write units of the table and of its indexes, or load when "
        "others leave some"
    )
    stall.__cause__ = error
    return stall
