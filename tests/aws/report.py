"""The report of a run, as JSON; and the table of docs/verified-on-aws.md, of all reports that are kept."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import botocore

import shardkit
from tests.aws.all_checks import CHECKS
from tests.aws.check import Check
from tests.aws.run import Outcome, Run

FOLDER = Path(__file__).parent / "reports"
"""Where reports are kept that the page shows."""

LONGEST = 300
NOT_CHECKED = "not verified"


def report(run: Run, outcomes: Iterable[Outcome], *, signed_off_by: str) -> dict[str, Any]:
    found = {one.check.name: one for one in outcomes}
    return {
        "format": 1,
        "run": run.ident,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "where": run.place.region if run.place.on_aws else run.place.engine,
        "commit": _commit(),
        "shardkit": shardkit.__version__,
        "boto3": boto3.__version__,
        "botocore": botocore.__version__,
        "python": platform.python_version(),
        "units": {name: round(count, 1) for name, count in run.spending.units.items()},
        "dollars": round(run.spending.dollars, 4),
        "signed_off_by": signed_off_by,
        "checks": [_row(check, found.get(check.name)) for check in CHECKS],
    }


def _row(check: Check, found: Outcome | None) -> dict[str, Any]:
    if found is None:
        return {"name": check.name, "outcome": NOT_CHECKED, "seen": "it was not run", "dollars": 0.0}
    seen, dollars = clean_text(found.seen), round(found.dollars, 6)
    return {"name": check.name, "outcome": found.verdict, "seen": seen, "dollars": dollars}


def clean_text(seen: str) -> str:
    """What may be published: one line, no account number."""
    line = re.sub(r"(?<!\d)\d{12}(?!\d)", "(account)", " ".join(seen.split())).replace("|", "/")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def kept() -> list[dict[str, Any]]:
    """The reports that the page shows, the newest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return sorted(found, key=lambda one: str(one["date"]), reverse=True)


def table(reports: Iterable[Mapping[str, Any]]) -> str:
    """Give each check its newest outcome; a check that no report verified or refuted is not verified."""
    newest: dict[str, tuple[str, str]] = {}
    for one in reports:
        for found in one["checks"]:
            if found["outcome"] != NOT_CHECKED:
                seen = f"{found['seen']} ({one['date'][:10]}, {one['where']}, {one['commit']})"
                newest.setdefault(found["name"], (found["outcome"], seen))
    lines = ["| promise | outcome | what was seen |", "| --- | --- | --- |"]
    for check in CHECKS:
        outcome, seen = newest.get(check.name, (NOT_CHECKED, f"chosen by `--also {check.also}`" if check.also else ""))
        lines.append(f"| [{check.promise}]({check.page}.md) | {outcome} | {seen} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def _commit() -> str:
    def git(*arguments: str) -> str:
        where = Path(__file__).parent
        try:
            told = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=False)
        except FileNotFoundError:  # git is not installed
            return ""
        return told.stdout.strip()

    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-changed" if git("diff", "--stat", "HEAD") else "")
