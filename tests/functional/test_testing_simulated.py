"""The fixtures ``simulated_partitions`` and ``dynamodb_table``, in test runs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]

HOT_DAY = (ROOT / "examples" / "test_hot_day.py").read_text(encoding="utf-8")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Runs a test file in a process of its own, with the plugin; those of other projects start slowly."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        return pytester.runpytest_subprocess("-p", "shardkit.testing", "-p", "no:cacheprovider", *options)

    return run


def test_a_hot_key_fails_its_test_and_the_sharded_one_passes(run: Callable[..., pytest.RunResult]) -> None:
    result = run(HOT_DAY, "--runxfail")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: *: throttled * times (* TableWriteKeyRangeThroughputExceeded)*",
            "*partition *, key '2014-07-09'*",
            "*its partition serves 1,000.0. Spread it over 5 shards, as ShardedTable does: on 8 partitions*",
            "FAILED *::test_all_scans_of_a_day_under_one_key*",
        ]
    )


def test_a_client_that_is_made_before_moto_is_imported(run: Callable[..., pytest.RunResult]) -> None:
    """A client that moto answers is made after moto was imported: the fixture's is."""
    run(
        """
import sys
import boto3
assert "moto" not in sys.modules
boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")

def test_it(dynamodb_table, simulated_partitions):
    orders = dynamodb_table("Date", ("Number", "N"))
    simulated = simulated_partitions(orders, partitions=1, write_units=1)
    orders.put_item(Item={"Date": "2014-07-09", "Number": 1})
    assert orders.scan()["Count"] == 1
    simulated.assert_not_throttled()
"""
    ).assert_outcomes(passed=1)


def test_tables_simulations_and_units(run: Callable[..., pytest.RunResult]) -> None:
    """Each test has tables and simulations of its own; moto alone says one unit for each."""
    result = run(
        """
import pytest

@pytest.mark.parametrize("turn", range(2))
def test_it(dynamodb_table, simulated_partitions, turn):
    orders = dynamodb_table("Date", TableName="Orders")
    assert orders.scan()["Count"] == 0
    simulated = simulated_partitions(orders, partitions=1, write_units=1, burst=0)
    assert simulated.clock is simulated_partitions.clock
    orders.put_item(Item={"Date": "2014-07-09"})
    with pytest.raises(orders.meta.client.exceptions.ProvisionedThroughputExceededException):
        orders.put_item(Item={"Date": "2014-07-09"})
    if turn:
        orders.delete()

def test_indexes(dynamodb_table, simulated_partitions):
    orders = dynamodb_table(
        "Date",
        AttributeDefinitions=[{"AttributeName": "Customer", "AttributeType": "S"}],
        GlobalSecondaryIndexes=[{
            "IndexName": "ByCustomer",
            "KeySchema": [{"AttributeName": "Customer", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
            "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 7},
        }],
        ProvisionedThroughput={"ReadCapacityUnits": 20, "WriteCapacityUnits": 30},
    )
    simulated = simulated_partitions(orders)
    assert list(simulated.index_partitions) == ["ByCustomer"]
    for number in range(7):
        orders.put_item(Item={"Date": f"day {number}", "Customer": "C1"})
    with pytest.raises(Exception, match="index"):
        orders.put_item(Item={"Date": "day 8", "Customer": "C1"})

@pytest.mark.parametrize("simulate", [False, True])
def test_units(capacity_budget, dynamodb_table, simulated_partitions, simulate):
    orders = dynamodb_table("Date")
    if simulate:
        simulated_partitions(orders)
    with capacity_budget(write_units=4):
        orders.put_item(Item={"Date": "2014-07-09", "Note": "x" * 5000})
"""
    )
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*5.0 write units were consumed, where capacity_budget(write_units=4) allows 4.0*"])


def test_an_engine_by_option_and_by_setting(
    run: Callable[..., pytest.RunResult], pytester: pytest.Pytester, moto_endpoint: str
) -> None:
    code = f"""
import sys

def test_it(dynamodb_table, simulated_partitions):
    orders = dynamodb_table("Date")
    assert orders.meta.client.meta.endpoint_url == {moto_endpoint!r}
    simulated = simulated_partitions(orders, partitions=1, write_units=1, burst=0)
    simulated.load(lambda item: orders.put_item(Item=item), [{{"Date": "a"}}, {{"Date": "b"}}], per_second=1000)
    assert simulated.throttles == {{"TableWriteProvisionedThroughputExceeded": 1}}
    assert orders.scan()["Count"] == 1
    assert "moto" not in sys.modules
"""
    run(code, f"--dynamodb-endpoint={moto_endpoint}").assert_outcomes(passed=1)
    pytester.makeini(f"[pytest]\ndynamodb_endpoint = {moto_endpoint}\n")
    run(code).assert_outcomes(passed=1)


def test_without_moto(run: Callable[..., pytest.RunResult]) -> None:
    result = run(
        """
import sys
sys.modules["moto"] = None

def test_it(dynamodb_table):
    pass
"""
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*ConfigurationError: *moto is not installed; run pip install 'shardkit[[]testing[]]'*"]
    )


def test_without_pytest() -> None:
    code = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "pytest":
            raise ModuleNotFoundError("No module named 'pytest'", name="pytest")

sys.meta_path.insert(0, Hidden())
from shardkit.testing import VirtualClock, simulate_partitions
try:
    from shardkit.testing import capacity_budget
except ImportError as error:
    assert "capacity_budget: pytest is not installed; run pip install 'shardkit[testing]'" in str(error), error
else:
    raise SystemExit("imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
