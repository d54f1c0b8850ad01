"""Which promises of shardkit hold on AWS itself? See docs/verified-on-aws.md.

plan    the checks, their prices and minutes; sends nothing
policy  the least IAM policy; sends nothing
run     asks for consent, runs the checks, removes all that it made, and writes a report
clean   removes what a run left that was killed
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardkit.testing import VirtualClock
from tests.aws.all_checks import CHECKS
from tests.aws.check import DEAR, Check
from tests.aws.journal import PREFIX, clean
from tests.aws.policy import ALSO, policy
from tests.aws.report import kept, report, table
from tests.aws.run import Outcome, Place, Run

BOUND = 5.00
Say = Callable[[str], object]


def chosen(also: Sequence[str], only: Sequence[str] = ()) -> list[Check]:
    """The checks of a run: those without an option and of the given groups, or only those that are named."""
    if only:
        return [check for check in CHECKS if check.name in only]
    return [check for check in CHECKS if not check.also or check.also in also]


def show_plan(checks: Sequence[Check], bound: float, say: Say) -> float:
    """Say what the checks are and cost; return what they cost at most."""
    for check in CHECKS:
        option = "" if check in checks else f"--also {check.also}" if check.also else "not chosen"
        say(f"{check.name:19} {check.dollars:7.4f} USD {check.minutes:5.1f} min  {option:15} {check.promise}")
    dollars, minutes = sum(check.dollars for check in checks), sum(check.minutes for check in checks)
    say(
        f"\n{len(checks)} of {len(CHECKS)} checks: {dollars:.2f} USD at us-east-1's prices, {DEAR * dollars:.2f} USD "
        f"in the dearest region, about {minutes:.0f} minutes. The run stops at {bound:.2f} USD."
    )
    return DEAR * dollars


def consent(run: Run, say: Say, ask: Callable[[str], str]) -> bool:
    """Show the account and the region, and let the volunteer type the amount. An engine costs nothing."""
    if not run.place.on_aws:
        return True
    account = run.session.client("sts", region_name=run.place.region).get_caller_identity()["Account"]
    say(f"Account {account}, region {run.place.region}. Tables {run.journal.prefix}* are made, and removed at the end.")
    return ask(f"Type {run.bound:.2f} to spend at most so many USD: ").strip() == f"{run.bound:.2f}"


def carry_out(run: Run, checks: Sequence[Check], say: Say, *, signed_off_by: str = "") -> int:
    """Run the checks, remove what was made, and write the report; return the exit status."""
    outcomes: list[Outcome] = []
    begun = time.monotonic()
    try:
        for one in run.carry_out(checks):
            outcomes.append(one)
            say(f"{one.check.name:19} {one.verdict:12} {time.monotonic() - begun:6.1f} s  {one.seen[:150]}")
    finally:
        left = cleaned(run, say)  # first: the report may meet a full disk
        found = report(run, outcomes, signed_off_by=signed_off_by)
        name = run.folder / f"{PREFIX}-{run.ident}"
        name.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        name.with_suffix(".md").write_text(table([found, *kept()]), encoding="utf-8")
    return 1 if left or any(one.verdict == "refuted" for one in outcomes) else 0


def cleaned(run: Run, say: Say) -> list[str]:
    left = clean(run)
    say(f"left behind: {', '.join(left)}" if left else "nothing is left behind")
    return left


def main(arguments: Sequence[str] | None = None, *, say: Say = print, ask: Callable[[str], str] = input) -> int:
    args = _parser().parse_args(arguments)
    checks = chosen(args.also, args.only)
    if args.command == "policy":
        say(json.dumps(policy(args.also, bucket=args.bucket, role=args.role), indent=2))
        return 0
    if args.command == "plan":
        show_plan(checks, args.bound, say)
        return 0
    if args.command == "clean" and args.run is None:
        say("--run: missing; give the run whose tables are to be removed: it is in their names")
        return 2
    place = Place(args.region, args.profile, "a local engine" if args.endpoint else "", args.endpoint)
    ident = args.run or uuid.uuid4().hex[:8]
    options: dict[str, Any] = {"role": args.role, "bucket": args.bucket}
    if not place.on_aws:
        clock = VirtualClock()  # an engine does at once what AWS takes its time for
        options |= {"clock": clock, "sleep": clock.sleep}
    run = Run(place, ident, Path.cwd(), args.bound, **options)
    if args.command == "clean":
        return 1 if cleaned(run, say) else 0
    if show_plan(checks, args.bound, say) > args.bound:
        say("--bound: it is below what the checks may cost; choose fewer checks, or raise it")
        return 2
    if not consent(run, say, ask):
        say("nothing was made")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is removed
    return carry_out(run, checks, say, signed_off_by=args.sign)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.aws", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["plan", "policy", "run", "clean"])
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--profile", help="of the AWS configuration")
    parser.add_argument("--endpoint", help="a local engine instead of AWS: tries the checks themselves, costs nothing")
    parser.add_argument("--also", action="append", default=[], choices=sorted(ALSO), help="a group of further checks")
    parser.add_argument(
        "--only", action="append", default=[], choices=[check.name for check in CHECKS], metavar="CHECK"
    )
    parser.add_argument("--bound", type=float, default=BOUND, help="USD that are spent at most (default 5.00)")
    parser.add_argument("--role", default="", help="ARN of a role to assume, for the check of policies and --also long")
    parser.add_argument("--bucket", default="", help="a bucket of yours, for --also export and import")
    parser.add_argument("--run", help="clean: the run whose tables are to be removed")
    parser.add_argument("--sign", default="", help="a name that may be published with the report")
    return parser


if __name__ == "__main__":
    sys.exit(main())
