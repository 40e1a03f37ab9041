"""Credentials for one owner: what they open, proven on the requests of every route, and how they are kept.

The emulator never looks at leading keys, so nothing that passes there proves anything. The policies are evaluated here.
"""

from __future__ import annotations

import json
from datetime import timedelta

import boto3
import pytest

from agent_memory import clock, runtime
from agent_memory.acting import acting_for, owner_at_work
from agent_memory.aws import clients
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.owner_access import (
    KEPT_OWNERS,
    MAX_POLICY_CHARS,
    RENEW_BEFORE,
    SHARED_KEYS,
    OwnerClient,
    OwnerCredentials,
    policy_for,
    scoped_client,
)
from agent_memory.errors import ConfigurationError, InvalidInputError
from agent_memory.http import Application, subscriptions
from agent_memory.http.routes import ROUTES
from agent_memory.settings import Settings
from tests.support import http_app, tables
from tests.support.asks import asks_of
from tests.support.emulator import shared_emulator
from tests.support.iam import TABLE, Need, allows, like, needs_of, needs_together
from tests.support.worlds import EmulatorTables, world


def need(action, table, *leading):
    return Need(f"dynamodb:{action}", TABLE + table, frozenset(leading))


def policy(owner):
    return json.loads(policy_for(owner))


# ------------------------------------------------------------------------------------------------------- the evaluator


def test_the_evaluator_reads_wildcards_denials_and_missing_keys_as_iam_does():
    assert like("R#ada#*", "R#ada#t1") and like("a?c", "abc") and like("*", "")
    assert not like("R#ada", "R#adam") and not like("a.c", "abc")
    rule = {"Effect": "Allow", "Action": "dynamodb:*", "Resource": "*"}
    keyed = {**rule, "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["R#ada"]}}}
    assert allows({"Statement": [keyed]}, need("Scan", "t")), "ForAllValues holds for no value at all"
    present = {**keyed, "Condition": {**keyed["Condition"], "Null": {"dynamodb:LeadingKeys": "false"}}}
    assert not allows({"Statement": [present]}, need("Scan", "t"))
    assert not allows({"Statement": [present]}, need("GetItem", "t", "R#ada", "R#bob"))
    assert not allows({"Statement": [rule, {**rule, "Effect": "Deny", "Resource": "*/t"}]}, need("GetItem", "t", "x"))
    assert not allows({"Statement": []}, need("GetItem", "t", "x"))


def test_the_evaluator_finds_what_a_request_needs():
    item = {"pk": {"S": "R#ada"}, "sk": {"S": "x"}}
    other = {"pk": {"S": "N#JO"}, "sk": {"S": "x"}}
    write = [{"Put": {"TableName": "t", "Item": item}}, {"Delete": {"TableName": "t", "Key": other}}]
    assert needs_of("transact_write_items", {"TransactItems": write}) == [
        need("PutItem", "t", "R#ada"),
        need("DeleteItem", "t", "N#JO"),
    ]
    assert needs_together("transact_write_items", {"TransactItems": write})[0].keys == {"R#ada", "N#JO"}
    batch = {"RequestItems": {"t": {"Keys": [item, other]}}}
    assert needs_of("batch_get_item", batch) == [need("BatchGetItem", "t", "R#ada", "N#JO")]
    assert needs_of("scan", {"TableName": "t"}) == [need("Scan", "t")]


# ---------------------------------------------------------------------------------------------------------- the policy

AWKWARD = [
    "ada",
    "ad",
    "*",
    "ada#",
    "a*",
    "?",
    "${aws:username}",
    "ada#bob",
    "R#ada",
    "漢字",
    "a/b",
    "~",
    "~h",
    "x" * 300,
]


@pytest.mark.parametrize("owner", AWKWARD)
def test_a_policy_opens_the_owners_partitions_and_nobody_elses(owner):
    own = policy(owner)
    for table, key in (("threads", keys.owner_pk(owner)), ("messages", keys.messages_pk(owner, "t#*"))):
        for action in ("GetItem", "Query", "PutItem", "BatchWriteItem", "ConditionCheckItem"):
            assert allows(own, need(action, table, key))
    for other in AWKWARD:
        if other == owner:
            continue
        for key in (keys.owner_pk(other), keys.messages_pk(other, "t1"), keys.messages_pk(other, owner)):
            for action in ("GetItem", "Query", "BatchGetItem", "PutItem", "UpdateItem"):
                assert not allows(own, need(action, "t", key)), (owner, other, key)
                assert not allows(own, need(action, "t", key, keys.owner_pk(owner)))


def test_a_policy_opens_no_table_as_a_whole_no_bare_ids_and_reads_nothing_of_the_deployment():
    own = policy("ada")
    assert not allows(own, need("Scan", "messages"))
    assert not allows(own, need("Query", "messages/index/by_id", "R#ada"))
    assert allows(own, need("Query", "messages/index/by_mid", "R#ada#t1"))
    for key in ("I#job-1", "N#JO", "N#M#20260304"):
        assert allows(own, need("PutItem", "runs", key, "R#ada"))
        for action in ("GetItem", "Query", "BatchGetItem"):
            assert not allows(own, need(action, "runs", key))
    for key in ("T#thread", "N#J", "N#", "S#x"):
        assert not allows(own, need("PutItem", "runs", key))


def test_a_policy_fits_into_a_session_or_says_that_the_id_is_too_long():
    assert len(policy_for("x" * 300)) <= MAX_POLICY_CHARS
    assert policy_for("漢字").isascii()
    with pytest.raises(InvalidInputError, match="shorter id"):
        policy_for("x" * 400)


# ------------------------------------------------------------------------------- what the calls of every route ask for


class Recorder:
    """Keeps every request of a DynamoDB client with the owner at work."""

    def __init__(self, client):
        self.client = client
        self.requests = []

    def __getattr__(self, name):
        function = getattr(self.client, name)
        if name not in (
            "get_item",
            "put_item",
            "update_item",
            "delete_item",
            "query",
            "scan",
            "batch_get_item",
            "batch_write_item",
            "transact_write_items",
            "transact_get_items",
        ):
            return function

        def send(**request):
            self.requests.append((owner_at_work(), name, request))
            return function(**request)

        return send


@pytest.fixture(scope="module")
def recorded():
    """All requests that the calls of every route make, with ids of the caller's own and of a stranger."""
    shared = EmulatorTables()
    shared.dynamodb = recorder = Recorder(shared.dynamodb)
    poll, subscriptions.POLL_S = subscriptions.POLL_S, 0.01
    everyone = http_app.all_agents
    http_app.all_agents = lambda: {**everyone(), "prober": http_app.agent("prober", tools=[])}
    found = []
    try:
        with world(shared, "jwt") as here:
            for route in ROUTES:
                for ask in asks_of(route):
                    for owner in here.owners.values():
                        recorder.requests.clear()
                        here.call(ask.request(route, lambda _place, kind, ids=owner.ids: ids[kind]))
                        found += [(route, *request) for request in recorder.requests]
                        here.reset()
    finally:
        subscriptions.POLL_S, http_app.all_agents = poll, everyone
    return [
        (route, owner, name, request)
        for route, owner, name, request in found
        if owner is not None or not _of_test(name)
    ]


def _of_test(name):
    return name in ("scan", "put_item", "delete_item")  # how the test itself looks at tables and puts them back


def by_resolver(request):
    """Read by the function's own role, as `OwnerClient` decides."""
    return request.get("IndexName") == keys.BY_ID


def test_every_request_of_a_users_call_is_made_for_that_user(recorded):
    assert len(recorded) > 500
    assert {name for _, _, name, _ in recorded} >= {"query", "transact_write_items", "batch_get_item", "update_item"}
    strays = [(route.pattern, name, request) for route, owner, name, request in recorded if owner != "ada"]
    assert strays == []


def test_every_request_of_a_users_call_passes_their_policy_and_is_refused_by_anothers(recorded):
    ada, bob = policy("ada"), policy("bob")
    resolved = shared = 0
    for route, _, name, request in recorded:
        if by_resolver(request):
            resolved += 1
            assert name == "query"
            continue
        for read in (needs_of, needs_together):
            needs = read(name, request)
            for one in needs:
                assert allows(ada, one), (route.pattern, name, one)
            if all(any(like(pattern, key) for pattern in SHARED_KEYS) for one in needs for key in one.keys):
                shared += 1  # rows of the deployment alone: these are written, and nobody's policy reads them
                assert all(
                    one.action.removeprefix("dynamodb:") in ("PutItem", "DeleteItem", "BatchWriteItem", "UpdateItem")
                    for one in needs
                )
                continue
            assert not all(allows(bob, one) for one in needs), (route.pattern, name, needs)
    assert resolved > 0
    assert resolved + shared / 2 < len(recorded) / 5


# ------------------------------------------------------------------------------------------------ how they are used


class Sts:
    """Gives credentials that name their owner."""

    def __init__(self):
        self.asked = []
        self.now = clock.now()

    def assume_role(self, **request):
        self.asked.append(request)
        return {
            "Credentials": {
                "AccessKeyId": f"KEY{len(self.asked)}",
                "SecretAccessKey": "secret",
                "SessionToken": request["RoleSessionName"],
                "Expiration": self.now + timedelta(seconds=request["DurationSeconds"]),
            }
        }


def test_credentials_are_asked_for_once_an_hour_and_owner():
    sts = Sts()
    kept = OwnerCredentials(sts, "arn:aws:iam::123456789012:role/owner", now=lambda: sts.now)
    first = kept.of("ada")
    assert kept.of("ada") is first
    assert kept.of("bob") is not first
    sts.now += timedelta(hours=1) - RENEW_BEFORE
    assert kept.of("ada") is not first
    assert [json.loads(request["Policy"]) for request in sts.asked] == [policy("ada"), policy("bob"), policy("ada")]
    assert "ada" not in sts.asked[0]["RoleSessionName"]
    for number in range(KEPT_OWNERS + 1):
        kept.of(f"user-{number}")
    assert len(sts.asked) == 3 + KEPT_OWNERS + 1
    kept.of("bob")
    assert len(sts.asked) == 3 + KEPT_OWNERS + 2, "those of long ago are forgotten"


@pytest.fixture
def signed(monkeypatch):
    """A client for owners, and the key with which each of its requests was signed."""
    for name, value in {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    sts, seen = Sts(), []
    scoped = scoped_client(OwnerCredentials(sts, "arn:aws:iam::123456789012:role/owner", now=lambda: sts.now))
    own = boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="OWN", aws_secret_access_key="x")
    for client in (scoped, own):

        def answer(request, **_):
            header = request.headers["Authorization"]
            seen.append(header.decode() if isinstance(header, bytes) else header)
            from botocore.awsrequest import AWSResponse

            raw = type("Raw", (), {"stream": lambda self, *_a, **_k: iter([b"{}"])})()
            return AWSResponse(request.url, 200, {"x-amz-crc32": "2745614147"}, raw)

        client.meta.events.register("before-send.dynamodb", answer)
    return OwnerClient(own, scoped, "claims"), seen, sts


def test_requests_are_signed_with_the_credentials_of_the_owner_at_work(signed):
    client, seen, sts = signed

    def ask(**more):
        client.get_item(TableName="t", Key={"pk": {"S": "x"}}, **more)
        return seen[-1]

    assert "Credential=OWN/" in ask()
    with acting_for("ada"):
        assert "Credential=KEY1/" in ask()
        assert "Credential=KEY1/" in ask()
    with acting_for("bob"):
        assert "Credential=KEY2/" in ask()
        client.query(TableName="t", IndexName=keys.BY_ID, KeyConditionExpression="mid = :m")
        assert "Credential=OWN/" in seen[-1]
        client.get_item(TableName="claims", Key={"pk": {"S": "T#t1"}})
        assert "Credential=OWN/" in seen[-1]
    assert "Credential=OWN/" in ask()
    assert len(sts.asked) == 2


def test_a_scoped_client_refuses_to_work_for_nobody(signed):
    client, _, _ = signed
    with pytest.raises(ConfigurationError, match="nobody"):
        client._scoped.get_item(TableName="t", Key={"pk": {"S": "x"}})


@pytest.fixture
def fresh():
    yield
    runtime.configure(None)
    clients.reset()


@pytest.mark.usefixtures("fresh")
def test_a_turn_with_credentials_of_its_owner_costs_no_request_more(monkeypatch):
    """On the emulator, which gives credentials and takes them, and looks at no policy."""
    emulator = shared_emulator()
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    names = tables.create(emulator.client("dynamodb"), emulator.client("s3"))
    role = emulator.client("iam").create_role(
        RoleName=f"owner-{names.bucket[:20]}",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
    )["Role"]["Arn"]
    costs = []
    for arn in (None, role):
        clients.reset()
        settings = Settings(
            auth_mode="jwt",
            threads_table=names.threads,
            messages_table=names.messages,
            runs_table=names.runs,
            owner_role_arn=arn,
        )
        runtime.configure(runtime.Deployment(settings), {"a": http_app.agent("a", recall=False)})
        application = Application(ROUTES)
        authorizer = {"resourceId": "ada", "exp": str(clock.now_ms() // 1000 + 60)}
        for number in (1, 2):
            body = {"messages": f"say {number}", "memory": {"thread": f"t-{bool(arn)}"}}
            given = http_app.event("POST", "/api/agents/a/generate", body=body, authorizer=authorizer)
            answer = json.loads(application.handle(given).read())
            assert answer["text"] == str(number), answer
        costs.append(answer["providerMetadata"]["memory"]["cost"]["requests"])
        assert isinstance(runtime.deployment().dynamodb, OwnerClient) is (arn is not None)
    assert costs[0] == costs[1] > 0
