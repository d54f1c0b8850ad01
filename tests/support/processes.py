"""What the tests of processes share: items, and waiting for what another process or thread brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECONDS = 30.0  # for what takes well under one
linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


def some(count: int) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{number % 7 + 1}", "OrderId": number, "Note": "x" * 40} for number in range(count)]


def soon(holds: Callable[[], bool]) -> bool:
    """Wait until something holds, which another process or thread brings about."""
    until = time.monotonic() + SECONDS
    while not (held := holds()) and time.monotonic() < until:
        threading.Event().wait(0.01)
    return held
