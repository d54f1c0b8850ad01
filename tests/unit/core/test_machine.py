"""A program as a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardkit.core.machine import Answer, Done, Machine, Program, ProgramMachine, Send, SideBySide, Step, Wait
from tests.support.drivable import Race

ONE, TWO = Send("GetItem", {"n": 1}), Send("GetItem", {"n": 2})


def test_one_thing_after_another() -> None:
    """Each request is handed out once, and its response is what the yield gives."""

    def program() -> Program[list[Any]]:
        first = yield ONE
        second = yield TWO
        return [first, second]

    steps = ProgramMachine(program())
    assert steps.next(0.0) is ONE
    assert steps.next(0.0) == Wait()
    steps.receive(ONE, {"a": 1}, 0.0)
    assert steps.next(0.0) is TWO
    steps.receive(TWO, {"a": 2}, 0.0)
    assert steps.next(0.0) == steps.next(9.0) == Done([{"a": 1}, {"a": 2}])


def test_nothing_to_do() -> None:
    """A program without a request has its result at once."""

    def program() -> Program[int]:
        yield from ()
        return 7

    assert ProgramMachine(program()).next(0.0) == Done(7)


def test_waits() -> None:
    """A wait ends when the clock is there, and gives the time; one until nothing ends at once."""

    def program() -> Program[list[float]]:
        return [(yield Wait(5.0)), (yield Wait())]

    steps = ProgramMachine(program())
    assert steps.next(0.0) == Wait(5.0)
    assert steps.next(4.9) == Wait(5.0)
    assert steps.next(5.1) == Done([5.1, 5.1])


def test_an_exception_is_raised_where_the_request_was_made() -> None:
    """The program may handle it, and go on."""

    def program() -> Program[str]:
        try:
            yield ONE
        except KeyError:
            yield TWO
        return "went on"

    steps = ProgramMachine(program())
    assert steps.next(0.0) is ONE
    steps.receive(ONE, KeyError(), 0.0)
    assert steps.next(0.0) is TWO
    steps.receive(TWO, {}, 0.0)
    assert steps.next(0.0) == Done("went on")


def failing_at_once() -> Program[None]:
    yield from ()
    raise ValueError("at once")


def failing_later() -> Program[None]:
    yield ONE
    raise ValueError("later")


@pytest.mark.parametrize("program", [failing_at_once, failing_later])
def test_a_program_that_fails_fails_in_next(program: Callable[[], Program[None]]) -> None:
    """Wherever it stood, also in ``receive``: that is where a driver expects it."""
    steps = ProgramMachine(program())
    if program is failing_later:
        assert steps.next(0.0) is ONE
        steps.receive(ONE, {}, 0.0)
    with pytest.raises(ValueError, match=r"at once|later"):
        steps.next(0.0)


class Inner:
    """A machine of two requests side by side, whose result is their answers."""

    def __init__(self, *, fails_in: str = "") -> None:
        self.sends = [ONE, TWO]
        self.answers: list[Answer] = []
        self.fails_in = fails_in

    def next(self, now: float) -> Step[list[Answer]]:
        if self.fails_in == "next":
            raise LookupError("next")
        if self.sends:
            return self.sends.pop(0)
        return Done(self.answers) if len(self.answers) == 2 else Wait()

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        if self.fails_in == "receive":
            raise LookupError("receive")
        self.answers.append(answer)


def test_a_machine_in_a_program() -> None:
    """Its requests go side by side, its answers reach it in any order, also exceptions."""

    def program() -> Program[Any]:
        inner: Machine[list[Answer]] = Inner()
        return (yield inner)

    steps = ProgramMachine(program())
    assert [steps.next(0.0) for _ in range(3)] == [ONE, TWO, Wait()]
    error = KeyError()
    steps.receive(TWO, error, 0.0)
    steps.receive(ONE, {}, 0.0)
    assert steps.next(0.0) == Done([error, {}])


@pytest.mark.parametrize("where", ["next", "receive"])
def test_a_machine_that_fails_fails_in_the_program(where: str) -> None:
    """As a call of its own would."""

    def program() -> Program[str]:
        try:
            yield Inner(fails_in=where)
        except LookupError as error:
            return str(error)
        raise AssertionError

    steps = ProgramMachine(program())
    if where == "receive":
        assert steps.next(0.0) is ONE
        steps.receive(ONE, {}, 0.0)
    assert steps.next(0.0) == Done(where)


@pytest.mark.parametrize("program", [failing_at_once, failing_later])
def test_a_program_in_a_program_that_fails(program: Callable[[], Program[None]]) -> None:
    """The outer one sees it, and may go on."""

    def outer() -> Program[str]:
        try:
            yield ProgramMachine(program())
        except ValueError as error:
            return str(error)
        raise AssertionError

    steps = ProgramMachine(outer())
    if program is failing_later:
        assert steps.next(0.0) is ONE
        steps.receive(ONE, {}, 0.0)
    assert steps.next(0.0) == Done("at once" if program is failing_at_once else "later")


def test_an_exception_may_be_a_result() -> None:
    """A machine whose result is an exception has not failed."""
    error = ValueError("a value")

    def inner() -> Program[Exception]:
        yield from ()
        return error

    def outer() -> Program[Any]:
        return (yield ProgramMachine(inner()))

    assert ProgramMachine(outer()).next(0.0) == Done(error)


def test_an_answer_that_is_not_needed_may_come_late() -> None:
    """When the program is at something else; any other answer to no request is a fault."""

    def program() -> Program[Any]:
        won = yield race
        return won, (yield ONE)

    race = Race()
    steps = ProgramMachine(program())
    first, second = steps.next(0.0), steps.next(0.0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    steps.receive(second, {}, 0.0)
    assert steps.next(0.0) is ONE
    steps.receive(first, {}, 0.0)
    assert steps.next(0.0) == Wait()
    with pytest.raises(AssertionError):
        steps.receive(TWO, {}, 0.0)
    steps.receive(ONE, {"a": 1}, 0.0)
    assert steps.next(0.0) == Done((["1"], {"a": 1}))


def test_side_by_side() -> None:
    """At most ``most`` at once, answered in any order; the results in the order of the machines, errors among them."""

    def program(number: int) -> Program[int]:
        if number == 3:
            yield Wait(5.0)
        answer = yield Send("GetItem", {"n": number})
        return int(answer["n"])

    machine = SideBySide([ProgramMachine(program(number)) for number in (1, 2, 3)], most=2)
    first, second = machine.next(0.0), machine.next(0.0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert machine.next(0.0) == Wait()
    machine.receive(second, LookupError("lost"), 0.0)
    assert machine.next(0.0) == Wait(5.0)
    machine.receive(first, {"n": 1}, 1.0)
    assert machine.next(1.0) == Wait(5.0)
    third = machine.next(5.0)
    assert isinstance(third, Send)
    machine.receive(third, {"n": 3}, 6.0)
    done = machine.next(6.0)
    assert isinstance(done, Done)
    assert [repr(one) for one in done.value] == ["1", "LookupError('lost')", "3"]
    assert SideBySide([], most=2).next(0.0) == Done([])
