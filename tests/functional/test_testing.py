"""The pytest fixture, in test runs of its own: what passes, what fails, and what the failure says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
# A client that answers as it is told, from before-call; made before or after the fixture, as the test has it.
CONFTEST = """
import boto3
import pytest
from botocore.stub import Stubber

from shardkit import ShardkitError


class Fake:
    def __init__(self):
        self.client = boto3.client("dynamodb", region_name="us-east-1")
        self.stub = Stubber(self.client)
        self.stub.activate()

    def get(self, units, key="a", table="T"):
        consumed = {"TableName": table, "CapacityUnits": units}
        self.stub.add_response("get_item", {"ConsumedCapacity": consumed})
        self.client.get_item(TableName=table, Key={"pk": {"S": key}})

    def put(self, units):
        self.stub.add_response("put_item", {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": units}})
        self.client.put_item(TableName="T", Item={"pk": {"S": "a"}})

    def refused(self):
        self.stub.add_client_error("put_item", "ConditionalCheckFailedException")
        with pytest.raises(self.client.exceptions.ConditionalCheckFailedException):
            self.client.put_item(TableName="T", Item={"pk": {"S": "a"}}, ConditionExpression="attribute_exists(pk)")


@pytest.fixture
def fake():
    return Fake()


@pytest.fixture(scope="session")
def old():
    return Fake()
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    pytester.makeconftest(CONFTEST)
    return Run(pytester)


class Run:
    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def __call__(self, body: str, fixtures: str = "capacity_budget, fake") -> pytest.RunResult:
        lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
        self.pytester.makepyfile(f"import pytest\nfrom shardkit import *\n\ndef test_it({fixtures}):\n{lines}")
        return self.pytester.runpytest_inprocess("-p", "shardkit.testing", "-p", "no:cacheprovider")

    def passes(self, body: str, **options: str) -> None:
        self(body, **options).assert_outcomes(passed=1)

    def fails(self, body: str, *lines: str, **options: str) -> pytest.RunResult:
        result = self(body, **options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(lines)
        return result


WITHIN = """
with capacity_budget(read_units=3) as used:
    fake.get(1.5)
    fake.get(1.5)
assert used.read_units == 3.0
fake.get(100.0)
assert used.read_units == 3.0
"""
BEYOND = """
with capacity_budget(read_units=3):
    fake.get(1.5)
    fake.get(2.0)
"""


def test_a_block_within_its_budget_passes(run: Run) -> None:
    run.passes(WITHIN)


def test_a_block_beyond_its_budget_fails_with_who_consumed_what(run: Run) -> None:
    result = run.fails(
        BEYOND,
        "*with capacity_budget(read_units=3):*",
        "*Failed: 3.5 read units were consumed, where capacity_budget(read_units=3) allows 3.0*",
        "*requests*read units*write units*",
        "*table T*2*3.5*0.0*",
        "*GetItem*2*3.5*0.0*",
    )
    # The failure is shown where the test has it, not in shardkit.
    assert "budget.py" not in result.stdout.str()


def test_the_hottest_keys_are_named_where_the_partition_key_is_known(run: Run) -> None:
    run.fails(
        """
with capacity_budget(fake.client, read_units=1, key_schema={"T": "pk"}):
    fake.get(1.0, "cold")
    fake.get(7.0, "hot")
""",
        "*8.0 read units were consumed*",
        "*key T 'hot'*1*7.0*",
        "*key T 'cold'*1*1.0*",
    )


def test_both_sides(run: Run) -> None:
    run.passes("with capacity_budget(read_units=1, write_units=2):\n    fake.get(1.0)\n    fake.put(2.0)")
    run.fails(
        "with capacity_budget(read_units=0.5, write_units=1):\n    fake.get(1.0)\n    fake.put(2.0)",
        "*1.0 read units were consumed, where capacity_budget(read_units=0.5) allows 0.5*",
        "*2.0 write units were consumed, where capacity_budget(write_units=1) allows 1.0*",
    )


def test_one_side_alone(run: Run) -> None:
    run.passes("with capacity_budget(write_units=0):\n    fake.get(100.0)")


def test_one_table(run: Run) -> None:
    run.passes("with capacity_budget(read_units=1, table='T'):\n    fake.get(5.0, table='U')\n    fake.get(1.0)")
    run.fails(
        "with capacity_budget(read_units=0, table='arn:aws:dynamodb:us-east-1:123456789012:table/U'):\n"
        "    fake.get(5.0, table='U')",
        "*5.0 read units of table U were consumed*",
    )


def test_a_table_that_no_call_touched_is_misspelt(run: Run) -> None:
    """What compares nothing must not pass in silence."""
    run.fails(
        "with capacity_budget(read_units=9, table='Order'):\n    fake.get(5.0, table='Orders')\n    fake.get(1.0)",
        "*table: no call was on 'Order', only on 'Orders', 'T'; give one of those*",
    )
    run.passes("with capacity_budget(read_units=9, table='Order'):\n    pass")


def test_estimates_count_and_are_named_apart(run: Run) -> None:
    run.fails(
        "with capacity_budget(write_units=2):\n    fake.put(2.0)\n    fake.refused()",
        "*3.0 write units were consumed (2.0 reported, 1.0 estimated), where*",
    )


def test_no_calls_are_within_any_budget(run: Run) -> None:
    run.passes("with capacity_budget(read_units=0, write_units=0):\n    pass")


def test_an_exception_of_the_block_goes_first(run: Run) -> None:
    result = run.fails(
        "with capacity_budget(read_units=0):\n    fake.get(1.0)\n    raise RuntimeError('its own')", "*its own*"
    )
    assert "were consumed" not in result.stdout.str()


def test_clients_that_are_made_in_the_block(run: Run) -> None:
    run.fails(
        "from conftest import Fake\nwith capacity_budget(read_units=1):\n    Fake().get(3.0)",
        "*3.0 read units were consumed*",
        fixtures="capacity_budget",
    )


def test_clients_of_a_session_of_its_own(run: Run) -> None:
    run.fails(
        """
import boto3
from botocore.stub import Stubber
with capacity_budget(read_units=1):
    table = boto3.Session(region_name="us-east-1").resource("dynamodb").Table("T")
    with Stubber(table.meta.client) as stub:
        stub.add_response("get_item", {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 2.0}})
        table.get_item(Key={"pk": "a"})
""",
        "*2.0 read units were consumed*",
    )


def test_threads_of_the_block_count(run: Run) -> None:
    run.fails(
        """
import threading
with capacity_budget(read_units=1):
    thread = threading.Thread(target=fake.get, args=(2.0,))
    thread.start()
    thread.join()
""",
        "*2.0 read units were consumed*",
    )


def test_a_client_that_is_older_than_the_fixture_is_named(run: Run) -> None:
    """What cannot be seen must not pass in silence."""
    older = "with capacity_budget(read_units=0):\n    old.get(9.0)"
    run.fails(older, "*saw no DynamoDB client*capacity_budget(table, read_units=3)*", fixtures="old, capacity_budget")
    run.fails(
        "with capacity_budget(old.client, read_units=0):\n    old.get(9.0)",
        "*9.0 read units were consumed*",
        fixtures="old, capacity_budget",
    )
    run.passes("with capacity_budget(old.client, read_units=9):\n    old.get(9.0)", fixtures="old, capacity_budget")


def test_only_what_was_named_counts(run: Run) -> None:
    run.passes(
        "with capacity_budget(old.client, read_units=0):\n    fake.get(9.0)", fixtures="capacity_budget, old, fake"
    )


def test_blocks_in_blocks(run: Run) -> None:
    run.passes(
        """
with capacity_budget(read_units=3):
    fake.get(1.0)
    with capacity_budget(read_units=2):
        fake.get(2.0)
"""
    )
    run.fails(
        """
with capacity_budget(read_units=2):
    with capacity_budget(read_units=2):
        fake.get(2.0)
    fake.get(0.5)
""",
        "*2.5 read units were consumed, where capacity_budget(read_units=2)*",
    )


@pytest.mark.parametrize(
    "arguments", ["", "read_units=-1", "write_units='3'", "read_units=float('nan')", "read_units=1, table=5"]
)
def test_arguments_that_cannot_work(run: Run, arguments: str) -> None:
    run.passes(f"with pytest.raises(ConfigurationError):\n    capacity_budget({arguments})")


def test_nothing_is_left_behind(run: Run) -> None:
    """The next test's clients are watched by nobody."""
    run.pytester.makepyfile(
        test_two="""
def test_one(capacity_budget, fake):
    with capacity_budget(read_units=3):
        fake.get(1.0)

def test_two(fake):
    fake.stub.add_response("get_item", {}, {"TableName": "T", "Key": {"pk": {"S": "a"}}})
    fake.client.get_item(TableName="T", Key={"pk": {"S": "a"}})
"""
    )
    run.pytester.runpytest_inprocess("-p", "shardkit.testing").assert_outcomes(passed=2)


def test_the_plugin_is_announced() -> None:
    """Once shardkit is installed, pytest finds the fixtures by itself: by the package's name."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    announced = r'"shardkit\.testing" = "shardkit\.testing\.plugin"'
    assert re.search(rf"^\[project\.entry-points\.pytest11\]\n(?:#.*\n)*{announced}$", project, re.MULTILINE)


def test_shardkit_itself_does_without_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import shardkit; assert 'shardkit.testing' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
