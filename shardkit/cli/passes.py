"""What the commands that pass over a table share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardkit.cli.command import ERRORS, WRONG_USE, Call, explained
from shardkit.cli.options import option, several
from shardkit.cli.screen import CommandProgress, duration
from shardkit.errors import ConfigurationError
from shardkit.passes.passes import RATE
from shardkit.passes.table_pass import PassReport

R = TypeVar("R", bound=PassReport)
PACE = "Pace"  # how --help groups the options
CONNECTIONS = 10
write_units = option("--write-units", group=PACE, default=f"{RATE:g}", help="Write units a second, or a share: 20%.")
read_units = option("--read-units", group=PACE, type=float, default=RATE, help="Read units per second.")
pace = several(write_units, read_units)


class PassProgress(CommandProgress[R]):
    @property
    def begun(self) -> bool:
        """Whether a page was read."""
        return self.report is not None and bool(self.report.read or self.report.verified)

    def run(self, call: Call, table: str, passes: Callable[[], R]) -> R | None:
        """Run passes over a table; return None if they stop before their end, and say why."""
        try:
            return passes()
        except ERRORS as error:
            if not self.begun:
                raise
            if isinstance(error, ConfigurationError):  # it shows only in what was read, and would come again
                raise call.ended(explained(error, table), WRONG_USE) from None
            call.say(explained(error, table))
        except KeyboardInterrupt:
            pass
        return None


def throttles(report: PassReport) -> str:
    return f", {report.throttles:,} throttles" if report.throttles else ""


def consumed(report: PassReport) -> str:
    units = f"{report.write_units:,.10g} write units, {report.read_units:,.10g} read units"
    return f"{units}, {report.requests:,} requests{throttles(report)}, {duration(report.seconds)}"
