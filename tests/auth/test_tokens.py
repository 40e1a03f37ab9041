"""Which tokens open the door, and what they open."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from agent_memory.auth.context import LEEWAY_S
from agent_memory.auth.keys import IssuerKeys
from agent_memory.auth.tokens import Verifier, bearer
from agent_memory.errors import AuthenticationError, ConfigurationError
from agent_memory.settings import Settings

ISSUER = "https://login.example"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SHORT = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())
JWKS = {
    "keys": [
        {**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "rsa"},
        {**RSAAlgorithm.to_jwk(SHORT.public_key(), as_dict=True), "kid": "short"},
        {**ECAlgorithm.to_jwk(EC.public_key(), as_dict=True), "kid": "ec"},
        {"kty": "EC", "crv": "P-256", "kid": "broken", "x": "AA", "y": "?"},
    ]
}


def verifier(**settings):
    def fetch(address):
        return {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"} if address.endswith("configuration") else JWKS

    given = {"jwt_issuer": ISSUER, "jwt_audience": ("memory", "other-name"), **settings}
    return Verifier(Settings(**given), IssuerKeys(ISSUER, fetch=fetch))


def claims(**more):
    now = int(time.time())
    found = {"iss": ISSUER, "aud": "memory", "sub": "ada", "iat": now, "exp": now + 300, **more}
    return {name: value for name, value in found.items() if value is not None}


def token(key=EC, algorithm="ES256", kid="ec", headers=None, **more):
    return jwt.encode(claims(**more), key, algorithm, headers={"kid": kid, **(headers or {})})


def refused(given, **settings):
    with pytest.raises(AuthenticationError) as caught:
        verifier(**settings).verify(given)
    return caught.value.code


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(EC, "ES256", "ec"), (RSA, "RS256", "rsa"), (RSA, "PS512", "rsa")]
)
def test_a_good_token_names_its_resource_and_its_end(key, algorithm, kid):
    grant = verifier(jwt_algorithms=("RS256", "ES256", "PS512")).verify(token(key, algorithm, kid))

    assert (grant.resource_id, grant.admin) == ("ada", False)
    assert abs(grant.expires_at - time.time() - 300) < 5


def test_one_audience_of_several_is_enough():
    assert verifier().verify(token(aud=["x", "other-name"])).resource_id == "ada"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (lambda: token(STRANGER), "TOKEN_SIGNATURE"),
        (lambda: token(kid="unknown"), "TOKEN_KEY_UNKNOWN"),
        (lambda: token(RSA, "RS256", "ec"), "TOKEN_KEY_UNKNOWN"),
        (lambda: token(RSA, "RS512", "rsa"), "TOKEN_ALGORITHM"),
        (lambda: token(iss="https://evil.example"), "TOKEN_OF_ANOTHER_SERVICE"),
        (lambda: token(iss=ISSUER + "/"), "TOKEN_OF_ANOTHER_SERVICE"),
        (lambda: token(aud="another-service"), "TOKEN_OF_ANOTHER_SERVICE"),
        (lambda: token(aud=None), "TOKEN_INVALID"),
        (lambda: token(exp=None), "TOKEN_INVALID"),
        (lambda: token(exp=int(time.time()) - LEEWAY_S - 2), "TOKEN_EXPIRED"),
        (lambda: token(nbf=int(time.time()) + LEEWAY_S + 5), "TOKEN_NOT_YET_VALID"),
        (lambda: token(sub=None), "TOKEN_WITHOUT_RESOURCE"),
        (lambda: token(headers={"crit": ["x"]}), "TOKEN_INVALID"),
        (lambda: token(kid="broken"), "TOKEN_INVALID"),
        (lambda: token()[:-4] + "AAAA", "TOKEN_SIGNATURE"),
        (lambda: token().rsplit(".", 1)[0] + ".", "TOKEN_SIGNATURE"),
        (lambda: "a.b.c", "TOKEN_INVALID"),
        (lambda: "", "TOKEN_INVALID"),
    ],
)
def test_what_does_not_hold_is_refused(given, code):
    assert refused(given()) == code


def test_a_key_that_is_too_short_is_refused():
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        short = token(SHORT, "RS256", "short")
    assert refused(short) == "TOKEN_INVALID"


def test_the_clocks_may_differ_a_little():
    now = int(time.time())
    assert verifier().verify(token(exp=now - LEEWAY_S + 10, nbf=now + LEEWAY_S - 10)).resource_id == "ada"


def _encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_an_unsigned_token_and_one_signed_with_the_public_key_are_refused():
    unsigned = f"{_encoded({'alg': 'none', 'kid': 'rsa'})}.{_encoded(claims())}."
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = f"{_encoded({'alg': 'HS256', 'kid': 'rsa'})}.{_encoded(claims())}"
    mac = base64.urlsafe_b64encode(hmac.digest(public, head.encode(), hashlib.sha256)).rstrip(b"=").decode()

    assert refused(unsigned) == "TOKEN_ALGORITHM"
    assert refused(f"{head}.{mac}") == "TOKEN_ALGORITHM"


@pytest.mark.parametrize("text", ["none", "HS256", "RS256,HS512", "EdDSA"])
def test_a_shared_secret_and_no_signature_cannot_even_be_configured(text):
    with pytest.raises(ConfigurationError, match="JWT_ALGORITHMS"):
        Settings.from_env({"JWT_ALGORITHMS": text})


@pytest.mark.parametrize("text", ["http://login.example", "login.example", "https://"])
def test_the_issuer_is_asked_over_https_only(text):
    with pytest.raises(ConfigurationError, match="JWT_ISSUER"):
        Settings.from_env({"JWT_ISSUER": text})
    assert Settings.from_env({"JWT_ISSUER": "https://x.example/"}).jwt_issuer == "https://x.example/"


@pytest.mark.parametrize("missing", ["jwt_issuer", "jwt_audience"])
def test_issuer_and_audience_must_be_set(missing):
    with pytest.raises(ConfigurationError, match=missing.upper()):
        verifier(**{missing: None if missing == "jwt_issuer" else ()})


def test_another_claim_can_be_the_resource():
    assert verifier(jwt_resource_claim="tenant").verify(token(tenant="acme")).resource_id == "acme"
    for wrong in (None, "", "*", 7, ["acme"], "x" * 513):
        assert refused(token(tenant=wrong), jwt_resource_claim="tenant") == "TOKEN_WITHOUT_RESOURCE"


def test_a_mail_address_counts_only_when_the_issuer_verified_it():
    given = {"jwt_resource_claim": "email"}
    assert verifier(**given).verify(token(email="a@example.com", email_verified=True)).resource_id == "a@example.com"
    for value in (None, False, "true"):
        assert refused(token(email="a@example.com", email_verified=value), **given) == "TOKEN_WITHOUT_RESOURCE"


@pytest.mark.parametrize(
    ("claim", "value", "found", "admin"),
    [
        ("admin", "true", True, True),
        ("admin", "true", False, False),
        ("admin", "true", None, False),
        ("role", "root", "root", True),
        ("role", "root", "not root", False),
        ("role", "root", "rooter", False),
        ("groups", "root", ["x", "root"], True),
        ("groups", "root", ["rooter"], False),
        ("scope", "root", "read root", True),
        ("scope", "root", "read rooter", False),
        (None, "true", True, False),
    ],
)
def test_who_is_an_admin_is_set_by_claim_and_value(claim, value, found, admin):
    grant = verifier(jwt_admin_claim=claim, jwt_admin_value=value).verify(token(**{claim or "admin": found}))

    assert grant.admin is admin
    assert grant.resource_id == (None if admin else "ada")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "token", 7, "Bearer tök"])
def test_a_header_without_a_bearer_token_is_refused(header):
    with pytest.raises(AuthenticationError):
        bearer(header)


def test_the_scheme_may_be_written_either_way():
    assert bearer("bearer a.b.c") == bearer("Bearer  a.b.c ") == "a.b.c"


def test_a_missing_package_is_no_fault_of_the_token(monkeypatch):
    given = token()
    monkeypatch.setattr("jwt.api_jwk.has_crypto", False)
    with pytest.raises(ConfigurationError) as caught:
        verifier().verify(given)
    assert caught.value.code == "PACKAGE_MISSING"
