"""The issuer's keys: found, kept, renewed, and never asked for too often."""

from __future__ import annotations

import http.server
import json
import threading
import time

import pytest

from agent_memory.auth import keys
from agent_memory.auth.keys import ASK_EVERY_S, FRESH_S, STALE_S, IssuerKeys, fetch_json
from agent_memory.errors import UnavailableError

ISSUER = "https://login.example/tenant/"


def ec(kid, **more):
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": "x", "y": "y", **more}


class World:
    """An issuer's documents, the clock, and what was asked for."""

    def __init__(self, *keys):
        self.keys, self.now, self.down, self.asked = list(keys), 1_000.0, False, []
        self.discovery = {"issuer": ISSUER, "jwks_uri": "https://keys.example/jwks"}

    def fetch(self, address):
        self.asked.append(address)
        if self.down:
            raise UnavailableError("down", code="ISSUER_UNREACHABLE")
        return self.discovery if address.endswith("openid-configuration") else {"keys": self.keys}

    def made(self):
        return IssuerKeys(ISSUER, fetch=self.fetch, clock=lambda: self.now)


def test_keys_come_through_the_discovery_document_and_are_kept():
    world = World(ec("k1"))
    keys = world.made()
    for _ in range(3):
        assert keys.find("k1", "ES256")["kid"] == "k1"
    assert world.asked == ["https://login.example/tenant/.well-known/openid-configuration", "https://keys.example/jwks"]


def test_a_new_key_is_found_at_once_but_made_up_key_ids_do_not_flood_the_issuer():
    world = World(ec("k1"))
    keys = world.made()
    keys.find("k1", "ES256")
    world.now += ASK_EVERY_S
    world.keys = [ec("k2")]

    assert keys.find("k2", "ES256")["kid"] == "k2"
    assert keys.find("k1", "ES256") is None
    asked = len(world.asked)
    for number in range(100):
        assert keys.find(f"made-up-{number}", "ES256") is None
    assert len(world.asked) == asked


def test_keys_are_renewed_after_a_while_so_that_a_withdrawn_one_ends():
    world = World(ec("k1"))
    keys = world.made()
    keys.find("k1", "ES256")
    world.keys = [ec("k2")]
    world.now += FRESH_S
    assert keys.find("k1", "ES256") is None


def test_kept_keys_stay_in_use_while_the_issuer_is_down_but_not_for_ever():
    world = World(ec("k1"))
    keys = world.made()
    keys.find("k1", "ES256")
    asked = len(world.asked)
    world.down = True
    world.now += FRESH_S
    for _ in range(20):
        assert keys.find("k1", "ES256") is not None
    assert len(world.asked) == asked + 1  # and a slow issuer does not hold up every call
    world.now += STALE_S
    with pytest.raises(UnavailableError):
        keys.find("k1", "ES256")
    world.down = False
    world.now += 1
    assert keys.find("k1", "ES256") is not None


def test_without_any_key_a_failing_issuer_is_asked_once_a_second():
    world = World(ec("k1"))
    world.down = True
    keys = world.made()
    for _ in range(10):
        with pytest.raises(UnavailableError) as caught:
            keys.find("k1", "ES256")
        assert caught.value.code == "ISSUER_UNREACHABLE"
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example", "jwks_uri": "https://keys.example/jwks"},
        {"issuer": ISSUER, "jwks_uri": "http://keys.example/jwks"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER},
        [],
    ],
)
def test_a_discovery_document_of_another_issuer_or_without_secure_keys_is_refused(document):
    world = World(ec("k1"))
    world.discovery = document
    with pytest.raises(UnavailableError):
        world.made().find("k1", "ES256")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec("k"), "ES384"),
        (ec("k", use="enc"), "ES256"),
        (ec("k", alg="ES384"), "ES256"),
        (ec("k"), "RS256"),
        ({"kty": "RSA", "kid": "k"}, "ES256"),
        ({"kty": "oct", "kid": "k", "k": "c2VjcmV0"}, "RS256"),
    ],
)
def test_a_key_serves_only_the_signatures_it_is_meant_for(key, algorithm):
    assert World(key).made().find("k", algorithm) is None


def test_a_token_without_a_key_id_gets_the_only_key_and_never_one_of_several():
    assert World(ec("k1"), {"kty": "RSA", "kid": "r"}).made().find(None, "ES256")["kid"] == "k1"
    assert World(ec("k1"), ec("k2")).made().find(None, "ES256") is None


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(20)
        moved = self.path == "/moved"
        body = b"x" * 600_000 if self.path == "/large" else json.dumps({"path": self.path}).encode()
        self.send_response(302 if moved else 500 if self.path == "/broken" else 200)
        if moved:
            self.send_header("location", "/ok")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(b"no json at all"[: len(body)] if self.path == "/text" else body)
        except ConnectionError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_document_is_read_and_what_is_none_is_refused(site):
    assert fetch_json(f"{site}/ok") == {"path": "/ok"}
    for path in ("/moved", "/broken", "/large", "/text"):
        with pytest.raises(UnavailableError):
            fetch_json(site + path)


def test_an_issuer_that_does_not_answer_is_given_up(site, monkeypatch):
    assert keys.READ_TIMEOUT_S <= 3
    monkeypatch.setattr(keys, "READ_TIMEOUT_S", 0.3)
    started = time.monotonic()
    with pytest.raises(UnavailableError):
        fetch_json(f"{site}/slow")
    assert time.monotonic() - started < 15
    with pytest.raises(UnavailableError):
        fetch_json("http://127.0.0.1:1/nobody")
