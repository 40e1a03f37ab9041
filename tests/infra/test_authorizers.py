"""The local gateway asks the authorizer as API Gateway does, and `make dev AUTH=jwt` runs the real one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from infra.local.authorizers import Authorizers, Refused
from infra.local.gateway import Match
from infra.local.issuer import KEY_FILE
from infra.local.template import AuthorizerSpec, RouteSpec

ROOT = Path(__file__).resolve().parents[2]
SPEC = AuthorizerSpec("Authorizer", 60.0, "^Bearer .+$")
MATCH = Match(RouteSpec("GET", "/api/agents", "Chat", True, SPEC), {})


def allow(resource):
    return {
        "principalId": "ada",
        "policyDocument": {"Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}]},
        "context": {"resourceId": "ada", "admin": False, "exp": 17},
    }


class Asked:
    def __init__(self, answer):
        self.answer, self.events, self.now = answer, [], 0.0
        self.authorizers = Authorizers(self.call, lambda: self.now)

    def call(self, function, event):
        assert function == "Authorizer"
        self.events.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def context(self, header="Bearer t", path="/api/agents"):
        return self.authorizers.context(SPEC, MATCH, path, header)

    def refused(self, *args, **more):
        with pytest.raises(Refused) as caught:
            self.context(*args, **more)
        return caught.value.status, caught.value.error


def test_the_context_arrives_as_text_and_is_kept_for_a_token():
    asked = Asked(allow("arn:aws:execute-api:us-east-1:000000000000:local/local/*"))

    assert asked.context() == {"principalId": "ada", "resourceId": "ada", "admin": "false", "exp": "17"}
    asked.context(path="/api/memory/threads")
    assert len(asked.events) == 1
    asked.context("Bearer other")
    asked.now = 61
    asked.context()
    assert len(asked.events) == 3
    assert asked.events[0]["methodArn"].endswith(":local/local/GET/api/agents")


def test_no_token_is_refused_without_asking():
    asked = Asked(allow("*"))
    for header in (None, "", "Basic x"):
        assert asked.refused(header) == (401, "Unauthorized")
    assert asked.events == []


def test_a_refusal_is_401_a_failure_500_and_a_policy_for_another_stage_403():
    assert Asked(Exception("Unauthorized")).refused() == (401, "Unauthorized")
    assert Asked(RuntimeError("issuer down")).refused() == (500, "Internal server error")
    assert Asked(allow("arn:aws:execute-api:us-east-1:000000000000:local/other/*")).refused()[0] == 403


def ask(address, path, token=None, body=None):
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address + path, data=data, headers=headers), timeout=30
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.slow
def test_a_signed_in_local_stack_lets_each_user_see_their_own(tmp_path):
    data = tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.local", "--port", "0", "--data", str(data), "--auth", "jwt"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith(("More", "Stop")):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate(timeout=10)[1]
        address = re.search(r"http://127\.0\.0\.1:\d+", lines[0])[0]
        printed = {line.split()[0]: line.split()[1] for line in lines if re.match(r"  \w+  ey", line)}
        command = re.search(r"python -m infra.local.token carol(.*) \(--admin", lines[-1])[1].split()

        def token(*arguments):
            made = subprocess.run(
                [sys.executable, "-m", "infra.local.token", *arguments, *command],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            return made.stdout.strip()

        threads = "/api/memory/threads?agentId=assistant"
        made = {"threadId": "t1", "title": "Adas trip", "resourceId": "bob"}
        assert ask(address, threads, printed["ada"], made)[1]["resourceId"] == "ada"
        assert ask(address, threads + "&resourceId=ada", printed["bob"])[1]["threads"] == []
        assert ask(address, "/api/memory/threads/t1", printed["bob"])[0] == 404
        assert ask(address, "/api/memory/threads/t1", token("ada"))[1]["title"] == "Adas trip"
        assert len(ask(address, threads + "&resourceId=ada", token("root", "--admin"))[1]["threads"]) == 1
        for bad in (None, printed["ada"][:-4] + "AAAA", token("ada", "--hours", "-1")):
            assert ask(address, threads, bad)[0] == 401
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=40)
    assert (data / KEY_FILE).stat().st_mode & 0o077 == 0
