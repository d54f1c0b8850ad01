"""Files that outlast a kill and lost power: opened by one load at a time, replaced as a whole or not at all.

They hold users' items. A new one can be read and written by its owner alone; one that is replaced keeps its mode, and
its owner and group as far as the system lets this process give them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_IMODE

from shardkit.errors import ConfigurationError, ShardkitError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["open_alone", "replace", "write", "writing"]


def open_alone(path: Path, option: str) -> FileIO:
    """Open a file to read it and to write to its end; it is made if it is not there.

    Args:
        path: The file, links resolved.
        option: The name of the argument that the caller gave it as, for messages.

    Returns:
        The file, unbuffered: what is written is the operating system's at once, and outlasts this process. While it is
        open, no other process can open it so.

    Raises:
        ConfigurationError: It is in use, or cannot be opened.

    Cost: three system calls.
    """
    if fcntl is None:
        raise ConfigurationError(
            f"{option}: {str(path)!r} needs the file locks of Linux or macOS, which this system does not have; on "
            "Windows, load under WSL"
        )
    if os.path.exists(path) and not path.is_file():  # noqa: PTH110 - a name that is too long is told below
        raise ConfigurationError(f"{option}={str(path)!r} is a folder, a device or a pipe; give the path of a file")
    while True:
        try:
            file = _locked(path)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"{option}={str(path)!r} is in use by another load; wait for its end, or give another path"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"{option}={str(path)!r} cannot be opened: {error}; give a path in a folder that can be written"
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        # Its owner put another file in its place before this one was locked.
        file.close()


def replace(path: Path, old: FileIO, pieces: Iterable[bytes]) -> FileIO:
    """Put a file of this content in the place of one that is open: whenever the power goes, one of the two is there.

    Args:
        path: Where it is.
        old: The file as ``open_alone`` or ``replace`` gave it; it is closed.
        pieces: The content.

    Returns:
        The new file, as ``open_alone`` gives it.

    Raises:
        OSError: It cannot be written; the old file is as it was, and closed too.

    Cost: writing it, and two fsyncs.
    """
    try:
        status = os.fstat(old.fileno())
        # The old file's lock makes this name ours alone: what is there was left by a rewrite that was killed.
        new = path.with_name(f".{path.name}.{status.st_ino}.new")
        new.unlink(missing_ok=True)
        file = _locked(new, os.O_EXCL)
        try:
            _keep_access(file, status)
            for piece in pieces:
                write(file, piece)
            os.fsync(file.fileno())
            new.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            file.close()
            new.unlink(missing_ok=True)
            raise
    finally:
        old.close()
    return file


def write(file: FileIO, content: bytes) -> None:
    """Write all of it: a disk that is filling up takes a part, and refuses the rest."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


@contextmanager
def writing(option: str, path: Path, file: FileIO) -> Iterator[None]:
    """Make an error of ours of what a file cannot be written for (a full disk), and close it.

    Nothing may follow half a record: it would be lost with it.
    """
    try:
        yield
    except OSError as error:
        file.close()
        raise ShardkitError(
            f"{option}: {str(path)!r} cannot be written ({error}); make room on its disk, or move it to another one"
        ) from error


def _locked(path: Path, flags: int = 0) -> FileIO:
    def opener(*_: object) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | flags, 0o600)

    file = FileIO(str(path), "a+", opener=opener)
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def _keep_access(file: FileIO, status: os.stat_result) -> None:
    for user in (status.st_uid, -1):  # -1: the group alone, which needs no privilege where this process is in it
        with suppress(PermissionError):
            os.fchown(file.fileno(), user, status.st_gid)
            break
    os.fchmod(file.fileno(), S_IMODE(status.st_mode))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
