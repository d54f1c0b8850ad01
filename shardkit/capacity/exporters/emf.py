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
from shardkit.errors import ConfigurationError, brief

if TYPE_CHECKING:
    from typing import Self

__all__ = ["EmbeddedMetrics"]

_DIMENSIONS: Mapping[str, str] = {
    "table": "TableName",
    "index": "IndexName",
    "operation": "Operation",
    "reason": "Reason",
}
# CloudWatch's own names for DynamoDB's metrics, as far as it has them: ConsumedReadCapacityUnits and so on.
_NAMES = {metric: "".join(map(str.capitalize, metric.name.split("_"))) for metric in METRICS}
_UNITS = {_NAMES[metric]: "Bytes" for metric in METRICS if metric.unit == "byte"}
_MOST_DIMENSIONS = 30 - 3  # CloudWatch's limit, less the table, the index and the operation
_NAME_LENGTH = 255
_VALUE_LENGTH = 1024
_log = logging.getLogger("shardkit")

Function = TypeVar("Function", bound=Callable[..., Any])


class _Stream(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class EmbeddedMetrics(ContextDecorator):
    """Write log lines that CloudWatch turns into metrics, with what the meter counted since the last flush.

    Example:
        >>> meter = CapacityMeter()
        >>> @EmbeddedMetrics(meter, namespace="Shop")  # doctest: +SKIP
        ... def handler(event, context): ...

    As a decorator or in a ``with``, it flushes at the end, even after an exception. If writing fails, the error goes to
    the log ``shardkit``, and the figures to the next flush.

    There is a line per table, index and operation. The units of all lines sum to the meter's: as in CloudWatch's own
    metrics of DynamoDB, ``TableName`` alone is the table without its indexes. Throttles and retries have a line per
    reason. Figures that did not grow are not written. Keys are never written.

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes.
        namespace: the metrics' namespace in CloudWatch.
        dimensions: additional dimensions of every line: ``{"Service": "checkout"}``.
        by_operation: whether to make metrics of each operation too. CloudWatch bills every metric of every combination
            of dimensions. Otherwise ``Operation`` is only in the lines, for Logs Insights.
        stream: where to write; None for ``sys.stdout``, which Lambda sends to CloudWatch.
        clock: returns the time in seconds since 1970; for tests.

    Raises:
        ConfigurationError: ``totals`` is invalid; CloudWatch does not allow a name or a value, or the lines already
            have a dimension of this name; there are too many dimensions; or the decorated function is async or a
            generator.

    Cost:
        No request. About 400 bytes per line.

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
        _check_text("namespace", namespace, _NAME_LENGTH)
        if namespace.startswith((":", "AWS/")):
            raise ConfigurationError(
                f"namespace: {brief(namespace)} must not begin with a colon, nor with AWS/, which is CloudWatch's own"
            )
        _check_dimensions(dimensions or {})
        self._namespace = namespace
        self._dimensions = dict(dimensions or {})
        self._by_operation = by_operation
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._written: Measurements = {}

    def __call__(self, function: Function) -> Function:
        """Decorate a function: flush at its end."""
        if iscoroutinefunction(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
            raise ConfigurationError(
                f"function: {function.__name__} is async or a generator, which ends before its work does; put its body "
                "in a with of these metrics instead"
            )
        return super().__call__(function)

    def flush(self) -> None:
        """Write what was counted since the last flush, if anything.

        Raises:
            OSError: by the stream; the next flush then includes these figures.
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
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("the metrics could not be written; they go with the next flush")


def _check_dimensions(dimensions: Mapping[str, str]) -> None:
    if not isinstance(dimensions, Mapping):
        raise ConfigurationError(
            f"dimensions: must be a mapping of names to values, got {brief(dimensions)}; "
            'for example {"Service": "checkout"}'
        )
    if len(dimensions) > _MOST_DIMENSIONS:
        raise ConfigurationError(
            f"dimensions: got {len(dimensions)} dimensions; give at most {_MOST_DIMENSIONS}: CloudWatch allows 30, "
            "three of which are the table, the index and the operation"
        )
    for name, value in dimensions.items():
        _check_text("dimensions: a name", name, _NAME_LENGTH)
        if name.startswith(":") or name in {"_aws", *_DIMENSIONS.values(), *_NAMES.values()}:
            raise ConfigurationError(
                f"dimensions: the name {brief(name)} begins with a colon, or the lines already have it; rename it"
            )
        _check_text(f"dimensions: the value of {brief(name)}", value, _VALUE_LENGTH)


def _check_text(what: str, text: object, longest: int) -> None:
    if (
        not isinstance(text, str)
        or not text.strip()
        or len(text) > longest
        or not (text.isascii() and text.isprintable())
    ):
        raise ConfigurationError(
            f"{what}: must be a str of 1 to {longest} printable ASCII characters, not only spaces, got {brief(text)}"
        )
