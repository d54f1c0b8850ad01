"""What a streamed Query hands out, one item at a time, and where its cursor stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from shardkit.core.checks import check_count
from shardkit.core.merge import Entry
from shardkit.operations.query import Plan

__all__ = ["Rows"]


class Rows:
    """Takes entries in order and gives them out as items, or as ``(item, shard)``."""

    def __init__(self, *, return_shards: bool, max_items: int | None) -> None:
        if max_items is not None:
            check_count("max_items", max_items, "items", least=0)
        self.max_items = max_items
        self.plan: Plan | None = None
        self._return_shards = return_shards
        self._left = max_items
        self._entries: deque[Entry] = deque()
        self._last: Entry | None = None
        self._complete = False
        self._ended = max_items == 0

    @property
    def wanting(self) -> bool:
        """Whether entries must be added before the next can be taken."""
        return not (self._entries or self._complete or self._ended)

    def add(self, entries: Sequence[Entry]) -> None:
        """Take more entries; none at all is the end."""
        self._entries.extend(entries)
        self._complete = not entries

    def take(self) -> Any:
        """Give out the next item; StopIteration where there is none."""
        entries = self._entries
        if self._ended or not entries:
            raise StopIteration
        assert self.plan is not None
        entry = entries.popleft()
        # A copy: the item is the caller's from now on.
        self._last = entry[0], entry[1], {name: entry[2].get(name) for name in self.plan.key_names}
        if self._left is not None:
            self._left -= 1
            self._ended = self._left == 0
        item = self.plan.shown(entry)
        return (item, self.plan.shard_shown(entry)) if self._return_shards else item

    def end(self) -> None:
        """Give out no more; another thread may just be taking one."""
        self._ended = True
        self._entries = deque()

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor behind the last item given out; None: before the first, and when all has been given out."""
        if self._last is None or self.plan is None or (self._complete and not self._entries):
            return None
        return self.plan.behind(self._last)
