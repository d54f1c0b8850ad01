"""Several tables, some sharded, in both forms of a caller: what the programs of transactions and batches are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardkit.core.machine import Answer, Program, ProgramMachine, Response, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.strategies import CalculatedSuffix, RandomSuffix, Strategy
from tests.support.fakes import ARN
from tests.support.machines import Timed
from tests.support.tables import described

STRATEGIES: Mapping[str, Strategy] = {
    "calculated": CalculatedSuffix("sk", 5),
    "by-customer": CalculatedSuffix("customer", 5),
    "random": RandomSuffix(4),
    "located": RandomSuffix(4, locate=True),
}
"""By table; the table ``plain`` is not sharded. All have the keys ``pk`` (S) and ``sk`` (N)."""


def sharding_of(table: str, form: Form = PYTHON_VALUES) -> Sharding:
    return replace(described(STRATEGIES[table], {"pk": "S", "sk": "N"}, ["pk", "sk"], name=table), form=form)


@dataclass
class Several:
    """Runs programs over the tables, for a caller of one form; ``answers`` answers their requests."""

    form: Form
    answers: Callable[[Send], Answer] = lambda _: {}
    draws: Sequence[float] = (0.5,)
    sent: list[Send] = field(default_factory=list)
    drawn: int = 0

    def known(self, table: str) -> Program[Sharding | None]:
        yield from ()
        name = table.removeprefix(ARN)
        return sharding_of(name, self.form) if name in STRATEGIES else None

    def run(self, operation: Callable[..., Program[Response]], params: Mapping[str, Any]) -> Response:
        """Run an operation to its response."""

        def answer(send: Send) -> tuple[float, Answer]:
            self.sent.append(send)
            return 0.01, self.answers(send)

        response: Response = Timed(answer).run(ProgramMachine(self.begun(operation, params)))
        return response

    def begun(self, operation: Callable[..., Program[Response]], params: Mapping[str, Any]) -> Program[Response]:
        return operation(params, self.known, self.form, FanOutOptions(10, self._draw))

    def _draw(self) -> float:
        self.drawn += 1
        return self.draws[self.drawn % len(self.draws)]

    def given(self, **item: Any) -> dict[str, Any]:
        """An item or a key in the caller's form."""
        return item if self.form is PYTHON_VALUES else to_wire_item(item)

    def values(self, **values: Any) -> dict[str, Any]:
        """Values of an expression in the caller's form."""
        return self.given(**{f":{name}": value for name, value in values.items()})


def stored(table: str, shard: int | None = None, /, **item: Any) -> dict[str, Any]:
    """A wire item as a table stores it: in its calculated shard, unless one is given."""
    if table == "plain":
        return to_wire_item(item)
    sharding = sharding_of(table)
    wire = to_wire_item(item)
    return sharding.stored(wire, sharding.shard_of(wire["pk"], item) if shard is None else shard)
