"""The errors of shardkit: each says what was given, what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

__all__ = [
    "AmbiguousItemError",
    "CapacityBudgetError",
    "ConfigurationError",
    "CursorError",
    "InvalidKeyError",
    "InvalidValueError",
    "MissingCredentialsError",
    "ShardQueryError",
    "ShardUnknownError",
    "ShardkitError",
    "TableNotDescribedError",
    "UnsupportedExpressionError",
    "UnsupportedOperationError",
    "UnsupportedParameterError",
]


class ShardkitError(Exception):
    """The root of every error that shardkit raises by itself; all of them can be pickled."""

    def __str__(self) -> str:
        # Subclasses keep what they carry in ``args`` (so that they pickle); the message comes first.
        return str(self.args[0]) if self.args else ""


class ConfigurationError(ShardkitError, ValueError):
    """A strategy, a table or a load was built with something that cannot work."""


class TableNotDescribedError(ConfigurationError, ClientError):
    """The service did not describe the table, so that its key schema is not known; ``response`` is what it answered."""

    def __init__(self, message: str, response: Any, operation_name: str = "DescribeTable") -> None:
        super(ClientError, self).__init__(message, response, operation_name)
        self.response = response
        self.operation_name = operation_name

    def __reduce__(self) -> tuple[Any, ...]:
        # ClientError's own would give back a plain ClientError, without the message.
        return type(self), self.args


class MissingCredentialsError(ConfigurationError, NoCredentialsError):
    """There are no credentials to ask for the table's key schema with."""

    def __init__(self, message: str) -> None:
        super(NoCredentialsError, self).__init__()
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class UnsupportedOperationError(ShardkitError, AttributeError):
    """An operation that cannot be sharded, or that nobody has decided on yet.

    It is an AttributeError too, so that ``hasattr(table, "execute_statement")`` answers instead of failing.
    """


class UnsupportedExpressionError(ShardkitError, ValueError):
    """An expression whose meaning a suffix would change, and that cannot be rewritten."""


class UnsupportedParameterError(UnsupportedExpressionError, ParamValidationError):
    """A parameter that is misspelt, missing or of the wrong type, or that shardkit does not know yet.

    It is a ParamValidationError too, which is what boto3 raises.
    """

    def __init__(self, message: str) -> None:
        super(ParamValidationError, self).__init__(report=message)
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class InvalidKeyError(ShardkitError, ValueError):
    """An item or a key whose key attributes are missing, empty, or of the wrong type."""


class InvalidValueError(ShardkitError, TypeError):
    """A value that DynamoDB has no type for (a float), or a number that it cannot hold.

    It is a TypeError too, which is what boto3 raises for it.
    """


class ShardUnknownError(ShardkitError, LookupError):
    """The shard of an item cannot be known from what the call carries."""


class CursorError(ShardkitError, ValueError):
    """An ``ExclusiveStartKey`` that is damaged or was made for another key, table or index."""


class AmbiguousItemError(ShardkitError):
    """More than one shard holds an item of this primary key; ``shards`` says which."""

    def __init__(self, message: str, shards: Sequence[int | None] = ()) -> None:
        super().__init__(message, tuple(shards))
        self.shards: tuple[int | None, ...] = tuple(shards)


class ShardQueryError(ShardkitError):
    """Some shards of a fan-out failed.

    ``errors`` maps each failed shard to its exception; ``partial_items`` are the items of the shards that answered.
    """

    def __init__(
        self,
        message: str,
        errors: Mapping[int | None, BaseException] | None = None,
        partial_items: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message, errors, partial_items)
        self.errors: dict[int | None, BaseException] = dict(errors or {})
        self.partial_items: list[Mapping[str, Any]] = list(partial_items)


class CapacityBudgetError(ShardkitError):
    """A call was not sent, because its turn in a budget does not come in time.

    ``rate`` is the budget's, in units a second; ``debt`` the units that it owes; ``seconds`` the time until the call
    may go, as it looks now.
    """

    def __init__(self, message: str, rate: float = 0.0, debt: float = 0.0, seconds: float = 0.0) -> None:
        super().__init__(message, rate, debt, seconds)
        self.rate = rate
        self.debt = debt
        self.seconds = seconds


def brief(value: Any) -> str:
    """Show a value in a message, cut short."""
    try:
        return f"{value!r:.100}"
    except (RecursionError, ValueError):  # Python refuses to print integers of thousands of digits
        return f"<{type(value).__name__} too long, or nested too deep, to print>"
