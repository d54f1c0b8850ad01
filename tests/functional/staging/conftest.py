"""moto's S3 and DynamoDB for the tests of stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.support.stage_objects import FOLDER


@pytest.fixture(scope="session")
def s3_client() -> Iterator[Any]:
    """Making one takes longer than most stages here."""
    client = boto3.client("s3")
    yield client
    client.close()


@pytest.fixture
def s3(s3_client: Any) -> Iterator[Any]:
    """A client of an S3 with an empty bucket."""
    with mock_aws():
        s3_client.create_bucket(Bucket=FOLDER.bucket)
        yield s3_client


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
