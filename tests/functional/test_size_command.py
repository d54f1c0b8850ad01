"""``shardkit size``: what it counts, shows, and exits with."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit.bulk.sources.opening import open_source
from shardkit.cli import build_app

if TYPE_CHECKING:
    from boto3.session import Session

rich_console = pytest.importorskip("rich.console")
click_testing = pytest.importorskip("click.testing")
reading: Any = importlib.import_module("shardkit.cli.options")
size: Any = importlib.import_module("shardkit.cli.size")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str, text: str | None = None) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["size", *args], input=text, env={"COLUMNS": "80"})


def notes_jsonl(folder: Path, *lengths: int, more: str = "") -> None:
    lines = [json.dumps({"Date": "2014-07-09", "Note": "x" * length}) for length in lengths]
    (folder / "notes.jsonl").write_text("\n".join([*lines, more]), encoding="utf-8")


# Date is of 14 bytes, the name of Note of 4.
LENGTHS = (82, 1006, 1007, 4079, 409_582, 409_583)


def test_json(folder: Path) -> None:
    notes_jsonl(folder, *LENGTHS)
    result = invoke("notes.jsonl", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    sizes = [100, 1024, 1025, 4097, 409_600, 409_601]
    assert (found["source"], found["format"], found["items"]) == ("notes.jsonl", "jsonl", 6)
    assert (found["bytes"], found["storage_bytes"]) == (sum(sizes), sum(sizes) + 600)
    # What is over 400 KB is counted by the KB.
    assert found["size"] == {
        "min": 100, "p50": 1025, "p90": 410_624, "p99": 410_624, "max": 410_624,
        "mean": sum(sizes) / 6, "total": sum(sizes),
    }  # fmt: skip
    assert found["write_units"]["total"] == 1 + 1 + 2 + 5 + 400 + 401
    assert found["read_units"]["total"] == 0.5 + 0.5 + 0.5 + 1 + 50 + 50.5
    assert found["consistent_read_units"]["total"] == 2 * found["read_units"]["total"]
    assert [(one["bytes"], one["items"]) for one in found["over"]] == [(1024, 4), (4096, 3), (368_640, 2), (409_600, 1)]
    assert sum(one["items"] for one in found["histogram"]) == 6
    assert found["attributes"] == [
        {"name": "Note", "items": 6, "bytes": sum(sizes) - 84, "name_bytes": 24},
        {"name": "Date", "items": 6, "bytes": 84, "name_bytes": 24},
    ]
    assert found["saved_by_short_names"]["bytes"] == 24
    assert found["saved_by_short_names"]["write_units"] == 3.0
    assert (found["bad_records"], found["first_bad_records"]) == (0, [])


def test_plain_lines_where_it_is_piped(folder: Path) -> None:
    notes_jsonl(folder, *LENGTHS)
    result = invoke("notes.jsonl")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "─" not in result.output
    assert [line for line in result.stdout.splitlines() if line != line.rstrip()] == []
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["write", "units", "1", "2", "401", "401", "401", "135.00", "810"] in lines
    assert "6 items, 825.4 KB; 826.0 KB of storage" in result.stdout
    assert "4 (67%) over 1 KB, 3 (50%) over 4 KB, 2 (33%) over 360 KB, 1 (17%) over 400 KB" in result.stdout
    assert ["up", "to", "128", "bytes", "1", "17%", "███████████████"] in lines
    assert ["Date", "84", "0.01%", "24", "6", "14.0"] in lines


def test_a_terminal_has_tables() -> None:
    file = io.StringIO()
    profile = size.SizeProfile()
    for number in range(30):
        profile.add({f"attribute{number}": "x" * number})
    size.show(rich_console.Console(file=file, force_terminal=True, width=100, color_system=None), profile)
    shown = file.getvalue()
    assert "─" in shown
    assert "█" in shown
    assert "attribute29" in shown
    assert "attribute9 " not in shown
    assert "all others" in shown


def test_bad_records_are_counted_with_their_place(folder: Path) -> None:
    notes_jsonl(folder, 10, more="no json\n" + '{"n": ' + "1" * 39 + "}\n" + "[1]\n" * 10)
    result = invoke("notes.jsonl")
    assert result.exit_code == 1
    assert "bad record: notes.jsonl, line 2: " in result.stderr
    assert "bad record: notes.jsonl, line 3: " in result.stderr
    assert "and 2 more bad records" in result.stderr
    found = json.loads(invoke("notes.jsonl", "--json").stdout)
    assert (found["items"], found["bad_records"]) == (1, 12)
    assert [one["place"] for one in found["first_bad_records"]] == [f"notes.jsonl, line {n}" for n in range(2, 12)]


def test_standard_input_and_csv_options(folder: Path) -> None:
    found = json.loads(
        invoke(
            "-", "--json", "--format", "csv", "--columns", "Date,Total", "--types", "Total:S", "--delimiter", ";",
            "--absent", "NA", text="2014-07-09;17\n2014-07-10;NA\n",
        ).stdout
    )  # fmt: skip
    assert (found["items"], found["bytes"]) == (2, 14 + 7 + 14)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("missing.jsonl",), 2, "not begun: source: there is no file"),
        (("notes.txt",), 2, "cannot be inferred from the names"),
        (("empty.jsonl",), 2, "nothing to measure in empty.jsonl: no item was counted"),
        (("broken.jsonl.gz",), 3, "stopped before its end"),
    ],
)
def test_wrong_use_and_a_source_that_breaks_off(arguments: tuple[str, ...], code: int, says: str, folder: Path) -> None:
    (folder / "notes.txt").write_text("x", encoding="utf-8")
    (folder / "empty.jsonl").write_text("\n", encoding="utf-8")
    whole = gzip.compress(b"".join(b'{"Date": "%d"}\n' % number for number in range(200_000)))
    (folder / "broken.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.output
    assert not result.stdout


def test_ctrl_c(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes_jsonl(folder, 1)
    monkeypatch.setattr(size.SizeProfile, "add", lambda *_: signal.raise_signal(signal.SIGINT))
    result = invoke("notes.jsonl")
    assert result.exit_code == 3
    assert "stopped before its end: interrupted" in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("terminal", [False, True])
def test_progress(terminal: bool, folder: Path) -> None:
    notes_jsonl(folder, *range(3000))
    source = open_source("notes.jsonl")
    file = io.StringIO()
    console = rich_console.Console(file=file, force_terminal=terminal, width=100, color_system=None)
    now = [0.0]
    with reading.reading_progress(console, source, clock=lambda: now[0]) as progress:
        progress.update(256)
        assert "records" not in file.getvalue()
        now[0] = 10.0
        progress.update(512)
        shown = file.getvalue()
    assert "512 records read, 51/s" in shown
    assert ("of 4.6 MB" in shown) is not terminal


def test_no_progress_without_a_console(folder: Path) -> None:
    notes_jsonl(folder, 1)
    with reading.reading_progress(None, open_source("notes.jsonl"), clock=lambda: 0.0) as progress:
        progress.update(256)
    assert not invoke("notes.jsonl", "--no-progress").stderr


@pytest.mark.usefixtures("resource")
@pytest.mark.parametrize("command", [("size",), ("heat", "--key", "Date")])
def test_a_source_in_s3_is_read_with_the_profile_and_the_region(
    command: tuple[str, ...], boto3_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def session(aws: Any) -> Any:
        given.append(aws)
        return boto3_session

    monkeypatch.setattr(importlib.import_module("shardkit.cli.command").Aws, "session", property(session))
    s3 = boto3_session.client("s3")
    s3.create_bucket(Bucket="notes")
    s3.put_object(Bucket="notes", Key="notes.jsonl", Body=b'{"Date": "2014-07-09"}\n')
    args = [*command, "s3://notes/notes.jsonl", "--profile", "data", "--region", "eu-west-1"]
    result = click_testing.CliRunner().invoke(build_app(), args)
    assert result.exit_code == 0, result.output
    assert given == [("data", "eu-west-1", None)]
