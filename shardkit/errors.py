"""The errors of shardkit. Each message says what was given, what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

__all__ = [
    "AmbiguousItemError",
    "CapacityBudgetError",
    "ConfigurationError",
    "CursorError",
    "IncompleteResetError",
    "InvalidKeyError",
    "InvalidValueError",
    "MaintenanceError",
    "MissingCredentialsError",
    "PeriodError",
    "ShardQueryError",
    "ShardTimeoutError",
    "ShardUnknownError",
    "ShardkitError",
    "StageError",
    "StagingError",
    "TableNotDescribedError",
    "UnknownOutcomeError",
    "UnsupportedExpressionError",
    "UnsupportedOperationError",
    "UnsupportedParameterError",
]


class ShardkitError(Exception):
    """The base class of all errors that shardkit raises; all of them can be pickled."""

    def __str__(self) -> str:
        # Subclasses keep their attributes in ``args``, after the message, so that they can be pickled.
        return str(self.args[0]) if self.args else ""


class ConfigurationError(ShardkitError, ValueError):
    """An argument of a strategy, a table or a load is invalid."""


class TableNotDescribedError(ConfigurationError, ClientError):
    """DescribeTable failed, so the table's key schema is unknown; ``response`` is the service's answer."""

    def __init__(self, message: str, response: Any, operation_name: str = "DescribeTable") -> None:
        super(ClientError, self).__init__(message, response, operation_name)
        self.response = response
        self.operation_name = operation_name

    def __reduce__(self) -> tuple[Any, ...]:
        # ClientError's own would return a plain ClientError, without the message.
        return type(self), self.args


class MissingCredentialsError(ConfigurationError, NoCredentialsError):
    """No credentials were found for DescribeTable, so the table's key schema is unknown."""

    def __init__(self, message: str) -> None:
        super(NoCredentialsError, self).__init__()
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class UnsupportedOperationError(ShardkitError, AttributeError):
    """The operation is not supported on a sharded table, or is unknown to this version.

    It is also an AttributeError, so that ``hasattr(table, "execute_statement")`` returns False.
    """


class UnsupportedExpressionError(ShardkitError, ValueError):
    """A suffix would change the meaning of an expression, and it cannot be rewritten."""


class UnsupportedParameterError(UnsupportedExpressionError, ParamValidationError):
    """A parameter is misspelt, missing, of the wrong type, or unknown to this version.

    It is also a ParamValidationError, which boto3 raises in these cases.
    """

    def __init__(self, message: str) -> None:
        ParamValidationError.__init__(self, report=message)
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class InvalidKeyError(ShardkitError, ValueError):
    """A key attribute of an item or a key is missing, empty, or of the wrong type."""


class InvalidValueError(ShardkitError, TypeError):
    """DynamoDB has no type for a value (a float), or cannot store a number.

    It is also a TypeError, which boto3 raises in these cases.
    """


class ShardUnknownError(ShardkitError, LookupError):
    """The shard of an item cannot be calculated from the arguments of the call."""


class CursorError(ShardkitError, ValueError):
    """An ``ExclusiveStartKey`` is damaged, or is of another key, table or index."""


class AmbiguousItemError(ShardkitError):
    """More than one shard has an item with this primary key; ``shards`` lists them."""

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


class ShardTimeoutError(ShardQueryError, TimeoutError):
    """Some shards of a fan-out did not answer within ``timeout=``."""

    def __init__(
        self,
        message: str,
        errors: Mapping[int | None, BaseException] | None = None,
        partial_items: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message, errors, partial_items)
        # An OSError, which TimeoutError is, takes three arguments for a number, a reason and a file's name.
        self.errno = self.strerror = self.filename = None
        self.args = (message, errors, partial_items)


def shard_error(first: BaseException) -> type[ShardQueryError]:
    """Return the class of the error of a fan-out whose first failure is this one."""
    return ShardTimeoutError if isinstance(first, TimeoutError) else ShardQueryError


class PeriodError(ShardkitError, LookupError):
    """A period of a time series is closed to writes, or has no table; ``period`` is its name."""

    def __init__(self, message: str, period: str = "") -> None:
        super().__init__(message, period)
        self.period = period


class StageError(ShardkitError, ValueError):
    """A stage of a ``Resharding`` does not allow the call; ``stage`` is its name."""

    def __init__(self, message: str, stage: str = "") -> None:
        super().__init__(message, stage)
        self.stage = stage


class StagingError(ShardkitError):
    """Items could not be staged in S3 or imported, or a stage is incomplete or was changed.

    ``report`` is the state of an import that was started, or has the items that cannot be staged; None otherwise.
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message, report)
        self.report = report


class MaintenanceError(ShardkitError):
    """Some steps of a time series' maintenance failed; ``report`` has all of them."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message, report)
        self.report = report


class UnknownOutcomeError(ShardkitError):
    """The answer to an add was lost: the shard may or may not contain it. It was not sent a second time.

    ``amount`` is what was to be added; ``shard`` the shard.
    """

    def __init__(self, message: str, amount: Decimal = Decimal(0), shard: int | None = None) -> None:
        super().__init__(message, amount, shard)
        self.amount = amount
        self.shard = shard


class IncompleteResetError(ShardkitError):
    """A counter's reset stopped before its last shard.

    ``taken`` is what was subtracted from the shards before; ``unknown`` what may have been subtracted from the shard at
    which it stopped, because the answer was lost (0: nothing).
    """

    def __init__(self, message: str, taken: Decimal = Decimal(0), unknown: Decimal = Decimal(0)) -> None:
        super().__init__(message, taken, unknown)
        self.taken = taken
        self.unknown = unknown


class CapacityBudgetError(ShardkitError):
    """A call was not sent, because its budget would delay it beyond the timeout.

    ``rate`` is the budget's rate in units a second; ``debt`` the units that it owes; ``seconds`` the expected delay of
    the call.
    """

    def __init__(self, message: str, rate: float = 0.0, debt: float = 0.0, seconds: float = 0.0) -> None:
        super().__init__(message, rate, debt, seconds)
        self.rate = rate
        self.debt = debt
        self.seconds = seconds


class ShareEndedError(CapacityBudgetError):
    """A request was not sent, because the process's share of a budget had ended when it was about to go."""


_MOST_BITS = 1000


def brief(value: Any, most: int = 100) -> str:
    """Return a text of a value for a message, of so many characters at the most; functions by name."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"<int of {value.bit_length()} bits>"
    try:
        return f"{getattr(value, '__qualname__', None) or repr(value):.{most}}"
    except (RecursionError, ValueError):  # Python refuses to print integers of thousands of digits, in a list too
        return f"<{type(value).__name__} too long, or nested too deep, to print>"
