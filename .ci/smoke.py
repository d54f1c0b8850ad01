"""Uses the installed shardkit as its first user does: every public name, and a table on an engine.

    PYTHON .ci/smoke.py

PYTHON: of an environment that has the wheel and nothing else; run it from outside the clone. The engine is dynoxide.
"""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import runpy
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import boto3
from boto3.dynamodb.conditions import Key

import shardkit
from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, bulk_load, install

ENGINES = runpy.run_path(str(Path(__file__).resolve().parents[1] / "tests" / "support" / "engines.py"))
DAY = Key("Date").eq("2014-07-09")
COMMANDS = {
    "demo": "demo",
    "load": "load",
    "stage": "cli",
    "import": "cli",
    "backfill": "cli",
    "reshard": "cli",
    "size": "cli",
    "heat": "cli",
    "plan": "cli",
    "simulate": "cli",
}


def check_package() -> None:
    """It is the wheel, it is typed, and each name can be had without an extra."""
    assert Path(sys.prefix) in Path(shardkit.__file__).resolve().parents, shardkit.__file__
    assert importlib.util.find_spec("moto") is None, "an extra is installed: this tests nothing"
    assert importlib.resources.files("shardkit").joinpath("py.typed").is_file()
    for face in ("shardkit", "shardkit.capacity", "shardkit.partitions"):
        module = importlib.import_module(face)
        for name in module.__all__:
            getattr(module, name)


def check_table(endpoint: str) -> None:
    """Items are put, loaded, read back in order, metered, and seen by an installed client."""
    resource = boto3.resource(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 - the engine takes any
    )
    resource.create_table(
        TableName="Orders",
        KeySchema=[
            {"AttributeName": "Date", "KeyType": "HASH"},
            {"AttributeName": "OrderId", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "Date", "AttributeType": "S"},
            {"AttributeName": "OrderId", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    strategy = CalculatedSuffix("OrderId", shards=10)
    orders = ShardedTable(resource.Table("Orders"), strategy)
    orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A000", "Total": Decimal("1.5")})
    meter = CapacityMeter()
    with meter.attach(orders), meter.scope("load") as used:
        report = bulk_load(orders, [{"Date": "2014-07-09", "OrderId": f"A{n:03}"} for n in range(1, 101)])
    assert (report.written, report.failed) == (100, 0), report
    assert used.write_units == 100, used.write_units  # noqa: PLR2004 - a unit each
    ids = [f"A{n:03}" for n in range(101)]
    assert [item["OrderId"] for item in orders.query_items(KeyConditionExpression=DAY, Limit=7)] == ids
    assert orders.get_item(Key={"Date": "2014-07-09", "OrderId": "A000"})["Item"]["Total"] == Decimal("1.5")
    plain = resource.Table("Orders")
    with install(plain, {"Orders": strategy}):
        assert [item["OrderId"] for item in plain.query(KeyConditionExpression=DAY)["Items"]] == ids


def check_commands() -> None:
    """Without its extra, each command says which one it needs, also when it is asked for help."""
    script = shutil.which("shardkit", path=str(Path(sys.executable).parent))
    assert script is not None
    for command, extra in COMMANDS.items():
        for arguments in ([command], [command, "--help"]):
            ran = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
            assert (ran.returncode, f'pip install "shardkit[{extra}]"' in ran.stderr) == (2, True), ran


check_package()
try:
    check_table(ENGINES["engine_endpoint"]("dynoxide"))
finally:
    ENGINES["stop_engines"]()
check_commands()
print("the wheel works:", shardkit.__version__, "at", shardkit.__file__)
