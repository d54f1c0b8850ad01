"""A file that only one process has open, and that survives kill -9 and lost power: journals and dead letters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_IMODE

from shardkit.errors import ConfigurationError, ShardkitError, brief

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def check_path(option: str, given: object) -> None:
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
    if not text or "\0" in os.fsdecode(text):
        raise ConfigurationError(f"{option}: must be the path of a file, got {brief(given)}")


def check_locks(option: str, path: Path) -> None:
    if fcntl is None:
        raise ConfigurationError(
            f"{option}: {str(path)!r} needs the file locks of Linux or macOS, which this system does not have; on "
            "Windows, use WSL"
        )


class LockedFile:
    """A locked file, created if it does not exist; while it is open, other processes cannot open it.

    It is not buffered: what is written outlasts this process. If it cannot be written (a full disk), it is closed,
    because whatever followed half a record would be lost with it. ``option`` is the caller's argument, for messages.
    """

    def __init__(self, path: str | os.PathLike[str], option: str) -> None:
        self.path = Path(os.path.realpath(path))
        self._option = option
        check_locks(option, self.path)
        if os.path.exists(self.path) and not self.path.is_file():  # noqa: PTH110 - too long a name is reported below
            raise ConfigurationError(
                f"{option}: {str(self.path)!r} is a folder, a device or a pipe; give the path of a file"
            )
        self._file = self._opened()

    def _opened(self) -> FileIO:
        while True:
            try:
                file = _locked(self.path)
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"{self._option}: {str(self.path)!r} is in use by another process, or for something else; wait "
                    "until it ends, or give another path"
                ) from error
            except OSError as error:
                raise ConfigurationError(
                    f"{self._option}: {str(self.path)!r} cannot be opened: {error}; give a path in a writable folder"
                ) from error
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.stat(), os.fstat(file.fileno())):
                    return file
            # Its owner replaced the file before this process had locked it.
            file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()

    def read(self) -> bytes:
        self._file.seek(0)
        return self._file.readall()

    def append(self, content: bytes) -> None:
        with self._writing():
            _write(self._file, content)

    def sync(self) -> None:
        with self._writing():
            os.fsync(self._file.fileno())

    def replace(self, pieces: Iterable[bytes]) -> None:
        """Replace the content atomically: if the power fails, the file has either the old or the new content."""
        old = self._file
        try:
            with self._writing():
                self._file = self._replaced(pieces)
        finally:
            old.close()

    def _replaced(self, pieces: Iterable[bytes]) -> FileIO:
        status = os.fstat(self._file.fileno())
        # The lock on the old file reserves this name: a file that has it was left by a rewrite that was killed.
        new = self.path.with_name(f".{self.path.name}.{status.st_ino}.new")
        new.unlink(missing_ok=True)
        file = _locked(new, os.O_EXCL)
        try:
            _keep_access(file, status)
            for piece in pieces:
                _write(file, piece)
            os.fsync(file.fileno())
            new.replace(self.path)
            sync_folder(self.path.parent)
        except BaseException:
            file.close()
            new.unlink(missing_ok=True)
            raise
        return file

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._file.close()
            raise ShardkitError(
                f"{self._option}: {str(self.path)!r} cannot be written ({error}); make room on its disk, or move it to "
                "another disk"
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


def _write(file: FileIO, content: bytes) -> None:
    # A disk that is filling up may accept only a part at first.
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def _keep_access(file: FileIO, status: os.stat_result) -> None:
    for user in (status.st_uid, -1):  # -1: only the group, which needs no privilege if this process is in it
        with suppress(PermissionError):
            os.fchown(file.fileno(), user, status.st_gid)
            break
    os.fchmod(file.fileno(), S_IMODE(status.st_mode))


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
