"""Certificates for servers of TLS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


def certified(folder: Path, *names: str, valid: tuple[int, int] = (-1, 1)) -> ssl.SSLContext:
    """Return the settings of a server whose certificate is for these names or addresses; ``ca.pem`` gets its authority.

    ``valid``: from when to when, in days from now.
    """
    # Lower case and without spaces: the names of files in a folder of authorities are made of such a form.
    authority = trustme.CA(organization_name="tests", organization_unit_name="authority")
    begin, end = (datetime.now(UTC) + timedelta(days=days) for days in valid)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_before=begin, not_after=end).configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return context
