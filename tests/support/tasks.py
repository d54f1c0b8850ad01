"""Tasks that tests run in other processes."""

from __future__ import annotations

import os
import signal
from typing import Any

from shardkit import StagingError
from shardkit.runtime.tasks import Tell


def doubled(number: int, tell: Tell) -> tuple[int, int]:
    tell(number)
    return os.getpid(), 2 * number


def endpoint_of(client: Any, tell: Tell) -> str:
    return str(client.meta.endpoint_url)


def refused(tell: Tell) -> None:
    raise StagingError("no room", {"items": 3})


def killed(tell: Tell) -> None:
    os.kill(os.getpid(), getattr(signal, "SIGKILL", 9))  # on Windows, 9 is the exit code
