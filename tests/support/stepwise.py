"""DynamoDB in small, for a search through all interleavings: each request is a few steps, and each step is pure.

Items are interned: a table's state is one number a place (a physical primary key), 0 where there is no item.

- A write is one step. A read of several items (BatchGetItem, Query, Scan) is one step an item: other requests come
  between. An eventually consistent read returns any version that the place has ever had.
- TransactWriteItems checks its conditions and locks its items in one step; then each of its writes becomes visible to
  plain reads, in any order, and with the last one the locks end. Other writes and transactions wait for them.
- TransactGetItems reads all its items in one step, while none of them is locked.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Response, Send
from shardkit.dynamodb.expressions.key_condition import matches, parse_key_condition, sort_value
from shardkit.dynamodb.values import WireItem, comparable_item
from tests.support.expressions import holds, projected, updated
from tests.support.fakes import client_error

Values = tuple[int, ...]
"""The items of some places, interned."""
Progress = Any
"""How far a request is: hashable; ``()`` before its first step."""

_ACTIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}
_WRITES = frozenset(_ACTIONS.values())


class StartAgainError(Exception):
    """A request names a new place, or is the first to read eventually: the search starts again and knows about it."""


class Answered(NamedTuple):
    """The number of a request's answer (:attr:`Tables.answers`), instead of its progress."""

    number: int


class Outcome(NamedTuple):
    """What a step does: the new items of places; and the request's progress after it."""

    writes: tuple[tuple[int, int], ...]
    then: Progress | Answered


class Step(NamedTuple):
    """One step of a request: it reads ``places``, and ``run`` returns its outcome from their items.

    ``waits``: not while another transaction has locked one of the places. ``eventual``: any earlier version will do.
    """

    places: tuple[int, ...]
    run: Callable[[Values], Outcome]
    waits: bool = False
    eventual: bool = False


@dataclass
class Tables:
    """The tables' key attributes by name, the places and items so far, and the answers, each once."""

    keys: Mapping[str, tuple[str, ...]]
    too_large: Callable[[WireItem], bool] = lambda _: False
    """Whether a transaction that puts the item may be refused for its size."""
    places: list[tuple[str, WireItem]] = field(default_factory=list)
    items: list[WireItem] = field(default_factory=lambda: [{}])
    answers: list[Answer] = field(default_factory=list)
    conflicts: Counter[int] = field(default_factory=Counter)
    """The answers that are conflicts, or refusals of what is too large, each once."""
    versions: bool = False
    """Whether a place's earlier versions are kept, for reads that are eventually consistent."""
    sealed: bool = False
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _requests: dict[str, Request] = field(default_factory=dict)

    def restart(self) -> None:
        """Forget the requests, which know the places that there were."""
        self._requests.clear()
        self.sealed = True

    def keep_versions(self) -> None:
        if not self.versions:
            self.versions = True
            raise StartAgainError

    def place(self, table: str, item: WireItem) -> int:
        """Return the number of the place of an item or a key."""
        key = {name: item[name] for name in self.keys[table]}
        identity = "place", table, comparable_item(key)
        if identity not in self._numbers:
            self._numbers[identity] = len(self.places)
            self.places.append((table, key))
            if self.sealed:
                raise StartAgainError
        return self._numbers[identity]

    def item(self, item: WireItem) -> int:
        """Return the number of an item."""
        return self._numbered(("item", comparable_item(item)), item, self.items) if item else 0

    def answer(self, answer: Answer) -> Answered:
        return Answered(self._numbered(("answer", _text(answer)), answer, self.answers))

    def conflict(self, error: ClientError) -> Answered:
        answer = self.answer(error)
        self.conflicts[answer.number] = 1
        return answer

    def request(self, send: Send) -> Request:
        text = f"{send.operation} {_text(dict(send.params))}"
        if text not in self._requests:
            self._requests[text] = _KINDS.get(send.operation, Single)(self, send.operation, dict(send.params), text)
        return self._requests[text]

    def _numbered(self, identity: Hashable, value: Any, into: list[Any]) -> int:
        if identity not in self._numbers:
            self._numbers[identity] = len(into)
            into.append(value)
        return self._numbers[identity]


@dataclass
class Request:
    """A request, its steps from each progress, and the places that it has locked."""

    tables: Tables
    operation: str
    params: dict[str, Any]
    text: str

    def steps(self, progress: Progress) -> Iterator[Step]:
        raise NotImplementedError

    def locks(self, progress: Progress) -> frozenset[int]:
        return frozenset()

    def conflict(self) -> Answered | None:
        """Return the answer if the items are locked; None: the request has to wait."""
        return None

    def refused(self) -> Answered | None:
        """Return the answer if what it puts is too large; None: it is not."""
        return None

    def late(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return what a late duplicate of the request writes: nobody waits for its answer."""
        written: dict[int, int] = {}
        progress: Progress = ()
        while not isinstance(progress, Answered):
            step = next(self.steps(progress))
            current = {**values, **written}
            outcome = step.run(tuple(current[place] for place in step.places))
            written.update(outcome.writes)
            progress = outcome.then
        return written

    @property
    def writes(self) -> bool:
        return self.operation in {"BatchWriteItem", "TransactWriteItems", *_WRITES}

    @property
    def eventual(self) -> bool:
        return not self.params.get("ConsistentRead")

    def reported(self, response: Response) -> Answered:
        asked = self.params.get("ReturnConsumedCapacity", "NONE") != "NONE"
        consumed = {"ConsumedCapacity": {"TableName": self.params.get("TableName"), "CapacityUnits": 1.0}}
        return self.tables.answer({**response, **(consumed if asked else {})})


class Single(Request):
    """A read or a write of one item."""

    @cached_property
    def _place(self) -> int:
        assert self.operation in {"GetItem", *_WRITES}, self.operation
        return self.tables.place(self.params["TableName"], self.params.get("Item") or self.params["Key"])

    def steps(self, progress: Progress) -> Iterator[Step]:
        write = self.operation != "GetItem"
        yield Step((self._place,), self._run, waits=write, eventual=not write and self.eventual)

    def conflict(self) -> Answered | None:
        return self.tables.conflict(client_error("TransactionConflictException", operation=self.operation))

    def _run(self, values: Values) -> Outcome:
        before = self.tables.items[values[0]]
        after, answer = carried_out(self.operation, self.params, before)
        number = self.tables.item(after)
        writes = ((self._place, number),) if number != values[0] else ()
        if isinstance(answer, Exception):
            return Outcome(writes, self.tables.answer(answer))
        return Outcome(writes, self.reported(answer))


def carried_out(operation: str, params: Mapping[str, Any], before: WireItem) -> tuple[WireItem, Answer]:
    """Return an item after an operation on it, and the answer (``{}``: there is no item)."""
    if operation == "GetItem":
        return before, {"Item": projected(params, before)} if before else {}
    if not holds(params, before):
        return before, _condition_failed(operation, params, before)
    after: WireItem = {}
    if operation == "PutItem":
        after = dict(params["Item"])
    elif operation == "UpdateItem":
        after = updated(params, before or dict(params["Key"]))
    elif operation == "ConditionCheck":
        after = before
    returned = {"NONE": {}, "ALL_OLD": before, "ALL_NEW": after}[params.get("ReturnValues", "NONE")]
    return after, {"Attributes": returned} if returned else {}


class BatchGet(Request):
    """Each item is read by itself, in any order."""

    @cached_property
    def _reads(self) -> list[tuple[str, Mapping[str, Any], int]]:
        return [
            (table, asked, self.tables.place(table, key))
            for table, asked in self.params["RequestItems"].items()
            for key in asked["Keys"]
        ]

    def steps(self, progress: Progress) -> Iterator[Step]:
        read = progress or (None,) * len(self._reads)
        for at, (_, asked, place) in enumerate(self._reads):
            if read[at] is None:
                eventual = not asked.get("ConsistentRead")
                yield Step((place,), lambda values, at=at: self._run(read, at, values[0]), eventual=eventual)  # type: ignore[misc]

    def _run(self, read: tuple[int | None, ...], at: int, value: int) -> Outcome:
        read = (*read[:at], value, *read[at + 1 :])
        if None in read:
            return Outcome((), read)
        responses: dict[str, list[WireItem]] = {table: [] for table in self.params["RequestItems"]}
        for (table, asked, _), number in zip(self._reads, read, strict=True):
            if number:
                responses[table].append(projected(asked, self.tables.items[number]))
        return Outcome((), self.tables.answer({"Responses": responses, "UnprocessedKeys": {}}))


class BatchWrite(Request):
    """Each write by itself, in any order, and without a condition."""

    @cached_property
    def _writes(self) -> list[tuple[int, int]]:
        return [
            (self.tables.place(table, part), self.tables.item(part) if source == "Item" else 0)
            for table, requests in self.params["RequestItems"].items()
            for request in requests
            for body in request.values()
            for source, part in body.items()
        ]

    def steps(self, progress: Progress) -> Iterator[Step]:
        left = progress or tuple(self._writes)
        for at, (place, _) in enumerate(left):
            yield Step((place,), lambda _, at=at: self._run(left, at), waits=True)  # type: ignore[misc]

    def _run(self, left: tuple[tuple[int, int], ...], at: int) -> Outcome:
        rest = left[:at] + left[at + 1 :]
        return Outcome((left[at],), rest or self.tables.answer({"UnprocessedItems": {}}))


class Pages(Request):
    """A page of a Query or a Scan: it reads its places one after the other, in their order."""

    @cached_property
    def _places(self) -> list[int]:
        """The places that the page may read, those that no request has named yet excepted."""
        params, tables = self.params, self.tables
        table = params["TableName"]
        assert "IndexName" not in params, "indexes are not modelled"
        places = [number for number, (name, _) in enumerate(tables.places) if name == table]
        places.sort(key=lambda number: self._position(tables.places[number][1]))
        if self.operation == "Query":
            condition = parse_key_condition(params)
            ((partition, value),) = condition.equals.items()
            places = [
                number
                for number in places
                for key in [tables.places[number][1]]
                if key[partition] == value
                and (condition.range is None or matches(condition.range[1], key[condition.range[0]]))
            ]
            if params.get("ScanIndexForward") is False:
                places.reverse()
        total = params.get("TotalSegments", 1)
        places = places[params.get("Segment", 0) :: total]
        start = params.get("ExclusiveStartKey")
        if start is None:
            return places
        behind, backwards = self._position(start), params.get("ScanIndexForward") is False
        positions = [self._position(tables.places[number][1]) for number in places]
        return [
            number
            for number, position in zip(places, positions, strict=True)
            if (position < behind if backwards else position > behind)
        ]

    def _position(self, key: WireItem) -> tuple[Any, ...]:
        partition, *sort = self.tables.keys[self.params["TableName"]]
        return hashlib.sha256(repr(key[partition]).encode()).digest(), *(sort_value(key[name]) for name in sort)

    def steps(self, progress: Progress) -> Iterator[Step]:
        at, found = progress or (0, ())
        places = self._places
        if at == len(places):
            yield Step((), lambda _: Outcome((), self._answer(found, ended=True)))
        else:
            yield Step((places[at],), lambda values: self._run(at, found, values[0]), eventual=self.eventual)

    def _run(self, at: int, found: tuple[int, ...], value: int) -> Outcome:
        found = (*found, value) if value else found
        full = len(found) == self.params.get("Limit")
        at += 1
        if full or at == len(self._places):
            return Outcome((), self._answer(found, ended=not full))
        return Outcome((), (at, found))

    def _answer(self, found: Sequence[int], *, ended: bool) -> Answered:
        items = [self.tables.items[number] for number in found]
        kept = [projected(self.params, item) for item in items if holds(self.params, item, "FilterExpression")]
        response: Response = {"Items": kept, "Count": len(kept), "ScannedCount": len(items)}
        if not ended:
            names = self.tables.keys[self.params["TableName"]]
            response["LastEvaluatedKey"] = {name: items[-1][name] for name in names}
        return self.reported(response)


class TransactGet(Request):
    @cached_property
    def _gets(self) -> list[Mapping[str, Any]]:
        return [part["Get"] for part in self.params["TransactItems"]]

    def steps(self, progress: Progress) -> Iterator[Step]:
        places = tuple(self.tables.place(get["TableName"], get["Key"]) for get in self._gets)
        yield Step(places, self._run, waits=True)

    def conflict(self) -> Answered | None:
        return self.tables.conflict(_cancelled(self.operation, [{"Code": "TransactionConflict"} for _ in self._gets]))

    def _run(self, values: Values) -> Outcome:
        items = [self.tables.items[value] for value in values]
        responses = [
            {"Item": projected(get, item)} if item else {} for get, item in zip(self._gets, items, strict=True)
        ]
        return Outcome((), self.tables.answer({"Responses": responses}))


class TransactWrite(Request):
    @cached_property
    def _actions(self) -> list[tuple[str, Mapping[str, Any], int]]:
        return [
            (_ACTIONS[action], body, self.tables.place(body["TableName"], body.get("Item") or body["Key"]))
            for part in self.params["TransactItems"]
            for action, body in part.items()
        ]

    def locks(self, progress: Progress) -> frozenset[int]:
        return frozenset(place for _, _, place in self._actions) if progress else frozenset()

    def steps(self, progress: Progress) -> Iterator[Step]:
        if not progress:
            places = tuple(place for _, _, place in self._actions)
            assert len(set(places)) == len(places), "a transaction may name an item once"
            yield Step(places, self._begin, waits=True)
        for at in range(len(progress)):
            yield Step((), lambda _, at=at: self._visible(progress, at))  # type: ignore[misc]

    def conflict(self) -> Answered | None:
        return self.tables.conflict(
            _cancelled(self.operation, [{"Code": "TransactionConflict"} for _ in self._actions])
        )

    def _begin(self, values: Values) -> Outcome:
        writes, reasons = [], []
        for (operation, body, place), value in zip(self._actions, values, strict=True):
            after, answer = carried_out(operation, body, self.tables.items[value])
            number = self.tables.item(after)
            if number != value:
                writes.append((place, number))
            reasons.append(_reason(answer))
        if any(reason["Code"] != "None" for reason in reasons):
            return Outcome((), self.tables.answer(_cancelled(self.operation, reasons)))
        return Outcome((), tuple(writes) or self.tables.answer({}))

    def refused(self) -> Answered | None:
        if not any(self.tables.too_large(body.get("Item", {})) for _, body, _ in self._actions):
            return None
        return self.tables.conflict(client_error("ValidationException", operation=self.operation))

    def _visible(self, left: tuple[tuple[int, int], ...], at: int) -> Outcome:
        rest = left[:at] + left[at + 1 :]
        return Outcome((left[at],), rest or self.tables.answer({}))


_KINDS: Mapping[str, type[Request]] = {
    "BatchGetItem": BatchGet,
    "BatchWriteItem": BatchWrite,
    "Query": Pages,
    "Scan": Pages,
    "TransactGetItems": TransactGet,
    "TransactWriteItems": TransactWrite,
}


def _condition_failed(operation: str, params: Mapping[str, Any], item: WireItem) -> ClientError:
    error = client_error("ConditionalCheckFailedException", operation=operation)
    if params.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and item:
        error.response["Item"] = item  # type: ignore[typeddict-unknown-key]
    return error


def _cancelled(operation: str, reasons: list[dict[str, Any]]) -> ClientError:
    error = client_error("TransactionCanceledException", operation=operation)
    error.response["CancellationReasons"] = reasons  # type: ignore[typeddict-item]
    return error


def _reason(answer: Answer) -> dict[str, Any]:
    if not isinstance(answer, ClientError):
        return {"Code": "None"}
    item = answer.response.get("Item")
    return {"Code": "ConditionalCheckFailed", "Message": "failed", **({} if item is None else {"Item": item})}


def _text(value: Any) -> str:
    if isinstance(value, ClientError):
        value = value.response
    return json.dumps(value, sort_keys=True, default=repr)
