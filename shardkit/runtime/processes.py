"""Processes that send a load's requests, each with its own client, so that a load can use all cores.

The machine and its driver stay in the caller's process; only requests and answers go to the processes.

1. Each request in flight has its own line (a pipe) to one thread of a process. So answers cannot be mixed up, and none
   waits for another.
2. If a process is killed, the requests that it was sending get no answer. The machine sends them again through another
   process, as after a lost connection to the service.
3. A process ends when its lines close: when the load ends, or when the caller's process ends for any reason.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from shardkit.errors import ConfigurationError, MissingCredentialsError, ShardkitError, brief
from shardkit.runtime.drivers import through_client
from shardkit.runtime.hooks import carried, observe
from shardkit.runtime.observers import Call
from shardkit.runtime.runner import ClientRunner, Runner
from shardkit.runtime.transports import Transport, default_transport

Connect = Callable[[], Any]
"""Makes the client of one process: a function at the top level of a module, or a ``partial`` of one."""

_GRACE_SECONDS = 10.0  # for a process's own atexit handlers
_Carry = Callable[[Send], Answer]
_Answered = tuple[Answer, list[dict[str, Any]]]  # the answer, and the responses of attempts that failed


class Processes:
    """Send requests from other processes; a context manager that starts and ends them.

    Args:
        runner: The table's runner; the observers of its client (a meter) see every request and answer.
        count: The number of processes.
        workers: Requests in flight over all processes, at least ``count``.
        connect: Makes each process's client. None: a client with the region, endpoint and configuration of the runner's
            and the credentials that boto3 finds.
        transport: The processes' transport. None: the runner's; or the default one, if that is the client and
            ``connect`` is None.

    Raises:
        ConfigurationError: The table has a ShardMap, or ``connect`` cannot be pickled; or, on entering, a process
            cannot start, or its client does not reach the runner's table.

    Cost: one DescribeTable per process and one more; 0.5 to 1 s to start; 55 MB of memory per process.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        count: int,
        workers: int,
        connect: Connect | None,
        transport: Transport | None = None,
    ) -> None:
        if runner.programs.leased:
            raise ConfigurationError("processes: is not supported for a table with a ShardMap; leave it out")
        self._client = runner.client
        self._programs = runner.programs
        self._count = count
        self._workers = workers
        if transport is None:
            ours = connect is None and runner.transport == "client"
            transport = default_transport() if ours else runner.transport
        self._transport = transport
        self._connect = pickled(connect or alike(runner.client, connections=-(-workers // count)))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="shardkit-processes")
        self._processes: list[BaseProcess] = []
        self._lines: dict[Connection, BaseProcess] = {}
        # The idle lines; None when no line is left.
        self._free: SimpleQueue[Connection | None] = SimpleQueue()
        self._lock = threading.Lock()

    def executor(self) -> Executor:
        """Return the threads that wait for answers."""
        return self._threads

    def send(self, request: Send) -> Answer:
        """Send a request from one of the processes, and return its answer."""
        call = Call(request.operation, dict(request.params), self._programs.shardings)
        answer = carried(self._client, call, partial(self._carried, request=request))
        if isinstance(answer, Exception):
            return answer
        read: Answer = request.answer(answer)
        return read

    def _carried(self, call: Call, *, request: Send) -> _Answered:
        message = pickle.dumps((call.operation, call.params, request.paced, request.once))
        if threading.current_thread() is not threading.main_thread():
            return self._carry(message, request.check)
        # Ctrl-C interrupts the main thread, which could leave half a message on a line.
        return self._threads.submit(self._carry, message, request.check).result()

    def _carry(self, message: bytes, check: Callable[[], None] | None) -> _Answered:
        while (line := self._free.get()) is not None:
            process = self._lines[line]
            try:
                if check is not None:
                    check()
            except ShardkitError as error:
                self._free.put(line)
                return error, []
            try:
                line.send_bytes(message)
            except OSError:
                self._lose(line)  # the request was not read: another process can send it
                continue
            try:
                answer, failed = line.recv()
            except (EOFError, OSError):
                self._lose(line)
                return ConnectionClosedError(endpoint_url=f"process {process.pid} of the load"), []
            self._free.put(line)
            if isinstance(answer, ClientError):
                # It arrives as the base class, because each client makes its own exception classes.
                kind = self._client.exceptions.from_code(answer.response.get("Error", {}).get("Code"))
                answer = kind(answer.response, answer.operation_name)
            return answer, failed
        self._free.put(None)
        with self._lock:  # processes without lines end: wait for their exit codes
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
                f"some of the load's {self._count} processes ended early ({ended}: killed, or out of memory?); the "
                "others finished the load, and nothing is lost",
                RuntimeWarning,
                stacklevel=2,
            )

    def _start(self) -> None:
        table = self._programs.table
        identity = identity_of(table, through_client(self._client, {}))
        if isinstance(identity, Exception):
            raise _refusal("the table's own client", table, identity)
        context = multiprocessing.get_context("spawn")
        lines = []
        for number in range(self._count):
            pairs = [context.Pipe() for _ in range(number, self._workers, self._count)]
            process: BaseProcess = context.Process(
                target=_serve,
                args=([line for _, line in pairs], self._connect, self._transport, table, identity),
                name=f"shardkit-{number + 1}",
                daemon=True,
            )
            lines.append([line for line, _ in pairs])
            with starting(self._count):
                process.start()
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
        # Alternate, so that a few requests are spread over all processes.
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
        # Do not wait for requests in flight: their answers are no longer used.
        for process in carrying:
            process.kill()
        self._threads.shutdown()
        for line in self._lines:
            line.close()
        end(self._processes, _GRACE_SECONDS)


def pickled(connect: Connect) -> bytes:
    if not callable(connect):
        raise ConfigurationError(
            f"connect: must be a function without arguments that makes a client, at the top level of a module, got "
            f"{brief(connect)}"
        )
    try:
        return pickle.dumps(connect)
    except Exception as error:
        raise ConfigurationError(
            f"connect: {brief(connect)} cannot be pickled ({error}); give a function at the top level of a module, or "
            "a functools.partial of one"
        ) from error


def alike(client: Any, *, connections: int) -> Connect:
    """Return a function that makes a client of the same service, with the region, endpoint and configuration."""
    meta = client.meta
    config = meta.config.merge(Config(max_pool_connections=max(connections, meta.config.max_pool_connections)))
    return partial(_made, meta.service_model.service_name, meta.region_name, meta.endpoint_url, config)


def _made(service: str, region: str, endpoint_url: str, config: Config) -> Any:
    session: Any = Session(region_name=region)  # its type has one client method per service
    client = session.client(service, config=config)
    if client.meta.endpoint_url != endpoint_url:  # given only if needed: it does not go with a dual-stack configuration
        client.close()
        client = session.client(service, endpoint_url=endpoint_url, config=config)
    return client


def identity_of(table: str, send: Callable[[Send], Answer]) -> dict[str, Any] | Exception:
    """Return what identifies the table that a client reaches: the ARN (region, account) and the table's unique ID."""
    answer = send(Send("DescribeTable", {"TableName": table}))
    if isinstance(answer, Exception):
        return answer
    return {name: answer["Table"].get(name) for name in ("TableArn", "TableId")}


def _refusal(who: str, table: str, error: Exception) -> Exception:
    """Return the error for a client that does not reach the table; a transient error is returned unchanged."""
    if isinstance(error, ConfigurationError) or is_transient(error):
        return error
    kind = MissingCredentialsError if isinstance(error, NoCredentialsError) else ConfigurationError
    refusal = kind(
        f"{who} cannot reach table {table!r}: {error}; each process makes its own client with the credentials that "
        "boto3 finds, and checks with DescribeTable that it reaches the same table; give connect= to make clients "
        "differently, and check the permission dynamodb:DescribeTable"
    )
    refusal.__cause__ = error
    return refusal


@contextmanager
def starting(processes: int) -> Iterator[None]:
    """Keep Ctrl-C, which goes to the whole process group, from a process that is started in this block."""
    mask: Any = getattr(signal, "pthread_sigmask", None)
    before = None
    if mask is not None:
        resource_tracker.ensure_running()  # otherwise the first start does, which unblocks the signal
        before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    except (AssertionError, RuntimeError) as error:
        raise ConfigurationError(
            f"processes={processes}: this process cannot start others ({' '.join(str(error).split())}); give it under "
            "`if __name__ == '__main__':`, and not in a process of a pool"
        ) from error
    finally:
        if mask is not None:
            mask(signal.SIG_SETMASK, before)


def end(processes: Iterable[BaseProcess], grace: float) -> None:
    """Wait for processes to end, each for ``grace`` seconds, and kill those that do not."""
    for process in processes:
        process.join(grace)
        process.kill()
        process.join()
        process.close()


# Code that runs in the processes.


def _serve(lines: list[Connection], connect: bytes, transport: Transport, table: str, identity: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failed = _Failed()
    try:
        send = _connected(connect, transport, table, identity, failed)
    except Exception as error:  # noqa: BLE001 - the caller's process raises it
        lines[0].send(portable(error))
        return
    lines[0].send(None)
    threads = [threading.Thread(target=_answer, args=(line, send, failed)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connected(connect: bytes, transport: Transport, table: str, identity: dict[str, Any], failed: _Failed) -> _Carry:
    client = made_client(pickle.loads(connect)())  # noqa: S301 - ours
    observe(client, failed)
    send = ClientRunner(client, {}, None, transport).send
    check_reaches(table, identity, send)
    return send


def made_client(made: Any) -> Any:
    """Return the client of what ``connect=`` made: a client, a resource or a Table."""
    client = getattr(getattr(made, "meta", None), "client", made)
    if getattr(getattr(client, "meta", None), "events", None) is None:
        raise ConfigurationError(
            f"connect: must return a boto3 client, got {brief(made)}; give a function that returns "
            "boto3.client('dynamodb', …)"
        )
    return client


def check_reaches(table: str, identity: Mapping[str, Any], send: Callable[[Send], Answer]) -> None:
    """Check, with a DescribeTable, that requests reach this table and not another one of its name."""
    reached = identity_of(table, send)
    if isinstance(reached, Exception):
        raise reached
    if reached != identity:
        raise ConfigurationError(
            f"connect: the client reaches another table {table!r} ({reached}) than the table's own client "
            f"({identity}); give connect= that makes a client with the same account, region and endpoint"
        )


def _answer(line: Connection, send: _Carry, failed: _Failed) -> None:
    # The line closes when the load or the caller's process ends.
    with line, suppress(EOFError, OSError):
        while True:
            operation, params, paced, once = line.recv()
            failed.responses = []
            answer = portable(send(Send(operation, params, paced=paced, once=once)))
            line.send((answer, failed.responses))


class _Failed(threading.local):
    """An observer that collects the failed attempts of this thread's request, for the caller's observers."""

    def __init__(self) -> None:
        self.responses: list[Mapping[str, Any]] = []

    def before(self, call: Call) -> None:
        pass

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        self.responses.append(response)

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        pass


def portable(answer: Any) -> Any:
    """Return an answer that can be pickled."""
    if not isinstance(answer, Exception):
        return answer
    if isinstance(answer, BotoCoreError | ClientError | ShardkitError):
        with suppress(Exception):
            pickle.loads(pickle.dumps(answer))  # noqa: S301 - ours
            return answer
    said = f"{type(answer).__name__}: {answer}"
    return HTTPClientError(error=said) if is_transient(answer) else ShardkitError(said)
