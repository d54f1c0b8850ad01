"""When a SIGINT is held back, and when it is not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import pytest

from shardkit.runtime.interrupts import Interruptions


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Whatever a test leaves behind, the next one has Python's own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def said(*steps: str) -> list[str]:
    """What was got through of these steps, of which ``wait`` and ``go on`` begin and end a wait."""
    done: list[str] = []
    interruptions = Interruptions()
    waits = ExitStack()

    def run() -> None:
        with interruptions, waits:
            for step in steps:
                if step == "Ctrl-C":
                    interrupt()
                elif step == "wait":
                    waits.enter_context(interruptions.waiting())
                elif step == "go on":
                    waits.pop_all().close()
                done.append(step)

    with pytest.raises(KeyboardInterrupt):
        run()
    return done


@pytest.mark.parametrize(
    ("steps", "done"),
    [
        ("Ctrl-C, the rest", "Ctrl-C, the rest"),
        ("Ctrl-C, work, wait, the rest", "Ctrl-C, work"),
        ("wait, Ctrl-C, the rest", "wait"),
        ("wait, go on, Ctrl-C, work, wait", "wait, go on, Ctrl-C, work"),
        ("wait, go on, Ctrl-C, the rest", "wait, go on, Ctrl-C, the rest"),
        ("Ctrl-C, work, Ctrl-C, the rest", "Ctrl-C, work"),
    ],
)
def test_it_is_held_back_to_the_next_wait_or_the_end(steps: str, done: str) -> None:
    """The second one is not held back."""
    assert said(*steps.split(", ")) == done.split(", ")


def test_it_can_be_entered_again() -> None:
    interruptions = Interruptions()
    for _ in range(2):
        with interruptions, interruptions.waiting():
            pass
        with pytest.raises(KeyboardInterrupt), interruptions:
            interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_while_it_is_kept_it_is_held_back_only_within() -> None:
    seen: list[int] = []
    interruptions = Interruptions()
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with interruptions.kept():
            for entered in range(2):
                with interruptions:
                    interrupt()
                    assert len(seen) == 2 * entered
                interrupt()
                assert len(seen) == 2 * entered + 2
        interrupt()
        assert len(seen) == 5
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_the_program_sets_while_it_is_kept_stays() -> None:
    interruptions = Interruptions()
    with interruptions.kept():
        with interruptions:
            pass
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruptions:
            pass
    assert signal.signal(signal.SIGINT, signal.default_int_handler) == signal.SIG_IGN


def test_what_the_program_does_about_it_is_done() -> None:
    """Its own handler is called, later, with what it would have been called with; it need not raise."""
    seen: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append((number, frame))

    signal.signal(signal.SIGINT, note)
    try:
        with Interruptions():
            interrupt()
            assert seen == []
        ((number, frame),) = seen
        assert number == signal.SIGINT
        assert frame is not None
        assert frame.f_code is interrupt.__code__
    finally:
        assert signal.signal(signal.SIGINT, signal.default_int_handler) is note


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_handler_that_is_not_python_s_is_left(ignored: Any) -> None:
    signal.signal(signal.SIGINT, ignored)
    interruptions = Interruptions()
    with interruptions, interruptions.waiting():
        assert signal.getsignal(signal.SIGINT) == ignored
    assert signal.signal(signal.SIGINT, signal.default_int_handler) == ignored


def test_another_thread_gets_no_signals() -> None:
    handlers = []

    def run() -> None:
        with Interruptions():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_after_a_wait_outside_of_the_block_it_is_not_held_back() -> None:
    """As when a load is interrupted, and ends what is in flight: the second Ctrl-C ends the program."""
    interruptions = Interruptions()
    with interruptions.kept():
        with interruptions:
            pass
        with interruptions.waiting():
            pass
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_what_comes_while_the_handler_is_put_back_is_delivered_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """signal() calls pending handlers first, and what they raise would end it."""
    interruptions = Interruptions()
    set_handler = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        if handler is signal.default_int_handler:
            interrupt()
        return set_handler(number, handler)

    with pytest.raises(KeyboardInterrupt), interruptions:
        monkeypatch.setattr(signal, "signal", interrupted)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
