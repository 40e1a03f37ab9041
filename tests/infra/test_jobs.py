"""The command that starts a job of the index and follows it, against the local stack."""

from __future__ import annotations

import json
import urllib.request

import pytest

from infra import jobs
from tests.infra.test_stack import dev


def test_the_local_index_is_kept_compared_and_built_anew_by_one_command_each(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "LOOK_EVERY_S", 0.1)
    monkeypatch.setenv("EMBEDDER", "hashing")
    with dev("--data", str(tmp_path)) as running:
        said = {"messages": "my bicycle is green", "memory": {"thread": "t1", "resource": "ada"}}
        running.ask("/api/agents/assistant/generate", said)
        for kind in ("replay", "reconcile", "reindex"):
            assert jobs.main([kind, "--api", running.address]) == 0, kind
        out = capsys.readouterr().out
        assert out.count("finished") == 3
        assert '{"index": "hashing-256"}' in out
        found = json.loads(running.ask("/api/memory/search?searchQuery=bicycle&resourceId=ada&agentId=assistant"))
        assert "bicycle" in json.dumps(found["results"])
        assert jobs.main(["drop-index", "--api", running.address]) == 1
        assert "index" in capsys.readouterr().err
        assert jobs.main(["drop-index", "--index", "hashing-256", "--api", running.address]) == 1
        assert "not in use" in capsys.readouterr().err
        running.interrupt()


def test_an_api_that_is_not_there_is_told(capsys):
    assert jobs.main(["replay", "--api", "http://127.0.0.1:9"]) == 1
    assert "make dev" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("token", "expected"), [("", "AWS4-HMAC-SHA256 Credential=key/"), ("a.b.c", "Bearer a.b.c")], ids=["iam", "jwt"]
)
def test_requests_to_a_deployed_stack_are_signed_or_carry_the_token(monkeypatch, token, expected):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("API_TOKEN", token)
    asked = []

    def refuse(request, timeout):
        asked.append(request)
        raise urllib.error.URLError("stop here")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(jobs.Refused):
        jobs.call("https://x1.execute-api.eu-west-1.amazonaws.com/v1", "POST", "/api/jobs", {"kind": "replay"})
    (request,) = asked
    assert request.headers["Authorization"].startswith(expected)
    assert token or "/eu-west-1/execute-api/aws4_request" in request.headers["Authorization"]
