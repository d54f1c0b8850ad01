"""``shardkit demo``: that it throttles, shows, checks, cleans up, and fails loudly."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from shardkit import CalculatedSuffix, ShardedTable, Unsharded
from shardkit.capacity import CapacityEstimator
from shardkit.cli import build_app
from shardkit.dynamodb.encode import to_wire_item

moto = pytest.importorskip("moto")
rich_console = pytest.importorskip("rich.console")
click_testing = pytest.importorskip("click.testing")
demo: Any = importlib.import_module("shardkit.cli.demo")

AWS = "https://dynamodb.us-east-1.amazonaws.com"  # moto answers for it


def invoke(*args: str, charset: str = "utf-8") -> Any:
    return click_testing.CliRunner(charset=charset).invoke(build_app(), ["demo", *args], env={"COLUMNS": "80"})


@pytest.fixture
def only_the_mock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither credentials nor a reachable endpoint in the environment; of moto, only what the extra demo brings."""
    for name in ("docker", "py_partiql_parser"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "there-is-no-such-profile")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


@pytest.mark.usefixtures("only_the_mock")
def test_in_moto_without_credentials_sharding_cures_the_throttles() -> None:
    before = dict(os.environ)
    result = invoke("--rows", "1600")
    assert result.exit_code == 0, result.output
    assert dict(os.environ) == before
    figures = {
        name.strip(): (plain, sharded)
        for name, plain, sharded in re.findall(r"^(\w.+?)  +(\S.*?)  +(\S.*)$", result.output, re.MULTILINE)
    }
    assert figures["load"] == ("plain", "10 shards")
    plain, sharded = map(int, figures["requests throttled"])
    assert plain > 0 == sharded
    # 3,000 units a second; on one key a second's 1,000 at once, and then 1,000 a second.
    slow, fast = (float(seconds.removesuffix(" s")) for seconds in figures["virtual time"])
    assert slow >= 0.6 > fast == 0.5
    assert figures["writes on the busiest partition"][0] == "100%"
    assert figures["equal to the source"] == ("842 of 842", "842 of 842")
    assert len(re.findall(r"^ +[1-4] [·▁▂▃▄▅▆▇█]+$", result.output, re.MULTILINE)) == 8
    assert "\x1b" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_mismatch_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ShardedTable.query

    def wrong(self: ShardedTable, **query: Any) -> Any:
        page: Any = right(self, **query)
        return {**page, "Items": page["Items"][::-1]}

    monkeypatch.setattr(ShardedTable, "query", wrong)
    result = invoke("--rows", "40", "--shards", "2")
    assert result.exit_code == 1
    assert re.search(r"^  row 0: expected ", result.output, re.MULTILINE)
    assert "What was read is not what was written" in result.output


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto.mock_aws():
        yield boto3.client("dynamodb", region_name="us-east-1", endpoint_url=AWS)


def test_at_an_endpoint_the_tables_are_deleted(service: Any) -> None:
    console = rich_console.Console(file=io.StringIO(), width=200)
    assert demo.run(console, AWS, 3, 60)
    assert "60 of 60" in console.file.getvalue()
    assert "moto" not in console.file.getvalue()
    assert service.list_tables()["TableNames"] == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_tables_are_deleted_after_an_error_too(
    error: type[BaseException], service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        assert len(service.list_tables()["TableNames"]) == 2
        raise error

    monkeypatch.setattr(demo, "read_day", broken)
    with pytest.raises(error):
        demo.run(rich_console.Console(file=io.StringIO()), AWS, 3, 30)
    assert service.list_tables()["TableNames"] == []


def test_a_table_whose_making_was_interrupted_is_deleted(service: Any) -> None:
    def interrupt(**_: Any) -> None:
        assert len(service.list_tables()["TableNames"]) == 1
        raise KeyboardInterrupt

    resource = demo.dynamodb(AWS)
    resource.meta.client.meta.events.register("after-call.dynamodb.CreateTable", interrupt)
    with pytest.raises(KeyboardInterrupt), demo.fresh_table(resource, "Interrupted"):
        pass
    assert service.list_tables()["TableNames"] == []


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "introduce", interrupt)
    result = invoke("--rows", "30")
    assert (result.exit_code, result.output) == (3, "stopped before its end: interrupted\n")


def test_unreachable_endpoint_is_one_line_and_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    result = invoke("--endpoint-url", "http://127.0.0.1:1", "--rows", "30")
    assert result.exit_code == 2
    assert result.output.startswith("The demo stopped: Could not connect")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "args",
    [
        *(
            ("--endpoint-url", url)
            for url in (AWS, "localhost", "localhost:8000", "http://[", "http://localhost:99999")
        ),
        ("--shards", "0"),
        ("--rows", "8001"),
    ],
)
def test_options_that_cannot_work_exit_2(args: tuple[str, ...]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert re.search(rf"^Error: Invalid value.*{args[0]}", result.stderr, re.MULTILINE)


def test_piped_in_plain_ascii() -> None:
    result = invoke("--rows", "5", "--shards", "2", charset="ascii")
    assert result.exit_code == 0, result.output
    assert re.search(r"^ +1 [.:=+*%#@-]+$", result.output, re.MULTILINE)


@pytest.fixture(scope="module")
def sides() -> Iterator[Sequence[Any]]:
    flights = [demo.flight(item) for item in demo.read_flights(100)]
    with demo.mocked_dynamodb(), ExitStack() as stack:
        kinds = {"plain": Unsharded(), "40 shards": CalculatedSuffix("Departure", shards=40)}
        yield [stack.enter_context(demo.side(kind, kind[:5], how, flights, None)) for kind, how in kinds.items()]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_on_a_terminal_both_loads_fit_side_by_side(width: int, sides: Sequence[Any]) -> None:
    file = io.StringIO()
    console = rich_console.Console(file=file, force_terminal=True, color_system=None, width=width)
    demo.show_loads(console, sides)
    shown = re.sub(r"\x1b\[\S*?[A-Za-z]", "", file.getvalue())
    *_, last = shown.partition("done in")[2].splitlines()
    assert max(map(len, shown.splitlines())) <= width
    assert last.count("/s") == 2
    assert all(one.report.written == 100 for one in sides)
    assert "100 flights written" in shown


def test_units_are_those_of_the_rules(sides: Sequence[Any]) -> None:
    """Not those that moto makes up."""
    source = sorted((demo.flight(item) for item in demo.read_flights(100)), key=lambda item: str(item["Departure"]))
    plain, sharded = sides
    check = demo.read_day(plain.table, "2013-01-01", source)
    estimator = CapacityEstimator(plain.table.meta.client.describe_table(TableName=plain.table.table.name)["Table"])
    assert check.ok
    assert check.read_units == estimator.query([to_wire_item(item) for item in source]).total
    assert demo.read_day(sharded.table, "2013-01-01", source).read_units == 0.5 * 40


@dataclass
class Steps:
    """A load that takes steps of so many seconds."""

    seconds: list[float]
    now: float = 0.0

    @property
    def ended(self) -> bool:
        return not self.seconds

    def advance(self) -> None:
        self.now += self.seconds.pop(0)


def test_the_load_that_is_behind_goes_on() -> None:
    slow, fast = Steps([3.0, 1.0]), Steps([1.0] * 6)
    times = []
    while demo.advance([slow, fast]):
        times.append((slow.now, fast.now))
    assert times == [(3, 0), (3, 1), (3, 2), (3, 3), (4, 3), (4, 4), (4, 5), (4, 6)]


def test_compare_counts_and_names_the_rows() -> None:
    source = [{"Flight": "a"}, {"Flight": "b"}]
    assert demo.compare(source, list(source), 0.0, 0).ok
    for items in ([], source[:1], source[::-1], [*source, source[1]], [source[0], None]):
        check = demo.compare(source, items, 0.0, 0)
        assert not check.ok
        assert check.mismatches
