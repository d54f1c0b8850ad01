"""The processes of a load: they carry its requests, each with a client of its own, so that all cores work.

The machine, its driver and all that a load promises stay in the caller's process; only the requests go elsewhere.

1. A request under way has a connection to a thread of a process to itself: it is written there, carried out, answered.
   So no answer is taken for another's, and none waits for another.
2. A process that ends (kill -9, out of memory) leaves the requests that it carries without an answer: they are lost,
   as with a connection to the service, and the machine sends them again, by the other processes.
3. A process ends when its connections do: with the load, or with the caller's process, however that ends.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    NoCredentialsError,
)

from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.service_errors import is_transient
from shardkit.errors import ConfigurationError, MissingCredentialsError, ShardkitError
from shardkit.runtime.drivers import transport
from shardkit.runtime.hooks import carried, observe
from shardkit.runtime.observers import Call
from shardkit.runtime.runner import Runner

Connect = Callable[[], Any]
"""Makes the client of one process: a function at the top level of a module, or a ``partial`` of one."""

_GRACE_SECONDS = 10.0  # for what a process does at its end of its own accord (atexit)
_Carry = Callable[[Send], Answer]
_Answered = tuple[Answer, list[dict[str, Any]]]  # and what attempts met that failed


class Processes:
    """Carry requests in processes of their own; as a context manager it starts and ends them.

    Args:
        runner: The table's: its client's observers (a meter) see every request and its answer.
        count: How many processes.
        workers: Requests under way at once, over all of them; at least one for each.
        connect: Makes each process's client; None: one for the region, endpoint and configuration of the runner's,
            with the credentials that boto3 finds by itself.

    Raises:
        ConfigurationError: ``connect`` cannot be taken to another process; or, when they start, that they cannot be
            started, or do not reach the runner's table.

    Cost: a DescribeTable, and one for each process; 0.5 to 1 s to start; memory 55 MB a process.
    """

    def __init__(self, runner: Runner, *, count: int, workers: int, connect: Connect | None) -> None:
        self._client = runner.client
        self._programs = runner.programs
        self._count = count
        self._workers = workers
        self._connect = _pickled(connect or alike(runner.client, connections=-(-workers // count)))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="shardkit-processes")
        self._processes: list[BaseProcess] = []
        self._lines: dict[Connection, BaseProcess] = {}
        # Lines that carry nothing now; None once there are no lines any more.
        self._free: SimpleQueue[Connection | None] = SimpleQueue()
        self._lock = threading.Lock()

    def executor(self) -> Executor:
        """Give the threads that wait for answers."""
        return self._threads

    def send(self, request: Send) -> Answer:
        """Carry a request to a process, and its answer back."""
        call = Call(request.operation, dict(request.params), self._programs.sharding)
        answer = carried(self._client, call, partial(self._carried, paced=request.paced))
        if isinstance(answer, Exception):
            return answer
        read: Answer = request.answer(answer)
        return read

    def _carried(self, call: Call, *, paced: bool) -> _Answered:
        message = pickle.dumps((call.operation, call.params, paced))
        if threading.current_thread() is not threading.main_thread():
            return self._carry(message)
        # The main thread can be interrupted, and what is on a line must not be torn.
        return self._threads.submit(self._carry, message).result()

    def _carry(self, message: bytes) -> _Answered:
        while (line := self._free.get()) is not None:
            process = self._lines[line]
            try:
                line.send_bytes(message)
            except OSError:
                self._lose(line)  # it did not read the request: another one can carry it
                continue
            try:
                answer, failed = line.recv()
            except (EOFError, OSError):
                self._lose(line)
                return ConnectionClosedError(endpoint_url=f"process {process.pid} of the load"), []
            self._free.put(line)
            if isinstance(answer, ClientError):
                # It comes as its base class: another process has other classes for what the service models.
                kind = self._client.exceptions.from_code(answer.response.get("Error", {}).get("Code"))
                answer = kind(answer.response, answer.operation_name)
            return answer, failed
        self._free.put(None)
        with self._lock:  # without lines they end, and have their exit codes
            for process in self._processes:
                process.join(_GRACE_SECONDS)
        return ShardkitError(
            f"all processes of the load have ended ({self._exit_codes()}: killed, or out of memory?); load again, with "
            "fewer"
        ), []

    def _lose(self, line: Connection) -> None:
        line.close()
        with self._lock:
            del self._lines[line]
            if not self._lines:
                self._free.put(None)

    def _exit_codes(self) -> str:
        with self._lock:
            codes = [process.exitcode for process in self._processes]
        return ", ".join(f"exit code {code}" for code in codes if code is not None)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = self._exit_codes()
        self._end()
        if ended and self._lines and exc_type is None:
            warnings.warn(
                f"of the load's {self._count} processes some ended before it did ({ended}: killed, or out of memory?); "
                "the others carried on, and nothing is lost",
                RuntimeWarning,
                stacklevel=2,
            )

    def _start(self) -> None:
        table = self._programs.table
        identity = _identity(table, transport(self._client, lambda: None))
        if isinstance(identity, Exception):
            raise _refusal("the table's own client", table, identity)
        context = multiprocessing.get_context("spawn")
        lines = []
        for number in range(self._count):
            pairs = [context.Pipe() for _ in range(number, self._workers, self._count)]
            process: BaseProcess = context.Process(
                target=_serve,
                args=([line for _, line in pairs], self._connect, table, identity),
                name=f"shardkit-{number + 1}",
                daemon=True,
            )
            lines.append([line for line, _ in pairs])
            with _uninterrupted():
                try:
                    process.start()
                except (AssertionError, RuntimeError) as error:
                    raise ConfigurationError(
                        f"processes={self._count}: this process cannot start others ({' '.join(str(error).split())}); "
                        "load under `if __name__ == '__main__':`, and not in a process of a pool"
                    ) from error
                self._processes.append(process)
                self._lines.update(dict.fromkeys(lines[-1], process))
            for _, line in pairs:
                line.close()
        for process, (first, *_) in zip(self._processes, lines, strict=True):
            try:
                problem = first.recv()
            except (EOFError, OSError):
                process.join()
                raise ConfigurationError(
                    f"a process of the load ended with exit code {process.exitcode} before it began; it printed why. A "
                    "script that loads with processes= does so under `if __name__ == '__main__':`, because each "
                    "process imports the script"
                ) from None
            if problem is not None:
                raise _refusal("a process of the load", table, problem)
        # In turn, so that all processes have some where few requests are under way.
        for turn in zip_longest(*lines):
            for line in filter(None, turn):
                self._free.put(line)

    def _end(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        idle = set()
        with suppress(Empty):
            while True:
                idle.add(self._free.get_nowait())
        self._free.put(None)
        with self._lock:
            carrying = {process for line, process in self._lines.items() if line not in idle}
        # What is still under way is not waited for: nobody takes its answer.
        for process in carrying:
            process.kill()
        self._threads.shutdown()
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(_GRACE_SECONDS)
            process.kill()
            process.join()
            process.close()


def _pickled(connect: Connect) -> bytes:
    if not callable(connect):
        raise ConfigurationError(
            f"connect={connect!r:.100} is not a function that makes a client; give one, without arguments, at the top "
            "level of a module"
        )
    try:
        return pickle.dumps(connect)
    except Exception as error:
        raise ConfigurationError(
            f"connect={connect!r:.100} cannot be taken to another process ({error}); give a function at the top level "
            "of a module, or a functools.partial of one"
        ) from error


def alike(client: Any, *, connections: int) -> Connect:
    """Give what makes a client like this one, as far as a client says what it is like."""
    meta = client.meta
    config = meta.config.merge(Config(max_pool_connections=max(connections, meta.config.max_pool_connections)))
    return partial(_made, meta.region_name, meta.endpoint_url, config)


def _made(region: str, endpoint_url: str, config: Config) -> Any:
    session = Session(region_name=region)
    client = session.client("dynamodb", config=config)
    if client.meta.endpoint_url != endpoint_url:  # not said where it is found anyway: a dual-stack one cannot be
        client.close()
        client = session.client("dynamodb", endpoint_url=endpoint_url, config=config)
    return client


def _identity(table: str, send: _Carry) -> dict[str, Any] | Exception:
    """Say which table a client reaches: its ARN has region and account, its ID is of this table alone."""
    answer = send(Send("DescribeTable", {"TableName": table}))
    if isinstance(answer, Exception):
        return answer
    return {name: answer["Table"].get(name) for name in ("TableArn", "TableId")}


def _refusal(who: str, table: str, error: Exception) -> Exception:
    """Say what it means that a client cannot be used; what may pass by itself stays what it is."""
    if isinstance(error, ConfigurationError) or is_transient(error):
        return error
    kind = MissingCredentialsError if isinstance(error, NoCredentialsError) else ConfigurationError
    refusal = kind(
        f"{who} cannot reach table {table!r}: {error}; each process makes a client of its own, with the credentials "
        "that boto3 finds there by itself, and asks by DescribeTable whether it reaches the same table; give connect= "
        "where clients are to be made otherwise, and check the permission dynamodb:DescribeTable"
    )
    refusal.__cause__ = error
    return refusal


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start a process that Ctrl-C, which goes to the whole group, does not reach, from its first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # else the first start does it, and unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the processes.


def _serve(lines: list[Connection], connect: bytes, table: str, identity: dict[str, Any]) -> None:
    """Be one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failed = _Failed()
    try:
        send = _connected(connect, table, identity, failed)
    except Exception as error:  # noqa: BLE001 - the caller's process raises it
        lines[0].send(_portable(error))
        return
    lines[0].send(None)
    threads = [threading.Thread(target=_answer, args=(line, send, failed)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connected(connect: bytes, table: str, identity: dict[str, Any], failed: _Failed) -> _Carry:
    made = pickle.loads(connect)()  # noqa: S301 - ours
    client = getattr(getattr(made, "meta", None), "client", made)
    if getattr(getattr(client, "meta", None), "events", None) is None:
        raise ConfigurationError(
            f"connect= gave {made!r:.100}, which is no boto3 client; give a function that returns "
            "boto3.client('dynamodb', …)"
        )
    observe(client, failed)
    send = transport(client, lambda: None)
    reached = _identity(table, send)
    if isinstance(reached, Exception):
        raise reached
    if reached != identity:
        raise ConfigurationError(
            f"a process of the load reaches another table {table!r} than the table's own client: {reached}, not "
            f"{identity}; give connect= that makes a client with the same account, region and endpoint"
        )
    return send


def _answer(line: Connection, send: _Carry, failed: _Failed) -> None:
    # The end of the line is that of the load, or of the caller's process.
    with line, suppress(EOFError, OSError):
        while True:
            operation, params, paced = line.recv()
            failed.responses = []
            answer = _portable(send(Send(operation, params, paced=paced)))
            line.send((answer, failed.responses))


class _Failed(threading.local):
    """Notes what the attempts of this thread's request meet, for the observers of the caller's client."""

    def __init__(self) -> None:
        self.responses: list[Mapping[str, Any]] = []

    def before(self, call: Call) -> None:
        """Add nothing."""

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """Note it."""
        self.responses.append(response)

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """Take nothing."""


def _portable(answer: Any) -> Any:
    """Give an answer as it can be taken to the caller's process."""
    if not isinstance(answer, Exception):
        return answer
    if isinstance(answer, BotoCoreError | ClientError | ShardkitError):
        with suppress(Exception):
            pickle.loads(pickle.dumps(answer))  # noqa: S301 - ours
            return answer
    said = f"{type(answer).__name__}: {answer}"
    return HTTPClientError(error=said) if is_transient(answer) else ShardkitError(said)
