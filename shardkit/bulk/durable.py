"""Files that outlast a kill and lost power: opened by one load at a time, replaced as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

from shardkit.errors import ConfigurationError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["open_alone", "replace", "write"]


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
        raise ConfigurationError(f"{option}= needs the file locks of Linux or macOS; on Windows, load under WSL")
    if os.path.exists(path) and not path.is_file():  # noqa: PTH110 - a name that is too long is told below
        raise ConfigurationError(f"{option}={str(path)!r} is a folder, a device or a pipe; give the path of a file")
    while True:
        try:
            file = _opened(path)
        except OSError as error:
            raise ConfigurationError(
                f"{option}={str(path)!r} cannot be opened: {error}; give a path in a folder that can be written"
            ) from error
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        except BlockingIOError as error:
            file.close()
            raise ConfigurationError(
                f"{option}={str(path)!r} is in use by another load; wait for its end, or give another path"
            ) from error
        except BaseException:
            file.close()
            raise
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
    new = path.with_name(path.name + ".new")
    file = _opened(new, os.O_TRUNC, name=path)
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        for piece in pieces:
            write(file, piece)
        os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        file.close()
        raise
    finally:
        old.close()
    return file


def write(file: FileIO, content: bytes) -> None:
    """Write all of it: a disk that is filling up takes a part, and refuses the rest; the error names the file."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        error.filename = file.name
        raise


def _opened(path: Path, flags: int = 0, name: Path | None = None) -> FileIO:
    def opener(*_: object) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags, 0o666)

    return FileIO(str(name or path), "a+", opener=opener)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
