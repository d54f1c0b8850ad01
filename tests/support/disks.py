"""A simulated full disk: no file of this process may become larger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
