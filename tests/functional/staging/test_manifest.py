"""The manifest of a stage, in moto's S3: written, read, and compared with the objects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import ConfigurationError, StagingError
from shardkit.staging.manifest import Manifest, S3Folder, StagedObject
from tests.support.stage_objects import FOLDER

MANIFEST = Manifest(
    load_id="4f0c",
    table="Orders",
    definition={
        "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "Date", "AttributeType": "S"}],
    },
    strategy={"type": "Unsharded"},
    indexes={},
    compression="GZIP",
    data="orders/data/",
    objects=(),
    items=0,
    raw_bytes=0,
    write_units=0,
    superseded=1,
)


@pytest.fixture
def staged(s3: Any) -> Manifest:
    """The manifest of two objects that are in S3."""
    objects = []
    for name in ("0", "1"):
        key = f"{FOLDER.data}{name}.json.gz"
        etag = s3.put_object(Bucket=FOLDER.bucket, Key=key, Body=b"some")["ETag"]
        objects.append(StagedObject(key=key, items=3, bytes=4, raw_bytes=40, etag=etag))
    return replace(MANIFEST, objects=tuple(objects), items=6, raw_bytes=80)


def test_is_read_as_it_was_written(s3: Any, staged: Manifest) -> None:
    assert Manifest.read(s3, FOLDER) is None
    staged.write(s3, FOLDER)
    read = Manifest.read(s3, FOLDER)
    assert read == staged
    assert read.bytes == 8
    read.check(s3, FOLDER)  # the manifest is not among the data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s3, key: s3.delete_object(Bucket=FOLDER.bucket, Key=key), "0.json.gz is missing"),
        (lambda s3, key: s3.put_object(Bucket=FOLDER.bucket, Key=f"{key}2", Body=b""), "0.json.gz2 was added"),
        (lambda s3, key: s3.put_object(Bucket=FOLDER.bucket, Key=key, Body=b"more."), "0.json.gz has 5 bytes"),
        (lambda s3, key: s3.put_object(Bucket=FOLDER.bucket, Key=key, Body=b"else"), "0.json.gz has 4 bytes and ETag"),
    ],
)
def test_other_objects_are_refused(s3: Any, staged: Manifest, change: Any, said: str) -> None:
    change(s3, staged.objects[0].key)
    with pytest.raises(StagingError, match=f"^manifest: the objects below s3://bucket/orders/data/ .*{said}"):
        staged.check(s3, FOLDER)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 1"),
        ({"format": "ION"}, "format DYNAMODB_JSON"),
        ({"items": 7}, "another number of items"),
        ({"objects": [{}]}, "missing 5 required"),
        ({"compression": "ROT13"}, "ROT13"),
    ],
)
def test_another_form_is_refused(s3: Any, staged: Manifest, change: dict[str, Any], said: str) -> None:
    body = json.dumps({**staged.to_dict(), **change})
    s3.put_object(Bucket=FOLDER.bucket, Key=FOLDER.manifest, Body=body)
    with pytest.raises(StagingError, match=rf"^manifest: s3://bucket/orders/manifest.json cannot be read .*{said}"):
        Manifest.read(s3, FOLDER)


@given(
    form=st.recursive(
        st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
@settings(max_examples=10)
def test_anything_else_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match="version"):
        Manifest.from_dict(form)


def test_no_access(s3: Any) -> None:
    folder = S3Folder("nobody", "orders")
    for act in (Manifest.read, MANIFEST.write, MANIFEST.check):
        with pytest.raises(StagingError, match=r"^s3://nobody/orders cannot be (read|written|listed): .*NoSuchBucket"):
            act(s3, folder)


def test_folders() -> None:
    folder = S3Folder.of("s3://bucket/a/b/", "to")
    assert (str(folder), folder.data, folder.manifest) == ("s3://bucket/a/b", "a/b/data/", "a/b/manifest.json")
    assert S3Folder.of("s3://bucket", "to").data == "data/"
    for wrong in ("bucket/a", "s3://", "s3:///a", None, 7):
        with pytest.raises(ConfigurationError, match=r"^to: must be s3://bucket/prefix, got "):
            S3Folder.of(wrong, "to")
