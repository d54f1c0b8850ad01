"""A stage: sections are spilled, spills become objects, and the manifest is written last."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import orjson

from shardkit.bulk.sources.base import Source
from shardkit.bulk.sources.sections import Section, SectionedSource
from shardkit.bulk.writes import Writes, drawn_by_key
from shardkit.errors import ConfigurationError, StagingError
from shardkit.runtime.tasks import Task, Tasks, Tell
from shardkit.sharding.layout import Sharding
from shardkit.staging.manifest import Compression, Manifest, S3Folder
from shardkit.staging.shuffle import OBJECT_BYTES, SUFFIXES, Written, planned, upload
from shardkit.staging.spill import MOST_FAILURES, RUN_BYTES, Spilled, spill
from shardkit.staging.work import WorkFolder

OnError = Literal["raise", "collect"]

SECTION_BYTES = 32 * 1024 * 1024
"""Bytes of a source that are read as one section: what a stage that goes on may have to read again."""
_MOST_SECTIONS = 1000
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is: in ``read``, the source's bytes; in ``upload``, items.

    Attributes:
        total: What ``done`` is at the end of the phase; None if unknown.
        items: The items of this phase so far.
        seconds: Since the phase began, without what was done before a stop.
        resumed: How much of ``done`` was done before a stop.
    """

    phase: Literal["read", "upload"]
    done: int
    total: int | None
    items: int
    seconds: float
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class StageFailure:
    """An item that cannot be staged; ``code`` is the name of its error."""

    place: str | int
    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """What was staged; or what would be, by a dry run.

    Attributes:
        manifest: The URI of the manifest; None in a dry run, or if nothing was staged.
        items: Items in the objects.
        failed: Items that cannot be staged; ``failures`` has the first 100.
        superseded: Items that were left out, because a later one in the source has their primary key. A dry run finds
            only some of them.
        objects: The number of objects.
        bytes: The bytes of the objects; None in a dry run.
        raw_bytes: Those before compression.
        write_units: What writing the items consumes of the table, without its indexes.
        disk_bytes: The disk space that the work folder takes.
        seconds: The duration of the call.
    """

    manifest: str | None
    items: int
    failed: int
    superseded: int
    objects: int
    bytes: int | None
    raw_bytes: int
    write_units: int
    disk_bytes: int
    seconds: float
    failures: tuple[StageFailure, ...] = ()

    def __str__(self) -> str:
        others = [f"{self.failed:,} failed", f"{self.superseded:,} superseded"]
        objects = f"{self.objects:,} object{'' if self.objects == 1 else 's'}"
        return f"{self.items:,} items in {objects} ({', '.join(others)}): {self.manifest or 'no manifest'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What to stage and how; the options are those of :func:`shardkit.stage_items`."""

    source: Source
    folder: S3Folder
    sharding: Sharding
    definition: Mapping[str, Any]
    s3: Any
    compression: Compression
    on_error: OnError
    work_dir: str | os.PathLike[str] | None
    progress: Callable[[StageProgress], object]
    run_bytes: int = RUN_BYTES
    object_bytes: int = OBJECT_BYTES
    section_bytes: int = SECTION_BYTES
    began: float = field(default_factory=time.monotonic)

    @property
    def resumable(self) -> bool:
        """Whether the source's identity tells whether it is the same: of files, not of iterables and pipes."""
        files = self.source.identity().get("files")
        return isinstance(files, list) and all(file.get("name") != "-" and "rows" not in file for file in files)

    @property
    def header(self) -> dict[str, Any]:
        """What identifies the stage; not the table's throughput, which may change before the stage goes on."""
        identity = {
            name: value for name, value in self.source.identity().items() if name not in {"cursors", "sections"}
        }
        return {
            "source": identity,
            "to": str(self.folder),
            "compression": self.compression,
            "section_bytes": self.section_bytes,
            "keys": self.sharding.keys.names,
            "types": dict(self.sharding.types),
            **self.target,
        }

    @property
    def target(self) -> dict[str, Any]:
        return {
            "table": self.sharding.table,
            "strategy": self.sharding.strategy.to_dict(),
            "indexes": self.sharding.sharded.to_dict(),
        }

    @property
    def load_id(self) -> str:
        """The same whenever the same files are staged for the same table; of other sources, a new one each time."""
        if not self.resumable:
            return uuid.uuid4().hex
        return _hash({name: value for name, value in self.header.items() if name not in {"to", "compression"}})

    def sections(self) -> list[Section]:
        """Divide the source; in its order."""
        source = self.source
        if not isinstance(source, SectionedSource):
            return []
        count = -(-(source.bytes_total or 0) // self.section_bytes)
        return list(source.divided(min(_MOST_SECTIONS, max(1, count)), self.sharding.keys.names))


def run_stage(plan: StagePlan, tasks: Tasks | None) -> StageReport:
    """Stage a source; the manifest is written when all objects are in S3."""
    load_id = plan.load_id
    manifest = Manifest.read(plan.s3, plan.folder)
    if manifest is not None:
        return _staged_before(plan, manifest, load_id)
    name = f"shardkit-stage-{_hash(plan.header)[:16]}"
    with ExitStack() as stack:
        work = stack.enter_context(WorkFolder(plan.work_dir, name, plan.header if plan.resumable else None))
        found = _foreign(plan, load_id)
        _read(plan, work, load_id, tasks)
        report = _report(plan, work.sections.values())
        if report.failed and (plan.on_error == "raise" or not report.items):
            work.remove()
            raise _failed(report)
        if not report.items:
            work.remove()
            raise _nothing()
        manifest = _write(plan, work, load_id, tasks, report, found)
        manifest.check(plan.s3, plan.folder)
        manifest.write(plan.s3, plan.folder)
        work.remove()
    return _report_of(plan, manifest, report)


def run_dry(plan: StagePlan, tasks: Tasks | None) -> StageReport:
    """Read and check a source, and say what a stage would take."""
    spills = list(_spilled(plan, "", lambda _: None, set(), tasks, {}))
    report = _report(plan, spills)
    if not report.items and not report.failed:
        raise _nothing()
    return report


def _staged_before(plan: StagePlan, manifest: Manifest, load_id: str) -> StageReport:
    if (manifest.load_id, manifest.compression) != (load_id, plan.compression):
        raise StagingError(
            f"to: {plan.folder} holds another stage (for table {manifest.table!r}, {manifest.items:,} items); give "
            "another prefix, or delete its objects first, the manifest before the others"
        )
    manifest.check(plan.s3, plan.folder)
    return _report_of(plan, manifest, None)


def _foreign(plan: StagePlan, load_id: str) -> dict[str, tuple[int, str]]:
    """Refuse objects that are not of this stage; return those that an earlier try has uploaded."""
    found = plan.folder.listed(plan.s3)
    ours, suffix = _named(plan, load_id), SUFFIXES[plan.compression]
    if others := [key for key in found if not (key.startswith(ours) and key.endswith(suffix))]:
        raise StagingError(
            f"to: s3://{plan.folder.bucket}/{plan.folder.data} holds {len(others):,} objects that are not of this "
            f"stage ({', '.join(others[:_SHOWN])}); give another prefix, or delete them"
        )
    return found


def _named(plan: StagePlan, load_id: str) -> str:
    """Return what the keys of a stage's objects begin with."""
    return f"{plan.folder.data}{load_id[:12]}-"


def _key(plan: StagePlan, load_id: str, number: int) -> str:
    return f"{_named(plan, load_id)}{number:05}{SUFFIXES[plan.compression]}"


def _read(plan: StagePlan, work: WorkFolder, load_id: str, tasks: Tasks | None) -> None:
    done = {number: one.source_bytes for number, one in work.sections.items()}
    for spilled in _spilled(plan, load_id, work.spill, set(work.sections), tasks, done):
        work.add_section(spilled)


def _spilled(
    plan: StagePlan,
    load_id: str,
    path: Callable[[int], Path | None],
    skipped: set[int],
    tasks: Tasks | None,
    read: dict[int, int],
) -> Iterator[Spilled]:
    resumed = sum(read.values())
    began, items = time.monotonic(), 0

    def told(what: tuple[int, int, int]) -> None:
        nonlocal items
        number, count, read[number] = what
        items += count
        done, total = sum(read.values()), plan.source.bytes_total
        plan.progress(StageProgress("read", done, total, items, time.monotonic() - began, resumed))

    how = (plan.sharding, load_id, plan.run_bytes)
    sections = plan.sections()
    if not sections:
        yield _read_section(0, plan.source, *how, path(0), told)
        return
    work: list[Task] = [
        (_read_section, (number, section, *how, path(number)))
        for number, section in enumerate(sections)
        if number not in skipped
    ]
    yield from _run(work, tasks, told)


def _run(work: list[Task], tasks: Tasks | None, tell: Tell) -> Iterator[Any]:
    # Rows in memory, an open pipe and lambdas cannot be sent to other processes: they are read in this one.
    if tasks is None or len(work) <= 1 or not tasks.can_send(work[0]):
        for function, arguments in work:
            yield function(*arguments, tell)
        return
    yield from tasks.run(work, tell)


def _write(
    plan: StagePlan,
    work: WorkFolder,
    load_id: str,
    tasks: Tasks | None,
    report: StageReport,
    found: Mapping[str, tuple[int, str]],
) -> Manifest:
    done: dict[int, Written] = {
        number: one
        for number, one in work.objects.items()
        if found.get(one.object.key) == (one.object.bytes, one.object.etag)
    }
    resumed = items = sum(one.read for one in done.values())
    began = time.monotonic()

    def told(count: int) -> None:
        nonlocal items
        items += count
        now = time.monotonic() - began
        plan.progress(StageProgress("upload", items, report.items, items - resumed, now, resumed))

    spills = work.spills
    ranges = planned(spills, plan.object_bytes)
    tasks_left: list[Task] = [
        (_upload, (number, plan.s3, plan.folder, _key(plan, load_id, number), spills, low, high, plan.compression))
        for number, (low, high) in enumerate(ranges)
        if number not in done
    ]
    for number, written in _run(tasks_left, tasks, told):
        work.add_object(number, written)
        done[number] = written
    objects = [done[number] for number in sorted(done)]
    items = sum(one.object.items for one in objects)
    return Manifest(
        load_id=load_id,
        definition=plan.definition,
        **plan.target,
        compression=plan.compression,
        data=plan.folder.data,
        objects=tuple(one.object for one in objects),
        items=items,
        raw_bytes=sum(one.object.raw_bytes for one in objects),
        write_units=sum(one.write_units for one in objects),
        superseded=report.items + report.superseded - items,
        failed=report.failed,
    )


def _report(plan: StagePlan, spills: Iterable[Spilled]) -> StageReport:
    """Return what was read: items that a later one replaces are only left out within a run."""
    read = sorted(spills, key=lambda one: one.section)
    raw_bytes = sum(one.raw_bytes for one in read)
    kept = sum(one.kept for one in read)
    failed = sum(one.failed for one in read)
    failures = [StageFailure(*failure) for one in read for failure in one.failures]
    return StageReport(
        manifest=None,
        items=kept,
        failed=failed,
        superseded=sum(one.items for one in read) - failed - kept,
        objects=-(-raw_bytes // plan.object_bytes),
        bytes=None,
        raw_bytes=raw_bytes,
        write_units=sum(one.write_units for one in read),
        disk_bytes=sum(one.size for one in read),
        seconds=time.monotonic() - plan.began,
        failures=tuple(failures[:MOST_FAILURES]),
    )


def _report_of(plan: StagePlan, manifest: Manifest, read: StageReport | None) -> StageReport:
    return StageReport(
        manifest=f"s3://{plan.folder.bucket}/{plan.folder.manifest}",
        items=manifest.items,
        failed=manifest.failed,
        superseded=manifest.superseded,
        objects=len(manifest.objects),
        bytes=manifest.bytes,
        raw_bytes=manifest.raw_bytes,
        write_units=manifest.write_units,
        disk_bytes=0 if read is None else read.disk_bytes,
        seconds=time.monotonic() - plan.began,
        failures=() if read is None else read.failures,
    )


def _failed(report: StageReport) -> StagingError:
    first = "; ".join(f"{one.place}: {one.reason}" for one in report.failures[:_SHOWN])
    return StagingError(
        f"{report.failed:,} of {report.items + report.superseded + report.failed:,} items cannot be staged, so nothing "
        f'was: {first}; correct them, or leave them out with on_error="collect"',
        report,
    )


def _nothing() -> ConfigurationError:
    return ConfigurationError("source: there are no items to stage; check the source")


def _hash(form: Any) -> str:
    return sha256(orjson.dumps(form, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


# Tasks, which run in other processes.


def _read_section(
    number: int,
    section: Section | Source,
    sharding: Sharding,
    load_id: str,
    run_bytes: int,
    path: Path | None,
    tell: Tell,
) -> Spilled:
    writes = Writes(sharding, drawn_by_key(load_id))
    records = section.read() if isinstance(section, Source) else section.records()

    def told(count: int) -> None:
        tell((number, count, section.bytes_read))

    spilled = spill(number, records, section.where, writes, path, told, run_bytes)
    spilled.source_bytes = section.bytes_read
    return spilled


def _upload(number: int, *arguments: Any) -> tuple[int, Written]:
    return number, upload(*arguments)
