"""What a process did, as lines of JSON in a file of its own: written before and after each operation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any


class Recorder:
    """Writes lines of one process. A line is there once the call returns, also if the process is killed then."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = process
        self._numbers = count(1)

    def write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":"), default=int).encode() + b"\n")

    def begin(self, kind: str, *given: Any, number: int | None = None) -> int:
        """Write that an operation begins; return its number."""
        number = next(self._numbers) if number is None else number
        self.write({"p": self._process, "i": number, "t": time.monotonic_ns(), "f": kind, "a": given})
        return number

    def end(self, number: int, answer: Any) -> None:
        self.write({"p": self._process, "i": number, "t": time.monotonic_ns(), "r": answer})

    def lost(self, number: int, error: BaseException) -> None:
        """Write that the outcome of an operation is not known, and why."""
        self.write({"p": self._process, "i": number, "e": f"{type(error).__name__}: {error}"[:300]})


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the lines of a file, of which a kill may have cut the last one."""
    for line in path.read_bytes().splitlines():
        if line.endswith(b"}"):
            yield json.loads(line)
