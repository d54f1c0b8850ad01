"""The reports of a write's parts: their JSON, by which tasks hand them to the driver, and what they are together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, Self, TypeVar

import orjson

from shardkit.bulk.dead_letters import letter, result_of, text_of
from shardkit.bulk.report import HOT_KEYS, BulkLoadError, BulkReport, ShardTally
from shardkit.dynamodb.decode import from_wire, refuse_unreadable
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, ShardkitError, brief

M = TypeVar("M")

KEPT_FAILURES = 100
"""Of a part's failed items, so many are in its report."""
_KEPT_BYTES = 1_000_000  # of their JSON: engines hold the reports of all tasks in one process
_KEPT_KEYS = 100
_ADVICES = 10
# Keys and numbers, which differ in the advice of several parts.
_VARIES = re.compile(r"""(?:(?:b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\d+(?:[.,]\d+)*)(?:, )?)+""")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """What one part of a write did.

    Attributes:
        load_id: Identifies the write.
        part: The number of the part, from 0.
        parts: How many parts were planned; None if that is unknown.
        attempt: Which attempt of the engine's task this was, from 0.
        started: When it began, in seconds since 1970 by its machine's clock.
        ended: When it ended.
        host: The name of its machine.
        pid: The id of its process.
        limit: The write units per second that it might consume as its share of a rate; None if it had none.
        report: What it wrote; with the first 100 of the items that failed.
        error: Why it stopped before its end; None if it did not.
        dead_letters: The file of its items that failed; None if there is none.
        resumed: Whether an earlier run did this part; ``report`` is then that run's.
    """

    load_id: str
    part: int
    parts: int | None = None
    attempt: int = 0
    started: float = 0.0
    ended: float = 0.0
    host: str = ""
    pid: int = 0
    limit: float | None = None
    report: BulkReport = field(default_factory=BulkReport)
    error: Exception | None = None
    dead_letters: str | None = None
    resumed: bool = False

    def to_json(self) -> bytes:
        """Return the report as JSON, for ``from_json``.

        Example:
            PartReport.from_json(report.to_json()).part == report.part

        Returns:
            JSON text in UTF-8, about 1 MB at most: with 100 hot keys, and failed items of 1 MB. Errors are kept as
            their code and their message.

        Cost: no request.
        """
        report, error = self.report, self.error
        return orjson.dumps(
            {
                **{one.name: getattr(self, one.name) for one in fields(self) if one.name not in {"report", "error"}},
                "error": None if error is None else {"code": code_of(error), "reason": str(error)},
                "report": {
                    **{one.name: getattr(report, one.name) for one in fields(report) if one.name not in _WRITTEN},
                    "hot_keys": [
                        [to_wire_item({"key": key})["key"], count]
                        for key, count in islice(report.hot_keys.items(), _KEPT_KEYS)
                    ],
                    "per_shard": [[shard, one.items, one.write_units] for shard, one in report.per_shard.items()],
                    "failures": [*map(orjson.Fragment, self._letters())],
                },
            }
        )

    def _letters(self) -> Iterator[bytes]:
        held = 0
        for result in self.report.failures[:KEPT_FAILURES]:
            text = letter(result, place=str(result.place), load=self.load_id)
            held += len(text)
            if held > _KEPT_BYTES:
                return
            yield text

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Return the report that ``to_json`` wrote.

        Example:
            merge(map(PartReport.from_json, texts))

        Args:
            text: What ``to_json`` returned.

        Returns:
            A report; its errors are ``ShardkitError`` with the original messages.

        Raises:
            ConfigurationError: The text is not of a report.

        Cost: no request.
        """
        try:
            given = orjson.loads(text)
            report, error = given["report"], given["error"]
            return _made(
                cls,
                {
                    **given,
                    "error": None if error is None else ShardkitError(text_of(error["reason"])),
                    "report": _made(
                        BulkReport,
                        {
                            **report,
                            "hot_keys": {_key(key): count for key, count in _members(report["hot_keys"])},
                            "per_shard": {
                                shard: _made(ShardTally, {"items": items, "write_units": units})
                                for shard, items, units in _members(report["per_shard"])
                            },
                            "failures": tuple(map(result_of, _members(report["failures"]))),
                            "advice": tuple(map(text_of, _members(report["advice"]))),
                        },
                    ),
                },
            )
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as problem:
            raise ConfigurationError(
                f"text: is not the report of a part that this version of shardkit wrote ({problem!r}): {brief(text)}"
            ) from problem


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in {int, float},
    "bool": lambda value: type(value) is bool,
    "Mapping[Any, int]": lambda value: all(type(count) is int for count in value.values()),
    "Mapping[str, int]": lambda value: all(type(count) is int for count in value.values()),
    "Mapping[int | None, ShardTally]": lambda value: all(shard is None or type(shard) is int for shard in value),
}


def _made(kind: type[M], given: Mapping[str, Any]) -> M:
    """Make a dataclass if every field is given, and of its type: what is damaged must not be added up."""
    for one in fields(kind):  # type: ignore[arg-type]
        value, named = given[one.name], str(one.type)
        fits = _KINDS.get(named.removesuffix(" | None"))
        if fits is not None and not fits(value) and not (value is None and named.endswith(" | None")):
            raise TypeError(f"{one.name} must be {named}, got {brief(value)}")
    return kind(**given)


def _key(value: Any) -> Any:
    refuse_unreadable({"key": value})
    return from_wire(value)


def _members(value: Any) -> list[Any]:
    if not isinstance(value, list):  # a text has members too
        raise TypeError(f"got {brief(value)} in place of a list")
    return value


_WRITTEN = frozenset({"hot_keys", "per_shard", "failures"})


@dataclass(frozen=True, slots=True)
class PartsReport(BulkReport):
    """What all parts of a write did; the fields that it has of a ``BulkReport`` are the parts' sums.

    Units, requests and throttles are those of the attempts that reported: an attempt that was killed also wrote. Items
    of parts that an earlier run did count as ``resumed``. ``failures`` has at most 100 items of each part;
    ``keys_in_flight`` is the parts' mean. ``seconds`` is the time from the first part's start to the last one's end.

    Attributes:
        load_id: Identifies the write. Give it again, and a repeated write puts the same items in the same shards.
        parts: The reports of the parts, by their numbers.
        at_once: How many parts ran at once, at most.
    """

    load_id: str = ""
    parts: tuple[PartReport, ...] = ()
    at_once: int = 0

    def __str__(self) -> str:
        parts = f"{len(self.parts):,} parts, at most {self.at_once:,} at once"
        return f"{BulkReport.__str__(self)}; {parts}"

    def raise_failures(self, *, collect: bool = False) -> None:
        """Raise if parts stopped, or if items failed.

        Example:
            merge(reports).raise_failures()

        Args:
            collect: Do not raise for items that failed.

        Raises:
            BulkLoadError: A part stopped before its end, or items failed; its ``report`` is this one.

        Cost: none.
        """
        stopped = [part for part in self.parts if part.error is not None]
        if stopped:
            first = stopped[0]
            raise BulkLoadError(
                f"{len(stopped):,} of {len(self.parts):,} parts stopped; the first, part {first.part} on "
                f"{first.host}: {first.error}; {self.written:,} of the {self.items:,} items read are written, the rest "
                "of these parts was not read; fix the cause and write again with the same load_id (with a checkpoint, "
                "parts that are done are skipped)",
                self.failures,
                self,
            ) from first.error
        if collect or not (self.failed or self.failed_before):
            return
        shown = self.failures[0] if self.failures else None
        first_one = f"; the first, at {shown.place}: {shown.error}" if shown is not None else ""
        letters = (
            "the dead letters have all of them"
            if any(part.dead_letters for part in self.parts)
            else ("the attribute failed has the first of each part; give dead_letters= to keep all")
        )
        raise BulkLoadError(
            f"{self.failed + self.failed_before:,} of {self.items + self.resumed:,} items were not written{first_one}; "
            f"{letters}",
            self.failures,
            self,
        ) from (None if shown is None else shown.error)


def merge(parts: Iterable[PartReport]) -> PartsReport:
    """Add up the reports of a write's parts.

    Example:
        report = merge(ray.get(reports))
        report.raise_failures()

    Args:
        parts: One report of each part, in any order; none if there were no rows.

    Returns:
        One report.

    Raises:
        ConfigurationError: The reports are of several writes, or two are of one part.

    Cost: no request. Memory: at most 100 failed items of each part.
    """
    reports = tuple(sorted(parts, key=lambda one: one.part))
    if len(loads := {one.load_id for one in reports}) > 1:
        raise ConfigurationError(f"parts: must be of one write, got reports with the load_ids {sorted(loads)[:5]}")
    numbers = Counter(one.part for one in reports)
    if twice := [number for number, count in numbers.items() if count > 1]:
        raise ConfigurationError(f"parts: must have one report of each part, got several of part {twice[0]}")
    fresh, before = ([one for one in reports if one.resumed is resumed] for resumed in (False, True))
    made = [one.report for one in fresh]
    requests = sum(one.requests for one in made)
    hot: Counter[Any] = Counter()
    reasons: Counter[str] = Counter()
    for one in made:
        hot.update(one.hot_keys)
        reasons.update(one.throttles_by_reason)
    at_once = _at_once(fresh)
    return PartsReport(
        **{name: sum(getattr(one, name) for one in made) for name in _SUMS},
        resumed=sum(one.report.items for one in before),
        failed_before=sum(one.report.failed for one in before),
        throttles_by_reason=dict(reasons),
        hot_keys=dict(hot.most_common(HOT_KEYS)),
        seconds=max((one.ended for one in fresh), default=0.0) - min((one.started for one in fresh), default=0.0),
        keys_in_flight=sum(one.keys_in_flight * one.requests for one in made) / requests if requests else 0.0,
        per_shard=_per_shard(made),
        failures=tuple(failure for one in reports for failure in one.report.failures),
        advice=tuple(_advice(fresh, at_once)),
        load_id=next(iter(loads), ""),
        parts=reports,
        at_once=at_once,
    )


_SUMS = (
    "items", "written", "failed", "stopped", "duplicates", "retried", "requests", "throttles", "write_units",
)  # fmt: skip


def _per_shard(reports: Sequence[BulkReport]) -> Mapping[int | None, ShardTally]:
    shards: dict[int | None, tuple[int, float]] = {}
    for report in reports:
        for shard, one in report.per_shard.items():
            items, units = shards.get(shard, (0, 0.0))
            shards[shard] = items + one.items, units + one.write_units
    return {shard: ShardTally(*shards[shard]) for shard in sorted(shards, key=lambda one: -1 if one is None else one)}


def _at_once(parts: Sequence[PartReport]) -> int:
    # Of two parts that end and begin at the same time, the end comes first.
    changes = sorted((at, change) for one in parts for at, change in ((one.started, 1), (one.ended, -1)))
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def _advice(parts: Sequence[PartReport], at_once: int) -> Iterator[str]:
    planned = max((one.parts or 0 for one in parts), default=0)
    if at_once < len(parts) == planned and any(one.limit is not None for one in parts):
        yield (
            f"at most {at_once:,} of the {planned:,} parts ran at once, each with an equal share of write_units, so at "
            f"most {at_once / planned:.0%} of the rate was used at a time; write in as many parts as run at once "
            "(tasks=), or give a SharedBudget as write_units"
        )
    said: dict[str, list[str]] = {}
    for text in (text for one in parts for text in one.report.advice):
        said.setdefault(_VARIES.sub("", text), []).append(text)
    for texts in sorted(said.values(), key=len, reverse=True)[:_ADVICES]:
        yield texts[0] if len(texts) == 1 else f"{texts[0]} (and so in {len(texts):,} of {len(parts):,} parts)"
