"""What the commands that send requests have in common: how they are told where to, and what they are sent with."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from boto3.session import Session
from botocore.config import Config

from shardkit.errors import ConfigurationError

__all__ = ["EndpointOption", "ProfileOption", "RegionOption", "dynamodb"]

_AWS = "AWS"  # how --help groups the options

RegionOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The AWS region.")]
ProfileOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The profile of the AWS configuration.")]
EndpointOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="Another DynamoDB than the region's.")]


def dynamodb(profile: str | None, region: str | None, endpoint_url: str | None, connections: int = 10) -> Any:
    """Make a DynamoDB resource of these options.

    Raises:
        ConfigurationError: the endpoint or the region cannot be used.
    """
    session = Session(profile_name=profile, region_name=region)
    try:
        _ = urlsplit(endpoint_url or "").port  # which botocore looks at only when it sends
        return session.resource("dynamodb", endpoint_url=endpoint_url, config=Config(max_pool_connections=connections))
    except ValueError as error:
        raise ConfigurationError(f"--endpoint-url {endpoint_url!r} or the region cannot be used: {error}") from error
