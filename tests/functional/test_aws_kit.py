"""The kit that tries shardkit's promises on AWS: its page, its report, and what it asks before it spends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from shardkit import ShardedTable
from shardkit.testing import VirtualClock
from tests.aws import spending
from tests.aws.__main__ import BOUND, carry_out, chosen, consent, main
from tests.aws.all_checks import CHECKS
from tests.aws.check import DEAR, PRICES, NotVerified, Refuted, check
from tests.aws.checks.account import wrong_clock
from tests.aws.journal import clean
from tests.aws.neighbour import Found, excess
from tests.aws.orders import BY_ID, order
from tests.aws.policy import ALSO, policy
from tests.aws.report import NOT_CHECKED, clean_text, kept, report, table
from tests.aws.run import Place, Run
from tests.support.fakes import hurried
from tests.support.tables import make_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "verified-on-aws.md").read_text(encoding="utf-8")


@pytest.fixture
def moto() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.fixture
def run(moto: None, tmp_path: Path) -> Run:
    clock = VirtualClock()
    return Run(Place("us-east-1", engine="moto"), "test", tmp_path, BOUND, clock=clock, sleep=clock.sleep)


class TestPage:
    def test_it_shows_the_reports_that_are_kept(self) -> None:
        """If not: replace the table by what the run wrote beside its report (the file .md)."""
        shown = PAGE.partition("<!-- checks -->\n\n")[2].partition("\n<!-- /checks -->")[0]
        assert shown == table(kept())

    def test_reports_that_are_kept_are_of_aws_and_name_no_account(self) -> None:
        for one in kept():
            assert re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", one["where"])
            assert all(found["seen"] == clean_text(found["seen"]) for found in one["checks"])

    def test_as_long_as_nobody_ran_it_the_page_says_so(self) -> None:
        assert kept() or "None yet" in PAGE

    def test_pages_of_promises_are_there(self) -> None:
        assert [check.page for check in CHECKS if not (ROOT / "docs" / f"{check.page}.md").exists()] == []

    def test_each_option_is_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["--help"])
        options = set(re.findall(r"--\w+", capsys.readouterr().out)) - {"--help"}
        assert options == {*re.findall(r"^\| `(--\w+)` \|", PAGE, re.MULTILINE), "--region", "--run"}
        assert all(f"`{group}`" in PAGE for group in ALSO)


class TestPlan:
    def test_checks(self) -> None:
        assert (len(CHECKS), len({check.name for check in CHECKS}), len(chosen([]))) == (30, 30, 23)
        assert {check.also for check in CHECKS} == {"", *ALSO}

    def test_the_default_checks_are_within_the_bound_everywhere(self) -> None:
        assert DEAR * sum(check.dollars for check in chosen([])) < BOUND

    def test_it_says_what_each_costs_and_sends_nothing(self) -> None:
        said: list[str] = []
        assert main(["plan", "--also", "splits"], say=said.append) == 0
        assert all(any(line.startswith(f"{check.name} ") for line in said) for check in CHECKS)
        assert said[-1].startswith("\n24 of 30 checks: 2.")

    def test_more_than_the_bound_is_refused(self) -> None:
        said: list[str] = []
        assert main(["run", "--also", "splits", "--also", "insights"], say=said.append, ask=lambda _: "5.00") == 2
        assert said[-1].startswith("--bound: ")

    def test_the_amount_is_typed_after_account_and_region_are_shown(
        self, moto: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(Place("eu-west-1"), "test", tmp_path, BOUND)
        said: list[str] = []

        def ask(question: str) -> str:
            assert said[0].startswith("Account 123456789012, region eu-west-1. Tables shardkit-check-test-* are made")
            return answers.pop()

        for typed, expected in {"5.00": True, "5": False, "yes": False, "": False}.items():
            said.clear()
            answers = [typed]
            assert consent(run, said.append, ask) is expected
        monkeypatch.chdir(tmp_path)
        assert main(["run"], say=said.append, ask=lambda _: "no") == 2
        assert said[-1] == "nothing was made"
        assert [*tmp_path.iterdir()] == []


class TestSpending:
    def test_a_check_is_stopped_in_its_middle(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """It gets twice its plan, and a little more."""
        monkeypatch.setattr(spending, "SLACK", slack := 50e-6)

        @check("…", "bulk", write_units=40)
        def greedy(run: Run) -> str:
            table = run.table()
            for number in count():
                table.put_item(Item=order(number))
            return "never"

        [outcome] = run.carry_out([greedy])
        assert (outcome.verdict, outcome.seen[:20]) == ("not verified", "OverspentError: the ")
        assert outcome.dollars == pytest.approx(2 * greedy.dollars + slack)

    def test_the_run_is_stopped_at_its_bound_at_the_dearest_prices(self, run: Run) -> None:
        run.spending.bound = 0.0001

        @check("…", "bulk", write_units=10_000)
        def planned(run: Run) -> str:
            orders = ShardedTable(run.table(), BY_ID, transport="direct")
            for number in count():
                orders.put_item(Item=order(number))
            return "never"

        [outcome] = run.carry_out([planned])
        assert (outcome.verdict, outcome.seen) == ("not verified", "OverspentError: the bound of 0.00 USD is reached")
        assert DEAR * outcome.dollars == pytest.approx(0.0001, rel=0.01)  # up to one write more
        assert run.client.list_tables()["TableNames"] == []  # what is not metered goes on

    def test_what_no_meter_sees_is_charged_at_once(self, run: Run) -> None:
        run.spending.begin(next(check for check in CHECKS if check.name == "bulk_pace"))
        assert run.spending.dollars == pytest.approx(200 * PRICES["write_hours"] + PRICES["read_hours"])

    def test_clients_of_every_kind_are_counted(self, run: Run) -> None:
        table = run.table(run.once)
        table.put_item(Item=order(1))
        run.client.put_item(TableName=table.name, Item={"day": {"S": "d"}, "id": {"S": "1"}})
        session = run.watched(run.place.session())
        run.place.resource(session).Table(table.name).put_item(Item=order(2))
        run.spending.add_elsewhere(4)
        assert run.spending.units["write_units"] == 7


class TestOutcomes:
    @pytest.mark.parametrize(
        ("raised", "verdict"),
        [
            (Refuted("seen"), "refuted"),
            (NotVerified("why"), "not verified"),
            (AssertionError("seen"), "not verified"),
            (KeyError("seen"), "not verified"),
        ],
    )
    def test_only_refuted_refutes(self, run: Run, raised: Exception, verdict: str) -> None:
        @check("…", "bulk")
        def one(_: Run) -> str:
            raise raised

        assert [outcome.verdict for outcome in run.carry_out([one])] == [verdict]

    def test_tables_are_removed_after_their_check_also_at_ctrl_c(self, run: Run) -> None:
        @check("…", "bulk")
        def stopped(run: Run) -> str:
            run.table()
            raise KeyboardInterrupt

        said: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            carry_out(run, [stopped], said.append)
        assert said == ["nothing is left behind"]
        assert run.client.list_tables()["TableNames"] == []
        written = json.loads((run.folder / "shardkit-check-test.json").read_text(encoding="utf-8"))
        assert {one["outcome"] for one in written["checks"]} == {NOT_CHECKED}
        assert not run.journal.path.exists()

    def test_what_is_left_is_said(self, run: Run) -> None:
        @check("…", "bulk")
        def stubborn(run: Run) -> str:
            run.client.update_table(TableName=run.table().name, DeletionProtectionEnabled=True)
            return "made"

        said: list[str] = []
        assert carry_out(run, [stubborn], said.append) == 1
        assert said[-1] == f"left behind: {run.journal.names()[0]}"
        [name] = run.client.list_tables()["TableNames"]
        run.client.update_table(TableName=name, DeletionProtectionEnabled=False)
        assert clean(run) == []


class TestJournal:
    def test_no_client_makes_a_table_of_another_name(self, run: Run) -> None:
        other: Any = run.resource
        with pytest.raises(ValueError, match="a run makes only what is named after it"):
            make_table(other, name="Orders")
        assert run.client.list_tables()["TableNames"] == []

    def test_names_are_written_before_tables_are_made(self, run: Run) -> None:
        seen: list[list[str]] = []
        run.resource.meta.client.meta.events.register(
            "before-send.dynamodb.CreateTable", lambda **_: seen.append(run.journal.names())
        )
        table = run.table()
        assert seen == [[table.name]]
        tags = run.client.list_tags_of_resource(ResourceArn=table.table_arn)["Tags"]
        assert tags == [{"Key": "shardkit-check", "Value": "test"}]


class TestReport:
    def test_no_account_number(self, run: Run) -> None:
        seen = "denied: arn:aws:dynamodb:eu-west-1:123456789012:table/x | 1234567890123 units\n" + "x" * 400
        assert clean_text(seen)[:76] == "denied: arn:aws:dynamodb:eu-west-1:(account):table/x / 1234567890123 units x"
        assert len(clean_text(seen)) == 301
        [outcome] = run.carry_out([replace(CHECKS[0], run=lambda _: seen)])
        found = report(run, [outcome], signed_off_by="A. Volunteer")
        assert "123456789012:" not in json.dumps(found)
        assert (found["signed_off_by"], found["where"], found["format"]) == ("A. Volunteer", "moto", 1)

    def test_the_newest_report_that_made_a_check_counts(self) -> None:
        def of(date: str, **outcomes: str) -> dict[str, Any]:
            rows = [{"name": name, "outcome": outcome, "seen": date} for name, outcome in outcomes.items()]
            return {"date": f"{date} 12:00", "where": "eu-west-1", "commit": "abc", "checks": rows}

        lines = table(
            [of("2027-02-01", suffixes="not verified", counter="refuted"), of("2027-01-01", suffixes="verified",
             counter="verified")]
        ).splitlines()  # fmt: skip
        assert lines[2].endswith("| verified | 2027-01-01 (2027-01-01, eu-west-1, abc) |")
        assert lines[8].endswith("| refuted | 2027-02-01 (2027-02-01, eu-west-1, abc) |")
        assert lines[3].endswith("| not verified | |")


def test_both_transports_sign_with_the_wrong_clock(run: Run) -> None:
    table = run.table()
    times: list[str] = []

    def sent(request: Any, **_: Any) -> None:
        stamp = request.headers["X-Amz-Date"]
        times.append(stamp.decode() if isinstance(stamp, bytes) else stamp)

    table.meta.client.meta.events.register_first("before-send.dynamodb.PutItem", sent)
    for transport in ("client", "direct"):
        orders = ShardedTable(table, BY_ID, transport=transport)
        for _ in range(2):
            orders.put_item(Item=order(1))
        times.clear()
        with wrong_clock(20):
            orders.put_item(Item=order(1))
        late = datetime.strptime(times[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) - datetime.now(UTC)
        assert 1190 < late.total_seconds() < 1210


def test_what_neighbours_saw_is_judged() -> None:
    found = Found(maps=[0.0, 20.0], requests=[1.0, 19.0, 21.0, 49.0])
    assert found.longest_without_map() == 29.0
    assert excess([(0.0, 100.0), (1.0, 100.0), (2.0, 100.0)], 100.0) == 100.0
    assert excess([(0.0, 100.0), (0.1, 100.0), (2.0, 100.0)], 100.0) == 190.0


def test_the_policy_of_further_groups() -> None:
    whole = policy([*ALSO], bucket="mine", role="arn:aws:iam::123456789012:role/checks")
    assert {statement["Sid"]: statement["Resource"] for statement in whole["Statement"]}["Objects"] == (
        "arn:aws:s3:::mine/shardkit-check-*"
    )
    actions = [action for statement in whole["Statement"] for action in statement["Action"]]
    assert len(actions) == len({*actions})
    said: list[str] = []
    assert main(["policy"], say=said.append) == 0
    assert json.loads(said[0]) == policy()


def test_exports_and_imports(run: Run) -> None:
    """As far as moto knows them."""
    run.bucket = "bucket"
    run.sleep = hurried(run.clock)
    objects = run.session.resource("s3").create_bucket(Bucket="bucket").objects
    found = {outcome.check.name: outcome for outcome in run.carry_out(chosen([], ["exports", "import_table"]))}
    assert {name: (one.verdict, one.seen) for name, one in found.items()} == {
        "exports": ("verified", "19 lines of a full export, 19 of an incremental one"),
        "import_table": ("verified", "1,000 items"),
    }
    assert [*objects.all()]
    assert clean(run) == []
    assert [*objects.all()] == []
