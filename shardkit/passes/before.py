"""The items of a pass as they were before it changed them: dead letters, by which ``shardkit load`` undoes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.locked_file import check_path, sync_folder
from shardkit.bulk.report import BulkResult
from shardkit.bulk.sources.base import Place
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import ConfigurationError, ShardkitError


class Before(DeadLetters):
    """A file of items, each on disk before the change of it is sent.

    A pass that is resumed (``load`` is its id) reads its letters from the number ``since`` on. An item that is not as
    its last letter says was changed before, and must not be changed again: ``names`` are its keys (empty: it may be).

    Attributes:
        count: The number of the next letter.
        awaited: The items that have letters and were not met again: of each key the last letter, both as hashes.
    """

    def __init__(self, path: Any, load: str, names: Iterable[str], since: int | None) -> None:
        check_path("before", path)
        if since is None and os.path.exists(path) and os.path.getsize(path):  # noqa: PTH110, PTH202 - any name
            raise ConfigurationError(
                f"before: {str(path)!r} exists, and is left unchanged; give each pass a new file, or the journal of "
                "the pass that wrote it"
            )
        self._names, self._since = tuple(names), since or 0
        self.count = 0
        self.awaited: dict[int, int] = {}
        super().__init__(path, load=load, where=lambda _: "", option="before")
        sync_folder(self._file.path.parent)
        if self.count < self._since:
            self.close()
            raise ConfigurationError(f"before: {str(path)!r} lacks what the journal says it has; give the same file")

    def _keeps(self, letter: Mapping[str, Any]) -> bool:
        if letter["load"] != self._load:
            raise ConfigurationError(
                f"before: {str(self._file.path)!r} is of another pass, or of one that has ended; give a new file"
            )
        self.count = letter["at"][1] + 1
        if self._names and self.count > self._since:
            self.awaited[self._key(letter["Item"])] = hash(comparable_item(letter["Item"]))
        return True

    def _key(self, item: WireItem) -> int:
        return hash(comparable_item({name: item[name] for name in self._names}))

    def is_done(self, item: WireItem) -> bool | None:
        """Return whether a killed pass, or a writer since, has changed an item. False: it may yet; None: never sent."""
        then = self.awaited.pop(self._key(item), None) if self.awaited else None
        return None if then is None else then != hash(comparable_item(item))

    def keep(self, items: Sequence[tuple[WireItem, int | None]]) -> None:
        """Write items, each with its shard, to disk."""
        why = ShardkitError("as it was before a pass changed it")
        letters = (BulkResult(from_wire_item(item), "", shard, ok=False, error=why) for item, shard in items)
        self.add((Place(0, number), one) for number, one in enumerate(letters, self.count))
        self.count += len(items)
