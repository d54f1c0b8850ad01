"""The transports that a user can choose."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import botocore.session

from shardkit.core.checks import did_you_mean
from shardkit.errors import ConfigurationError, brief

__all__ = ["DirectTransport", "Transport", "default_transport", "direct_options"]


_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTransport:
    """Sign requests and send them past the client, over shardkit's own connections; ``"direct"`` with options.

    Example:
        orders = ShardedTable(table, strategy, transport=DirectTransport(verify="/etc/ssl/our-ca.pem"))

    Give it as ``transport=`` to ``ShardedTable``, ``bulk_load`` or ``streaming_bulk``. It needs
    ``pip install "shardkit[direct]"``. The first request of each operation, and requests of clients with a proxy, a
    client certificate or another signature, go through the client. docs/direct.md says what of the client is kept and
    what is lost.

    Args:
        verify: Which authorities may sign the service's certificate: the path of a file in PEM format, or of a folder
            that ``openssl rehash`` prepared; or False to check nothing. Give what ``boto3.client(verify=…)`` was given:
            a client does not show it. By default, those of ``AWS_CA_BUNDLE``, else of ``REQUESTS_CA_BUNDLE``, else
            those that botocore trusts.
        spans: Make one OpenTelemetry span per call, because tools that patch botocore do not see these calls. It needs
            ``pip install "shardkit[opentelemetry]"``. Requests that go through the client have no span of shardkit's.

    Raises:
        ConfigurationError: ``verify`` is neither False nor the path of certificates, or ``spans`` is not a bool.

    Cost: the requests and units are the client's. With ``spans``, also the CPU of your tracer provider.
    IAM: none.
    """

    verify: str | os.PathLike[str] | Literal[False] | None = None
    spans: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.spans, bool):
            raise ConfigurationError(f"spans: must be True or False, got {brief(self.spans)}")
        if self.verify is None or self.verify is False:
            return
        if not isinstance(self.verify, str | os.PathLike) or not os.fspath(self.verify):
            raise ConfigurationError(
                f"verify: must be the path of a file or folder of certificates, or False, got {brief(self.verify)}; "
                "leave it out to trust those that botocore trusts"
            )
        _check_authorities("verify", self.verify)


Transport = Literal["client", "direct"] | DirectTransport
"""``"client"``: requests go through the boto3 client; ``"direct"``: past it (see :class:`DirectTransport`)."""


def direct_options(transport: Any) -> DirectTransport | None:
    """Return the options of a direct transport; None: requests go through the client.

    Raises:
        ConfigurationError: ``transport`` is no :data:`Transport`, or its extra is not installed.
    """
    if transport == "client":
        return None
    if transport == "direct":
        transport = DirectTransport()
    if not isinstance(transport, DirectTransport):
        raise ConfigurationError(
            f"transport: must be 'client', 'direct' or a DirectTransport, got {brief(transport)}"
            f"{did_you_mean(str(transport), ('client', 'direct'))}"
        )
    if not _installed():
        raise ConfigurationError(
            "transport: httptools is not installed, which 'direct' needs; run pip install 'shardkit[direct]'"
        )
    return transport


def default_transport(profile: str | None = None) -> Transport:
    """Return the transport of clients that shardkit makes itself: direct, if its extra is installed."""
    if not _installed():
        return "client"
    bundle = botocore.session.Session(profile=profile).get_config_variable("ca_bundle")
    if bundle is not None:
        _check_authorities("AWS_CA_BUNDLE, or the profile's ca_bundle", bundle)
    return DirectTransport(verify=bundle)


def _installed() -> bool:
    return find_spec("httptools") is not None


def _check_authorities(name: str, given: str | os.PathLike[str]) -> None:
    """Check, before anything is sent, that certificates can be read."""
    path = Path(given).expanduser()
    try:
        if not path.is_dir():
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
            return
        if any(_HASHED.fullmatch(file.name) for file in path.iterdir()):
            return
        problem = "it has no file that is named by its hash; run openssl rehash on it"
    except OSError as error:
        problem = f"{error}; give certificates in PEM format"
    raise ConfigurationError(
        f"{name}: must be a file or a hashed folder of certificates, got {brief(os.fspath(given), 400)}: {problem}"
    )
