"""What the commands are given and cannot work with: an error of ours at once, exit code 2, no traceback, no hang."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit.cli import build_app
from tests.support.forked import Run, run_each
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

pytest.importorskip("rich")
click_testing = pytest.importorskip("click.testing")

# Words that stand for what would not fit into a test's name.
MEANT = {
    "HUGE": "9" * 400,  # no float holds it
    "LONGEST": "9" * 5000,  # Python does not read it
    "LISTS": "[" * 900 + "]" * 900,
    "MAPS": '{"a":' * 900 + "1" + "}" * 900,
    "DEEP": "[" * 100_000 + "]" * 100_000,
    "LONG": "x" * 300,
}
LOAD = ("load", "orders.csv", "--table", "Orders")
BY = (*LOAD, "--shards", "4", "--by", "OrderId")
HEAT = ("heat", "orders.csv", "--key", "Date")
SHARDS = ("plan", "shards", "--item-size", "500", "--writes-per-second", "500")
PLANNED = ("plan", "load", "--item-size", "500", "--items", "1000")

SCENARIO: dict[str, dict[str, Any]] = {
    "": {},
    "table": {"partition_key": "'Date'", "write_units": 1000, "read_units": 1000, "partitions": 2},
    "items": {"number": 20, "size": 500, "keys": '{ distribution = "uniform", values = 5 }'},
    "load": {"with": "'bulk_load'"},
}
PUTS = {"with": "'put_item'", "per_second": 100}
READS = {"with": "'query'", "per_second": 5, "seconds": 2}


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text("Date,OrderId,Total\n2014-07-09,A1,3\n", encoding="utf-8")
    (tmp_path / "empty.toml").touch()
    (tmp_path / "large.toml").write_bytes(b"#" * 1_000_001)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    (tmp_path / "nul.toml").write_bytes(b"\0")
    (tmp_path / "deep.toml").write_text(meant("a = DEEP"), encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.toml")
    return tmp_path


def meant(text: str) -> str:
    return re.sub("|".join(MEANT), lambda word: MEANT[word[0]], text)


def refused(*arguments: str) -> str:
    """What a command that cannot work says."""
    result = click_testing.CliRunner().invoke(build_app(), [*map(meant, arguments)], env={"COLUMNS": "400"})
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "Traceback" not in result.stderr
    return str(result.stderr)


def scenario(part: str = "", **entries: Any) -> str:
    """A scenario, with other entries in a part of it."""
    parts = {**SCENARIO, part: {**SCENARIO.get(part, {}), **entries}}
    lines = (
        line
        for name, given in parts.items()
        for line in ([f"[{name}]"] if name else []) + [f"{entry} = {value}" for entry, value in given.items()]
    )
    return "\n".join(lines)


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(
            ((*BY, option, number), option)
            for option in ("--workers", "--processes", "--window")
            for number in ("0", "nan", "LONGEST")
        ),
        *(
            ((*BY, f"--{option}", number), says)
            for option in ("workers", "processes", "window", "cursors")
            for number, got in (("HUGE", "<int of 1329 bits>"), ("100000000", "100000000"), ("9" * 12, "999999999"))
            for says in (f"not begun: {option}: must be an integer from 1 to ", f", got {got}")
        ),
        (
            (*BY, "--workers", "1001"),
            "from 1 to 1,000 (concurrent requests; each needs a thread and a connection)",
        ),
        ((*BY, "--workers", "2001", "--processes", "2"), "from 1 to 2,000 (concurrent requests; each needs a thread"),
        ((*BY, "--processes", "257"), "from 1 to 256 (processes; each "),
        ((*BY, "--window", "10000001"), "from 1 to 10,000,000 (items; they are held in memory), got 10000001"),
        ((*BY, "--cursors", "1001"), "from 1 to 1,000 (cursors; each is an open file; or give 'auto'), got 1001"),
        ((*BY, "--cursors", "0"), "cursors: must be an integer from 1 to 1,000"),
        ((*BY, "--cursors", "LONGEST"), "got '999"),
        ((*BY, "--cursors", "some"), "got 'some'"),
        *(
            ((*BY, "--write-units", number), "write_units: must be a number of write units")
            for number in ("HUGE", "LONGEST", "nan", "-inf", "0", "HUGE%", "nan%")
        ),
        *(((*BY, "--max-failures", number), "--max-failures") for number in ("-1", "LONGEST", "inf")),
        *(((*LOAD, "--by", "OrderId", "--shards", number), "shards") for number in ("0", "HUGE", "LONGEST", "1000001")),
        ((*LOAD, "--strategy", "DEEP"), "--strategy: '[[["),
        ((*LOAD, "--strategy", '{"type": "RandomSuffix", "shards": LONGEST}'), "Exceeds the limit"),
        (
            (*LOAD, "--strategy", '{"type": "RandomSuffix", "shards": HUGE}'),
            "shards: must be an integer from 1 to 1,000,000, got <int of 1329 bits>",
        ),
        (
            (*LOAD, "--strategy", '{"type": "RandomSuffix", "shards": 2, "first": -HUGE}'),
            "first: must be an integer >= 0, got ",
        ),
        (
            (*LOAD, "--strategy", '{"type": "CalculatedSuffix", "shards": 2, "by": LISTS}'),
            "by: must be an attribute name, a tuple of names or a function, got (",
        ),
        ((*BY, "--journal", "LONG"), "not begun: journal: "),
        ((*BY, "--journal", "a\0b"), "not begun: journal: must be the path of a file, got 'a\\x00b'"),
        ((*BY, "--dead-letters", "LONG"), "not begun: dead_letters: "),
        ((*BY, "--endpoint-url", "http://localhost:99999999"), "--endpoint-url: 'http://localhost:99999999'"),
        ((*BY, "--endpoint-url", "http://["), "--endpoint-url: 'http://['"),
    ],
)
def test_arguments_of_a_load(arguments: tuple[str, ...], says: str, table: Table) -> None:
    assert says in refused(*arguments)
    assert table.scan()["Count"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(
            ((*HEAT, option, number), option)
            for option in ("--write-units", "--read-units")
            for number in ("HUGE", "nan", "0")
        ),
        *(((*HEAT, "--top", number), "--top") for number in ("0", "LONGEST")),
        *(((*HEAT, "--by", "OrderId", "--shards", number), "shards") for number in ("0", "HUGE", "LONGEST", "1000001")),
        *(
            ((*SHARDS, f"--{name}", number), name.replace("-", "_"))
            for name in ("items-per-query", "partitions", "reads-per-second", "headroom", "probability")
            for number in ("HUGE", "-1")
        ),
        *(((*SHARDS, "--index", f"A:{number}"), "A") for number in ("HUGE", "LONGEST", "0", "5:2", "5:HUGE", "5:0")),
        ((*SHARDS, "--local-index", "A:LONGEST"), "--local-index"),
        ((*PLANNED[:-1], "HUGE", "--within", "1h"), "items: must be an integer"),
        *(((*PLANNED, "--within", number), "within") for number in ("HUGEd", "LONGESTd", "nan", "0", "-1s")),
        *(
            ((*PLANNED, "--write-units", number), "write_units: must be a number > 0")
            for number in ("HUGE", "inf", "0")
        ),
        ((*PLANNED, "--within", "1h", "--steady-write-units", "nan"), "steady_write_units: must be a number"),
    ],
)
def test_arguments(arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


# -- scenarios ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing.toml", "not begun: scenario: there is no file at 'missing.toml'; give a TOML file"),
        (".", "is not a file"),
        ("/dev/zero", "is not a file of at most 1,000,000 bytes"),
        ("pipe.toml", "is not a file"),
        ("large.toml", "is not a file of at most 1,000,000 bytes"),
        ("latin.toml", "is not TOML: "),
        ("nul.toml", "is not TOML: "),
        ("deep.toml", "is not TOML: "),
        ("a\0b.toml", "is not TOML: "),
        ("LONG", "too long"),
        ("empty.toml", "items: missing; must be a table"),
    ],
)
def test_files_that_are_no_scenario(path: str, says: str) -> None:
    assert says in refused("simulate", path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(
            (scenario(part, **{name: number}), f"{name} = ")
            for part, name in [
                ("", "latency_seconds"),
                ("table", "write_units"),
                ("table", "partitions"),
                ("table", "burst_seconds"),
                ("items", "number"),
                ("items", "size"),
                ("load", "workers"),
                ("load", "window"),
                ("load", "cursors"),
                ("load", "write_units"),
            ]
            for number in ("HUGE", "-1", "nan")
        ),
        (scenario("", seed="0x" + "f" * 5000), "seed = <int of 20000 bits>"),
        (scenario("items", number="LONGEST"), "is not TOML: Exceeds the limit"),
        (scenario("items", number=10_000_001), "number = 10000001: must be an integer from 1 to 10,000,000 (items)"),
        (scenario("load", workers=1001), "must be an integer from 1 to 1,000 (workers)"),
        (scenario("load", window=10_000_001), "must be an integer from 1 to 10,000,000 (items)"),
        (scenario("load", cursors=1001), "must be an integer from 1 to 1,000 (cursors)"),
        (scenario("", latency_seconds="1e308"), "latency_seconds = 1e+308: must be a number from 0 to 3,600 (seconds)"),
        (scenario("load", **PUTS, attempts="HUGE"), "attempts = "),
        (scenario("load", **{**PUTS, "per_second": "1e12"}), "per_second = "),
        (scenario("load", **PUTS, seconds="1e12"), "must be a number > 0 and <= 31,536,000 (seconds)"),
        (scenario("load", **PUTS, seconds="31e6"), "makes 3,100,000,000 requests, each of which is simulated"),
        (scenario("reads", **{**READS, "per_second": "1e12"}), "[reads] per_second = "),
        (scenario("reads", **{**READS, "seconds": "1e308"}), "[reads] seconds = "),
        (scenario("reads", **{**READS, "per_second": "1e6", "seconds": "1e6"}), "makes 1,000,000,000,000 requests"),
        (scenario("reads", **READS, limit="HUGE"), "[reads] limit = "),
        (scenario("items", keys='{ distribution = "zipf", values = 5, exponent = HUGE }'), "exponent = "),
        (scenario("items", keys='{ distribution = "weights", weights = { a = HUGE } }'), "weights = "),
        (scenario("items", keys='{ distribution = "each", values = 5, items = HUGE }'), "items = "),
        (
            scenario("items", keys='{ distribution = "each", values = 5, items = [1, 10000000] }').replace(
                "number = 20", ""
            ),
            "makes up to 50,000,000 items; must make at most 10,000,000",
        ),
        (scenario("sharding", shards="HUGE"), "shards: must be an integer from 1 to 1,000,000, got <int of 1329 bits>"),
        (scenario("items", source='"a\\u0000b"').replace("size =", "#").replace("keys =", "#"), "a\\x00b"),
        (
            scenario("items", source='"empty.toml"').replace("size =", "#").replace("keys =", "#"),
            "format: cannot be inferred from the names",
        ),
    ],
)
def test_scenarios(text: str, says: str, folder: Path) -> None:
    (folder / "scenario.toml").write_text(meant(text), encoding="utf-8")
    assert says in refused("simulate", "scenario.toml")


def test_a_year_of_few_puts_is_simulated(folder: Path) -> None:
    """The bounds let through what can be done."""
    (folder / "scenario.toml").write_text(scenario("load", **{**PUTS, "per_second": 1e-6}), encoding="utf-8")
    result = click_testing.CliRunner().invoke(build_app(), ["simulate", "scenario.toml", "--json"])
    assert result.exit_code == 0, result.output


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("deep", ["LISTS", "MAPS", "DEEP", "LONGEST", "HUGE", "1eHUGE"])
@pytest.mark.parametrize(
    "command",
    [
        ("size", "orders.jsonl"),
        ("heat", "orders.jsonl", "--key", "Date"),
        ("load", "orders.jsonl", "--table", "Orders"),
        ("load", "orders.jsonl", "--table", "Orders", "--dry-run"),
        ("load", "orders.jsonl", "--table", "Orders", "--format", "dynamodb"),
    ],
)
def test_a_record_that_no_item_can_hold_is_a_bad_record(command: tuple[str, ...], deep: str, folder: Path) -> None:
    good = {"Date": "2014-07-09", "OrderId": "A1"}
    if "dynamodb" in command:
        lines = [
            json.dumps({name: {"S": value} for name, value in good.items()}),
            meant('{"Date": {"S": "d"}, "X": {"L": DEEPLY}}'.replace("DEEPLY", deep)),
        ]
    else:
        lines = [json.dumps(good), meant('{"Date": "d", "OrderId": "A2", "X": DEEPLY}'.replace("DEEPLY", deep))]
    if deep == "LISTS" and command[0] != "load":
        pytest.skip("Python may have room for as many lists: their size can be told")
    (folder / "orders.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = click_testing.CliRunner().invoke(build_app(), [*command, "--no-progress"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1, result.output
    assert "orders.jsonl, line 2: " in result.output


# -- streams -----------------------------------------------------------------------------------------------------------

COMMANDS = [
    ("--help",),
    ("size", "orders.csv"),
    ("size", "orders.csv", "--json"),
    (*HEAT, "--json"),
    HEAT,
    SHARDS,
    ("simulate", "scenario.toml"),
    ("simulate", "scenario.toml", "--json"),
]


def ran(arguments: tuple[str, ...], **streams: Any) -> subprocess.CompletedProcess[str]:
    code = "import sys; from shardkit.cli import main; main(sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", code, *arguments], check=False, text=True, **streams)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output(folder: Path) -> None:
    (folder / "scenario.toml").write_text(scenario(), encoding="utf-8")
    shared = "from shardkit.cli import build_app; build_app()"
    for done in run_each(folder, shared, [Run(arguments, out="/dev/full") for arguments in COMMANDS]):
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1] == "the output cannot be written: [Errno 28] No space left on device"
        assert "Traceback" not in done.stderr


def test_closed_streams_take_nothing(folder: Path) -> None:
    script = 'import sys; from shardkit.cli import main; main(["size", "orders.csv"])'
    command = f"{sys.executable} -c '{script}' >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    read = script.replace('"orders.csv"', '"-", "--format", "csv"')
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -c '{read}' <&-"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "not begun: source: standard input is closed" in done.stderr


def test_what_an_encoding_lacks_is_escaped() -> None:
    name = os.fsdecode(b"Caf\xc3\xa9\xff")
    streams = {"capture_output": True, "env": {**os.environ, "PYTHONIOENCODING": "ascii"}}
    done = ran((*SHARDS, "--index", f"{name}:100"), **streams)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Caf\\xe9\\udcff" in done.stdout
