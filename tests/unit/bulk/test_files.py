"""Files that hold users' items: who may read them, and what happens to the files beside them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkit import BulkResult, ConfigurationError, ShardkitError
from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.journal import Journal
from shardkit.bulk.sources.base import Place
from tests.support.disks import full_disk

pytest.importorskip("fcntl", reason="journals need the file locks of Linux or macOS")

RESULT = BulkResult({"Date": "d"}, 0, None, ok=False, error=ValueError("bad"))


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def journal(path: Path) -> None:
    """Begin or go on with a journal; it is rewritten at once, after each record, and at its end."""
    opened = Journal(path, {"table": "Orders"}, appended_bytes=1)
    opened.record([Place(0, 0)])
    opened.close()


def dead_letters(path: Path) -> None:
    """Begin a file of dead letters, or rewrite it without those of this load."""
    letters = DeadLetters(path, load="4f0c", where=str, done=lambda _: False)
    letters.add([(Place(0, 0), RESULT)])
    letters.close()


Use = Callable[[Path], None]
both = pytest.mark.parametrize("use", [journal, dead_letters])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@both
def test_a_new_file_is_its_owner_s_alone(use: Use, path: Path, umask: None) -> None:
    use(path)
    assert mode(path) == 0o600
    use(path)
    assert mode(path) == 0o600


@both
@pytest.mark.parametrize("chosen", [0o600, 0o640, 0o660, 0o644])
def test_a_rewritten_file_keeps_its_mode(use: Use, path: Path, chosen: int, umask: None) -> None:
    use(path)
    path.chmod(chosen)
    use(path)
    assert mode(path) == chosen


@both
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_rewritten_file_keeps_its_owner(use: Use, path: Path) -> None:
    use(path)
    os.chown(path, 12345, 23456)
    use(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


@both
def test_who_may_not_give_files_away_keeps_the_group(use: Use, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def fchown(_: int, user: int, group: int) -> None:
        asked.append((user, group))
        if user != -1:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    use(path)
    status = path.stat()
    monkeypatch.setattr(os, "fchown", fchown)
    use(path)
    assert asked[:2] == [(status.st_uid, status.st_gid), (-1, status.st_gid)]


@both
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
def test_a_user_s_file_beside_it_is_left_alone(use: Use, path: Path, tmp_path: Path, link: bool) -> None:
    theirs, beside = tmp_path / "theirs", path.with_name("kept.new")
    theirs.write_text("precious", encoding="utf-8")
    if link:
        beside.symlink_to(theirs)
    else:
        beside.write_text("precious", encoding="utf-8")
    for _ in range(2):
        use(path)
    assert beside.is_symlink() is link
    assert beside.read_text("utf-8") == theirs.read_text("utf-8") == "precious"
    assert sorted(os.listdir(tmp_path)) == ["kept", "kept.new", "theirs"]  # noqa: PTH208 - names


def stray_names(monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]) -> list[Path]:
    """Call ``put`` with the path of each rewrite's new file, just before it is created; return the paths."""
    names: list[Path] = []
    opened = os.open

    def before(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_EXCL:
            names.append(Path(path))
            put(names[-1])
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", before)
    return names


@both
def test_a_link_in_the_place_of_the_new_file_is_not_followed(
    use: Use, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was there is removed; one that comes at the last moment ends the rewrite."""
    theirs = tmp_path / "theirs"
    theirs.write_text("precious", encoding="utf-8")
    use(path)
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        names = stray_names(patched, lambda name: name.symlink_to(theirs))
        with pytest.raises(ShardkitError, match=r"cannot be written .*File exists"):
            use(path)
    assert path.read_bytes() == before
    assert names[0].is_symlink()
    use(path)  # its name follows from the file that is still there
    assert not names[0].is_symlink()
    assert theirs.read_text("utf-8") == "precious"


@both
def test_a_rewrite_that_was_killed_leaves_nothing_behind(
    use: Use, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(path)
    left: list[Path] = []

    def killed(self: Path, _: Path) -> None:
        left.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            use(path)
    assert os.listdir(tmp_path) == ["kept"]  # noqa: PTH208 - names
    left[0].write_bytes(b"half of it")  # what kill -9 leaves there
    use(path)
    assert os.listdir(tmp_path) == ["kept"]  # noqa: PTH208 - names


@both
def test_a_rewrite_for_which_there_is_no_room_leaves_the_old_file(use: Use, path: Path, tmp_path: Path) -> None:
    use(path)
    if use is dead_letters:
        kept = path.read_bytes()
        path.write_bytes(kept + kept.replace(b"4f0c", b"beef"))  # of another load: it stays
    before = path.read_bytes()
    with full_disk(10), pytest.raises(ShardkitError, match=r"'.*kept' cannot be written \(.*too large.*; make room"):
        use(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["kept"]  # noqa: PTH208 - names


@both
def test_a_file_system_without_locks(use: Use, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(ConfigurationError, match=r"cannot be opened: .*No locks available"):
        use(path)


WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
import boto3
import moto
import shardkit

moto.mock_aws().start()  # without a table: the look for a shard map is refused, and a write would fail
table = boto3.resource("dynamodb", region_name="us-east-1").Table("Orders")
schema = {"KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}],
          "AttributeDefinitions": [{"AttributeName": "Date", "AttributeType": "N"}]}  # so no look for a shard map
orders = shardkit.ShardedTable(table, shardkit.Unsharded(), key_schema=schema)
for option in ("journal", "dead_letters"):
    items = iter([{"Date": "d"}])
    try:
        shardkit.bulk_load(orders, items, **{option: option})
    except shardkit.ConfigurationError as error:
        print(error)
    assert next(items) == {"Date": "d"}, "something was read"
"""


def test_without_file_locks_it_is_said_at_once(tmp_path: Path) -> None:
    """As on Windows: shardkit can be imported, and nothing is read or written before the refusal."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    said = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in said] == ["journal", "dead_letters"]
    assert all("needs the file locks of Linux or macOS" in line and "use WSL" in line for line in said)
    assert list(tmp_path.iterdir()) == []
