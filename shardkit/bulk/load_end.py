"""How a load has ended: the error that it raises, and what it logs."""

from __future__ import annotations

import logging
from typing import Protocol

from shardkit.bulk.report import BulkLoadError, BulkReport
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError

_log = logging.getLogger("shardkit")


class Ended(Protocol):
    """What a load is when it has ended."""

    what: str

    @property
    def fatal(self) -> Exception | None: ...

    @property
    def broken(self) -> Exception | None: ...

    @property
    def report(self) -> BulkReport: ...


def raise_failures(load: Ended, *, collect: bool = False) -> None:
    """Raise if the load or its source ended with an error, or if items failed and are not collected."""
    report = load.report
    cause = load.fatal or load.broken
    if isinstance(load.fatal, ConfigurationError):
        raise load.fatal
    if load.fatal is not None:
        message = (
            f"the load stopped: {load.fatal}; {report.written:,} of the {report.items:,} items read are written, the "
            "rest of the source was not read; fix the cause and load again"
        )
    elif load.broken is not None:
        message = (
            f"the source ended in an error after {report.items:,} items: {load.broken}; {report.written:,} of them are "
            "written; fix the source and load again"
        )
    elif collect:
        return
    elif report.failures:
        first = report.failures[0]
        cause = first.error
        message = (
            f"{report.failed:,} of {report.items:,} items were not written; the first, at place {first.place}: "
            f"{first.error}; see error.failed, which has all of them with their reasons"
        )
    elif report.failed_before:
        message = (
            f"{report.failed_before:,} of the {report.resumed:,} items that the journal records as done failed in an "
            "earlier load, the others are written; fix the dead letters and load them"
        )
    else:
        return
    raise BulkLoadError(message, report.failures, report) from cause


def log_end(load: Ended, table: str) -> None:
    if load.fatal is not None:
        _log.warning("%s %s stopped: %s", load.what, table, load.fatal)
    elif load.broken is not None:
        # Only the code: the message of the caller's own error may show an item.
        _log.warning("%s %s stopped, because its source raised an error: %s", load.what, table, code_of(load.broken))
    for advice in load.report.advice:
        _log.warning("%s %s: %s", load.what, table, advice)


class InterruptedLoadError(KeyboardInterrupt):
    """Ctrl-C ended a load; what was in flight is finished and recorded. ``report`` is the whole load.

    It is a KeyboardInterrupt, not a ShardkitError, so that a program handles it as it handles Ctrl-C.
    """

    def __init__(self, message: str, report: BulkReport | None = None) -> None:
        super().__init__(message, report)
        self.report: BulkReport | None = report

    def __str__(self) -> str:
        return str(self.args[0])
