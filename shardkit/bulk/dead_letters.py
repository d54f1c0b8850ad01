"""The dead letters of a load: a file of the items that failed, with the reasons; it can be loaded again.

JSON Lines: one item per line in DynamoDB JSON, with its shard if it had one. What has no form in DynamoDB JSON is
written as text::

    {"Item":{"Date":{"S":"2014-07-09"},…},"shard":7,"place":"orders.csv, line 18","reason":"…","load":"4f0c…","at":…}
    {"text":"2014-07-09;A17","place":"orders.csv, line 19","code":"…","reason":"…","load":"4f0c…","at":[0,18]}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from shardkit.bulk.locked_file import LockedFile
from shardkit.bulk.report import BulkResult
from shardkit.bulk.sources.base import BadRecord, Place
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.decode import from_wire_item, refuse_unreadable
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, ShardkitError, brief

_BEGINNINGS = (b'{"Item":', b'{"text":')


class DeadLetters:
    """A file of dead letters, open for appending.

    A file that exists is continued: letters of other loads stay, and so do those of this load (by its id) whose places
    are ``done``. The items of the others are sent again, so their letters are removed.

    Attributes:
        kept: The letters of this load that stay.

    Cost: one fsync for each ``add`` that writes, so that no place is in a journal before its letter is on disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        load: str,
        where: Callable[[Place], str | int],
        done: Callable[[Place], bool] | None = None,
        option: str = "dead_letters",
    ) -> None:
        self._load, self._done = load, done
        self._where = where
        self._file = file = LockedFile(path, option)
        try:
            self.kept, whole = 0, True
            for _, letter in _letters(file.path, option):
                if letter is None or not self._keeps(letter):
                    whole = False
                else:
                    self.kept += letter["load"] == load
            if not whole:
                lines = _letters(file.path, option)
                file.replace(line for line, letter in lines if letter is not None and self._keeps(letter))
        except BaseException:
            file.close()
            raise

    def _keeps(self, letter: Mapping[str, Any]) -> bool:
        return self._done is None or letter["load"] != self._load or self._done(Place(*letter["at"]))

    def add(self, failed: Iterable[tuple[Place, BulkResult]]) -> None:
        lines = b"".join(
            letter(result, place=self._where(place), load=self._load, at=place) + b"\n" for place, result in failed
        )
        if lines:
            self._file.append(lines)
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def letter(result: BulkResult, *, place: str | int, load: str, at: Iterable[int] = ()) -> bytes:
    """Return the dead letter of an item, as JSON."""
    error = result.error or Exception("no reason is known")
    place = _text(place) if isinstance(place, str) else place
    about = {"place": place, "code": code_of(error), "reason": _text(str(error)), "load": load, "at": tuple(at)}
    item: Any = result.item
    if isinstance(item, BadRecord):
        return encode({"text": _text(item.text), **about})
    try:
        shard = {} if result.shard is None else {"shard": result.shard}
        return encode({"Item": to_wire_item(item), **shard, **about})
    except Exception:  # noqa: BLE001 - show a reader also what DynamoDB JSON cannot hold
        return encode({"text": _text(repr(item)), **about})


def result_of(letter: Mapping[str, Any]) -> BulkResult:
    """Return the result that a dead letter was made of; its error has the reason's text.

    Raises:
        ArithmeticError, LookupError, TypeError: the letter is damaged.
    """
    error, place, shard = ShardkitError(text_of(letter["reason"])), text_of(letter["place"]), letter.get("shard")
    if shard is not None and type(shard) is not int:
        raise TypeError(f"shard must be a number, got {brief(shard)}")
    if "text" in letter:
        return BulkResult(BadRecord(text_of(letter["text"]), error), place, shard, ok=False, error=error)
    refuse_unreadable(letter["Item"])
    return BulkResult(from_wire_item(letter["Item"]), place, shard, ok=False, error=error)


text_of: Callable[[Any], str] = str.__str__
"""Returns a text, and raises TypeError for everything else."""


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _letters(path: Path, option: str) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Read each line and its letter; None if the line is incomplete."""
    with path.open("rb") as lines:
        for line in lines:
            letter = _letter(line)
            if letter is None and not _is_torn(line):
                raise ConfigurationError(
                    f"{option}: {str(path)!r} is not a file of dead letters, and is left unchanged (it has "
                    f"{brief(line)}); give another path"
                )
            yield line, letter


def _letter(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        letter = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return letter if isinstance(letter, dict) and _is_letter(letter) else None


def _is_letter(letter: Mapping[str, Any]) -> bool:
    at = letter.get("at")
    return (
        (isinstance(letter.get("Item"), dict) or isinstance(letter.get("text"), str))
        and isinstance(letter.get("reason"), str)
        and isinstance(letter.get("load"), str)
        and isinstance(at, list)
        and len(at) in {0, 2}
        and all(type(number) is int and number >= 0 for number in at)
    )


def _is_torn(line: bytes) -> bool:
    """Return whether it is the last line of a load that lost power while writing it."""
    written = line.rstrip(b"\0")
    return not line.endswith(b"\n") and any(
        written.startswith(beginning) or beginning.startswith(written) for beginning in _BEGINNINGS
    )
