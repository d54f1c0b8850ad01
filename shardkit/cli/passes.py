"""What the commands that pass over a table share."""

from __future__ import annotations

from typing import TypeVar

from shardkit.cli.screen import CommandProgress, duration
from shardkit.passes.table_pass import PassReport

R = TypeVar("R", bound=PassReport)


class PassProgress(CommandProgress[R]):
    @property
    def begun(self) -> bool:
        """Whether a page was read."""
        return self.report is not None and bool(self.report.read or self.report.verified)


def throttles(report: PassReport) -> str:
    return f", {report.throttles:,} throttles" if report.throttles else ""


def consumed(report: PassReport) -> str:
    units = f"{report.write_units:,.10g} write units, {report.read_units:,.10g} read units"
    return f"{units}, {report.requests:,} requests{throttles(report)}, {duration(report.seconds)}"
