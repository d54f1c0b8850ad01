"""The errors of installed calls: shardkit's own, which are botocore's ClientError, too."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from botocore.exceptions import ClientError

from shardkit.errors import ShardkitError


def as_client_error(error: ShardkitError, kind: type, response: Any, operation: str) -> Exception:
    """Return an error that is also a ClientError, which libraries catch."""
    own: Any = type(error)
    both = _class_of(own, kind)
    made: Any = both.__new__(both, *error.args)
    vars(made).update(vars(error), response=response, operation_name=operation, _shardkit=error)
    return cast("Exception", made)


@lru_cache
def _class_of(error: Any, kind: Any) -> type:
    # ClientError's own __reduce__ would lose the error; the class of a client's exceptions cannot be imported.
    members = {
        "__module__": error.__module__,
        "__reduce__": lambda made: (
            as_client_error,
            (made._shardkit, ClientError, made.response, made.operation_name),  # noqa: SLF001
        ),
    }
    bases = (error,) if issubclass(error, kind) else (error, kind)
    return type(error.__name__, bases, members)
