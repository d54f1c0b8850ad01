"""Write the async ShardedTable, ShardedCounter, TimeSeries and CachedTable, in shardkit/aio, from the sync ones.

    python .ci/generate_aio.py

Run it after each change of one of ``SOURCES``; tests/unit/test_generated.py compares. It works on the text:

1. A method becomes ``async def`` if it runs a program, calls the wrapped table, or calls a method that does. Such calls
   are awaited, also in the examples of docstrings.
2. An attribute of the description is awaited.
3. ``with`` becomes ``async with``: ``__enter__`` and ``__exit__`` have other names.
4. ``NAMES`` have an async twin. What else differs stands in ``FILES``, where each text must occur exactly once.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shardkit"
TARGETS = PACKAGE / "aio"
SOURCES = {
    "cache.py": PACKAGE / "cache" / "table.py",
    "counter.py": PACKAGE / "counter.py",
    "table.py": PACKAGE / "table.py",
    "timeseries.py": PACKAGE / "timeseries" / "series.py",
}

NAMES = ("BatchWriter", "CacheRunner", "QueryItems", "Runner", "ScanItems", "source_of")
TWINS = {name: f"async_{name}" if name.islower() else f"Async{name}" for name in NAMES}
RUNS = (
    r"self\.(?:_runner\.(?:(?:over\(\"client\"\)\.)?run|close)"
    r"|_table\.(?!batch_writer|get_available_subresources)\w+)\("
)
TABLE_TEXTS = {
    "from collections.abc import Iterable": "from collections.abc import Awaitable, Iterable",
    '"""ShardedTable: a boto3 ``Table`` with sharded partition keys."""': (
        '"""The async ShardedTable.\n\nGenerated from shardkit/table.py by .ci/generate_aio.py: change it there.\n"""'
    ),
    "from shardkit.runtime.iterators import": (
        "from shardkit.runtime.client_table import table_of\nfrom shardkit.runtime.iterators import"
    ),
    "Wrap a boto3 ``Table`` so that": "Wrap an aiobotocore client or aioboto3 ``Table`` so that",
    'ShardedTable(boto3.resource("dynamodb").Table("Orders"), CalculatedSuffix("OrderId", shards=200))': (
        'ShardedTable(client, CalculatedSuffix("OrderId", shards=200), table_name="Orders")'
    ),
    "table: A boto3 ``Table``; requests go through its client (``table.meta.client``), so the application's\n"
    "            credentials, configuration and event handlers apply.": (
        "table: An aiobotocore client, or an aioboto3 ``Table``, whose client (``table.meta.client``) is used. The\n"
        "            application's credentials, configuration and event handlers apply."
    ),
    "        indexes: The sharded global": (
        "        table_name: The table's name, with a client.\n        indexes: The sharded global"
    ),
    "        *,\n        indexes:": "        *,\n        table_name: str | None = None,\n        indexes:",
    "self._table = table\n        client = client_of_table(table)": (
        "self._table = table_of(table, table_name)\n        client = self._table.meta.client"
    ),
    ", client_of_table\n": "\n",
    "The wrapped boto3 ``Table``, which knows no shards.": (
        "The wrapped aioboto3 ``Table``, which knows no shards; over a client, its methods without items."
    ),
    "A context manager with ``put_item(Item=…)``": "An async context manager with ``put_item(Item=…)``",
    "keeps its thread until botocore's own timeout: set ``Config(read_timeout=…, retries=…)`` to match.": (
        "is cancelled."
    ),
    "which holds the other shards'\n                items;": (
        "which holds the items\n                that had come, and cancels the other requests;"
    ),
    " A view with another ``max_concurrency`` has its own thread pool: keep the view and reuse it.": "",
    "An iterator; its ``last_evaluated_key`` is the cursor after the last item that it returned.": (
        "An async iterator; its ``last_evaluated_key`` is the cursor after the last item that it returned. To stop\n"
        "            early, use it in ``async with``."
    ),
    'End the table\'s idle threads, and with ``transport="direct"`` close its idle connections.': (
        'With ``transport="direct"``, close the idle connections of this event loop.'
    ),
    "The boto3 client or table that you gave\n        stays": "The client or table that you gave\n        stays",
    "\n        stays open. A view with its own ``max_concurrency`` is closed by itself.": "\n        stays open.",
    "An iterator of items.": "An async iterator of items. To stop early, use it in ``async with``.",
}


COUNTER_TEXTS = {
    '"""ShardedCounter: a counter that takes more adds per second than one partition key."""': (
        '"""The async ShardedCounter.\n\n'
        'Generated from shardkit/counter.py by .ci/generate_aio.py: change it there.\n"""'
    ),
    "from shardkit.runtime.runner import": (
        "from shardkit.runtime.client_table import table_of\nfrom shardkit.runtime.runner import"
    ),
    "from shardkit.runtime.targets import client_of_table\n": "",
    'ShardedCounter(boto3.resource("dynamodb").Table("Pages"), {"Page": "home"}, "Views", shards=20)': (
        'ShardedCounter(client, {"Page": "home"}, "Views", shards=20, table_name="Pages")'
    ),
    "table: A boto3 ``Table``; or a": "table: An aiobotocore client or aioboto3 ``Table``; or an async",
    "needed with a boto3 ``Table``.": "needed without a ``ShardedTable``.",
    "        key_schema: As for ``ShardedTable``, with a boto3 ``Table``.": (
        "        table_name: The table's name, with a client.\n"
        "        key_schema: As for ``ShardedTable``, if ``table`` is not one."
    ),
    "        key_schema: Mapping[str, Any] | None = None,\n": (
        "        table_name: str | None = None,\n        key_schema: Mapping[str, Any] | None = None,\n"
    ),
    "it is needed with a boto3 Table;": "it is needed without a ShardedTable;",
    "            client = client_of_table(table)\n": (
        "            table = table_of(table, table_name)\n            client = table.meta.client\n"
    ),
    "End the counter's idle threads, as ``ShardedTable.close``; a later call makes new ones.": (
        "Close what the counter has opened, as ``ShardedTable.close``; a later call opens it again."
    ),
    'options = {"shards": shards, "key_schema"': 'options = {"shards": shards, "table_name": table_name, "key_schema"',
}
SERIES_TEXTS = {
    '"""TimeSeries: one logical table, stored in a table for each period."""': (
        '"""The async TimeSeries.\n\n'
        'Generated from shardkit/timeseries/series.py by .ci/generate_aio.py: change it there.\n"""'
    ),
    "from shardkit.table import ItemOperations\n": "",
    "from shardkit.core.calls import": "from shardkit.aio.table import ItemOperations\nfrom shardkit.core.calls import",
    'TimeSeries(\n            boto3.resource("dynamodb"),': "TimeSeries(\n            client,",
    "target: A boto3 resource or client.": "target: An aiobotocore client, or an aioboto3 resource.",
    "if is_async(client):": "if not is_async(client):",
    "target: must be a boto3 resource or client, got {brief(target)}; use shardkit.aio for an async one": (
        "target: must be an aiobotocore client or aioboto3 resource, got {brief(target)}; "
        'use "\n                "shardkit.TimeSeries for one of boto3'
    ),
}
CACHE_TEXTS = {
    '"""CachedTable: a table whose popular items are read from memory."""': (
        '"""The async CachedTable.\n\n'
        'Generated from shardkit/cache/table.py by .ci/generate_aio.py: change it there.\n"""'
    ),
    'table = boto3.resource("dynamodb").Table("Products")\n': (
        'table = ShardedTable(client, Unsharded(), table_name="Products")\n'
    ),
    "table: A boto3 ``Table``, a ``ShardedTable``, a ``TimeSeries``, or an object with the methods of one.": (
        "table: An aioboto3 ``Table``, an async ``ShardedTable`` (over a client, with ``Unsharded()`` for a table\n"
        "            without suffixes) or ``TimeSeries``, or an object with the methods of one."
    ),
    "End the threads that renew copies, and": "Wait for the tasks that renew copies, and",
    "A boto3 table, its\n        client and a": "An aioboto3 table, its\n        client and a",
    """boto3's ``Table.meta``.""": """The ``meta`` of the table, with its client.""",
}
FILES = {"cache.py": CACHE_TEXTS, "table.py": TABLE_TEXTS, "counter.py": COUNTER_TEXTS, "timeseries.py": SERIES_TEXTS}


def generated(name: str, source: str) -> str:
    """Return the text of an async file for that of the sync one."""
    # A piece for each method; its decorators are at the end of the piece before.
    head, *methods = re.split(r"^(?=    def )", source, flags=re.MULTILINE)
    names: set[str] = set()
    runs = re.compile(RUNS)
    while more := {_name(method) for method in methods if runs.search(method)} - names:
        names |= more
        runs = re.compile("|".join([RUNS, *(rf"self\.{name}\(" for name in sorted(names))]))
    awaited = [
        runs.sub(r"await \g<0>", f"    async {method[4:]}") if _name(method) in names else method for method in methods
    ]
    text = "".join([head, *awaited])
    for given, wanted in FILES[name].items():
        if text.count(given) != 1:
            raise SystemExit(f"{name}: must have {given!r} once, got {text.count(given)}; change FILES in {__file__}")
        text = text.replace(given, wanted)
    text = text.replace("def __enter__", "async def __aenter__").replace("def __exit__", "def __aexit__")
    text = re.sub(r"^    (?!table_name)([a-z][a-z_]*): (.+)$", r"    \1: Awaitable[\2]", text, flags=re.MULTILINE)
    text = re.sub(rf"\b(?:{'|'.join(NAMES)})\b", lambda found: TWINS[found[0]], text)
    calls = re.compile(rf"(?<![\w.])(?=(?:\w+\.)+(?:{'|'.join(sorted(names))})\()")
    return re.sub(r"^ +Example:\n(?:  .*\n)+", lambda example: _awaited(calls, example[0]), text, flags=re.MULTILINE)


def _name(method: str) -> str:
    return method[len("    def ") : method.index("(")]


def _awaited(calls: re.Pattern[str], example: str) -> str:
    return re.sub(r"^( +)(with|for)\b", r"\1async \2", calls.sub("await ", example), flags=re.MULTILINE)


if __name__ == "__main__":
    for file, source in SOURCES.items():
        (TARGETS / file).write_text(generated(file, source.read_text(encoding="utf-8")), encoding="utf-8")
