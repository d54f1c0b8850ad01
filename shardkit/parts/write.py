"""Write one part of a table, in a task of another engine; what all parts of a write have in common."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.bulk.dead_letters import text_of
from shardkit.bulk.load import LoadOptions, SourceLoad, run_load
from shardkit.bulk.load_machine import WINDOW, check_load
from shardkit.bulk.pacing import WriteRate
from shardkit.capacity.shared_budget import SharedBudget
from shardkit.core.checks import check_count, check_side_by_side
from shardkit.core.checksum import with_checksum, without_checksum
from shardkit.errors import ConfigurationError, ShardkitError, brief
from shardkit.parts.files import PartFiles, PartFilesError
from shardkit.parts.report import KEPT_FAILURES, PartReport
from shardkit.parts.table import check_table, connected, describe, for_tasks
from shardkit.runtime.processes import Connect, alike, check_reaches
from shardkit.runtime.runner import Runner, draw_from
from shardkit.runtime.transports import Transport, default_transport, direct_options
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Strategy
from shardkit.tables import described, programs_of

MOST_PARTS = 100_000
_HEADER = "write.json"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """What all parts of a write have in common; engines pickle it to their tasks.

    Example:
        config = PartConfig(table="Orders", strategy=strategy, parts=8, write_units=4000).prepared()
        reports = [write_part(batches, config, part=number) for number, batches in enumerate(parts)]  # in tasks
        merge(reports).raise_failures()

    Args:
        table: The table's name.
        strategy: How its items are spread, as for ``ShardedTable``; no ``ShardMap``, and no ``Resharding`` between its
            stages, because tasks cannot follow a change.
        parts: The number of parts, if it is known; at most 100,000.
        indexes: The strategies of sharded indexes, as for ``ShardedTable``.
        load_id: Identifies the write. Random suffixes are drawn from it and the logical primary key, so every attempt
            of a task, and every later write with this ``load_id``, puts an item into the same shard. Drawn by default.
        write_units: Write units per second of the whole write, for the table and for each index; each part gets
            an equal share. Or a percentage of the table's throughput, such as ``"80%"``; or a ``SharedBudget``, which
            every part that runs joins through its own client. By default no limit.
        connect: Creates the client (or resource, or Table) of the driver and of each task. By default each has the
            region and the endpoint of the driver's, and the credentials that boto3 finds on its machine.
        transport: As for ``ShardedTable``. Defaults to ``"direct"`` where shardkit creates the client and the extra is
            installed.
        workers: Batches in flight at once per part, at most 1,000. Defaults to the client's ``max_pool_connections``.
        window: Items per part that wait to be interleaved, at most 10,000,000.
        checkpoint: A folder that all tasks reach, or ``s3://bucket/prefix``, which keeps the reports of parts that are
            done. A write with the same checkpoint skips them, and takes its ``load_id`` from there.
        dead_letters: A folder or ``s3://bucket/prefix`` for the items that fail: one file per part and attempt.
        divided_by: What decides the part of a row, such as ``"hash of OrderId (bigint)"``. A checkpoint refuses
            another text: rows would be missing if they moved into parts that are done.

    Raises:
        ConfigurationError: An argument is invalid.

    Cost: none before ``prepared``.
    """

    table: str
    strategy: Strategy
    parts: int | None = None
    indexes: Mapping[str, Strategy] | None = None
    load_id: str | None = None
    write_units: float | str | SharedBudget | None = None
    connect: Connect | None = None
    transport: Transport | None = None
    workers: int | None = None
    window: int = WINDOW
    checkpoint: str | os.PathLike[str] | None = None
    dead_letters: str | os.PathLike[str] | None = None
    divided_by: str | None = None
    # Set by described():
    description: Mapping[str, Any] | None = None
    alike: Connect | None = None

    def __post_init__(self) -> None:
        check_table(self.table, self.strategy, self.connect, instead="use bulk_load")
        if self.load_id is not None and (not isinstance(self.load_id, str) or not self.load_id):
            raise ConfigurationError(
                f"load_id: must be a text that identifies the write, got {brief(self.load_id)}; for example "
                '"orders-2024-07-09"'
            )
        if self.parts is not None:
            check_count("parts", self.parts, "parts", most=MOST_PARTS)
        if self.workers is not None:
            check_side_by_side("workers", self.workers)
        if self.transport is not None:
            direct_options(self.transport)
        check_load(window=self.window, write_units=self.write_units)
        if isinstance(self.write_units, float | int | str) and self.parts is None:
            raise ConfigurationError(
                f"parts: must be given with write_units={self.write_units!r}, of which each part gets an equal share"
            )
        for option in ("checkpoint", "dead_letters"):
            if (where := getattr(self, option)) is not None:
                PartFiles(where, option)

    @property
    def sharding(self) -> Sharding:
        """The table's sharding.

        Raises:
            ConfigurationError: ``prepared`` was not called.
        """
        if self.description is None:
            raise ConfigurationError("config: is not prepared; give PartConfig(…).prepared()")
        sharding = described(self.table, self.strategy, self.description, sharded=self.indexes)
        sharding.refuse_if_moving("a write in parts", "use bulk_load, or write in stage 'old' or 'new'")
        return sharding

    def prepared(self) -> PartConfig:
        """Check the write against its table and its checkpoint, once, before the parts begin.

        Example:
            config = PartConfig(table="Orders", strategy=RandomSuffix(10), load_id="monday").prepared()

        Returns:
            The same with its ``load_id``, the table's key schema, and the rate in write units.

        Raises:
            ConfigurationError: The table was not found, or an argument does not fit it or the checkpoint.

        Cost: one DescribeTable; with ``checkpoint``, one read and one write there.
        IAM: ``dynamodb:DescribeTable``; with S3, ``s3:GetObject``, ``s3:ListBucket`` and ``s3:PutObject``.
        """
        config = self if self.description is not None else self.described()
        return replace(config, load_id=config._begun())  # noqa: SLF001 - its own

    def described(self) -> PartConfig:
        """Check the write against its table; ``prepared`` does it too, and begins the checkpoint.

        Example:
            names = config.described().sharding.keys.names

        Returns:
            The same with the table's key schema, and the rate in write units.

        Raises:
            ConfigurationError: The table was not found, or an argument does not fit it.

        Cost: one DescribeTable.
        IAM: ``dynamodb:DescribeTable``.
        """
        with connected(self.connect, None) as client:
            table = describe(client, self.table, self.strategy)
            made = None if self.connect is not None else alike(client, connections=self.workers or 1)
        config = replace(self, description=for_tasks(table), alike=made, write_units=self._rate(table))
        _ = config.sharding
        return config

    def _rate(self, table: Mapping[str, Any]) -> float | SharedBudget | None:
        if not isinstance(self.write_units, str):
            return self.write_units
        rate = WriteRate.of(self.write_units, table)
        if rate.units is None:
            assert rate.error is not None
            raise rate.error
        return rate.units / max([1.0, *rate.worth.values()])  # a number limits the table and each index alike

    def _begun(self) -> str:
        """Return the id of the write, which a checkpoint keeps."""
        load_id = self.load_id or uuid.uuid4().hex
        if self.checkpoint is None:
            return load_id
        files = PartFiles(self.checkpoint, "checkpoint")
        sharding = self.sharding
        header = {
            "version": _VERSION,
            "table": self.table,
            "keys": {name: sharding.types.get(name) for name in sharding.keys.names},
            "strategy": self.strategy.to_dict(),
            "indexes": sharding.sharded.to_dict() if sharding.sharded else None,
            "parts": self.parts,
            "divided_by": self.divided_by,
        }
        kept = files.read(_HEADER)
        if kept is None:
            files.write(_HEADER, with_checksum(orjson.dumps({**header, "load_id": load_id})))
            return load_id
        try:
            then = orjson.loads(without_checksum(kept))
            begun = text_of(then.pop("load_id"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"checkpoint: {self.checkpoint!r} has a {_HEADER} that is not a write's ({error!r}); give another place"
            ) from error
        now = orjson.loads(orjson.dumps(header))
        changed = [
            f"{name} was {brief(then.get(name))}, is {brief(now[name])}" for name in now if then.get(name) != now[name]
        ]
        if self.load_id not in {None, begun}:
            changed.append(f"load_id was {begun!r}, is {self.load_id!r}")
        if changed:
            raise ConfigurationError(
                f"checkpoint: {self.checkpoint!r} is of another write: {'; '.join(changed)}; write with the same "
                "arguments, or give another place"
            )
        return begun


def write_part(batches: Iterable[Any], config: PartConfig, *, part: int, attempt: int = 0) -> PartReport:
    """Write the rows of one part; call it in a task of the engine.

    An item that fails never raises here, so that the engine does not repeat the part for it. What would stop every
    part (no access, no such table, endless throttles) returns a report with an ``error``. An error of ``batches``
    is raised, for the engine to retry.

    Example:
        report = write_part(table.to_batches(), config, part=3)

    Args:
        batches: An iterable of ``pyarrow.RecordBatch``: the items, one per row, as ``open_source`` converts the rows
            of Parquet files. Two writes of a key must be in one part, the last one last.
        config: What the parts have in common, ``prepared``.
        part: The number of this part, from 0. It must mean the same rows at each attempt.
        attempt: The engine's number of this attempt.

    Returns:
        A report, for ``merge``.

    Raises:
        ConfigurationError: ``config`` is not prepared, or ``part`` is not below its ``parts``.

    Cost: as ``bulk_load``; one DescribeTable, which checks that the task's client reaches the driver's table. With
        ``checkpoint``, one read, and one write if no item failed or ``dead_letters`` is given. Memory: the window.
    IAM: ``dynamodb:BatchWriteItem``, ``dynamodb:PutItem`` and ``dynamodb:DescribeTable``; with S3, ``s3:GetObject``,
        ``s3:ListBucket`` and ``s3:PutObject``.
    """
    if config.load_id is None or config.description is None:
        raise ConfigurationError("config: is not prepared; give PartConfig(…).prepared()")
    if config.parts is not None and not 0 <= part < config.parts:
        raise ConfigurationError(
            f"part: must be from 0 to {config.parts - 1}, because {config.parts} parts were planned, got {part}; each "
            "has its share of write_units"
        )
    units = config.write_units
    begun = PartReport(
        load_id=config.load_id,
        part=part,
        parts=config.parts,
        attempt=attempt,
        started=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
        limit=float(units) / (config.parts or 1) if isinstance(units, float | int) else None,
    )
    report = begun
    try:
        done = None if config.checkpoint is None else PartFiles(config.checkpoint, "checkpoint")
        name = f"part-{part:05}.json"
        if done is not None and (kept := done.read(name)) is not None:
            return _kept(kept, begun, f"{config.checkpoint}/{name}")
        report = _ended(_written(batches, config, begun))
        # A failed item that no file has must be written again.
        if done is not None and report.error is None and (report.report.failed == 0 or report.dead_letters is not None):
            done.write(name, with_checksum(report.to_json()))
    except PartFilesError as error:
        report = _ended(report, error=error)
    return report


def _ended(report: PartReport, **changes: Any) -> PartReport:
    return replace(report, ended=time.time(), **changes)


def _kept(text: bytes, begun: PartReport, where: str) -> PartReport:
    try:
        return replace(PartReport.from_json(without_checksum(text)), resumed=True)
    except ValueError as error:
        # No error of the task: the engine would try again in vain.
        problem = ConfigurationError(f"checkpoint: {where} is damaged ({error}); delete it to write the part again")
        return _ended(begun, error=problem)


def _written(batches: Iterable[Any], config: PartConfig, begun: PartReport) -> PartReport:
    batches = iter(batches)
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return begun
    from shardkit.bulk.sources.arrow import Batches, check_names  # noqa: PLC0415 - pyarrow is the engine's

    with ExitStack() as files:
        try:
            check_names(first.schema, "a batch")
            assert config.connect is not None or config.alike is not None, "prepared() sets it"
            client = files.enter_context(connected(config.connect, config.alike))
            runner = _runner(config, client)
            identity = {name: (config.description or {}).get(name) for name in ("TableArn", "TableId")}
            check_reaches(config.table, identity, runner.send)
        except (BotoCoreError, ClientError, ShardkitError) as error:
            return replace(begun, error=error)
        options: LoadOptions = {"window": config.window, "on_error": "collect", "write_units": begun.limit}
        if isinstance(config.write_units, SharedBudget):
            options["write_units"] = files.enter_context(config.write_units.over(client))
        letters = None
        if config.dead_letters is not None:
            letters = Path(files.enter_context(TemporaryDirectory(prefix="shardkit-")), "letters.jsonl")
            options["dead_letters"] = letters
        source_load = SourceLoad(
            config.sharding,
            Batches(chain([first], batches), begun.part),
            options,
            workers=runner.concurrency,
            draw=runner.programs.draw,
            load_id=config.load_id,
            kept=KEPT_FAILURES,
        )
        load = source_load.machine
        try:
            run_load(runner, source_load)
        except ShardkitError as error:
            if load.fatal is None:  # the batches' own error: the engine repeats the part
                raise load.broken or error from None
        report = replace(begun, report=load.report, error=load.fatal)
        if config.dead_letters is not None and letters is not None and letters.stat().st_size:
            name = f"part-{begun.part:05}-attempt-{begun.attempt}.jsonl"
            try:
                kept = PartFiles(config.dead_letters, "dead_letters").write(name, letters)
            except PartFilesError as error:
                return replace(report, error=report.error or error)
            report = replace(report, dead_letters=kept)
        return report


def _runner(config: PartConfig, client: Any) -> Runner:
    transport = config.transport or (default_transport() if config.connect is None else "client")
    programs = programs_of(config.table, config.strategy, config.description, draw_from(None), indexes=config.indexes)
    return Runner(client, programs, config.workers, transport)
