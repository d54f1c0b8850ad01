"""Run functions in other processes, so that Python code can use all cores.

1. The caller's process hands each process one task at a time, and takes what it tells and returns.
2. A client in a task's arguments is not sent: each process makes its own.
3. A process ends when its line closes: when the block ends, also by Ctrl-C, or when the caller's process ends for any
   reason. What it was doing is lost, so a task must be able to run again.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

from botocore.client import BaseClient

from shardkit.errors import ShardkitError
from shardkit.runtime.processes import Connect, alike, end, pickled, portable, starting

Tell = Callable[[Any], None]
"""Tells the caller's process something while a task is under way."""
Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function at the top level of a module, and its arguments; it is called with a ``Tell`` after them."""

_GRACE_SECONDS = 1.0


class Tasks:
    """Processes that run tasks; a context manager. They start when the first tasks run.

    Args:
        count: The number of processes.
        what: Whose processes they are, for messages: ``the stage``.
        connect: Makes each process's copy of a client in a task's arguments; by default with the same region, endpoint
            and configuration, and the credentials that boto3 finds.

    Cost: 0.5 to 1 s to start; 55 MB of memory per process.
    """

    def __init__(self, count: int, what: str, connect: Connect | None = None) -> None:
        self._count = count
        self._what = what
        self._connect = None if connect is None else pickled(connect)
        self._lines: dict[Connection, BaseProcess] = {}

    def can_send(self, task: Task) -> bool:
        """Return whether a task can be sent; a lambda or an open file cannot be."""
        try:
            self.packed(task)
        except (AttributeError, TypeError, pickle.PicklingError):
            return False
        return True

    def packed(self, task: Task) -> bytes:
        """Return a task as it is sent."""
        packed = io.BytesIO()
        _Pickler(packed, self._connect).dump(task)
        return packed.getvalue()

    def run(self, tasks: Iterable[Task], tell: Tell) -> Iterator[Any]:
        """Run tasks, and yield what they return, as they end; the first error is raised."""
        waiting = iter(tasks)
        idle = list(self._lines)
        running: set[Connection] = set()
        while True:
            while (line := idle.pop() if idle else None) or len(self._lines) < self._count:
                task = next(waiting, None)
                if task is None:
                    break
                line = line or self._start()
                self._send(line, self.packed(task))
                running.add(line)
            if not running:
                return
            for ready in wait(running):
                assert isinstance(ready, Connection)
                kind, content = self._answer(ready)
                if kind == "told":
                    tell(content)
                    continue
                running.remove(ready)
                idle.append(ready)
                if kind == "failed":
                    raise content
                yield content

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        line, theirs = context.Pipe()
        process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        with starting(self._count):
            process.start()
            self._lines[line] = process
        theirs.close()
        return line

    def _send(self, line: Connection, task: bytes) -> None:
        try:
            line.send_bytes(task)
        except OSError:
            raise self._lost(line) from None

    def _answer(self, line: Connection) -> tuple[str, Any]:
        try:
            answer: tuple[str, Any] = line.recv()
        except (EOFError, OSError):
            raise self._lost(line) from None
        return answer

    def _lost(self, line: Connection) -> Exception:
        process = self._lines[line]
        process.join(_GRACE_SECONDS)
        return ShardkitError(
            f"a process of {self._what} ended with exit code {process.exitcode}. If it printed why, fix that (a script "
            "that starts processes does so under `if __name__ == '__main__':`); if it was killed, or out of memory, "
            "give fewer processes"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line, process in self._lines.items():
            line.close()
            process.terminate()
        end(self._lines.values(), _GRACE_SECONDS)
        self._lines.clear()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, connect: bytes | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._connect = connect

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, BaseClient):
            return None
        return self._connect or pickle.dumps(alike(obj, connections=1))


# Code that runs in the processes.


class _Unpickler(pickle.Unpickler):
    clients: dict[bytes, Any] = {}  # noqa: RUF012 - of this process

    def persistent_load(self, pid: Any) -> Any:
        if pid not in self.clients:
            self.clients[pid] = pickle.loads(pid)()  # noqa: S301 - ours
        return self.clients[pid]


def _serve(line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)  # tasks make millions of objects and no garbage in circles
    with line, suppress(EOFError, OSError):
        while True:
            packed = line.recv_bytes()
            try:
                function, arguments = _Unpickler(io.BytesIO(packed)).load()
                answer = "done", function(*arguments, lambda told: line.send(("told", told)))
            except Exception as error:  # noqa: BLE001 - the caller's process raises it
                answer = "failed", portable(error)
            line.send(answer)
