"""The two loops over a machine, with a clock and a sleep of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from shardkit.core.machine import Answer, Machine, Program, ProgramMachine, Send, Wait
from shardkit.runtime.drivers import Driver
from tests.support.drivable import Many, Streaming, WaitsBeside, WaitsForNothing, answer, two_in_a_row
from tests.support.fakes import Clock

TIMEOUT = 10.0
mark: ContextVar[str] = ContextVar("mark", default="none")


class Inline(Executor):
    """Runs a task when it is submitted, and keeps count."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as any executor does
            future.set_exception(error)
        return future


def no_executor() -> Executor:
    raise AssertionError("no thread is needed")


def driver(machine: Machine[Any], send: Callable[[Send], Answer] = answer, **options: Any) -> Driver[Any]:
    return Driver(machine, send, **{"executor": no_executor, **options})


def test_a_request_that_is_alone_runs_on_the_caller_s_thread() -> None:
    """No pool is made for it, and its context is the caller's."""
    threads = []

    def send(request: Send) -> Answer:
        threads.append(threading.get_ident())
        return answer(request)

    assert driver(ProgramMachine(two_in_a_row()), send).run() == [{"is": "0"}, {"is": "1"}]
    assert set(threads) == {threading.get_ident()}


def test_as_many_run_side_by_side_as_the_machine_starts() -> None:
    """The machine bounds them; the executor has them all."""
    machine, executor = Many(20), Inline()
    assert sorted(driver(machine, executor=lambda: executor).run(), key=int) == [str(number) for number in range(20)]
    assert machine.most == executor.submitted == 20


def test_requests_really_run_side_by_side() -> None:
    """All of a round are under way before the first one is answered; the caller's thread waits."""
    barrier, threads = threading.Barrier(4, timeout=TIMEOUT), set()

    def send(request: Send) -> Answer:
        barrier.wait()
        threads.add(threading.get_ident())
        return answer(request)

    with ThreadPoolExecutor(4) as pool:
        assert len(driver(Many(8), send, executor=lambda: pool).run()) == 8
    assert threading.get_ident() not in threads


def test_context_variables_are_copied() -> None:
    """A request sees the caller's, and what it sets stays its own."""
    seen = []

    def send(request: Send) -> Answer:
        seen.append(mark.get())
        mark.set(request.operation)
        return answer(request)

    token = mark.set("caller's")
    try:
        with ThreadPoolExecutor(1) as pool:
            driver(Many(4), send, executor=lambda: pool).run()
        assert mark.get() == "caller's"
    finally:
        mark.reset(token)
    assert seen == ["caller's"] * 4


def test_a_machine_that_streams_is_run_again() -> None:
    """What is under way is kept from one run to the next."""
    machine, executor = Many(3, each=True), Inline()
    streaming = driver(machine, executor=lambda: executor)
    seen = []
    while results := streaming.run():
        seen += results
    assert sorted(seen) == ["0", "1", "2"]


def test_waiting_is_sleeping_where_nothing_is_under_way() -> None:
    """For what is left of it, on the driver's own clock."""

    def program() -> Program[float]:
        yield Send("0", {})
        now: float = yield Wait(7.5)
        return now

    clock = Clock()
    clock.now = 5.0
    assert driver(ProgramMachine(program()), clock=clock, sleep=clock.sleep).run() == 7.5
    assert clock.sleeps == [2.5]


def test_a_wait_beside_a_request_is_no_sleep() -> None:
    """The machine is asked again when it wanted to be, or when the answer has come."""
    executor, clock = Inline(), Clock()
    machine = WaitsBeside()
    assert driver(machine, executor=lambda: executor, clock=clock, sleep=clock.sleep).run() == ["0"]
    assert executor.submitted == 1
    assert clock.sleeps == []


def test_a_machine_that_waits_for_nothing_is_an_error() -> None:
    """It must not turn for ever."""
    with pytest.raises(AssertionError, match="no request is in flight"):
        driver(WaitsForNothing()).run()


def test_a_failure_cancels_what_has_not_started() -> None:
    """What waits in the pool's queue is not sent when nobody reads its answer."""
    started, go, sent = threading.Event(), threading.Event(), list[str]()

    def send(request: Send) -> Answer:
        started.set()
        assert go.wait(TIMEOUT)
        sent.append(request.operation)
        return answer(request)

    machine = Streaming(3)
    with ThreadPoolExecutor(1) as pool:
        running = driver(machine, send, executor=lambda: pool)
        assert running.run() == []
        assert started.wait(TIMEOUT)
        machine.raising = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            running.run()
        go.set()
    assert sent == ["0"]


def test_an_interrupted_request_is_sent_again() -> None:
    """What Ctrl-C ended on the caller's own thread is repeated when the machine is run again, before all else."""
    sent, failures = list[str](), [KeyboardInterrupt]

    def send(request: Send) -> Answer:
        sent.append(request.operation)
        if failures:
            raise failures.pop()
        return answer(request)

    running = driver(ProgramMachine(two_in_a_row()), send)
    with pytest.raises(KeyboardInterrupt):
        running.run()
    assert running.run() == [{"is": "0"}, {"is": "1"}]
    assert sent == ["0", "0", "1"]


def test_an_interruption_beside_requests_loses_none() -> None:
    """What is under way is still answered, and what was cancelled is sent, when the machine is run again."""
    started, go, sent = threading.Event(), threading.Event(), list[str]()

    def send(request: Send) -> Answer:
        started.set()
        assert go.wait(TIMEOUT)
        sent.append(request.operation)
        return answer(request)

    machine = Streaming(3)
    with ThreadPoolExecutor(1) as pool:
        running = driver(machine, send, executor=lambda: pool)
        assert running.run() == []
        assert started.wait(TIMEOUT)
        machine.raising = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            running.run()
        machine.raising, machine.patient = None, True
        go.set()
        assert sorted(running.run()) == ["0", "1", "2"]
    assert sorted(sent) == ["0", "1", "2"]


def test_it_is_closed_while_another_thread_runs_it() -> None:
    """What that thread starts meanwhile does not disturb the closing."""
    futures: list[Future[Any]] = []

    class Full(Executor):
        """Has no thread to spare."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            futures.append(Future())
            return futures[-1]

    machine, full = Streaming(2), Full()
    running = driver(machine, executor=lambda: full)
    assert running.run() == []
    first, second = futures
    machine.left.append(Send("2", {}))
    first.add_done_callback(lambda _: running.run())
    running.close()
    assert first.cancelled()
    assert second.cancelled()
    assert len(futures) == 3


def test_an_executor_that_refuses_loses_nothing() -> None:
    """What it did not take is sent by the next one; so is what it took and dropped."""
    go, started = threading.Event(), threading.Event()

    def send(request: Send) -> Answer:
        started.set()
        assert go.wait(TIMEOUT)
        return answer(request)

    machine = Streaming(3)
    first, second = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    pools = [first]
    running = driver(machine, send, executor=lambda: pools[-1])
    assert running.run() == []
    assert started.wait(TIMEOUT)
    first.shutdown(wait=False, cancel_futures=True)
    machine.left.append(Send("3", {}))
    with pytest.raises(RuntimeError, match="shutdown"):
        running.run()
    pools.append(second)
    machine.patient = True
    go.set()
    assert sorted(running.run()) == ["0", "1", "2", "3"]
    second.shutdown()


@pytest.mark.parametrize("error", [None, TimeoutError])
def test_a_machine_that_ends_waits_for_no_request(error: type[Exception] | None) -> None:
    """A deadline holds, whatever hangs: with a result and with an exception."""
    started, go = threading.Event(), threading.Event()

    def send(request: Send) -> Answer:
        started.set()
        assert go.wait(TIMEOUT)
        return answer(request)

    machine = Streaming(3)
    with ThreadPoolExecutor(3) as pool:
        running = driver(machine, send, executor=lambda: pool)
        assert running.run() == []
        machine.raising = error
        if error is None:
            assert running.run() == []
        else:
            with pytest.raises(error):
                running.run()
        running.close()
        assert not go.is_set()
        go.set()
