"""How a load ends: nothing that failed goes unsaid."""

from __future__ import annotations

import logging

from shardkit.bulk.batch import Load
from shardkit.bulk.report import BulkReport
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import BulkLoadError, ConfigurationError

__all__ = ["InterruptedLoadError", "interrupted", "log_end", "raise_failures"]

_log = logging.getLogger("shardkit")


class InterruptedLoadError(KeyboardInterrupt):
    """A load that Ctrl-C ended, with what was in flight finished and kept; ``report`` is the whole load.

    It is no ShardkitError but a KeyboardInterrupt: what a program does about Ctrl-C, it does about this.
    """

    def __init__(self, message: str, report: BulkReport | None = None) -> None:
        super().__init__(message, report)
        self.report: BulkReport | None = report

    def __str__(self) -> str:
        return str(self.args[0])


def interrupted(load: Load) -> InterruptedLoadError:
    """Give what a load that was interrupted ends in."""
    report = load.report
    return InterruptedLoadError(
        f"interrupted: {report.written:,} items are written, {report.resumed:,} were done before; with a journal, "
        "loading again goes on from here",
        report,
    )


def log_end(load: Load, table: str) -> None:
    """Log why a load stopped, if it did, and its advice."""
    if load.fatal is not None:
        _log.warning("the load into table %s stopped: %s", table, load.fatal)
    elif load.broken is not None:
        # The error is the caller's own, and may show an item.
        _log.warning("the load into table %s stopped, because its source broke off: %s", table, code_of(load.broken))
    for advice in load.report.advice:
        _log.warning("the load into table %s: %s", table, advice)


def raise_failures(load: Load, *, collect: bool = False) -> None:
    """Raise for the items that failed (unless they are collected), and for a load or a source that could not go on."""
    report = load.report
    if isinstance(load.fatal, ConfigurationError):
        raise load.fatal
    if load.fatal is not None:
        raise BulkLoadError(
            f"the load stopped: {load.fatal}; {report.written:,} of the {report.items:,} items taken are written, the "
            "rest of the source was not read; mend the cause and load again",
            report.failures,
            report,
        ) from load.fatal
    if load.broken is not None:
        raise BulkLoadError(
            f"the source ended in an error after {report.items:,} items: {load.broken}; of these {report.written:,} "
            "are written; mend the source and load again",
            report.failures,
            report,
        ) from load.broken
    if report.failures and not collect:
        first = report.failures[0]
        raise BulkLoadError(
            f"{report.failed:,} of {report.items:,} items were not written, all others were; the first, at place "
            f"{first.place}: {first.error}; failed holds them all with their reasons",
            report.failures,
            report,
        ) from first.error
    if report.failed_before and not collect:
        raise BulkLoadError(
            f"{report.failed_before:,} of the {report.resumed:,} items that the journal says are done failed then, the "
            "others are written; load the dead letters once they are mended",
            report.failures,
            report,
        )
