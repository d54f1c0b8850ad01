"""Programs of single items: what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from shardkit.core.machine import Program
from shardkit.errors import InvalidKeyError, UnsupportedParameterError
from shardkit.sharding import items
from tests.support.machines import a_fan_out
from tests.support.tables import many

OPERATIONS = [
    (items.get_item, "Key"),
    (items.put_item, "Item"),
    (items.update_item, "Key"),
    (items.delete_item, "Key"),
]


def begun(operation: Any, params: dict[str, Any]) -> Any:
    program: Program[Any] = operation(many(), params, 1, a_fan_out())
    return program.send(None)


@pytest.mark.parametrize(("operation", "source"), OPERATIONS)
def test_without_item_or_key(operation: Any, source: str) -> None:
    """It is what boto3 raises, of shardkit's family; a wrong one is another error."""
    with pytest.raises(
        UnsupportedParameterError, match=rf"{source}: missing; \w+ requires it; give {source}="
    ) as raised:
        begun(operation, {"ReturnConsumedCapacity": "TOTAL"})
    assert isinstance(raised.value, ParamValidationError)
    wrong: Any
    for wrong in (None, "k", 5, []):
        with pytest.raises(InvalidKeyError, match="mapping"):
            begun(operation, {source: wrong})
    with pytest.raises(InvalidKeyError, match=r"^pk: missing in the (key|item)"):
        begun(operation, {source: {}})


@pytest.mark.parametrize(("operation", "source"), OPERATIONS)
def test_a_misspelt_parameter(operation: Any, source: str) -> None:
    """The right one is suggested, also for the item or key itself."""
    for wrong in (source.lower(), f"{source}s", f" {source}"):
        says = rf"^ ?\w+ \(did you mean {source}\?\): not a parameter of \w+Item; "
        with pytest.raises(UnsupportedParameterError, match=says):
            begun(operation, {wrong: {"pk": "k", "sk": 1}})
