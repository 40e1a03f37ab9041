"""A deployment for end users: the authorizer checks the tokens of an issuer, and each caller is one resource."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.local.issuer import ADMIN_CLAIM, AUDIENCE, Issuer
from tests.e2e.calls import messages, read, text_of, turn
from tests.e2e.conftest import STACK
from tests.support.https import serve_tls
from tests.support.signed_api import SignedApi


@pytest.fixture(scope="module")
def issuer(tls):
    """An issuer that serves its documents over HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = made.page(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(b"" if page is None else page[1])

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Issuer(f"{serve_tls(server, tls)}://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def sign_in(deployed, built, provider, search, issuer):
    """The stack in mode jwt, with a search domain of its own and published versions."""
    own = {
        "AuthMode": "jwt",
        "JwtIssuer": issuer.name,
        "JwtAudience": AUDIENCE,
        "JwtAdminClaim": ADMIN_CLAIM,
        "Search": "domain",
        "SnapStart": "true",
    }
    return deployed(built, f"{STACK}-sign-in", {**provider, **own})


@pytest.fixture
def as_user(sign_in):
    """The API as the bearer of a token calls it."""

    def bearer(token):
        call = SignedApi(sign_in.address, None)
        header = {} if token is None else {"authorization": f"Bearer {token}"}
        return lambda method, path, body=None, query=None: call(method, path, body, query=query, headers=header)

    return bearer


def test_each_user_has_threads_of_their_own(as_user, issuer, owner, thread):
    ada, eve = as_user(issuer.token(owner)), as_user(issuer.token(f"{owner}-2"))

    turn(ada, thread, owner, "My name is Ada and I like tea.")

    assert text_of(messages(ada, thread, owner)[0]) == "My name is Ada and I like tea."
    assert "My name is Ada" in turn(ada, thread, owner, "What do I like?")["text"]
    assert read(eve, f"/api/memory/threads/{thread}", owner).status == 404
    assert read(eve, "/api/memory/threads", owner).json()["threads"] == []
    assert "tea" not in turn(eve, thread, owner, "What do I like?")["text"]


def test_admin_names_resources(as_user, issuer, owner, thread):
    turn(as_user(issuer.token(owner)), thread, owner, "Hello")
    assert read(as_user(issuer.token("operator", admin=True)), f"/api/memory/threads/{thread}", owner).status == 200


@pytest.mark.parametrize("token", [None, "no.token.atall", "another issuer's", "one that has ended"])
def test_other_callers_are_refused(as_user, issuer, owner, token):
    if token == "another issuer's":
        token = Issuer(issuer.name.removesuffix("/issuer")).token(owner)  # the same name, another key
    elif token == "one that has ended":
        token = issuer.token(owner, hours=-1)
    for path in ("/api/memory/threads", "/api/agents/assistant"):
        assert as_user(token)("GET", path).status in (401, 403)
