"""Every route, every place where a caller can put an id, a stranger's id in it: no data, no write (case 84)."""

from __future__ import annotations

import json
import re

import pytest

from agent_memory.agent.tools import Tool
from agent_memory.attachments import owner_prefix, reference_to
from agent_memory.aws.dynamodb import keys
from agent_memory.http import subscriptions
from agent_memory.http.routes import ROUTES
from tests.support import http_app
from tests.support.asks import asks_of, id_places
from tests.support.worlds import EmulatorTables, world

# As long as bob's, so that not even the cost of a call differs
UNKNOWN = {
    "thread": "nob-thread",
    "waiting": "nob-waiting",
    "resource": "nob",
    "message": "nob-m2",
    "run": "run-01a00000-0000-7000-8000-000000000000",
    "call": "call-01a00000-0000-7000-8000-000000000000",
    "job": "nob-job",
    "file": reference_to(b"nobody has this"),
    "name": reference_to(b"nobody has this").removeprefix("attachment://"),
    "upload": "u-0123456789abcdef0123456789abcdef",
}
PRIVATE = [route for route in ROUTES if not route.public]
names = [f"{route.method} {route.pattern}" for route in PRIVATE]


def _who(_args, context):
    return {"resource": context.resource_id, "thread": context.thread_id}


WHO = Tool("who", description="Tells whose data it would use.", execute=_who, input_schema={"type": "object"})


@pytest.fixture(scope="module")
def shared():
    return EmulatorTables()


@pytest.fixture(scope="module", autouse=True)
def _fast():
    """Another agent whose tool tells what it was given, and no waiting for runs that might still show."""
    everyone, poll = http_app.all_agents, subscriptions.POLL_S
    http_app.all_agents = lambda: {**everyone(), "prober": http_app.agent("prober", tools=[WHO])}
    subscriptions.POLL_S = 0.01
    yield
    http_app.all_agents, subscriptions.POLL_S = everyone, poll


@pytest.fixture(scope="module")
def here(request, shared):
    with world(shared, request.param) as made:
        yield made


TRUSTED = pytest.mark.parametrize("here", ["iam"], indirect=True)
SIGNED_IN = pytest.mark.parametrize("here", ["jwt"], indirect=True)
BOTH = pytest.mark.parametrize("here", ["iam", "jwt"], indirect=True)


def ids_of(owner, strangers=None, at=()):
    """Ids of an owner, and those of `strangers` at the places `at` (None: everywhere)."""

    def find(place, kind):
        return (strangers if strangers is not None and (at is None or place in at) else owner)[kind]

    return find


@pytest.mark.parametrize("route", PRIVATE, ids=names)
def test_every_place_for_an_id_has_an_example(route):
    asks = asks_of(route)
    assert asks, "a new route: write calls for it in tests/support/asks.py, with a Ref at every place for an id"
    written = {re.sub(r"\.\d+", "", place) for ask in asks for place in ask.places()}
    missing = {place for place in id_places(route) if place not in written and f"{place}.id" not in written}
    assert missing == set()


@SIGNED_IN
@pytest.mark.parametrize("route", PRIVATE, ids=names)
def test_without_an_identity_every_route_is_401(route, here):
    here.app.authorizer, kept = {}, here.app.authorizer
    try:
        for ask in asks_of(route):
            answer = here.call(ask.request(route, ids_of(here.owners["bob"].ids)))
            assert answer.status == 401
            assert here.changes() == {}
    finally:
        here.app.authorizer = kept


@BOTH
@pytest.mark.parametrize("route", PRIVATE, ids=names)
def test_own_data_works(route, here):
    for ask in asks_of(route):
        try:
            answer = here.call(ask.request(route, ids_of(here.owners["ada"].ids)))
            assert answer.status == ask.own[bool(here.app.authorizer)], (ask, answer.body)
            check_nothing_of_bobs(here, answer, ask.request(route, ids_of(here.owners["ada"].ids)))
        finally:
            here.reset()


@TRUSTED
@pytest.mark.parametrize("route", PRIVATE, ids=names)
def test_a_trusted_server_that_names_the_wrong_owner_is_refused(route, here):
    ada, bob = here.owners["ada"].ids, here.owners["bob"].ids
    for ask in asks_of(route):
        for place, kind in ask.places().items():
            expected = ask.trusted.get(place)
            if expected == 0:
                continue  # the place says whose data the call means, and a trusted server may mean anybody's
            request = ask.request(route, ids_of(ada, bob, (place,)))
            try:
                answer = here.call(request)
                statuses = {403} if kind in ("thread", "waiting", "resource") else {403, 404}
                assert answer.status in ({expected} if expected else statuses), (place, answer.status, answer.body)
                if answer.status != 200:
                    assert here.changes() == {}, place
                check_nothing_of_bobs(here, answer, request)
            finally:
                here.reset()


@SIGNED_IN
@pytest.mark.parametrize("route", PRIVATE, ids=names)
def test_to_an_end_user_what_is_anothers_is_what_does_not_exist(route, here):
    ada, bob = here.owners["ada"].ids, here.owners["bob"].ids
    for ask in asks_of(route):
        places = list(ask.places())
        for at in [*((place,) for place in places), None]:
            request = ask.request(route, ids_of(ada, bob, at))
            try:
                answer = here.call(request)
                check_nothing_of_bobs(here, answer, request)
                if not ask.alike:
                    continue
                here.reset()
                unknown = here.call(ask.request(route, ids_of(ada, UNKNOWN, at)))
                assert (answer.status, masked(answer, bob)) == (unknown.status, masked(unknown, UNKNOWN)), at
            finally:
                here.reset()


def masked(answer, ids):
    """The answer without the ids that were sent and without what differs from call to call."""
    text = answer.body.decode()
    for kind, value in sorted(ids.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{kind}>").replace(value.removeprefix("attachment://"), f"<{kind}>")
    text = re.sub(r"(?:[a-z]+-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<new>", text)
    text = re.sub(r"text-[0-9a-f]{12}|u-[0-9a-f]{32}", "<new>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    text = re.sub(r'"createdAt":\d{13}', "<time>", text)
    return re.sub(r'\?[^"\s]*Signature=[^"\s]*', "<signed>", text)


def check_nothing_of_bobs(here, answer, request):
    """No word and no id of bob's in the answer beyond those that were sent, and nothing of his changed or copied."""
    bob = here.owners["bob"]
    told, sent = answer.body.decode(), json.dumps(request)
    assert bob.secret not in told, request
    for value in bob.ids.values():
        assert value in sent or value not in told or value == "bob", (value, request)
    assert f"/{owner_prefix('bob')}" not in told
    mine = (keys.owner_pk("ada"), keys.messages_prefix("ada"), owner_prefix("ada"))
    for (table, key), (before, after) in here.changes().items():
        place = key if table == "bucket" else json.loads(key)["pk"]["S"]
        if table == "claims" or place.startswith("I#"):  # whose a thread, run or job is that is named without an owner
            owners = {json.loads(item)["resource"]["S"] for item in (before, after) if item}
            assert owners == {"ada"}, (key, before, after)
        elif place.startswith("N#"):  # what the deployment must look at again, with the owner's name
            assert ("ada" in key or place == "N#J") and "bob" not in key, (key, before, after)
        else:
            assert place == mine[0] or place.startswith(mine[1:]), (table, key, before, after)
        assert bob.secret not in (after or ""), (table, key)
