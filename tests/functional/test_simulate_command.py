"""``shardkit simulate``: what it simulates, shows, draws, and exits with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from shardkit.cli import build_app
from shardkit.cli.screen import percent

click_testing = pytest.importorskip("click.testing")

EXAMPLES, DOCS = (Path(__file__).resolve().parents[2] / name for name in ("examples", "docs"))
SMALL = """
[table]
partition_key = "Date"
sort_key = "OrderId"
write_units = 2000
read_units = 1000
partitions = 2
burst_seconds = 0

[items]
number = 2000
size = 500
keys = { distribution = "zipf", values = 50 }

[[way]]
name = "loaded"
load = { with = "bulk_load" }

[[way]]
name = "put"
load = { with = "put_item", per_second = 500 }
reads = { with = "get_item", per_second = 10 }
sharding = { shards = 3, by = "OrderId" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["simulate", *args], env={"COLUMNS": "200"})


def simulated(*args: str, code: int = 0) -> Any:
    result = invoke(*args, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


# -- output ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_row_a_way_and_its_heat() -> None:
    result = invoke("small.toml")
    assert result.exit_code == 0, result.output
    ways = simulated("small.toml")["ways"]
    lines = result.stdout.splitlines()
    assert lines[1].split()[:5] == ["way", "time", "units/s", "share", "ceiling"]
    for line, way in zip(lines[2:4], ways, strict=True):
        for shown in (way["name"], f"{way['units_a_second']:,.0f}", percent(way["share"]), f"{way['requests']:,}"):
            assert shown in line
        hottest = way["hottest_key"]
        assert line.endswith(f"{hottest['key']}, {percent(hottest['share'])}")
    assert percent(ways[0]["ceiling"]) in lines[2]
    assert ways[1]["ceiling"] is None
    # A map of the writes of each way, of the reads of the second: two partitions each.
    legends = [line.strip().partition(":")[0] for line in lines if " units a second: " in line]
    writes, reads = (f"partitions, {kind} units a second" for kind in ("write", "read"))
    assert legends == [writes, writes, reads]
    # All maps of the writes have one scale, the most that there was: here, what a partition serves.
    assert lines.count("  partitions, write units a second: · none, █ 1,000; a column is 1.0 s") == 2
    assert len([line for line in lines if re.fullmatch(r" +[12] [·▁▂▃▄▅▆▇█]+", line)]) == 6
    assert "  2,000 items written, 2,000 write units" in lines
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("width", [80, 200])
def test_the_columns_of_a_narrow_terminal_are_in_several_tables(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    console = Console(width=width, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr("shardkit.cli.command.out", lambda: console)
    with console.capture() as captured:
        invoke("small.toml")
    lines = captured.get().splitlines()
    headings = [" ".join(line.split()[1:]) for line in lines if line.split()[:1] == ["way"]]
    whole = "time units/s share ceiling requests throttled hottest partition hottest key"
    assert " ".join(headings) == whole
    assert len(headings) == {80: 2, 200: 1}[width]
    assert "…" not in captured.get()
    assert max(map(len, lines)) <= width


@pytest.mark.usefixtures("folder")
def test_json() -> None:
    found = simulated("small.toml")
    assert (found["scenario"], found["items"], found["bad_records"]) == ("small.toml", 2000, 0)
    loaded, put = found["ways"]
    assert loaded["strategy"] == {"type": "Unsharded"}
    assert put["strategy"]["shards"] == 3
    assert [way["written"] for way in found["ways"]] == [2000, 2000]
    assert put["seconds"] == pytest.approx(4, abs=0.1)
    assert put["reads"] == pytest.approx(40, abs=3)
    taken = [partition["taken"]["write"] for partition in loaded["heat"][0]["partitions"]]
    assert sum(map(sum, taken)) == loaded["write_units"] == 2000
    assert loaded["hottest_partition"]["units_a_second"] == pytest.approx(
        max(map(sum, taken)) / loaded["counted_seconds"]
    )
    assert simulated("small.toml") == found


def test_a_burst_is_explained(folder: Path) -> None:
    """8,000 units on one partition: it has 1,000 at the start, and is through after 7 seconds."""
    hot = SMALL.partition('[[way]]\nname = "put"')[0].replace("number = 2000", "number = 8000")
    hot = hot.replace('distribution = "zipf", values = 50', 'distribution = "uniform", values = 1')
    (folder / "burst.toml").write_text(hot, encoding="utf-8")
    (way,) = simulated("burst.toml")["ways"]
    assert way["seconds"] == pytest.approx(7, abs=0.2)
    assert (way["units_a_second"], way["share"], way["ceiling"]) == (1000, 0.5, 0.5)
    assert way["hottest_partition"]["units_a_second"] == 1000
    said = "  units/s and shares are over 8.0 s: partitions begin with a second's units"
    assert said in invoke("burst.toml").stdout.splitlines()
    assert "units/s and shares are over" not in invoke("small.toml").stdout.partition("\nput\n")[2]


def test_what_could_not_be_written_is_said(folder: Path) -> None:
    hot = SMALL.replace("write_units = 2000", "write_units = 100").replace(
        "per_second = 500", "per_second = 2000, attempts = 1"
    )
    (folder / "hot.toml").write_text(hot.replace("number = 2000", "number = 1000"), encoding="utf-8")
    result = invoke("hot.toml")
    assert result.exit_code == 1
    found = simulated("hot.toml", code=1)["ways"][1]
    assert found["written"] < 1000
    assert f"  {found['written']:,} of 1,000 items written" in result.stdout
    (reason,) = found["throttled"]
    assert f"  throttled requests: {found['throttled'][reason]:,} {reason}" in result.stdout


def test_a_load_that_ends_is_said(folder: Path) -> None:
    load = 'load = { with = "batch_writer", attempts = 1 }'
    ended = SMALL.replace("write_units = 2000", "write_units = 5").replace('load = { with = "bulk_load" }', load)
    (folder / "ended.toml").write_text(ended.partition('[[way]]\nname = "put"')[0], encoding="utf-8")
    result = invoke("ended.toml")
    assert result.exit_code == 1
    assert (
        "  stopped before all was written: An error occurred (ProvisionedThroughputExceededException)" in result.stdout
    )


def test_a_way_of_which_nothing_was_served(folder: Path) -> None:
    """A partition that begins with a tenth of a unit; its map is empty, and has no most to be scaled to."""
    table = 'name = "Orders"\npartition_key = "UserId"\nwrite_units = 1\npartitions = 10\nadaptive = false'
    items = 'number = 1\nkeys = { distribution = "uniform", values = 1 }'
    load = 'with = "put_item"\nper_second = 1\nattempts = 1'
    text = f'[table]\n{table}\n[items]\n{items}\n[load]\n{load}\n[[way]]\nname = "\\u001b[31mred"\n'
    (folder / "nothing.toml").write_text(text, encoding="utf-8")
    result = invoke("nothing.toml")
    assert result.exit_code == 1, result.output
    assert "  0 of 1 items written, 0 write units" in result.stdout
    assert "█ 0; a column is" in result.stdout
    assert "\x1b" not in result.stdout  # the name of a way does not reach the terminal as it is


def test_partitions_that_are_many_share_lines(folder: Path) -> None:
    many = SMALL.replace("partitions = 2", "partitions = 50").partition('[[way]]\nname = "put"')[0]
    (folder / "many.toml").write_text(many, encoding="utf-8")
    lines = invoke("many.toml").stdout.splitlines()
    rows = [line.split()[0] for line in lines if re.fullmatch(r" +\d+(-\d+)? [·▁▂▃▄▅▆▇█]+", line)]
    assert (rows[0], rows[-1], len(rows)) == ("1-3", "49-50", 17)


@pytest.mark.usefixtures("folder")
def test_plot(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    assert invoke("small.toml", "--plot", "heat.svg").exit_code == 0
    text = (folder / "heat.svg").read_text(encoding="utf-8")
    for shown in (
        ">loaded: ",
        ">put: ",
        ">time (seconds)<",
        ">partition<",
        ">write units<",
        ">read units<",
        ">a second<",
    ):
        assert shown in text
    assert invoke("small.toml", "--plot", "again.svg").exit_code == 0
    assert (folder / "again.svg").read_text(encoding="utf-8") == text
    assert invoke("small.toml", "--plot", "heat.png").exit_code == 0
    assert (folder / "heat.png").read_bytes().startswith(b"\x89PNG")
    assert invoke(str(EXAMPLES / "clicks.toml"), "--plot", "growth.svg").exit_code == 0
    assert "write units a second per partition" in (folder / "growth.svg").read_text(encoding="utf-8")


@pytest.mark.usefixtures("folder")
def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.cli.screen.LINE_SECONDS", 0.0)
    told = invoke("small.toml").stderr.splitlines()
    shares = [int(line.removeprefix("put: ").rstrip("%")) for line in told if re.fullmatch(r"put: \d\d%", line)]
    assert shares == sorted(shares)
    assert shares[-1] > 50
    assert not invoke("small.toml", "--no-progress").stderr


def of_a_file(text: str, name: str) -> str:
    """The scenario with the items of a file."""
    return text.replace("number = 2000", f'source = "{name}"').replace("size = 500", "").replace("keys =", "#")


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("partitions = 2", "partition = 2"), "cannot be simulated:\n  [table] partition = 2"),
        (lambda text: text + "[[[", "small.toml is not TOML: "),
        (lambda text: text.replace("size = 500", "size = 20"), "with their names, got 20"),
        (lambda text: of_a_file(text, "no.csv"), "no.csv"),
    ],
)
def test_a_scenario_that_is_none(change: Callable[[str], str], says: str, folder: Path) -> None:
    (folder / "small.toml").write_text(change(SMALL), encoding="utf-8")
    result = invoke("small.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert re.match("not (begun|simulated): ", result.stderr)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("missing.toml",), "missing.toml"),
        (("small.toml", "--plot", "heat.txt"), "has the ending 'txt'; give one of"),
        (("small.toml", "--plot", "no/heat.svg"), "does not exist; create it first"),
    ],
)
def test_wrong_use(args: tuple[str, ...], says: str) -> None:
    if "--plot" in args:
        pytest.importorskip("matplotlib")
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.usefixtures("folder")
def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shardkit.cli.simulate.run", interrupt)
    result = invoke("small.toml")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "stopped before its end: interrupted" in result.stderr


# -- real data ---------------------------------------------------------------------------------------------------------


def test_items_of_a_file_are_as_they_are(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    lines = [
        {"Date": f"2014-07-{day:02}", "OrderId": f"A{number}", "Note": "x" * 2000}
        for day in (1, 2)
        for number in range(20)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (inner / "orders.jsonl").write_text(text + '{"Date": "2014-07-03"\n', encoding="utf-8")
    scenario = (
        SMALL.replace("number = 2000", 'source = "orders.jsonl"').replace("size = 500", "").replace("keys =", "#")
    )
    (inner / "orders.toml").write_text(scenario, encoding="utf-8")
    # The file is found beside the scenario, and a record that is not an item is reported.
    result = invoke("inner/orders.toml", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["items"], found["bad_records"]) == (40, 1)
    assert [way["write_units"] for way in found["ways"]] == [80, 80]
    assert "orders.jsonl, line 41" in result.stderr


@pytest.mark.parametrize(
    ("items", "sharding", "says"),
    [
        ('{"Day": "2014-07-09", "OrderId": "A1"}', "", "[table]: no item in the sample has an attribute 'Date'"),
        (
            '{"Date": "2014-07-09", "OrderId": "A1"}',
            'sharding = { by = "OrderID", shards = 2 }',
            "[sharding], [table.indexes]: no item in the sample has an attribute 'OrderID' (did you",
        ),
        (
            '{"Date": "2014-07-09", "OrderId": "A1"}',
            'sharding = { by = "Colour", shards = 2 }',
            "none of 1 items has the attribute 'Colour'",
        ),
    ],
)
def test_a_file_without_an_attribute_is_refused(items: str, sharding: str, says: str, folder: Path) -> None:
    (folder / "orders.jsonl").write_text(items, encoding="utf-8")
    scenario = (
        SMALL.replace("number = 2000", 'source = "orders.jsonl"').replace("size = 500", "").replace("keys =", "#")
    )
    (folder / "orders.toml").write_text(f"{sharding}\n{scenario}", encoding="utf-8")
    result = invoke("orders.toml")
    assert result.exit_code == 2
    assert says in result.stderr


# -- examples ----------------------------------------------------------------------------------------------------------


def example(folder: Path, name: str, **changes: str) -> list[Any]:
    """Simulate an example that is made smaller; its ways."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for entry, value in changes.items():
        text, count = re.subn(rf"\b{entry} = \d+", f"{entry} = {value}", text)
        assert count, entry
    (folder / name).write_text(text, encoding="utf-8")
    ways: list[Any] = json.loads(invoke(name, "--json").stdout)["ways"]
    return ways


def test_the_example_of_messages(folder: Path) -> None:
    ways = example(folder, "messages.toml", values="100")
    assert all(way["written"] == ways[0]["items"] for way in ways)
    assert len({way["ceiling"] for way in ways}) == 1


def test_the_page_shows_the_example() -> None:
    text = (EXAMPLES / "hot_day.toml").read_text(encoding="utf-8")
    assert f"```toml\n{text}```" in (DOCS / "simulate.md").read_text(encoding="utf-8")


def test_the_example_of_flights(folder: Path) -> None:
    pytest.importorskip("orjson")
    from shardkit.cli.flights import read_flights

    with (folder / "flights.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(flight, default=str) + "\n" for flight in read_flights(4000))
    ways = example(folder, "flights.toml", number="4000", seconds="2")
    assert all(way["written"] == way["items"] for way in ways)
    assert {way["kind"] for way in ways} == {"read", "write"}
    plain, sharded = (way for way in ways if way["kind"] == "read")
    assert sharded["requests"] > plain["requests"]


def test_every_example_is_tested() -> None:
    tested = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*_command.py"))
    examples = [path.name for path in EXAMPLES.glob("*.toml")]
    assert examples
    assert [name for name in examples if f'"{name}"' not in tested] == []
