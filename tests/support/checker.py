"""A model checker: runs shardkit's own programs through all interleavings of their requests.

A client is a sequence of operations, a mover is one long operation. The state of a search is a tuple of small numbers:
the item in each place, how far each process is, and what the history so far allows each logical item to be. A process
is a function of the answers that it has received: it is replayed, once for each new sequence of answers.

An operation begins with its first step and ends with its last answer: later ends and earlier begins allow more, so
histories that hold with these hold with all.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from shardkit.core.machine import Done, Machine, Program, ProgramMachine, Send, Wait
from shardkit.dynamodb.values import WireItem, comparable_item
from tests.support.histories import Histories, numbered
from tests.support.stepwise import Answered, Outcome, Progress, Request, StartAgainError, Tables

Key = str
"""A logical item's name in a search."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a process: its program, and what it does to logical items.

    Args:
        name: For traces.
        program: Makes the program, anew for each replay.
        effects: For each logical item, the operation and its parameters as on an unsharded table.
        outcomes: Returns from the result (a response or an exception) the answer for each logical item, in the form
            that :func:`answered` returns; raises AssertionError for a result that is wrong by itself.
        eventual: It reads eventually consistently: any value that the item has had is right.
    """

    name: str
    program: Callable[[], Program[Any] | Machine[Any]]
    effects: Mapping[Key, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    outcomes: Callable[[Any], Mapping[Key, Hashable]] = lambda _: {}
    eventual: bool = False


@dataclass(frozen=True)
class Process:
    """A sequence of operations. ``crashes``: it may stop for ever after any of its steps.

    A search needs no steps for crashes: that others go on while a process does nothing is among the interleavings. Only
    the end is checked more often: whenever all that is left are processes that may have crashed.
    """

    name: str
    operations: Sequence[Operation]
    crashes: bool = False


@dataclass
class Search:
    """What is searched, and its bounds.

    Args:
        keys: The key attributes of each table.
        stored: The items in the tables at the start.
        logical: The logical items at the start, by name; None: there is none.
        processes: What runs side by side.
        last: Operations that run one after the other when all processes have ended: they must fit the history too.
        invariant: Returns what is wrong with the items in all places, or None; called for each new content.
        final: The same, when all processes have ended; gets whether one of them has crashed.
        stale: Whether a read that is eventually consistent may see earlier versions.
        conflicts: How many errors an operation may get for requests of items that a transaction has locked. Beyond
            these, such requests wait, as if they were sent again until the transaction has ended.
        late: How many requests may take effect once more, later: those for which ``may_be_late`` is true.
        too_large: Which items' puts in a transaction may be refused for their size, once in an operation.
        most: The number of states at which the search ends (unfinished).
    """

    keys: Mapping[str, tuple[str, ...]]
    stored: Iterable[tuple[str, WireItem]]
    logical: Mapping[Key, WireItem | None]
    processes: Sequence[Process]
    last: Sequence[Operation] = ()
    invariant: Callable[[Mapping[tuple[str, Hashable], WireItem]], str | None] = lambda _: None
    final: Callable[[Mapping[tuple[str, Hashable], WireItem], bool], str | None] = lambda _, __: None
    stale: bool = True
    conflicts: int = 0
    late: int = 0
    may_be_late: Callable[[Request], bool] = lambda _: False
    too_large: Callable[[WireItem], bool] = lambda _: False
    most: int = 3_000_000


@dataclass(frozen=True)
class Found:
    """The result of a search: the states explored, and the violation with the steps that lead to it, if there is one.

    ``complete``: all states were explored.
    """

    states: int
    violation: str | None = None
    trace: tuple[str, ...] = ()
    complete: bool = True

    def __str__(self) -> str:
        return "\n  ".join([f"{self.states:,} states: {self.violation or 'holds'}", *self.trace])


def search(what: Search) -> Found:
    """Explore all interleavings, breadth first; stop at the first violation."""
    tables = Tables(what.keys, what.too_large)
    for table, item in what.stored:
        tables.place(table, item)
    while True:
        tables.restart()
        try:
            return _Exploration(what, tables).run()
        except StartAgainError:
            continue


class _Run:
    """An operation's machine after some answers: the requests that it waits for, or its result."""

    def __init__(self, operation: Operation) -> None:
        made = operation.program()
        self.machine: Machine[Any] = made if hasattr(made, "receive") else ProgramMachine(made)  # type: ignore[assignment]
        self.sent: list[Send] = []
        self.result: Done[Any] | None = None
        self._now = 0.0
        self._pump()

    def _pump(self) -> None:
        while True:
            try:
                step = self.machine.next(self._now)
            except Exception as error:  # noqa: BLE001 - the result: judged with the history
                step = Done(error)
            if isinstance(step, Send):
                self.sent.append(step)
            elif isinstance(step, Done):
                self.result = step
                return
            elif self.sent:
                return
            else:
                assert isinstance(step, Wait)
                assert step.until is not None, "it waits for nothing"
                self._now = max(self._now, step.until)

    def feed(self, at: int, answer: Any) -> None:
        send = self.sent.pop(at)
        # A copy, because programs may change it.
        if isinstance(answer, ClientError):
            answer = ClientError(copy.deepcopy(answer.response), answer.operation_name)
        else:
            answer = send.answer(copy.deepcopy(answer))
        self.machine.receive(send, answer, self._now)
        self._pump()


class _Node:
    """What an operation does next, after a sequence of answers."""

    def __init__(self, operation: Operation, tables: Tables, path: tuple[tuple[int, int], ...], run: _Run) -> None:
        self.operation, self.path = operation, path
        self._tables, self._run = tables, run
        self._children: dict[tuple[int, int], _Node] = {}
        self.requests = [tables.request(send) for send in run.sent]
        self.result = run.result
        self.conflicts = sum(tables.conflicts[answer] for _, answer in path)
        self._run_used = False

    @classmethod
    def start(cls, operation: Operation, tables: Tables) -> _Node:
        return cls(operation, tables, (), _Run(operation))

    def child(self, at: int, answer: int) -> _Node:
        """Return the node after one more answer, to request ``at``."""
        found = self._children.get((at, answer))
        if found is None:
            run = self._run
            if self._run_used:  # the machine has gone on with another answer
                run = _Run(self.operation)
                for step in self.path:
                    run.feed(step[0], self._tables.answers[step[1]])
            self._run_used = True
            run.feed(at, self._tables.answers[answer])
            found = self._children[at, answer] = _Node(self.operation, self._tables, (*self.path, (at, answer)), run)
        return found


class _Move(NamedTuple):
    """What one step of a process does: writes, its next position, what it means for the history, and its name.

    ``late``: the number of the request that may take effect again, plus one; 0: none.
    """

    writes: tuple[tuple[int, int], ...]
    then: int
    events: tuple[tuple[int, int, int, int], ...]
    late: int
    name: str
    wrong: str | None


_Step = tuple[
    tuple[int, ...],
    bool,
    bool,
    Callable[[tuple[int, ...]], _Move],
    dict[tuple[int, ...], _Move],
    _Move | None,
]
"""A step of a process: its places, whether it waits for locks, whether it reads eventually, what it does, what it did
for the contents so far, and its end in an error if its places are locked."""


class _Position:
    """How far a process is: its operation's node, and the progress of each request in flight."""

    __slots__ = ("began", "ended", "locks", "node", "number", "process", "progress", "steps", "turn")

    def __init__(
        self, process: int, turn: int, node: _Node | None, progress: tuple[Progress, ...], began: bool
    ) -> None:
        self.process, self.turn, self.node, self.progress, self.began = process, turn, node, progress, began
        self.number = -1
        self.ended = node is None
        self.locks: frozenset[int] = frozenset()
        self.steps: list[_Step] = []


class _Exploration:
    """One search with a fixed set of places. A state: items, their versions, positions, histories, late requests."""

    def __init__(self, what: Search, tables: Tables) -> None:
        self._what, self._tables = what, tables
        self._count = len(tables.places)
        self._positions: list[_Position] = []
        self._by_identity: dict[Hashable, int] = {}
        self._starts: dict[tuple[int, int], _Node] = {}
        self._keys = list(what.logical)
        ever = any(one.eventual for process in what.processes for one in process.operations)
        self._history = Histories(len(what.processes) + 1, ever=ever)
        # Where the parts of a state begin.
        self._at_positions = self._count * (2 if tables.versions else 1)
        self._at_histories = self._at_positions + len(what.processes)
        self._checked: dict[tuple[int, ...], str | None] = {}
        self._ends: dict[Any, str | None] = {}
        self._bags: list[tuple[int, ...]] = [()]
        self._bag_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._late: list[Request] = []
        self._late_numbers: dict[str, int] = {}
        self._version_sets: list[frozenset[int]] = []
        self._version_numbers: dict[frozenset[int], int] = {}

    # The state's layout.
    def _start(self) -> tuple[int, ...]:
        items = [0] * self._count
        for table, item in self._what.stored:
            items[self._tables.place(table, item)] = self._tables.item(item)
        versions = [self._versions(frozenset([value])) for value in items] if self._tables.versions else []
        positions = [self._begin(number, 0) for number in range(len(self._what.processes))]
        histories = [self._history.start(self._tables.item(item or {})) for item in self._what.logical.values()]
        return (*items, *versions, *positions, *histories, 0)

    def run(self) -> Found:
        start = self._start()
        parents: dict[tuple[int, ...], tuple[int, ...] | None] = {start: None}
        if wrong := self._content_wrong(start):
            return Found(1, wrong)
        queue = deque([start])
        count, most = self._count, self._what.most
        while queue:
            state = queue.popleft()
            moves = self._moves(state)
            if wrong := self._end_wrong(state, stuck=not moves):
                return self._violated(parents, state, None, wrong)
            for then, wrong in moves:
                if wrong:
                    return self._violated(parents, state, then, wrong)
                if then not in parents:
                    parents[then] = state
                    if then[:count] != state[:count] and (wrong := self._content_wrong(then)):
                        return self._violated(parents, state, then, wrong)
                    queue.append(then)
            if len(parents) >= most:
                return Found(len(parents), complete=False)
        return Found(len(parents))

    def _moves(self, state: tuple[int, ...]) -> list[tuple[tuple[int, ...], str | None]]:
        """Return the states after each possible step, and what is wrong with the step's answer."""
        moves: list[tuple[tuple[int, ...], str | None]] = []
        at_histories, after = self._at_histories, self._history.after
        positions = self._positions
        here = [positions[number] for number in state[self._at_positions : at_histories]]
        locking = [position for position in here if position.locks]
        late = self._what.late > len(self._bags[state[-1]])
        for at, position in enumerate(here, self._at_positions):
            for places, waits, eventual, run, memo, refused in position.steps:
                blocked = waits and locking and _locked(places, locking, position)
                if blocked and refused is None:
                    continue
                for values in self._versions_of(state, places) if eventual else ([state[one] for one in places],):
                    # The innermost loop of a search: what the step does is computed once for each content.
                    known = tuple(values)
                    move = refused if blocked else memo.get(known)
                    if move is None:
                        move = memo[known] = run(known)
                    then = list(state)
                    then[at] = move.then
                    for place, value in move.writes:
                        self._write(then, place, value)
                    wrong = move.wrong
                    for key, process, kind, what in move.events:
                        then[at_histories + key] = after(then[at_histories + key], process, kind, what)
                        if not then[at_histories + key]:
                            wrong = f"{self._keys[key]}: the answer fits no order of the operations"
                    moves.append((tuple(then), wrong))
                    if late and move.late:
                        then[-1] = self._bag((*self._bags[state[-1]], move.late))
                        moves.append((tuple(then), wrong))
        if state[-1]:
            moves += [(then, None) for then in self._late_moves(state, locking)]
        return moves

    def _late_moves(self, state: tuple[int, ...], locking: Sequence[_Position]) -> Iterator[tuple[int, ...]]:
        bag = self._bags[state[-1]]
        for at, number in enumerate(bag):
            if number < 0:
                continue
            request = self._late[number - 1]
            places = next(request.steps(())).places
            if _locked(places, locking, None):
                continue
            then = list(state)
            for place, value in request.late({place: state[place] for place in places}).items():
                self._write(then, place, value)
            then[-1] = self._bag((*bag[:at], -number, *bag[at + 1 :]))  # it has been: it counts, and comes no more
            yield tuple(then)

    def _versions_of(self, state: tuple[int, ...], places: Sequence[int]) -> list[list[int]]:
        (place,) = places
        return [[version] for version in self._version_sets[state[self._count + place]]]

    def _write(self, then: list[int], place: int, value: int) -> None:
        then[place] = value
        if self._tables.versions:
            at = self._count + place
            then[at] = self._versions(self._version_sets[then[at]] | {value})

    def _versions(self, versions: frozenset[int]) -> int:
        return numbered(versions, self._version_numbers, self._version_sets)

    def _bag(self, bag: tuple[int, ...]) -> int:
        return numbered(tuple(sorted(bag)), self._bag_numbers, self._bags)

    # Positions.
    def _begin(self, process: int, turn: int) -> int:
        operations = self._what.processes[process].operations
        if turn == len(operations):
            return self._position(_Position(process, turn, None, (), began=True))
        node = self._starts.get((process, turn))
        if node is None:
            node = self._starts[process, turn] = _Node.start(operations[turn], self._tables)
        assert node.result is None, f"{operations[turn].name}: no request: {node.result}"
        return self._position(_Position(process, turn, node, ((),) * len(node.requests), began=False))

    def _position(self, position: _Position) -> int:
        identity = position.process, position.turn, id(position.node), position.progress, position.began
        number = self._by_identity.get(identity)
        if number is None:
            number = self._by_identity[identity] = position.number = len(self._positions)
            self._positions.append(position)
            if position.node is not None:
                self._prepare(position, position.node)
        return number

    def _prepare(self, position: _Position, node: _Node) -> None:
        for at, (request, progress) in enumerate(zip(node.requests, position.progress, strict=True)):
            position.locks |= request.locks(progress)
            conflict = request.conflict() if node.conflicts < self._what.conflicts and not progress else None

            def ending(run: Callable[[tuple[int, ...]], Outcome], at: int = at, request: Request = request) -> Any:
                return lambda values: self._move(position, node, at, request, run(values))

            refused = None if conflict is None else self._move(position, node, at, request, Outcome((), conflict))
            if not progress and not node.conflicts and (too_large := request.refused()) is not None:
                answered = Outcome((), too_large)
                position.steps.append(((), False, False, ending(lambda _, answered=answered: answered), {}, None))  # type: ignore[misc]
            for step in request.steps(progress):
                if step.eventual and self._what.stale:
                    self._tables.keep_versions()
                position.steps.append(
                    (step.places, step.waits, step.eventual and self._what.stale, ending(step.run), {}, refused)
                )

    def _move(self, position: _Position, node: _Node, at: int, request: Request, outcome: Any) -> _Move:
        process, operation = position.process, node.operation
        events: list[tuple[int, int, int, int]] = []
        if not position.began:
            events += self._invoked(process, operation)
        late = 0
        wrong = None
        if not isinstance(outcome.then, Answered):
            progress = (*position.progress[:at], outcome.then, *position.progress[at + 1 :])
            then = self._position(_Position(process, position.turn, node, progress, began=True))
        else:
            child = node.child(at, outcome.then.number)
            if self._what.late and self._what.may_be_late(request):
                late = self._late_number(request)
            if child.result is None:
                rest = position.progress[:at] + position.progress[at + 1 :]
                progress = (*rest, *((),) * (len(child.requests) - len(rest)))
                then = self._position(_Position(process, position.turn, child, progress, began=True))
            else:
                then = self._begin(process, position.turn + 1)
                try:
                    events += self._returned(process, operation, child.result.value)
                except AssertionError as error:
                    wrong = f"{operation.name}: {error}"
        name = f"{self._what.processes[process].name} ({operation.name}): {request.text}"
        return _Move(outcome.writes, then, tuple(events), late, name, wrong)

    def _late_number(self, request: Request) -> int:
        if request.text not in self._late_numbers:
            self._late.append(request)
            self._late_numbers[request.text] = len(self._late)
        return self._late_numbers[request.text]

    def _invoked(self, process: int, operation: Operation) -> Iterator[tuple[int, int, int, int]]:
        for key, effect in operation.effects.items():
            what = self._history.effect(effect, self._tables, eventual=operation.eventual)
            yield self._keys.index(key), process, 0, what

    def _returned(self, process: int, operation: Operation, result: Any) -> Iterator[tuple[int, int, int, int]]:
        outcomes = operation.outcomes(result)
        assert outcomes.keys() == operation.effects.keys(), f"{operation.name}: {outcomes} of {operation.effects}"
        return iter([(self._keys.index(key), process, 1, self._history.outcome(one)) for key, one in outcomes.items()])

    # What is checked.
    def _contents(self, state: tuple[int, ...]) -> dict[tuple[str, Hashable], WireItem]:
        return {
            (table, comparable_item(key)): self._tables.items[value]
            for (table, key), value in zip(self._tables.places, state[: self._count], strict=True)
            if value
        }

    def _content_wrong(self, state: tuple[int, ...]) -> str | None:
        content = state[: self._count]
        if content not in self._checked:
            self._checked[content] = self._what.invariant(self._contents(state))
        return self._checked[content]

    def _end_wrong(self, state: tuple[int, ...], *, stuck: bool) -> str | None:
        here = [self._positions[number] for number in state[self._at_positions : self._at_histories]]
        going = [one for one in here if not one.ended]
        if any(one.locks or not self._what.processes[one.process].crashes for one in going):
            return f"stuck: {[self._what.processes[one.process].name for one in going]}" if stuck else None
        ended = state[: self._count], bool(going), state[self._at_histories : -1]
        if ended not in self._ends:
            self._ends[ended] = self._wrong_end(state, crashed=bool(going))
        return self._ends[ended]

    def _wrong_end(self, state: tuple[int, ...], *, crashed: bool) -> str | None:
        wrong = self._what.final(self._contents(state), crashed)
        if wrong:
            return wrong
        histories = list(state[self._at_histories : -1])
        items = dict(enumerate(state[: self._count]))
        reader = len(self._what.processes)
        for operation in self._what.last:
            result, items = self._alone(operation, items)
            try:
                events = [*self._invoked(reader, operation), *self._returned(reader, operation, result)]
            except AssertionError as error:
                return f"at the end, {operation.name}: {error}"
            for key, process, kind, what in events:
                histories[key] = self._history.after(histories[key], process, kind, what)
                if not histories[key]:
                    return f"at the end, {operation.name}: {result} does not fit the history of {self._keys[key]}"
        return None

    def _alone(self, operation: Operation, items: dict[int, int]) -> tuple[Any, dict[int, int]]:
        """Run an operation by itself; return its result and the items after it."""
        run = _Run(operation)
        while run.result is None:
            progress: Progress = ()
            request = self._tables.request(run.sent[0])
            while not isinstance(progress, Answered):
                step = next(request.steps(progress))
                outcome = step.run(tuple(items[place] for place in step.places))
                items = {**items, **dict(outcome.writes)}
                progress = outcome.then
            run.feed(0, self._tables.answers[progress.number])
        return run.result.value, items

    def _violated(
        self,
        parents: Mapping[tuple[int, ...], tuple[int, ...] | None],
        state: tuple[int, ...],
        then: tuple[int, ...] | None,
        wrong: str,
    ) -> Found:
        path = [state] if then is None else [then, state]
        while (parent := parents[path[-1]]) is not None:
            path.append(parent)
        path.reverse()
        steps = tuple(self._described(before, after) for before, after in pairwise(path))
        return Found(len(parents), wrong, steps)

    def _described(self, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        first = self._at_positions
        changed = "; ".join(
            f"{self._tables.places[place][1]} := {self._tables.items[after[place]] or None}"
            for place in range(self._count)
            if before[place] != after[place]
        )
        for at in range(len(self._what.processes)):
            if before[first + at] != after[first + at]:
                position = self._positions[before[first + at]]
                named = [
                    move.name
                    for *_, memo, _ in position.steps
                    for move in memo.values()
                    if move.then == after[first + at]
                ]
                return f"{named[0] if named else position.node and 'a conflict'} -> {changed or 'no change'}"
        return f"late duplicate -> {changed or 'no change'}"


def _locked(places: Iterable[int], locking: Iterable[_Position], but: _Position | None) -> bool:
    return any(place in other.locks for other in locking if other is not but for place in places)
