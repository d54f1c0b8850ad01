"""Lines in CloudWatch's embedded metric format: valid by its specification, and what grew since the last flush."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from shardkit.capacity import CapacityMeter
from shardkit.capacity.exporters.emf import EmbeddedMetrics
from shardkit.capacity.exporters.measurements import METRICS
from shardkit.errors import ConfigurationError
from tests.support.exported import ROWS, Busy
from tests.support.metered import FakeClient, consumed, item

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[3] / "vectors" / "embedded_metric_format.json").read_text(encoding="utf-8")
)
NOW = 1_574_109_732.004

# What CloudWatch makes of a document: a value a metric, by namespace, name and dimensions.
Datum = tuple[str, str, frozenset[tuple[str, str]]]


def documents(stream: io.StringIO) -> list[dict[str, Any]]:
    """The lines, each checked by the specification."""
    lines = stream.getvalue().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    found = [json.loads(line) for line in lines]
    for document in found:
        jsonschema.validate(document, SCHEMA)
    return found


def extracted(found: list[dict[str, Any]]) -> Counter[Datum]:
    """The sums that CloudWatch shows, with every target looked up as the specification says."""
    sums: Counter[Datum] = Counter()
    for document in found:
        for directive in document["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                assert all(isinstance(document[name], str) for name in names)
                dimensions = frozenset((name, document[name]) for name in names)
                for metric in directive["Metrics"]:
                    assert metric["Unit"] == ("Bytes" if metric["Name"].endswith("Bytes") else "Count")
                    assert not isinstance(document[metric["Name"]], str)
                    sums[directive["Namespace"], metric["Name"], dimensions] += document[metric["Name"]]
    return sums


DIMENSIONS = {"table": "TableName", "index": "IndexName", "operation": "Operation", "reason": "Reason"}
LABELS = {metric.name: [DIMENSIONS[label] for label in metric.labels] for metric in METRICS}


def expected(namespace: str, *, operations: bool, **more: str) -> Counter[Datum]:
    sums: Counter[Datum] = Counter()
    for name, place, number in ROWS:
        dimensions = {label: value for label, value in zip(LABELS[name], place, strict=True) if value}
        camel = "".join(word.capitalize() for word in name.split("_"))
        without = {label: value for label, value in dimensions.items() if label != "Operation"}
        for some in [without, dimensions] if operations and "Operation" in dimensions else [without]:
            sums[namespace, camel, frozenset({**more, **some}.items())] += number  # type: ignore[assignment]
    return sums


@pytest.fixture
def busy() -> Busy:
    busy = Busy()
    busy.calls()
    return busy


def test_the_schema_refuses_what_the_specification_refuses() -> None:
    """Or the tests here would prove nothing."""
    valid: dict[str, Any] = {
        "_aws": {
            "Timestamp": 1574109732004,
            "CloudWatchMetrics": [
                {
                    "Namespace": "lambda-function-metrics",
                    "Dimensions": [["functionVersion"]],
                    "Metrics": [{"Name": "time", "Unit": "Milliseconds", "StorageResolution": 60}],
                }
            ],
        },
        "functionVersion": "$LATEST",
        "time": 100,
    }
    jsonschema.validate(valid, SCHEMA)

    def changed(change: Mapping[str, Any]) -> dict[str, Any]:
        (directive,) = valid["_aws"]["CloudWatchMetrics"]
        return {**valid, "_aws": {**valid["_aws"], "CloudWatchMetrics": [{**directive, **change}]}}

    for wrong in (
        {key: value for key, value in valid.items() if key != "_aws"},
        {**valid, "_aws": {**valid["_aws"], "Timestamp": 1.5}},
        changed({"Namespace": ""}),
        changed({"Namespace": "n" * 256}),
        changed({"Dimensions": []}),
        changed({"Dimensions": [[str(number) for number in range(31)]]}),
        changed({"Metrics": [{"Name": "time"}] * 101}),
        changed({"Metrics": [{"Name": "time", "Unit": "units"}]}),
        changed({"Metrics": [{"Name": "n" * 256}]}),
        changed({"Metrics": [{"Name": "time", "StorageResolution": 30}]}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)
    units = botocore.session.Session().get_service_model("cloudwatch").shape_for("StandardUnit")
    assert SCHEMA_UNIT["enum"] == units.enum  # type: ignore[attr-defined]


SCHEMA_UNIT = SCHEMA["properties"]["_aws"]["properties"]["CloudWatchMetrics"]["items"]["properties"]["Metrics"][
    "items"
]["properties"]["Unit"]


@pytest.mark.parametrize("by_operation", [False, True])
def test_what_cloudwatch_shows(busy: Busy, *, by_operation: bool) -> None:
    stream = io.StringIO()
    metrics = EmbeddedMetrics(
        busy.meter,
        namespace="Shop/Orders",
        dimensions={"Service": "checkout"},
        by_operation=by_operation,
        stream=stream,
        clock=lambda: NOW,
    )
    metrics.flush()
    found = documents(stream)
    assert extracted(found) == expected("Shop/Orders", operations=by_operation, Service="checkout")
    assert {document["_aws"]["Timestamp"] for document in found} == {1_574_109_732_004}
    # Without metrics of it, an operation is in the line all the same.
    assert {document.get("Operation") for document in found} == {
        None,
        "BatchWriteItem",
        "GetItem",
        "PutItem",
        "Query",
        "SearchVectors",
    }


def test_what_grew_since_the_last_flush(busy: Busy) -> None:
    stream = io.StringIO()
    metrics = EmbeddedMetrics(busy.meter, stream=stream)
    metrics.flush()
    first = extracted(documents(stream))
    assert first == expected("shardkit", operations=False)
    metrics.flush()
    assert extracted(documents(stream)) == first
    busy.client.call("PutItem", {"ConsumedCapacity": consumed(4.0)}, TableName="T", Item=item("z"))
    stream.seek(0)
    stream.truncate()
    metrics.flush()
    (document,) = documents(stream)
    del document["_aws"]["Timestamp"]
    assert document == {
        "_aws": {
            "CloudWatchMetrics": [
                {
                    "Namespace": "shardkit",
                    "Dimensions": [["TableName"]],
                    "Metrics": [
                        {"Name": "ConsumedWriteCapacityUnits", "Unit": "Count"},
                        {"Name": "Requests", "Unit": "Count"},
                    ],
                }
            ]
        },
        "TableName": "T",
        "Operation": "PutItem",
        "ConsumedWriteCapacityUnits": 4.0,
        "Requests": 1,
    }


class Recording(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str, /) -> int:
        self.calls.append("write")
        return super().write(text)

    def flush(self) -> None:
        self.calls.append("flush")


def test_a_flush_is_one_write_and_nothing_where_nothing_grew(busy: Busy) -> None:
    stream = Recording()
    metrics = EmbeddedMetrics(busy.meter, stream=stream)
    for _ in range(2):
        metrics.flush()
        assert stream.calls == ["write", "flush"]
    assert len(documents(stream)) > 1


def test_a_handler_flushes_at_its_end(busy: Busy, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it raised; to what standard output is by then."""
    meter = CapacityMeter()
    client = FakeClient()
    meter.attach(client)

    @EmbeddedMetrics(meter)
    def handler(event: str, context: object = None) -> str:
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item(event))
        if event == "bad":
            raise LookupError(event)
        return event

    assert handler("good") == "good"
    first = capsys.readouterr().out
    with pytest.raises(LookupError, match="bad"):
        handler("bad", context=None)
    second = capsys.readouterr().out
    for printed in (first, second):
        assert json.loads(printed)["ConsumedWriteCapacityUnits"] == 1.0
    with EmbeddedMetrics(meter) as metrics:
        pass
    assert json.loads(capsys.readouterr().out)["ConsumedWriteCapacityUnits"] == 2.0
    metrics.flush()
    assert not capsys.readouterr().out


def test_functions_that_end_before_their_work(busy: Busy) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, generator, stream):
        with pytest.raises(
            ConfigurationError, match=f"function: {function.__name__} is async or a generator, which ends before"
        ):
            EmbeddedMetrics(busy.meter)(function)


class Broken(io.StringIO):
    full = True

    def write(self, text: str, /) -> int:
        if self.full:
            raise OSError("the disk is full")
        return super().write(text)


def test_a_stream_that_fails(busy: Busy, caplog: pytest.LogCaptureFixture) -> None:
    stream = Broken()
    metrics = EmbeddedMetrics(busy.meter, stream=stream)
    with metrics:
        result = "the caller's"
    assert result == "the caller's"
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("shardkit", logging.ERROR)
    assert record.exc_info is not None
    with pytest.raises(ValueError, match="its own"), metrics:
        raise ValueError("its own")
    with pytest.raises(OSError, match="the disk is full"):
        metrics.flush()
    stream.full = False
    metrics.flush()
    assert extracted(documents(stream)) == expected("shardkit", operations=False)


def test_threads_that_flush_and_count() -> None:
    """Every unit is written once."""
    interval = sys.getswitchinterval()
    client, meter, stream = FakeClient(), CapacityMeter(), io.StringIO()
    meter.attach(client)
    metrics = EmbeddedMetrics(meter, stream=stream)

    def work() -> None:
        for _ in range(20):
            client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
            metrics.flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert extracted(documents(stream)) == {
        ("shardkit", name, frozenset({("TableName", "T")})): 80.0 for name in ("ConsumedWriteCapacityUnits", "Requests")
    }


def test_the_most_dimensions(busy: Busy) -> None:
    stream = io.StringIO()
    most = {f"d{number}": "v" * 1024 for number in range(27)}
    EmbeddedMetrics(busy.meter, dimensions=most, by_operation=True, namespace="n" * 255, stream=stream).flush()
    sizes = {
        len(names) for document in documents(stream) for names in document["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
    }
    assert max(sizes) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespace": ""}, "namespace: must be a str of .* got ''"),
        ({"namespace": "n" * 256}, "1 to 255"),
        ({"namespace": ":n"}, "':n' must not begin"),
        ({"namespace": "Bestände"}, "ASCII"),
        ({"namespace": "AWS/DynamoDB"}, "'AWS/DynamoDB' must not begin"),
        ({"dimensions": {f"d{number}": "v" for number in range(28)}}, "28 dimensions"),
        ({"dimensions": "Service"}, "dimensions: must be a mapping of names to values, got 'Service'"),
        ({"dimensions": {"d": " "}}, "dimensions: the value of 'd'"),
        ({"dimensions": {"d": "v" * 1025}}, "1 to 1024"),
        ({"dimensions": {"d": 5}}, "dimensions: the value of 'd': .* got 5"),
        ({"dimensions": {"d\n": "v"}}, "dimensions: a name"),
        ({"dimensions": {":d": "v"}}, "the name ':d' begins"),
        ({"dimensions": {"TableName": "v"}}, "the name 'TableName' begins"),
        ({"dimensions": {"Requests": "v"}}, "the name 'Requests' begins"),
        ({"dimensions": {"_aws": "v"}}, "the name '_aws' begins"),
    ],
)
def test_what_cloudwatch_does_not_take(busy: Busy, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        EmbeddedMetrics(busy.meter, **options)


def test_the_limits_are_cloudwatchs() -> None:
    model = botocore.session.Session().get_service_model("cloudwatch")
    assert model.shape_for("Namespace").metadata["max"] == 255
    assert model.shape_for("DimensionName").metadata["max"] == 255
    assert model.shape_for("DimensionValue").metadata["max"] == 1024
    assert model.shape_for("Dimensions").metadata["max"] == 30
