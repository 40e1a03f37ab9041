"""Nothing that people write, upload or sign in with is in what the functions log, whatever goes wrong.

Every function runs as Lambda runs it, in a process of its own: chat under our streaming loop, the others under the genuine
Python runtime client, which logs what a handler raises. All that they print is read. Every text, title, name, file and
piece of metadata of this flow holds one word; tokens and signatures are looked for as they are.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from infra.local.issuer import AUDIENCE, Issuer
from tests.support import tables
from tests.support.emulator import shared_emulator
from tests.support.http_app import event
from tests.support.runtime_api import RuntimeApiServer

ROOT = Path(__file__).resolve().parents[2]
WORD = "zebra"
FILE = f"the {WORD} has stripes".encode() * 40
QUERY = {"agentId": "talker", "resourceId": "ada"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the runtime client is published for Linux only"),
]


class Function:
    """A function's process and everything that it prints."""

    def __init__(self, name, variables, folder):
        self.name = name
        self.api = RuntimeApiServer()
        self.output = folder / f"{name}.log"
        layers = [str(ROOT / "layers" / layer) for layer in ("agent_memory", "runtime")]
        program = ["streaming_runtime"] if name == "chat" else ["awslambdaric", "app.handler"]
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program],
                cwd=ROOT / "functions" / name,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": ":".join([*layers, str(ROOT)]),
                    "AWS_LAMBDA_RUNTIME_API": self.api.address,
                    "AWS_LAMBDA_FUNCTION_NAME": name,
                    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
                    "LAMBDA_TASK_ROOT": str(ROOT / "functions" / name),
                    "_HANDLER": "app.handler",
                    **variables,
                },
            )

    def __call__(self, given):
        answer = self.api.invoke(given).wait(60)
        assert answer.complete
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()
        self.api.close()


@contextlib.contextmanager
def issuer():
    """An issuer on a socket."""

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
    yield made
    server.shutdown()
    server.server_close()


class Flow:
    """The functions, and one person who uses them."""

    def __init__(self, functions):
        self.functions = functions
        self.signed = ["X-Amz-Signature", "Signature="]

    def ask(self, function, method, path, body=None, raw=None, **query):
        """The status and text of an answer."""
        given = event(method, path, query=query, body=body, raw=raw, headers={"authorization": f"Bearer {WORD}"})
        answer = self.functions[function](given)
        if function == "chat":
            return answer.prelude["statusCode"], answer.payload.decode()
        return answer.json["statusCode"], answer.json["body"]

    def chat(self, text, *, agent="talker", kind="generate", thread="t1", **more):
        memory = {"thread": {"id": thread, "title": WORD, "metadata": {"note": WORD}}, "resource": "ada"}
        body = {"messages": text, "memory": memory, "requestContext": {"note": WORD}, **more}
        return self.ask("chat", "POST", f"/api/agents/{agent}/{kind}", body)


@pytest.fixture(params=["INFO", "DEBUG"])
def flow(request, tmp_path):
    emulator = shared_emulator()
    names = tables.create(emulator.client("dynamodb"), emulator.client("s3"))
    with issuer() as signing, contextlib.ExitStack() as stack:
        variables = {
            **emulator.environment(),
            "THREADS_TABLE": names.threads,
            "MESSAGES_TABLE": names.messages,
            "RUNS_TABLE": names.runs,
            "CLAIMS_TABLE": names.claims,
            "ATTACHMENTS_BUCKET": names.bucket,
            "AGENTS_MODULE": "tests.support.talkative",
            "EMBEDDER": "hashing",
            "INDEX_PATH": str(tmp_path / "index.sqlite"),
            "LOG_LEVEL": request.param,
            "JWT_ISSUER": signing.name,
            "JWT_AUDIENCE": AUDIENCE,
        }
        functions = {}
        for name in ("chat", "memory", "titles", "janitor", "indexer", "authorizer"):
            functions[name] = Function(name, variables, tmp_path)
            stack.callback(functions[name].close)
        made = Flow(functions)
        made.names, made.dynamodb, made.issuer = names, emulator.client("dynamodb"), signing
        yield made


def test_nothing_that_people_write_is_logged(flow):
    turns(flow)
    memory_routes(flow)
    wrong_calls(flow)
    background(flow)
    tokens = sign_ins(flow)

    logs = {name: function.output.read_text() for name, function in flow.functions.items()}
    check_that_there_is_a_log(logs)
    sought = [WORD, base64.b64encode(FILE).decode()[:24], *flow.signed]
    sought += [piece for token in tokens for piece in token.split(".") if len(piece) > 20]
    for name, text in logs.items():
        for piece in sought:
            found = [line for line in text.splitlines() if piece in line]
            assert found == [], f"{name} logs {piece}"


def turns(flow):
    """Turns that end well, fail at the provider, crash, are blocked, and wait for approval; with a file."""
    data = f"data:text/plain;base64,{base64.b64encode(FILE).decode()}"
    parts = [{"type": "text", "text": f"say {WORD}"}, {"type": "file", "data": data, "filename": f"{WORD}.txt"}]
    status, text = flow.chat([{"role": "user", "content": parts}])
    assert status == 200 and WORD in text
    assert flow.chat(f"say {WORD}", kind="stream")[0] == 200
    assert flow.chat(f"tool explode {json.dumps({'what': WORD})}")[0] == 200
    assert '"suspended"' in flow.chat(f"tool ask {json.dumps({'what': WORD})}", thread="t2")[1]
    assert "tripwire" in flow.chat(f"stop {WORD}")[1]
    assert flow.chat(f"crash {WORD}")[0] == 500
    assert flow.chat(f"fail {WORD}")[0] == 500
    for text in (f"provider {WORD}", f"other {WORD}"):
        assert flow.chat(text, agent="crasher")[0] == 500
        assert "error" in flow.chat(text, agent="crasher", kind="stream")[1]
    page = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": f"say {WORD}"}]}]
    assert (
        flow.ask(
            "chat", "POST", "/api/chat", {"id": "t3", "agentId": "crasher", "messages": page, "resourceId": "ada"}
        )[0]
        == 200
    )
    sent = {"message": f"say {WORD}", "threadId": "t4", "resourceId": "ada"}
    for agent in ("talker", "crasher"):
        assert flow.ask("chat", "POST", f"/api/agents/{agent}/send-message", sent)[0] == 200
    assert flow.ask("chat", "POST", "/api/agents/talker/tools/explode/execute", {"data": {"what": WORD}})[0] == 400


def memory_routes(flow):
    """Threads, messages, working memory, files and search."""
    for row in flow.dynamodb.scan(TableName=flow.names.messages)["Items"]:
        flow.functions["indexer"](change("INSERT", NewImage=row))
    made = {"threadId": "m1", "resourceId": "ada", "title": WORD, "metadata": {"note": WORD}}
    assert flow.ask("memory", "POST", "/api/memory/threads", made, **QUERY)[0] == 200
    assert flow.ask("memory", "PATCH", "/api/memory/threads/m1", {"title": f"{WORD} 2"}, **QUERY)[0] == 200
    message = {"id": "m", "role": "user", "content": WORD, "threadId": "m1", "resourceId": "ada"}
    assert flow.ask("memory", "POST", "/api/memory/save-messages", {"messages": [message]}, **QUERY)[0] == 200
    assert flow.ask("memory", "PATCH", "/api/memory/messages/m", {"content": f"{WORD} 2"}, **QUERY)[0] == 200
    memory = {"workingMemory": f"# {WORD}", "resourceId": "ada"}
    path = "/api/memory/threads/m1/working-memory"
    assert flow.ask("memory", "POST", path, memory, **QUERY)[0] == 200
    patch = {"patch": {"search": f"not there {WORD}", "replace": WORD}}
    assert flow.ask("memory", "PATCH", path, patch, **QUERY)[0] in (400, 409)
    wanted = {"resourceId": "ada", "filename": f"{WORD}.txt", "contentType": "text/plain", "size": len(FILE)}
    status, text = flow.ask("memory", "POST", "/api/attachments", wanted)
    assert status == 200
    assert (
        flow.ask("memory", "POST", f"/api/attachments/{json.loads(text)['id']}/complete", {"resourceId": "ada"})[0]
        == 409
    )
    status, text = flow.ask("memory", "GET", "/api/memory/search", searchQuery=WORD, **QUERY)
    assert status == 200 and json.loads(text)["count"] > 0
    assert flow.ask("memory", "GET", "/api/memory/threads/t1/messages", **QUERY)[0] == 200
    assert flow.ask("memory", "POST", "/api/memory/threads/t1/clone", {"title": WORD}, **QUERY)[0] == 200
    assert flow.ask("memory", "DELETE", "/api/memory/threads/m1", **QUERY)[0] == 200


def wrong_calls(flow):
    """What is refused: wrong JSON, wrong fields, wrong owners, unknown places."""
    for function, path in (("chat", "/api/agents/talker/generate"), ("memory", "/api/memory/threads")):
        assert flow.ask(function, "POST", path, raw=f'{{"messages": "{WORD}"', agentId="talker")[0] == 400
        assert (
            flow.ask(function, "POST", path, {"messages": 7, "title": {"x": WORD}, "metadata": WORD}, agentId="talker")[
                0
            ]
            == 400
        )
        assert flow.ask(function, "POST", f"{path}/{WORD}/{WORD}", {WORD: WORD})[0] in (404, 405)
    assert flow.chat(f"say {WORD}", agent=WORD)[0] == 404
    wrong = {"messages": [{"role": WORD, "content": WORD}, {"role": "user", "content": [{"type": WORD}]}]}
    assert flow.ask("chat", "POST", "/api/agents/talker/generate", wrong)[0] == 400
    body = {"messages": WORD, "memory": {"thread": "t1", "resource": f"{WORD}-owner"}}
    assert flow.ask("chat", "POST", "/api/agents/talker/generate", body)[0] == 403
    filters = {"filter": f'{{"metadata": {{"{WORD}!": 1}}}}', "orderBy": WORD, "include": WORD}
    assert flow.ask("memory", "GET", "/api/memory/threads/t1/messages", **filters, **QUERY)[0] == 400
    for function in ("chat", "memory"):
        flow.functions[function]({"httpMethod": "POST", "path": f"/{WORD}", "body": WORD, "isBase64Encoded": True})
        flow.functions[function]({WORD: WORD})


def background(flow):
    """What runs without a caller, on good events and on broken ones."""
    sent = {"message": f"say to the provider {WORD}", "threadId": "t5", "resourceId": "ada"}
    assert flow.ask("chat", "POST", "/api/agents/talker/send-message", sent)[0] == 200
    asked = {"agentId": "talker", "resourceId": "ada", "threadId": "t4", "correlationId": "c-1"}
    for thread in ("t4", "t5"):
        # What a function raises goes to its log, and with the event to the queue of failures.
        error = flow.functions["titles"]({**asked, "threadId": thread}).error
        assert error is not None
        assert WORD not in json.dumps(error)
    flow.functions["titles"]({**asked, "agentId": "titled"})
    flow.functions["titles"]({**asked, "agentId": "titled", "threadId": "t1"})
    for name in ("titles", "janitor", "indexer"):
        flow.functions[name]({"text": WORD, "Records": [{"eventName": WORD, "dynamodb": {"SequenceNumber": "9"}}]})
        flow.functions[name]([WORD])
    flow.functions["janitor"]({"schedule": "sweep"})
    flow.functions["janitor"]({"jobId": str(uuid.uuid4()), "owner": "ada"})
    broken = {
        "pk": {"S": "R#ada#t9"},
        "sk": {"N": "1"},
        "mid": {"S": "m9"},
        "text": {"S": WORD},
        "parts": {"S": f"[{WORD}"},
    }
    flow.functions["indexer"](change("INSERT", NewImage=broken))
    flow.functions["indexer"](change("REMOVE", OldImage=broken))


def change(kind, **images):
    number = str(uuid.uuid4().int)[:20]
    keys = next(iter(images.values()))
    record = {"SequenceNumber": number, "Keys": {"pk": keys["pk"], "sk": keys["sk"]}, **images}
    return {"Records": [{"eventName": kind, "eventSource": "aws:dynamodb", "dynamodb": record}]}


def sign_ins(flow):
    """Good tokens, bad ones, and what is none."""
    good, ended = flow.issuer.token("ada"), flow.issuer.token("ada", hours=-1)
    forged = Issuer(flow.issuer.name.removesuffix("/issuer")).token(WORD)
    arn = "arn:aws:execute-api:eu-west-1:123456789012:abc/v1/GET/api"
    for token in (good, ended, forged, f"{WORD}.{WORD}.{WORD}", f"{good[:-3]}AAA"):
        answer = flow.functions["authorizer"]({"authorizationToken": f"Bearer {token}", "methodArn": arn})
        assert (answer.error is None) == (token == good)
        if answer.error is not None:
            assert answer.error["errorMessage"] == "Unauthorized"
    flow.functions["authorizer"]({"authorizationToken": f"Bearer {good}"})
    flow.functions["authorizer"]({WORD: WORD})
    return [good, ended, forged]


def check_that_there_is_a_log(logs):
    """The flow did what it should, and it was logged: otherwise nothing would be found in an empty file."""
    for name, messages in {
        "chat": ("a request was answered", "a turn ended"),
        "memory": ("a request was answered",),
        "titles": ("an invocation failed",),
        "authorizer": ("TOKEN_EXPIRED", "TOKEN_KEY_UNKNOWN", "Unauthorized"),
    }.items():
        for message in messages:
            assert message in logs[name], (name, message, logs[name][-3000:])
    assert all(logs[name] for name in ("janitor", "indexer"))
