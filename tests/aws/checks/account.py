"""What depends on the account: warm throughput, clocks, policies, credentials, Contributor Insights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from unittest import mock

import boto3
import botocore.auth
import botocore.session
from botocore.credentials import CredentialProvider, RefreshableCredentials
from botocore.exceptions import ClientError

from shardkit import ShardedTable, Unsharded
from shardkit.partitions import estimate_table
from tests.aws.check import NotVerified, Refuted, check, holds
from tests.aws.checks.throttles import load
from tests.aws.orders import BY_ID, DAY, numbers, order
from tests.aws.run import Run
from tests.support.permissions import CALLS, POLICIES, STRATEGIES, listed
from tests.support.tables import LocalIndex, make_table


@check("A new on-demand table is warm for 4,000 write and 12,000 read units, and plan reads that", "number-of-shards")
def warm_throughput(run: Run) -> str:
    table = run.table(OnDemandThroughput={})
    description = run.client.describe_table(TableName=table.name)["Table"]
    if "WarmThroughput" not in description:
        raise run.lacks("a description has no warm throughput")
    estimate = estimate_table(description).table
    seen = (estimate.write_units, estimate.read_units, estimate.partitions)
    holds(seen == (4000, 12000, 4), f"{seen[0]} write and {seen[1]} read units, {seen[2]} partitions")
    return "4,000 and 12,000: 4 partitions"


@check("With a clock 20 minutes off, both transports say that the signature's time is wrong, and write nothing",
       "direct", write_units=20, read_units=20)  # fmt: skip
def clock_skew(run: Run) -> str:
    run.on_aws_only("no engine checks signatures")
    table = run.table()
    both = {kind: ShardedTable(table, BY_ID, transport=kind) for kind in ("client", "direct")}
    said = set()
    for minutes in (-20, 20):
        for number, (kind, orders) in enumerate(both.items()):
            for _ in range(2):  # a direct transport learns from the first request, which goes through the client
                orders.put_item(Item=order(number))
            with wrong_clock(minutes):
                try:
                    orders.put_item(Item=order(9))
                except ClientError as error:
                    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
                    holds("Signature expired" in message or "not yet current" in message, f"{kind}: {code}, {message}")
                    said.add(code)
                else:
                    raise Refuted(f"{kind}: a put with a clock {minutes} minutes off was accepted")
    found = numbers(both["client"].query(KeyConditionExpression=DAY, ConsistentRead=True)["Items"])
    holds(found == [0, 1], found)
    return ", ".join(sorted(said))


@contextmanager
def wrong_clock(minutes: int) -> Iterator[None]:
    """Let both transports sign with another time."""
    auth: Any = botocore.auth
    now, seconds = auth.get_current_datetime, time.time

    def signed_at(*args: Any, **kwargs: Any) -> Any:
        return now(*args, **kwargs) + timedelta(minutes=minutes)

    def shown() -> float:
        return seconds() + 60 * minutes

    with mock.patch.object(auth, "get_current_datetime", signed_at), mock.patch("time.time", shown):
        yield


@check("The policies of the IAM page are enough for their calls, and no action of them can be left out",
       "reference/iam", minutes=4, write_units=2_000, read_units=2_000)  # fmt: skip
def iam(run: Run) -> str:
    tables = [_user_orders(run) for _ in STRATEGIES]
    for role in CALLS:
        policy = _over(POLICIES[role], tables)
        denied = _denied(run, role, policy, tables)
        holds(not denied, f"{role}: {denied}")
        actions = listed(policy["Statement"][0]["Action"])
        for action in actions:
            fewer = [one for one in actions if one != action] or ["dynamodb:ListTagsOfResource"]
            holds(_denied(run, role, _over(POLICIES[role], tables, fewer), tables), f"{role} needs no {action}")
    return f"{', '.join(CALLS)}: each action is needed"


def _user_orders(run: Run) -> str:
    indexes = [LocalIndex("ByTotal", ("Total", "N"))]
    name = run.journal.new_name()
    run.active(make_table(run.resource, ("User", "S"), ("OrderId", "S"), name=name, local_indexes=indexes))
    return name


def _over(policy: Mapping[str, Any], tables: Sequence[str], actions: Sequence[str] | None = None) -> dict[str, Any]:
    """The page's policy over the run's tables; ``actions`` in place of its own."""
    arns = [f"arn:aws:dynamodb:*:*:table/{name}" for name in tables]
    [statement] = policy["Statement"]
    resources = [*arns, *(f"{arn}/index/*" for arn in arns)]
    return {**policy, "Statement": [{**statement, "Action": actions or statement["Action"], "Resource": resources}]}


def _denied(run: Run, role: str, policy: Mapping[str, Any], tables: Sequence[str]) -> list[str]:
    """Make the calls of a role with each strategy, and return what was denied; other errors are raised.

    A role that may not read goes on without its look for a shard map, which is denied.
    """
    resource = assumed(run, policy)
    denied: list[str] = []
    looks = set() if "dynamodb:GetItem" in listed(POLICIES[role]["Statement"][0]["Action"]) else {"GetItem"}

    def after(parsed: Any, model: Any, **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") == "AccessDeniedException" and model.name not in looks:
            denied.append(model.name)

    resource.meta.client.meta.events.register("after-call.dynamodb", after)
    for name, strategy in zip(tables, STRATEGIES, strict=True):
        _empty(run, name)
        try:
            CALLS[role](ShardedTable(resource.Table(name), strategy))
        except Exception:
            if not denied:
                raise
            break
    return denied


def _empty(run: Run, name: str) -> None:
    table = run.resource.Table(name)
    for item in table.scan(ConsistentRead=True)["Items"]:
        table.delete_item(Key={key: item[key] for key in ("User", "OrderId")})


def assumed(run: Run, policy: Mapping[str, Any]) -> Any:
    """A resource that may do only what a policy says."""
    if not run.role:
        raise NotVerified("no --role was given")
    keys = _session_keys(run, Policy=json.dumps(policy))
    session = boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        region_name=run.place.region,
    )
    return run.place.resource(run.watched(session))


def _session_keys(run: Run, **more: Any) -> Any:
    sts = run.session.client("sts", region_name=run.place.region)
    name = f"shardkit-check-{run.ident}"
    return sts.assume_role(RoleArn=run.role, RoleSessionName=name, DurationSeconds=900, **more)["Credentials"]


@check("Credentials that expire while requests go are renewed, by both transports", "direct",
       minutes=17, also="long", write_units=2_000, read_units=200)  # fmt: skip
def credentials(run: Run) -> str:
    run.on_aws_only("no engine checks credentials")
    if not run.role:
        raise NotVerified("no --role was given")
    renewed: list[datetime] = []

    def keys() -> dict[str, str]:
        found = _session_keys(run)
        renewed.append(found["Expiration"])
        names = {"access_key": "AccessKeyId", "secret_key": "SecretAccessKey", "token": "SessionToken"}
        return {**{name: found[of] for name, of in names.items()}, "expiry_time": found["Expiration"].isoformat()}

    made = botocore.session.get_session()
    made.get_component("credential_provider").insert_before("env", _Renewing(keys))
    session = run.watched(boto3.Session(botocore_session=made, region_name=run.place.region))
    table = run.place.resource(session).Table(run.table().name)
    both = [ShardedTable(table, BY_ID, transport=kind) for kind in ("client", "direct")]
    ids, begun = count(), run.clock()
    while run.clock() < begun + 960:
        for orders in both:
            orders.put_item(Item=order(next(ids)))
        run.sleep(1.0)
    found = numbers(both[1].query_items(KeyConditionExpression=DAY, ConsistentRead=True))
    holds(found == list(range(next(ids))), f"{len(found)} items")
    holds(len(renewed) > 1 and renewed[0] < datetime.now(UTC), f"{len(renewed)} sets of credentials")
    return f"{len(found)} puts in 16 minutes with {len(renewed)} sets of credentials"


class _Renewing(CredentialProvider):
    METHOD = CANONICAL_NAME = "shardkit-check"

    def __init__(self, keys: Callable[[], dict[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def load(self) -> Any:
        return RefreshableCredentials.create_from_metadata(self._keys(), self._keys, self.METHOD)


@check("heat --throttled shows the throttled key that Contributor Insights reports", "reference/look-at-data",
       minutes=25, also="insights", write_units=150_000, insight_rules=4)  # fmt: skip
def insights(run: Run) -> str:
    # Counted as whole months: whether the service charges by the hour was not found.
    run.on_aws_only("no engine has Contributor Insights")
    from shardkit.cli.throttled import read_throttled  # of the extra cli

    table = run.table(run.once)
    run.client.update_contributor_insights(TableName=table.name, ContributorInsightsAction="ENABLE")

    def enabled() -> bool:
        found = run.client.describe_contributor_insights(TableName=table.name)
        return bool(found["ContributorInsightsStatus"] == "ENABLED")

    run.until(enabled, 600, every=5)
    load(run, table, Unsharded(), 120, ids=count())
    cloudwatch = run.session.client("cloudwatch", region_name=run.place.region)
    window: Any = {"last": timedelta(hours=1), "top": 5, "strategy": None}

    def reported() -> list[str]:
        found = read_throttled(run.client, cloudwatch, table.name, None, until=datetime.now(UTC), **window)
        return [str(one.keys[0]) for kind, keys in found.reports.items() if kind.code == "PKT" for one in keys]

    keys = run.until(reported, 900, every=30)
    holds(keys == ["2014-07-09"], keys)
    return f"the most throttled key: {keys[0]}"
