"""The authorizer's handler, as API Gateway calls it."""

from __future__ import annotations

import http.server
import importlib.util
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_memory.auth.keys import fetch_json
from agent_memory.errors import AgentMemoryError
from infra.local.issuer import AUDIENCE, Issuer

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "functions" / "authorizer" / "app.py"
METHOD = "arn:aws:execute-api:eu-west-1:123456789012:abc123/v1/GET/api/memory/threads/a/b"


@pytest.fixture
def app():
    spec = importlib.util.spec_from_file_location("authorizer_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def issuer(monkeypatch):
    """An issuer on a real socket."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = made.page(self.path)
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
    for name, value in {"JWT_ISSUER": made.name, "JWT_AUDIENCE": AUDIENCE, "JWT_ADMIN_CLAIM": "admin"}.items():
        monkeypatch.setenv(name, value)
    yield made
    server.shutdown()
    server.server_close()


def call(app, header):
    return app.handler({"type": "TOKEN", "authorizationToken": header, "methodArn": METHOD}, None)


def test_a_good_token_opens_the_whole_stage_for_its_resource(app, issuer):
    answer = call(app, f"Bearer {issuer.token('ada', hours=1)}")

    assert answer["policyDocument"]["Statement"] == [
        {
            "Action": "execute-api:Invoke",
            "Effect": "Allow",
            "Resource": "arn:aws:execute-api:eu-west-1:123456789012:abc123/v1/*",
        }
    ]
    assert answer["principalId"] == "ada"
    assert answer["context"].keys() == {"resourceId", "admin", "exp"}
    assert answer["context"]["resourceId"] == "ada"
    assert answer["context"]["admin"] is False
    # The gateway takes text, numbers and truth values, and no more.
    assert all(isinstance(value, str | int | bool) for value in answer["context"].values())


def test_an_admins_token_binds_to_no_resource(app, issuer):
    context = call(app, f"Bearer {issuer.token('root', admin=True)}")["context"]

    assert context["admin"] is True
    assert "resourceId" not in context


@pytest.mark.parametrize("header", [None, "Bearer x.y.z", "Basic YTpi"])
def test_what_is_no_good_token_is_the_one_word_that_the_gateway_answers_401_to(app, issuer, header):
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        call(app, header)


def test_a_token_that_has_ended_is_refused_and_never_logged(app, issuer, caplog):
    caplog.set_level(logging.DEBUG)
    token = issuer.token("ada", hours=-1)
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        call(app, f"Bearer {token}")
    (line,) = [record for record in caplog.records if record.message == "a call was not let in"]
    assert line.code == "TOKEN_EXPIRED"
    assert token.split(".")[1] not in str([vars(record) for record in caplog.records])


def test_an_issuer_that_cannot_be_reached_is_a_failure_and_no_refusal(app, issuer, monkeypatch):
    monkeypatch.setenv("JWT_ISSUER", "http://127.0.0.1:1/nobody")
    with pytest.raises(AgentMemoryError) as caught:
        call(app, f"Bearer {issuer.token('ada')}")
    assert caught.value.code == "ISSUER_UNREACHABLE"


def test_missing_settings_are_a_failure_and_no_refusal(app, issuer, monkeypatch):
    monkeypatch.delenv("JWT_AUDIENCE")
    with pytest.raises(AgentMemoryError, match="JWT_AUDIENCE"):
        call(app, f"Bearer {issuer.token('ada')}")


def test_the_issuers_documents_are_those_of_an_oidc_issuer(issuer):
    document = fetch_json(f"{issuer.name}/.well-known/openid-configuration")
    (key,) = fetch_json(document["jwks_uri"])["keys"]

    assert document["issuer"] == issuer.name
    assert (key["kty"], key["alg"], key["use"]) == ("EC", "ES256", "sig")
    assert "d" not in key


def test_the_authorizer_imports_no_aws_client_and_nothing_of_the_agents():
    code = f"import sys; sys.path.insert(0, {str(APP.parent)!r}); import app; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout)

    assert not {"boto3", "botocore", "pydantic", "jwt", "urllib3"} & set(loaded)
    assert [name for name in loaded if name.startswith(("agent_memory.http", "agent_memory.agent.", "agents"))] == []
