"""Fixtures that every level of tests shares."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from hypothesis import HealthCheck, settings
from moto import mock_aws

from tests.support import costs, engines, platforms
from tests.support.fast import answer_in_less_time, make_clients_in_less_time

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

REGION = "us-east-1"

# The account of whoever runs the tests stays out of them: no profile, no real credentials, no endpoint of theirs.
for _variable in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[_variable]
os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_DEFAULT_REGION=REGION,
    AWS_CONFIG_FILE=os.devnull,
    AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    AWS_EC2_METADATA_DISABLED="true",
)

# A process that a test starts reads what another has compiled; compiling it anew is half of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No deadline anywhere: it would measure the machine. Function-scoped fixtures are fine where an example makes its own
# table. HYPOTHESIS_PROFILE chooses; where CI is set, `ci` is the default (hypothesis's own `ci` repeats the same
# examples in every run; ours draws new ones, and prints how to repeat a failure). Tests marked `long_search` draw more
# than the others: `.ci/run` runs them once more by themselves, under `search`.
_quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("dev", deadline=None, max_examples=30, suppress_health_check=_quiet)
settings.register_profile(
    "ci", deadline=None, max_examples=30, derandomize=False, print_blob=True, suppress_health_check=_quiet
)
settings.register_profile("search", deadline=None, max_examples=150, print_blob=True, suppress_health_check=_quiet)
settings.register_profile("thorough", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

# Until all tests are collected: imports make little garbage, and looking for it takes a third of their time.
gc.disable()

make_clients_in_less_time()
answer_in_less_time()

# A job in the background of a shell ignores Ctrl-C, and what it starts does: tests of interruptions would find none.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files of few long tests. They come first, so that at the end of a run no core waits for one of them.
_LONG = ("integration/", "test_benchmark", "test_docs", "test_heat_command", "test_hot_day", "test_testing_simulated",
         "test_query.py", "test_attempt.py", "test_shards.py", "test_plan_shards.py")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("SHARDKIT_TEST_COSTS"):
        config.pluginmanager.register(costs.Costs(config))
    if not platforms.LOCKS:
        config.pluginmanager.register(platforms.WithoutLocks())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(part in item.nodeid for part in _LONG))


def pytest_collection_finish() -> None:
    # boto3, moto and the tests themselves stay until the end: no later garbage collection has to look through them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # a tenth of the time would go into Python's own, of 700
    gc.enable()


def pytest_sessionfinish() -> None:
    engines.stop_engines()


@pytest.fixture(scope="session")
def boto3_session() -> boto3.Session:
    """One session for all tests: it reads botocore's data files once, which takes longer than most tests."""
    # Within mock_aws, it would find moto's own credentials, by which DynamoDB Local tells accounts apart.
    return boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)


@pytest.fixture
def resource(boto3_session: boto3.Session) -> Iterator[DynamoDBServiceResource]:
    """A boto3 resource over moto, in process; empty at each test's start."""
    with mock_aws():
        yield boto3_session.resource("dynamodb")
        # What a test's meters report would go on without moto, to AWS, until they are collected: each thread ends.
        for one in [*getattr(sys.modules.get("shardkit.capacity.seconds"), "gathering", ())]:
            one._meters.clear()  # noqa: SLF001 - nobody but a test wants this


@pytest.fixture(scope="session")
def engine_endpoint() -> Callable[[engines.ServerName], str]:
    """Gives an engine's URL; where the engine is missing, the test is skipped (or fails: SHARDKIT_REQUIRE_ENGINES)."""

    def endpoint(name: engines.ServerName) -> str:
        try:
            return engines.engine_endpoint(name)
        except engines.EngineUnavailableError as error:
            if os.environ.get("SHARDKIT_REQUIRE_ENGINES"):
                raise
            pytest.skip(str(error))

    return endpoint


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.integration) for name in engines.ENGINES])
def engine_name(request: pytest.FixtureRequest) -> engines.EngineName:
    """Each engine in turn: for a test that has to know which one answers."""
    name: engines.EngineName = request.param
    return name


@pytest.fixture
def engine_resource(
    boto3_session: boto3.Session,
    engine_name: engines.EngineName,
    engine_endpoint: Callable[[engines.EngineName], str],
) -> Iterator[DynamoDBServiceResource]:
    """A boto3 resource over a real engine, each in turn; tables of other tests may be there."""
    resource = boto3_session.resource(
        "dynamodb", endpoint_url=engine_endpoint(engine_name), config=Config(max_pool_connections=50)
    )
    yield resource
    # A connection that waits for the garbage collector is a ResourceWarning in some later test.
    resource.meta.client.close()
