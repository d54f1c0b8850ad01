"""One Spark session per run, and tables of dynoxide that its tasks reach over HTTP."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import engines
from tests.support.spark import CONFIGURATION, connect_to

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ROOT = Path(__file__).resolve().parents[2]

# PySpark's: it leaves the sockets of collect() to the garbage collector, warns of each new release of pandas, and
# compares versions (3.5) with a module that Python has dropped.
_NOT_OURS = (
    "ignore::ResourceWarning",
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests; without pyspark or Java, skip them before any fixture is made."""
    missing = _missing()
    required = bool(os.environ.get("SHARDKIT_REQUIRE_SPARK"))
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)
            for ignored in _NOT_OURS:
                item.add_marker(pytest.mark.filterwarnings(ignored))
            if missing is not None and not required:
                item.add_marker(pytest.mark.skip(reason=missing))


def _missing() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "needs pyspark: bash .ci/run engines spark"
    if shutil.which("java") is None:
        return "needs java (17 or newer) on the PATH"
    return None


@pytest.fixture(scope="session")
def environment() -> Iterator[None]:
    """What Spark's own processes need: this Python, and this tree on its path."""
    missing = _missing()
    assert missing is None, missing
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    changes = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in changes.items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(environment: None) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("shardkit")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # tests of failed tasks read the error that the driver raises
    yield session
    session.stop()


@pytest.fixture
def connect(engine_endpoint: Callable[[engines.ServerName], str]) -> Callable[[], DynamoDBServiceResource]:
    """Makes a resource of dynoxide, in tasks too; it can be pickled."""
    return partial(connect_to, engine_endpoint("dynoxide"))


@pytest.fixture
def resource(connect: Callable[[], DynamoDBServiceResource]) -> Iterator[DynamoDBServiceResource]:
    """A resource of dynoxide, for the test's own requests; tables of other tests may be there."""
    made = connect()
    yield made
    made.meta.client.close()
