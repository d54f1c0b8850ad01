"""Judges what the processes of a history wrote down. It knows nothing of shardkit but the promises."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.histories.linearizable import ANY, Operation, check, smallest
from tests.histories.records import lines

WRITES = frozenset({"put", "put_new", "swap", "set", "add", "delete"})
STAGES = ("old", "guard", "switch", "move", "new")
_SECOND = 1_000_000_000

EXPECTED = re.compile(
    r"(ConnectionClosed|ConnectTimeout|ReadTimeout|EndpointConnection|ShardQuery|TableNotDescribed|MapChanged)Error:"
)
"""The errors that a lost request may raise, and a map that changes."""


@dataclass
class Judged:
    """What was found wrong, and how much was looked at.

    ``witness`` is a part of the history of the first item that no order explains.
    """

    problems: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    states: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    witness: list[Operation] = field(default_factory=list)


class History:
    """The lines of a history's processes; times in nanoseconds of one clock."""

    def __init__(self, folder: Path, *, lease_seconds: float, ttl_seconds: float) -> None:
        begun: dict[tuple[str, int], dict[str, Any]] = {}
        self._ended: dict[tuple[str, int], dict[str, Any]] = {}
        self._requests = list(lines(folder / "proxy.log"))
        self._stages: dict[str, int] = {}
        self._lease, self._ttl = int(lease_seconds * _SECOND), int(ttl_seconds * _SECOND)
        for path in sorted(folder.glob("*.jsonl")):
            for line in lines(path):
                if "stage" in line:
                    self._stages[line["stage"]] = line["t"]
                elif "f" in line:
                    begun.setdefault((line["p"], line["i"]), line)  # a load that is continued is one operation
                else:
                    self._ended[line["p"], line["i"]] = line
        self._begun = begun

    def judge(self) -> Judged:
        found = Judged()
        for identity, line in self._begun.items():
            kind, ended = line["f"], self._ended.get(identity, {})
            found.operations[kind] += 1
            found.unknown += "r" not in ended
            if "e" in ended:
                found.errors[ended["e"].partition(":")[0]] += 1
                if not EXPECTED.match(ended["e"]):
                    found.problems.append(f"{line['p']}: {kind} raised {ended['e']}")
            if "r" in ended:
                found.problems += self._shown(line, ended["r"])
        self._judge_items(found)
        self._judge_map(found)
        return found

    # Single items. A read of many is one of each, between its begin and its end.

    @cached_property
    def _keys(self) -> dict[str, set[str]]:
        """The sort keys of all items that anybody wrote, by partition."""
        keys: dict[str, set[str]] = defaultdict(set)
        for line in self._begun.values():
            if line["f"] == "puts":
                for partition, sort in line["a"][0]:
                    keys[partition].add(sort)
            elif line["f"] in WRITES:
                partition, sort = line["a"][0]
                keys[partition].add(sort)
        return keys

    def _keys_of(self, partitions: Iterable[str]) -> list[tuple[str, str]]:
        return [(partition, sort) for partition in partitions for sort in self._keys[partition]]

    def _operations(self) -> Iterator[tuple[tuple[str, str], Operation]]:
        own: dict[tuple[str, tuple[str, str]], list[tuple[int, int]]] = defaultdict(list)
        for identity, line in self._begun.items():
            if line["f"] in WRITES and "r" in self._ended.get(identity, {}):
                own[line["p"], tuple(line["a"][0])].append((line["t"], self._ended[identity]["t"]))
        for identity, line in self._begun.items():
            kind, given, ended = line["f"], line["a"], self._ended.get(identity, {})
            began, end, answer = line["t"], ended.get("t") if "r" in ended else None, ended.get("r")
            if kind == "puts":
                for key in given[0]:
                    yield tuple(key), Operation(began, end, ("put", given[1]), ANY, line["p"])
            elif kind in {"batch get", "query", "scan"}:
                if answer is None:
                    continue
                seen = {tuple(key): one for key, one in answer}
                asked = given[0] if kind == "batch get" else self._keys_of(given[:1] or [*self._keys])
                for key in map(tuple, asked):
                    yield key, Operation(began, end, ("get",), _tuple(seen.get(key)), line["p"])
            elif kind == "cached":
                # A copy is as old as the read or the own write that it is of, which ended ``ttl`` ago at most; and no
                # older than what this process has written before.
                key, oldest = tuple(given[0]), began - self._ttl
                writes = [(at, to) for at, to in own[line["p"], key] if oldest <= to <= began]
                oldest = min([at for at, _ in writes], default=oldest)
                after = tuple((at, line["p"]) for at, _ in writes)
                yield key, Operation(min(oldest, began), end, ("get",), _tuple(answer), f"{line['p']}, cached", after)
            elif kind not in {"index", "move"}:
                yield tuple(given[0]), Operation(began, end, (kind, *given[1:]), _tuple(answer, end), line["p"])

    def _judge_items(self, found: Judged) -> None:
        by_key: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for key, operation in self._operations():
            by_key[key].append(operation)
        for key, operations in sorted(by_key.items()):
            verdict = check(operations)
            found.states += verdict.states
            if verdict.linearizable:
                continue
            said = "no order explains" if verdict.linearizable is False else "undecided after 1,000,000 states:"
            found.problems.append(f"{'/'.join(key)}: {said} its {len(operations)} operations")
            if verdict.linearizable is False and not found.witness:
                found.witness = smallest(operations)

    # Reads of many items.

    def _shown(self, line: dict[str, Any], answer: Any) -> Iterator[str]:
        kind, by = line["f"], f"{line['p']}: {line['f']} {line['a']}"
        if kind == "move" and answer[2]:
            yield f"{by}: {answer[2]} items at two places"
        for page in answer if kind == "index" else [answer] if kind in {"batch get", "query", "scan"} else []:
            keys = [tuple(key) for key, _ in page]
            if twice := [key for key, times in Counter(keys).items() if times > 1]:
                yield f"{by}: shows {twice[:3]} twice"
            if never := [key for key in keys if key[1] not in self._keys.get(key[0], ())]:
                yield f"{by}: shows {never[:3]}, which nobody wrote"
        if kind == "query":
            shown = [key[1] if line["a"][1] == "sk" else key[1][::-1] for key, _ in answer]
            if shown != sorted(shown, reverse=not line["a"][2]):
                yield f"{by}: shows {shown} in another order"
        if kind == "index":
            yield from self._shown_of_index(line, answer, by)

    @cached_property
    def _values(self) -> dict[tuple[str, str], set[Any]]:
        """What was written to each item at any time."""
        values: dict[tuple[str, str], set[Any]] = defaultdict(lambda: {None})
        for line in self._begun.values():
            if line["f"] == "puts":
                for key in line["a"][0]:
                    values[tuple(key)].add(line["a"][1])
            elif line["f"] in {"put", "put_new", "swap", "set"}:
                values[tuple(line["a"][0])].add(line["a"][-1])
        return values

    def _shown_of_index(self, line: dict[str, Any], pages: Any, by: str) -> Iterator[str]:
        """A global index is eventually consistent: it shows what was there, and all that was, but during a move."""
        shown = {tuple(key) for page in pages for key, _ in page}
        for page in pages:
            for key, one in page:
                if one[0] not in self._values[tuple(key)]:
                    yield f"{by}: shows {key} as {one}, which nobody wrote"
        end = self._ended[line["p"], line["i"]]["t"]
        moves = self._stages.get("move", float("inf")), self._stages.get("new", float("inf")) + self._lease + _SECOND
        if end < moves[0] or line["t"] > moves[1]:
            steady = {tuple(key) for one in self._begun.values() if one["p"] == "seed" for key in one["a"][0]}
            if missed := {key for key in steady if key[1].startswith("p")} - shown:
                yield f"{by}: misses {sorted(missed)[:3]}, which were there all the time"

    # The shard map.

    def _judge_map(self, found: Judged) -> None:
        """No request on what was read more than a lease before it was signed; no stage after the next but one."""
        for request in self._requests:
            found.requests[request["fault"]] += 1
        done = sorted((one for one in self._requests if "answered" in one), key=lambda one: one["sent"])
        reads = [one for one in done if "map" in one]
        for one in reads:
            newest = max((other["map"][0] for other in reads if other["answered"] < one["sent"]), default=0)
            if one["map"][0] < newest:
                found.problems.append(f"the map was of generation {one['map'][0]} after {newest}")
        own: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in reads:
            own[one["p"]].append(one)
        acted: dict[int, int] = {}  # by stage: when the first request that can only have been of it was answered
        problems: set[str] = set()
        for one in done:
            if "map" in one or one["op"] == "DescribeTable" or one["fault"] == "repeated":
                continue
            # Its lease began at most 30 seconds before it was signed; the time of that has whole seconds.
            oldest = one["signed"] - self._lease - _SECOND // 20
            stages = {
                STAGES.index(read["map"][1])
                for read in own[one["p"]]
                if read["answered"] <= one["came"] and read["came"] > oldest
            }
            if not stages:
                problems.add(f"{one['p']}: a request went without a lease")
            elif len(stages) == 1:
                (stage,) = stages
                if any(stage + 2 <= other and at < one["sent"] for other, at in acted.items()):
                    problems.add(f"{one['p']}: acted in {STAGES[stage]!r} after others in the next stage but one")
                acted[stage] = min(acted.get(stage, one["answered"]), one["answered"])
        found.problems += sorted(problems)


def _tuple(answer: Any, end: Any = 0) -> Any:
    """Return an answer as it is compared; of an operation without an end, any."""
    return ANY if end is None else tuple(answer) if isinstance(answer, list) else answer


def described(operation: Operation, start: float) -> str:
    """Return a line for people: when, in milliseconds, by whom, what, and what was answered."""
    end = "…" if operation.ended is None else f"{(operation.ended - start) / 1e6:.3f}"
    when = f"{(operation.began - start) / 1e6:10.3f} to {end:>10}"
    return f"{when}  {operation.by:22} {json.dumps(operation.call)} -> {json.dumps(operation.answer)}"
