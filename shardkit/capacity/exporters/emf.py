"""A meter's figures for CloudWatch, as log lines in its embedded metric format."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson

from shardkit.capacity.exporters.measurements import (
    METRICS,
    Measured,
    Measurements,
    check,
    differences,
    measure,
    present,
)
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["EmbeddedMetrics"]

_DIMENSIONS: Mapping[str, str] = {
    "table": "TableName",
    "index": "IndexName",
    "operation": "Operation",
    "reason": "Reason",
}
# ConsumedReadCapacityUnits and the like: CloudWatch's own names for DynamoDB's metrics, as far as it has one.
_NAMES = {metric: "".join(map(str.capitalize, metric.name.split("_"))) for metric in METRICS}
_UNITS = {_NAMES[metric]: "Bytes" for metric in METRICS if metric.unit == "byte"}
_MOST_DIMENSIONS = 30 - 3  # of the set with a table, an index and an operation
_NAME_LENGTH = 255
_VALUE_LENGTH = 1024
_log = logging.getLogger("shardkit")

Function = TypeVar("Function", bound=Callable[..., Any])


class _Stream(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class EmbeddedMetrics(ContextDecorator):
    """Log lines that CloudWatch turns into metrics: each has what the meter counted since the last flush.

    Example:
        >>> meter = CapacityMeter()
        >>> @EmbeddedMetrics(meter, namespace="Shop")  # doctest: +SKIP
        ... def handler(event, context): ...

    As a decorator of a function, or in a ``with``, it flushes at the end, also when there was an exception; should
    writing fail, that goes to the log ``shardkit``, and the figures to the next flush.

    Lines are a table's, an index's, and an operation's each; their units sum to the meter's, so ``TableName`` alone is
    the table without its indexes, as among CloudWatch's own metrics of DynamoDB. Throttles and retries by reason are
    lines of their own. What did not grow is not written. Keys never are.

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes.
        namespace: the metrics' namespace in CloudWatch.
        dimensions: more dimensions, the same on every line: ``{"Service": "checkout"}``.
        by_operation: whether to make metrics of each operation too. CloudWatch bills every metric of every combination
            of dimensions; without, ``Operation`` is in the lines, for Logs Insights.
        stream: what to write to; None for ``sys.stdout``, which Lambda sends to CloudWatch.
        clock: gives the time in seconds since 1970; for tests.

    Raises:
        ConfigurationError: ``totals`` is something else; a name or a value is longer than CloudWatch takes, or has
            other characters, or is one that the lines have already; there are too many dimensions; or what is decorated
            is async, or a generator.

    Cost:
        No request. About 400 bytes a line.

    Source:
        CloudWatch User Guide, "Specification: Embedded metric format"; CloudWatch API reference, ``MetricDatum`` and
        ``Dimension``.
    """

    def __init__(
        self,
        totals: Measured,
        *,
        namespace: str = "shardkit",
        dimensions: Mapping[str, str] | None = None,
        by_operation: bool = False,
        stream: _Stream | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check(totals)
        self._totals = totals
        self._namespace = _checked_namespace(namespace)
        self._dimensions = _checked_dimensions(dimensions or {})
        self._by_operation = by_operation
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._written: Measurements = {}

    def __call__(self, function: Function) -> Function:
        """Give the function with a flush at its end; see the class."""
        if iscoroutinefunction(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
            raise ConfigurationError(
                f"{function.__name__} ends before its work does (it is async, or a generator); put its body in a with "
                "of these metrics instead"
            )
        return super().__call__(function)

    def flush(self) -> None:
        """Write what was counted since the last flush; nothing, if that is nothing.

        Raises:
            OSError: the stream's own; then the next flush has these figures too.
        """
        with self._lock:
            now = measure(self._totals)
            lines = [orjson.dumps(line).decode() + "\n" for line in self._lines(differences(now, self._written))]
            if lines:
                stream = sys.stdout if self._stream is None else self._stream
                stream.write("".join(lines))
                stream.flush()
            self._written = now

    def _lines(self, grown: Measurements) -> Iterator[dict[str, Any]]:
        timestamp = int(self._clock() * 1000)
        figures: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for metric, numbers in grown.items():
            for values, number in numbers.items():
                place = tuple(present(metric, values, _DIMENSIONS).items())
                figures.setdefault(place, {})[_NAMES[metric]] = number
        for place, numbers_of in figures.items():
            names = [*self._dimensions, *(name for name, _ in place)]
            sets = [[name for name in names if name != _DIMENSIONS["operation"]]]
            if self._by_operation and len(names) > len(sets[0]):
                sets.append(names)
            yield {
                "_aws": {
                    "Timestamp": timestamp,
                    "CloudWatchMetrics": [
                        {
                            "Namespace": self._namespace,
                            "Dimensions": sets,
                            "Metrics": [{"Name": name, "Unit": _UNITS.get(name, "Count")} for name in numbers_of],
                        }
                    ],
                },
                **self._dimensions,
                **dict(place),
                **numbers_of,
            }

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush; the caller's result, or the exception, stays what it is."""
        try:
            self.flush()
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("the metrics could not be written; they go with the next flush")


def _checked_namespace(namespace: str) -> str:
    _check_text("namespace", namespace, _NAME_LENGTH)
    if namespace.startswith((":", "AWS/")):
        raise ConfigurationError(
            f"namespace is {namespace!r:.100}; it must not begin with a colon, nor with AWS/, which is CloudWatch's own"
        )
    return namespace


def _checked_dimensions(dimensions: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(dimensions, Mapping):
        raise ConfigurationError(
            f'dimensions are a mapping of names to values, got {dimensions!r:.100}; give {{"Service": "checkout"}}, say'
        )
    if len(dimensions) > _MOST_DIMENSIONS:
        raise ConfigurationError(
            f"got {len(dimensions)} dimensions; CloudWatch takes 30 of a metric, three of which are the table, the "
            f"index and the operation: give at most {_MOST_DIMENSIONS}"
        )
    for name, value in dimensions.items():
        _check_text("a dimension's name", name, _NAME_LENGTH)
        if name.startswith(":") or name in {"_aws", *_DIMENSIONS.values(), *_NAMES.values()}:
            raise ConfigurationError(
                f"a dimension's name is {name!r:.100}, which begins with a colon, or which the lines have already; "
                "give it another one"
            )
        _check_text(f"the dimension {name!r:.100}", value, _VALUE_LENGTH)
    return dict(dimensions)


def _check_text(what: str, text: object, longest: int) -> None:
    if (
        not isinstance(text, str)
        or not text.strip()
        or len(text) > longest
        or not (text.isascii() and text.isprintable())
    ):
        raise ConfigurationError(
            f"{what} is {text!r:.100}; CloudWatch takes text of 1 to {longest} printable ASCII characters, not all of "
            "them spaces"
        )
