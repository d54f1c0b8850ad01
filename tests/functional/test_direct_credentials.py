"""Credentials and endpoints of the direct transport: those of the client, at the time of each request."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import count, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore import auth
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import NoCredentialsError

from shardkit import ShardedTable, Unsharded
from shardkit.dynamodb.signing import Credentials
from shardkit.runtime.exchange import _Template
from tests.support.raw_server import Part, RawServer, http

SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
}
FOUND = b'{"Item":{"Id":{"S":"a"}}}'
ITEM = {"Id": "a"}
SOURCES = ["environment", "process", "role", "container"]


class Issuer:
    """Issues credentials number 1, 2, 3 …, each valid for so little time that botocore renews them for each request."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers = count(1)
        self.issues = True
        self.requests: list[bytes] = []
        self._folder = folder
        self._set = monkeypatch.setenv
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    def respond(self, head: bytes, _: bytes) -> list[Part]:
        if b"X-Amz-Target" in head:
            self.requests.append(head)
            return [http(FOUND)]
        if head.startswith(b"GET"):  # of a container
            return [http(json.dumps(self.issued("AccessKeyId", "SecretAccessKey", "Token", "Expiration")).encode())]
        if not self.issues:
            return [http(b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>", status=b"403 No")]
        names = "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"
        given = "".join(f"<{name}>{value}</{name}>" for name, value in self.issued(*names).items())
        part = f"<AssumeRoleResult><Credentials>{given}</Credentials></AssumeRoleResult>"
        return [http(f"<AssumeRoleResponse>{part}</AssumeRoleResponse>".encode())]

    def issued(self, *names: str) -> dict[str, str]:
        number = next(self.numbers)
        expiry = datetime.now(UTC) + timedelta(minutes=1)
        return dict(zip(names, (f"AKID{number}", "secret", f"token{number}", f"{expiry:%FT%TZ}"), strict=True))

    def provide(self, source: str, url: str) -> None:
        """Set what botocore looks for."""
        if source == "environment":
            self._in_environment()
        elif source == "container":
            self._set("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        else:
            program = self._folder / "credentials"
            names = "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"
            expiry = datetime.now(UTC) + timedelta(minutes=1)
            values = "AKID@", "secret", "token@", f"{expiry:%FT%TZ}"
            given = {"Version": 1, **dict(zip(names, values, strict=True))}
            # Each run adds a line to `runs`; with a file `stop`, it fails.
            program.write_text(
                f"#!/bin/sh\ncd {self._folder}\n[ -e stop ] && exit 1\necho >> runs\nn=$(wc -l < runs)\n"
                f"echo '{json.dumps(given)}' | sed s/@/$n/g\n"
            )
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            config = self._folder / "config"
            config.write_text(
                f"[profile process]\ncredential_process = {program}\n"
                "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = fixed\n"
                "[profile fixed]\naws_access_key_id = A\naws_secret_access_key = s\n"
            )
            self._set("AWS_CONFIG_FILE", str(config))
            self._set("AWS_PROFILE", source)
            self._set("AWS_ENDPOINT_URL_STS", url)

    def renew(self, source: str) -> None:
        if source == "environment":
            self._in_environment()

    def stop(self) -> None:
        self.issues = False
        (self._folder / "stop").touch()
        self._set("AWS_SECRET_ACCESS_KEY", "")

    def _in_environment(self) -> None:
        names = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CREDENTIAL_EXPIRATION"
        for name, value in self.issued(*names).items():
            self._set(name, value)

    @property
    def used(self) -> list[int]:
        """The number of the credentials of each request, whose parts belong together."""
        pairs = [
            (re.search(rb"Credential=AKID(\d+)/", head), re.search(rb"Token: token(\d+)", head))
            for head in self.requests
        ]
        assert all(key is not None and token is not None and key[1] == token[1] for key, token in pairs)
        return [int(key[1]) for key, _ in pairs if key is not None]


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Issuer:
    return Issuer(tmp_path, monkeypatch)


def both(issuer: Issuer, source: str, use: Callable[[Any, Any, Callable[[Any], Any]], None]) -> None:
    """Use a table over the direct transport, and what boto3 has."""
    with RawServer(repeat(issuer.respond)) as server:
        issuer.provide(source, server.url)
        session = boto3.session.Session(region_name="eu-west-1")
        resource = session.resource("dynamodb", endpoint_url=server.url)
        table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
        use(table, lambda: table.table.get_item(Key=ITEM), lambda answer: answer)
        resource.meta.client.close()


def both_async(issuer: Issuer, source: str, use: Callable[[Any, Any, Callable[[Any], Any]], None]) -> None:
    from aiobotocore.session import get_session

    from shardkit import aio

    with RawServer(repeat(issuer.respond)) as server, asyncio.Runner() as loop:
        issuer.provide(source, server.url)

        async def entered(opening: Any) -> Any:
            return await opening.__aenter__()

        opening = get_session().create_client("dynamodb", endpoint_url=server.url, region_name="eu-west-1")
        client = loop.run(entered(opening))
        table = aio.ShardedTable(client, Unsharded(), table_name="T", key_schema=SCHEMA, transport="direct")
        use(table, lambda: client.get_item(TableName="T", Key={"Id": {"S": "a"}}), loop.run)
        loop.run(client.close())


WAYS: list[Any] = [both]
if find_spec("aiobotocore") is not None:
    WAYS = [pytest.param(both_async, marks=pytest.mark.aio)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_request_has_renewed_credentials(issuer: Issuer, source: str, way: Any) -> None:
    def use(table: Any, plain: Any, run: Any) -> None:
        for _ in range(4):
            assert run(table.get_item(Key=ITEM))["Item"] == ITEM
            issuer.renew(source)

    way(issuer, source, use)
    assert [b"amz-sdk-request" in head for head in issuer.requests] == [True, False, False, False]
    assert len(issuer.used) == 4
    assert issuer.used == sorted(set(issuer.used))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", ["environment", "process", "role"])
def test_credentials_that_cannot_be_renewed_are_botocores_error(issuer: Issuer, source: str, way: Any) -> None:
    """And no request is sent, nor the credentials asked for again; the next call asks."""

    def use(table: Any, plain: Any, run: Any) -> None:
        run(table.get_item(Key=ITEM))
        issuer.stop()
        with pytest.raises(Exception) as wanted:
            run(plain())
        with pytest.raises(type(wanted.value)) as raised:
            run(table.get_item(Key=ITEM))
        assert str(raised.value) == str(wanted.value)

    way(issuer, source, use)
    assert len(issuer.requests) == 1


def test_a_call_that_was_held_back_is_signed_with_the_credentials_of_its_departure(issuer: Issuer) -> None:
    def use(table: Any, plain: Any, run: Any) -> None:
        def held(**_: Any) -> None:
            next(issuer.numbers)  # other calls' renewals
            issuer.renew("environment")

        table.get_item(Key=ITEM)
        table.meta.client.meta.events.register("before-call.dynamodb.GetItem", held)
        table.get_item(Key=ITEM)

    both(issuer, "environment", use)
    assert issuer.used == [1, 3]


@pytest.mark.parametrize("text", ["t\r\nX-Injected: 1", "t\n"])
def test_a_token_of_several_lines_is_refused(text: str) -> None:
    learned: Any = SimpleNamespace(url="http://localhost", region="eu-west-1", service="dynamodb")
    with pytest.raises(ValueError, match="single lines"):
        _Template(learned, Credentials("AKID", "secret", text), {})


def test_without_credentials_the_error_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    resource = boto3.session.Session(region_name="eu-west-1").resource("dynamodb", endpoint_url="http://localhost:1")
    table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
    for _ in range(2):
        with pytest.raises(NoCredentialsError):
            table.get_item(Key=ITEM)
    resource.meta.client.close()


TOKENED = {"aws_access_key_id": "AKID", "aws_secret_access_key": "secret", "aws_session_token": "a  token"}
ARN = "arn:aws:dynamodb:eu-west-1:210987654321:table/T"


@pytest.mark.parametrize(
    ("name", "given", "host"),
    [
        ("T", {}, "dynamodb.eu-west-1.amazonaws.com"),
        ("T", {"region_name": "cn-north-1"}, "dynamodb.cn-north-1.amazonaws.com.cn"),
        ("T", {"config": Config(use_fips_endpoint=True), "region_name": "us-east-1"},
         "dynamodb-fips.us-east-1.amazonaws.com"),
        ("T", {"config": Config(use_dualstack_endpoint=True)}, "dynamodb.eu-west-1.api.aws"),
        ("T", {"account": "123456789012"}, "123456789012.ddb.eu-west-1.amazonaws.com"),
        (ARN, {"account": "123456789012"}, "210987654321.ddb.eu-west-1.amazonaws.com"),
        ("T", {**TOKENED, "endpoint_url": "http://LocalHost:8000/"}, "localhost:8000"),
        ("T", {"endpoint_url": "http://localhost:80"}, "localhost"),
        ("T", {"endpoint_url": "https://localhost:443/"}, "localhost"),
        ("T", {"endpoint_url": "https://localhost:80/"}, "localhost:80"),
        ("T", {"endpoint_url": "http://[::1]:8000"}, "[::1]:8000"),
        ("T", {"config": Config(user_agent="agent/1", user_agent_extra="more")}, "dynamodb.eu-west-1.amazonaws.com"),
    ],
)  # fmt: skip
def test_requests_go_where_the_client_sends_them_with_its_headers(
    boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch, name: str, given: dict[str, Any], host: str
) -> None:
    """But for its invocation IDs; and the signature is what botocore's signer makes of these headers."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> Any:
        sent.append((request.url, {name: text(value) for name, value in request.headers.items()}, request.body))
        return AWSResponse(request.url, 200, HTTPHeaders(), Raw(FOUND))

    def add(params: Any, **_: Any) -> None:
        params["headers"]["X-Ours"] = "a   b"

    options = {"region_name": "eu-west-1", **given}
    account = options.pop("account", None)
    session = boto3_session if account is None else boto3.session.Session("AKID", "secret", aws_account_id=account)
    resource = session.resource("dynamodb", **options)
    table = ShardedTable(resource.Table(name), Unsharded(), key_schema=SCHEMA, transport="direct")
    events = resource.meta.client.meta.events
    events.register("before-send.dynamodb", answer)
    events.register("before-call.dynamodb", add)
    for number in range(3):
        monkeypatch.setenv("_X_AMZN_TRACE_ID", f"Root=1-{number};Sampled=1")
        table.get_item(Key=ITEM)
    (_, *ours), last = sent, table.table.get_item(Key=ITEM) and sent[-1]
    assert [headers["X-Amzn-Trace-Id"] for _, headers, _ in ours[:2]] == [f"Root=1-{n};Sampled=1" for n in (1, 2)]
    url, headers, body = ours[1]
    of_one = {"Authorization", "Content-Length", "X-Amz-Date", "amz-sdk-invocation-id", "amz-sdk-request"}
    assert {**headers, "Host": None} == {
        "Host": None,
        "Accept-Encoding": "identity",
        **{name: headers[name] for name in of_one if name in headers},
        **{name: value for name, value in last[1].items() if name not in of_one},
    }
    assert url == last[0]
    assert headers["Host"] == host
    assert headers["Content-Length"] == str(len(body))
    assert headers["Authorization"] == resigned(resource.meta.client, url, headers, body)
    resource.meta.client.close()


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]


def resigned(client: Any, url: str, headers: dict[str, str], body: bytes) -> str:
    """Return the header that botocore's signer writes, which derives ``Host`` from the URL."""
    kept = {n: v for n, v in headers.items() if n not in {"Accept-Encoding", "Authorization", "Host", "Content-Length"}}
    key = headers["Authorization"].split("Credential=")[1].split("/")[0]
    token = headers.get("X-Amz-Security-Token")
    signer = SigV4Auth(ReadOnlyCredentials(key, SECRETS[key], token), "dynamodb", client.meta.region_name)
    request = AWSRequest("POST", url, kept, body)
    request.context["timestamp"] = headers["X-Amz-Date"]
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    listed = signer.signed_headers(signer.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={listed}, Signature={signature}"


SECRETS = {"AKID": "secret", "testing": "testing"}


def test_the_signer_of_boto3_crt_is_one_of_botocores(
    boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one is unknown: the client signs."""

    class CrtSigV4Auth(SigV4Auth):
        __module__ = "botocore.crt.auth"

    class Own(SigV4Auth):
        pass

    for signer, direct in ((CrtSigV4Auth, True), (Own, False)):
        monkeypatch.setitem(auth.AUTH_TYPE_MAPS, "v4", signer)
        with RawServer([[http(FOUND)]] * 2) as server:
            resource = boto3_session.resource("dynamodb", endpoint_url=server.url)
            table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
            table.get_item(Key=ITEM)
            table.get_item(Key=ITEM)
            resource.meta.client.close()
        assert (b"amz-sdk-request" not in server.requests[1][0]) == direct
    (logged,) = [record.getMessage() for record in caplog.records if record.name == "shardkit"]
    assert "signed with Own" in logged
