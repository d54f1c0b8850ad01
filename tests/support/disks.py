"""A simulated full disk: no file of this process may become larger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def full_disk(room: int | None = 0) -> Iterator[Callable[[int], None]]:
    """Limit files to ``room`` bytes (None: no limit yet); yield the function that sets the limit."""
    resource = pytest.importorskip("resource", reason="the platform has no limits on files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(room: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))

    if room is not None:
        fill(room)
    try:
        yield fill
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def places_in(journal: Path) -> int:
    """How many places are done by a journal's file, as it is rewritten when it is opened or closed."""
    records = [json.loads(line[9:]) for line in journal.read_bytes().splitlines()]
    return sum(end - start for record in records if "ranges" in record for start, end in record["ranges"])
