"""The folder of a stage under way: which sections are spilled whole, and which objects are uploaded.

A stage that was killed goes on with what its journal says is done. A line of the journal is a checksum and a JSON body;
each is on the disk before the stage goes on, and what is torn at its end counts as not done.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import orjson

from shardkit.bulk.locked_file import LockedFile, check_locks
from shardkit.errors import ConfigurationError
from shardkit.staging.manifest import StagedObject
from shardkit.staging.shuffle import Spills, Written
from shardkit.staging.spill import Run, Spilled, is_whole, writing

_JOURNAL = "stage.journal"


class WorkFolder:
    """A folder that only one stage has open; a context manager.

    Args:
        parent: The folder that it is made in; by default the system's folder for temporary files.
        name: Its name: of the source and the target, so that the same stage finds it again.
        header: What must be the same when a stage goes on; None: start anew.

    Attributes:
        sections: What is spilled whole, by the number of the section.
        objects: What is uploaded, by the object's number.
    """

    def __init__(self, parent: str | os.PathLike[str] | None, name: str, header: Mapping[str, Any] | None) -> None:
        self.path = Path(os.path.realpath(parent or tempfile.gettempdir())) / name
        self.sections: dict[int, Spilled] = {}
        self.objects: dict[int, Written] = {}
        self._header = header

    def __enter__(self) -> Self:
        check_locks("work_dir", self.path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"work_dir: {str(self.path)!r} cannot be made ({error}); give a folder that you may write in"
            ) from error
        self._check_owner()
        self._file = LockedFile(self.path / _JOURNAL, "work_dir")
        try:
            self._restore()
        except BaseException:
            self._file.close()
            raise
        return self

    def _check_owner(self) -> None:
        # Anybody may make folders among the temporary files.
        status = self.path.lstat()
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
            raise ConfigurationError(f"work_dir: {str(self.path)!r} belongs to another user; give another folder")

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def spill(self, section: int) -> Path:
        return self.path / f"{section:05}.spill"

    @property
    def spills(self) -> Spills:
        return [(self.spill(number), self.sections[number].runs) for number in sorted(self.sections)]

    def add_section(self, spilled: Spilled) -> None:
        self._add({"section": asdict(spilled)})

    def add_object(self, number: int, written: Written) -> None:
        self._add({"number": number, **asdict(written)})

    def remove(self) -> None:
        """Remove the folder: nothing is left to go on with."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _restore(self) -> None:
        header = orjson.loads(orjson.dumps({"header": self._header}))
        records = list(_records(self._file.read()))
        if self._header is None or records[:1] != [header]:
            records = [header]
        for record in records:
            self._take(record)
        self.sections = {number: one for number, one in self.sections.items() if is_whole(self.spill(number), one)}
        for path in self.path.iterdir():
            if path.name != _JOURNAL and path not in map(self.spill, self.sections):
                path.unlink()
        with writing(self._file.path):
            self._file.replace(map(_line, records))  # without what is torn at its end

    def _add(self, record: dict[str, Any]) -> None:
        line = _line(record)
        self._file.append(line)
        self._file.sync()
        self._take(*_records(line))

    def _take(self, record: dict[str, Any]) -> None:
        if "section" in record:
            section = record["section"]
            runs = [Run(**run) for run in section["runs"]]
            failures = [tuple(one) for one in section["failures"]]
            spilled = Spilled(**{**section, "runs": runs, "failures": failures})
            self.sections[spilled.section] = spilled
        elif "object" in record:
            self.objects[record["number"]] = Written(
                StagedObject(**record["object"]), record["write_units"], record["read"]
            )


def _line(record: dict[str, Any]) -> bytes:
    body = orjson.dumps(record)
    return b"%08x %b\n" % (crc32(body), body)


def _records(content: bytes) -> Iterator[dict[str, Any]]:
    """Read the records up to the first damaged one."""
    for line in content.splitlines(keepends=True):
        body = line[9:-1]
        if line != b"%08x %b\n" % (crc32(body), body):
            return
        yield orjson.loads(body)
