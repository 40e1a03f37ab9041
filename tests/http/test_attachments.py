"""Uploads past the body limit, stable addresses, and the rules that files of callers are held to."""

from __future__ import annotations

import base64
import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import timedelta

import pytest

from agent_memory import clock
from agent_memory.attachments import SCHEME, key_of_name, owner_prefix
from agent_memory.aws import clients
from agent_memory.aws.stream import read_file_change
from agent_memory.jobs import removed_files
from agent_memory.jobs.runner import start
from tests.support.emulator import shared_emulator
from tests.support.http_app import serve
from tests.support.worlds import EmulatorTables

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
AGENT = "conformance"


@pytest.fixture(scope="module")
def shared():
    made = EmulatorTables()
    # Signed as the functions' own client signs.
    made.s3 = shared_emulator().client("s3", config=clients.config("s3"))
    return made


@contextmanager
def serving(shared, **settings):
    with serve(shared, **settings) as app:
        yield app


@pytest.fixture
def app(shared):
    with serving(shared) as app:
        yield app


@pytest.fixture
def signed_in(shared):
    with serving(shared, auth_mode="jwt") as app:
        app.authorizer = {"resourceId": "ada", "exp": str(clock.now_ms() // 1000 + 600)}
        yield app


def ask(app, size=None, kind="image/png", name="dot.png", **more):
    size = len(PNG) if size is None else size
    body = {"resourceId": "ada", "filename": name, "contentType": kind, "size": size, **more}
    return app.post("/api/attachments", {key: value for key, value in body.items() if value is not None})


def put(promise, data, **headers):
    """What the page does with the answer."""
    given = {**promise["headers"], **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(promise["url"], data=data, method=promise["method"], headers=given)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def complete(app, promise, **query):
    return app.post(f"/api/attachments/{promise['id']}/complete", {}, resourceId="ada", **query)


def uploaded(app, data=PNG, **more):
    promise = ask(app, size=len(data), **more).json
    assert put(promise, data) == 200
    assert complete(app, promise).status == 200
    return promise


def file_part(address, **more):
    return {"type": "file", "data": address, "mimeType": "image/png", **more}


def picture(address, text="files", **more):
    file = {"type": "file", "mediaType": "image/png", "url": address}
    return {"role": "user", "content": [{"type": "text", "text": text}, file], **more}


def save(app, *parts, id="m1", thread="t1", resource="ada"):
    content = {"format": 2, "parts": [{"type": "text", "text": "see"}, *parts]}
    message = {"id": id, "role": "user", "content": content, "threadId": thread, "resourceId": resource}
    return app.post("/api/memory/save-messages", {"messages": [message]}, agentId=AGENT)


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read(), answer.headers


def row_text(app):
    return json.dumps(app.rows("messages"))


class Later:
    """Every clock of the application, some time on."""

    def __init__(self, monkeypatch):
        self.ahead = timedelta()
        real = clock.now
        monkeypatch.setattr(clock, "now", lambda: real() + self.ahead)

    def advance(self, **units):
        self.ahead += timedelta(**units)


def sweep(app):
    app.deployment.files._clock = lambda: clock.now()
    job = start(app.deployment.services, "files", {}, owner=None)
    assert (job.state, job.error) == ("finished", None)


# -------------------------------------------------------------------------------------------------------------- uploads


def test_a_file_is_promised_uploaded_checked_and_used(app):
    promised = ask(app)
    assert promised.status == 200
    promise = promised.json
    assert promise["reference"] == SCHEME + promise["id"]
    assert promise["method"] == "PUT"
    assert clock.parse(promise["expiresAt"]) > clock.now() + timedelta(minutes=50)
    assert put(promise, PNG) == 200
    done = complete(app, promise)
    assert done.status == 200
    assert (done.json["contentType"], done.json["size"], done.json["filename"]) == ("image/png", len(PNG), "dot.png")
    assert fetch(done.json["url"])[0] == PNG
    assert complete(app, promise).status == 200, "again"

    assert save(app, file_part(promise["reference"])).status == 200
    (message,) = app.messages("t1")
    part = message["content"]["parts"][1]
    assert (part["mimeType"], part["filename"]) == ("image/png", "dot.png"), (
        "told by the upload where the part tells none"
    )
    assert fetch(part["data"])[0] == PNG
    assert promise["reference"] in row_text(app)


def test_the_first_use_completes_an_upload_too(app):
    promise = ask(app).json
    assert put(promise, PNG) == 200
    answer = app.run("generate", [picture(promise["reference"])])
    assert answer.json["text"] == f'FILES [{{"mediaType":"image/png","size":{len(PNG)}}}]'
    assert app.get(f"/api/attachments/{promise['id']}", resourceId="ada").status == 302


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (PNG + b"x", {}),
        (PNG[:-1], {}),
        (PNG, {"content_type": "text/html"}),
        (PNG, {"if_none_match": "x"}),
    ],
    ids=["more", "less", "another type", "over another"],
)
def test_the_store_takes_exactly_what_was_promised(app, data, headers):
    assert put(ask(app).json, data, **headers) == 403


def test_an_upload_happens_once(app):
    promise = ask(app).json
    assert put(promise, PNG) == 200
    other = PNG[:-1] + b"y"
    assert put(promise, other) == 412
    assert complete(app, promise).status == 200
    assert fetch(complete(app, promise).json["url"])[0] == PNG


def test_before_its_bytes_have_come_a_file_cannot_be_used(app):
    promise = ask(app).json
    answer = complete(app, promise)
    assert (answer.status, answer.json["code"]) == (409, "ATTACHMENT_NOT_UPLOADED")
    assert app.get(f"/api/attachments/{promise['id']}", resourceId="ada").status == 404
    answer = save(app, file_part(promise["reference"]))
    assert (answer.status, answer.json["code"]) == (409, "ATTACHMENT_NOT_UPLOADED")
    assert app.rows("messages") == []
    assert put(promise, PNG) == 200
    assert complete(app, promise).status == 200


def test_bytes_of_another_family_than_promised_are_refused_and_removed(app):
    page = b"<!doctype html><script>alert(1)</script>"
    promise = ask(app, size=len(page)).json
    assert put(promise, page) == 200
    answer = complete(app, promise)
    assert answer.status == 400
    assert (answer.json["code"], answer.json["issues"][0]["field"]) == ("ATTACHMENT_TYPE_MISMATCH", "contentType")
    assert complete(app, promise).status == 404
    assert save(app, file_part(promise["reference"])).status == 400
    assert key_of_name(promise["id"], "ada") not in app.deployment.blobs.list_keys("o/")


def test_a_jpeg_that_came_as_a_png_is_named_what_it_is(app):
    jpeg = b"\xff\xd8\xff\xe0" + bytes(100)
    promise = ask(app, size=len(jpeg)).json
    assert put(promise, jpeg) == 200
    assert complete(app, promise).json["contentType"] == "image/jpeg"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"size": 5 * 1024**3 + 1}, 413, "ATTACHMENT_TOO_LARGE"),
        ({"size": 0}, 400, None),
        ({"size": -1}, 400, None),
        ({"size": "1"}, 400, None),
        ({"size": None}, 400, None),
        ({"contentType": "no type"}, 400, None),
        ({"contentType": "image/png\r\nx: y"}, 400, None),
        ({"contentType": "image/png;\r\nx=y"}, 400, None),
        ({"contentType": "application/x-msdownload"}, 400, "ATTACHMENT_TYPE_REFUSED"),
        ({"contentType": "video/mp4"}, 400, "ATTACHMENT_TYPE_REFUSED"),
        ({"resourceId": None}, 400, None),
    ],
)
def test_what_is_not_taken_is_said_before_anything_is_written(shared, body, status, code):
    with serving(
        shared, attachment_types=("image/*", "application/*"), attachment_types_denied=("application/x-msdownload",)
    ) as app:
        answer = app.post(
            "/api/attachments",
            {
                key: value
                for key, value in {
                    "resourceId": "ada",
                    "filename": "a",
                    "contentType": "image/png",
                    "size": 9,
                    **body,
                }.items()
                if value is not None
            },
        )
        assert answer.status == status, answer.json
        if code:
            assert answer.json["code"] == code
        if status == 400:
            assert answer.json["issues"][0]["field"] in (*body, "resourceId")
        assert app.rows("runs") == []


def test_five_gigabytes_can_be_promised(app):
    assert ask(app, size=5 * 1024**3, kind="video/mp4", name="long.mp4").status == 200


def test_a_name_loses_path_and_control_characters(app):
    assert ask(app, name="../../etc/pass\x00wd\u202e.png").json["filename"] == "passwd.png"
    assert ask(app, name="..").json["filename"] is None
    long = ask(app, name="é" * 400 + ".pdf").json["filename"]
    assert len(long.encode()) <= 255
    assert long.endswith(".pdf")
    assert ask(app, kind=None, name="a.pdf").json["contentType"] == "application/pdf"


def test_one_promise_for_one_key(app):
    body = {"resourceId": "ada", "filename": "a.png", "contentType": "image/png", "size": 9}
    first, second = (app.post("/api/attachments", body, key="k1") for _ in range(2))
    assert first.json == second.json


def test_a_resource_that_is_erased_takes_nothing(app):
    app.dynamodb.put_item(
        TableName=app.names.threads,
        Item={"pk": {"S": "R#ada"}, "sk": {"S": "R"}, "v": {"N": "1"}, "locked": {"S": "j"}},
    )
    answer = ask(app)
    assert (answer.status, answer.json["code"]) == (409, "RESOURCE_LOCKED")
    answer = save(app, file_part(PNG_URL))
    assert (answer.status, answer.json["code"]) == (409, "RESOURCE_LOCKED")
    assert app.rows("runs") == []


# ---------------------------------------------------------------------------------------------- addresses and ownership


def test_a_stable_address_leads_to_a_fresh_link_case_84(app):
    promise = uploaded(app)
    answer = app.get(f"/api/attachments/{promise['id']}", resourceId="ada")
    assert (answer.status, answer.headers["cache-control"]) == (302, "private, no-store")
    data, headers = fetch(answer.headers["location"])
    assert data == PNG
    assert headers["content-type"] == "image/png"
    assert "dot.png" in headers["content-disposition"]
    assert app.get(f"/api/attachments/{promise['id']}").status == 400, "a trusted server says whose"
    for name in ("u-" + "0" * 32, "a" * 64, "..", "x", promise["id"] + "0"):
        assert app.get(f"/api/attachments/{name}", resourceId="ada").status == 404
    assert app.get(f"/api/attachments/{promise['id']}", resourceId="bob").status == 404


def test_case_84_a_stranger_gets_neither_file_nor_link(signed_in):
    app = signed_in
    promise = uploaded(app)
    save(app, file_part(promise["reference"]))
    unknown = app.get("/api/attachments/u-" + "0" * 32)
    app.authorizer = {**app.authorizer, "resourceId": "bob"}
    for path in (f"/api/attachments/{promise['id']}", f"/api/attachments/{promise['id']}?resourceId=ada"):
        answer = app.get(path)
        assert (answer.status, answer.json) == (404, unknown.json)
    answer = complete(app, promise)
    assert (answer.status, answer.json) == (404, unknown.json)
    answer = save(app, file_part(promise["reference"]), thread="bobs", resource="bob")
    assert (answer.status, answer.json["code"]) == (400, "ATTACHMENT_NOT_FOUND")
    app.authorizer = {}
    assert app.get(f"/api/attachments/{promise['id']}").status == 401


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", None])
def test_what_a_browser_would_run_is_saved_and_not_shown(app, kind):
    data = b"<script>alert(1)</script>" if kind != "image/svg+xml" else b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    address = f"data:{kind or ''};base64," + base64.b64encode(data).decode()
    assert save(app, {"type": "file", "data": address, **({"mimeType": kind} if kind else {})}).status == 200
    link = app.messages("t1")[0]["content"]["parts"][1]["data"]
    assert fetch(link)[1]["content-disposition"].startswith("attachment")
    assert fetch(app.messages("t1")[0]["content"]["parts"][1]["data"])[0] == data


def test_a_page_that_calls_itself_a_picture_is_no_picture(app):
    assert save(app, file_part("data:image/png;base64," + base64.b64encode(b"<html>x</html>").decode())).status == 200
    part = app.messages("t1")[0]["content"]["parts"][1]
    assert part["mimeType"] == "text/html"
    assert fetch(part["data"])[1]["content-disposition"].startswith("attachment")


def test_case_86_nothing_is_fetched_and_no_link_signed_for_what_is_not_ours(app, monkeypatch):
    assert save(app, file_part(PNG_URL), id="b1", thread="bobs", resource="bob").status == 200
    bobs = app.messages("bobs")[0]["content"]["parts"][1]["data"]
    (bobs_key,) = app.deployment.blobs.list_keys(owner_prefix("bob"))
    endpoint = bobs.split("/o/")[0]
    addresses = [
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost:3000",
        "https://localhost:3000/x.png",
        "file:///etc/passwd",
        f"s3://{app.names.bucket}/{bobs_key}",
        bobs,
        f"{endpoint}/{owner_prefix('ada')}files/../../bob/files/{bobs_key.rpartition('/')[2]}",
        f"{endpoint}/{owner_prefix('ada')}files/..%2F..%2Fbob%2Ffiles%2F{bobs_key.rpartition('/')[2]}",
        "https://redirects.example/inside",
    ]
    signed, connected = [], []
    link = type(app.deployment.blobs).link

    def spy_link(self, key, **more):
        signed.append(key)
        return link(self, key, **more)

    port = int(app.dynamodb.meta.endpoint_url.rpartition(":")[2])
    connect = socket.socket.connect

    def spy_connect(self, place):
        if place[1] != port:
            connected.append(place)
            raise OSError("not in this test")
        return connect(self, place)

    resolve = socket.getaddrinfo

    def spy_resolve(host, where, *args, **more):
        if where != port:
            connected.append((host, where))
            raise socket.gaierror("not in this test")
        return resolve(host, where, *args, **more)

    monkeypatch.setattr(type(app.deployment.blobs), "link", spy_link)
    monkeypatch.setattr(socket.socket, "connect", spy_connect)
    monkeypatch.setattr(socket, "getaddrinfo", spy_resolve)
    attachments = [{"url": address, "contentType": "image/png"} for address in addresses]
    message = {"id": "u1", "role": "user", "content": "files", "experimental_attachments": attachments}
    answer = app.run("generate", [message])
    assert answer.status == 200, answer.json
    assert str(PNG) not in answer.body.decode()
    shown = app.messages("t1")[0]["content"]
    kept = [item["url"] for item in shown.get("experimental_attachments", [])]
    kept += [part["data"] for part in shown["parts"] if part["type"] == "file"]
    assert sorted(kept) == sorted(addresses), "as plain text, as they came"
    assert connected == []
    assert signed == []


def test_a_reference_to_a_strangers_file_is_one_to_nothing(app):
    save(app, file_part(PNG_URL), id="b1", thread="bobs", resource="bob")
    (key,) = app.deployment.blobs.list_keys(owner_prefix("bob"))
    stolen = SCHEME + key.rpartition("/")[2]
    assert save(app, file_part(stolen)).status == 200
    assert app.get(f"/api/attachments/{key.rpartition('/')[2]}", resourceId="ada").status == 404
    answer = app.run("generate", [picture(stolen)], thread="t2")
    assert "FILES []" in answer.json["text"]


# ------------------------------------------------------------------------------------------------------------ the rules


def test_more_files_than_a_message_may_hold_are_refused(shared):
    with serving(shared, max_attachments=2) as app:
        answer = save(app, *[file_part(f"https://example.org/{n}.png") for n in range(3)])
        assert (answer.status, answer.json["code"]) == (400, "TOO_MANY_ATTACHMENTS")
        assert save(app, *[file_part(f"https://example.org/{n}.png") for n in range(2)]).status == 200


def test_inline_files_are_held_to_size_and_type_and_nothing_stays_of_a_refused_turn(shared):
    with serving(shared, max_attachment_bytes=1_000, attachment_types_denied=("text/html",)) as app:
        for data, status, code in (
            (PNG, 413, "ATTACHMENT_TOO_LARGE"),
            (b"<html>", 400, "ATTACHMENT_TYPE_REFUSED"),
        ):
            url = "data:image/png;base64," + base64.b64encode(data).decode()
            for answer in (
                save(app, file_part(url)),
                app.run(
                    "generate",
                    [picture(url, "x")],
                ),
            ):
                assert (answer.status, answer.json["code"]) == (status, code)
        assert app.rows("messages") == []
        assert app.deployment.blobs.list_keys("o/") == ()


def test_remote_files_are_fetched_only_where_that_is_switched_on(shared, monkeypatch):
    from agent_memory import remote_files
    from agent_memory.file_data import FileData

    asked = []
    monkeypatch.setattr(remote_files, "fetch", lambda address, **_: asked.append(address) or FileData(PNG, "image/png"))
    address = "https://example.org/dot.png"
    with serving(shared) as app:
        assert save(app, file_part(address)).status == 200
        assert app.messages("t1")[0]["content"]["parts"][1]["data"] == address
    assert asked == []
    with serving(shared, fetch_remote_attachments=True) as app:
        assert save(app, file_part(address), {"type": "text", "text": "https://example.org/words"}).status == 200
        link = app.messages("t1")[0]["content"]["parts"][1]["data"]
        assert link != address
        assert fetch(link)[0] == PNG
    assert asked == [address]


def test_remote_files_of_one_request_share_a_bound(shared, monkeypatch):
    from agent_memory import remote_files, sent_files
    from agent_memory.file_data import FileData

    bounds = []

    def slow(address, *, max_bytes, timeout_s):
        bounds.append((max_bytes, timeout_s))
        time.sleep(0.02)
        return FileData(PNG, "image/png")

    monkeypatch.setattr(remote_files, "fetch", slow)
    monkeypatch.setattr(sent_files, "FETCHED_BYTES", 2 * len(PNG))
    monkeypatch.setattr(sent_files, "FETCHING_S", 0.03)
    with serving(shared, fetch_remote_attachments=True) as app:
        assert save(app, *(file_part(f"https://example.org/{n}.png") for n in range(3))).status == 200
    rooms, times = zip(*bounds, strict=True)
    assert rooms == (2 * len(PNG), len(PNG), 0)
    assert times[0] == 0.03 > times[1] > times[2] == 0


# ------------------------------------------------------------------------------------------- links, reading, life cycle


def test_case_87_links_never_go_stale_wish_4(app, monkeypatch):
    later = Later(monkeypatch)
    data = base64.b64encode(PNG).decode()
    app.run("generate", [picture(PNG_URL)])
    raw = row_text(app)
    assert data not in raw
    assert "X-Amz-Signature" not in raw
    old = app.messages("t1")[0]["content"]["parts"][1]["data"]
    later.advance(days=8)
    sweep(app)
    new = app.messages("t1")[0]["content"]["parts"][1]["data"]
    assert fetch(new)[0] == PNG, "signed when it was read"
    echo = picture(old, id="u2")
    answer = app.run("generate", [echo])
    assert f'"size":{len(PNG)}' in answer.json["text"], "the model gets the bytes behind a link that is long over"
    assert "X-Amz-Signature" not in row_text(app)
    name = json.loads(raw)[0]["files"]["L"][0]["S"]
    led = app.get(f"/api/attachments/{name}", resourceId="ada")
    assert (led.status, fetch(led.headers["location"])[0]) == (302, PNG)
    stable = f"https://api.example/v1/api/attachments/{name}?resourceId=ada"
    assert save(app, file_part(stable), id="m9").status == 200
    assert "api.example" not in row_text(app)


def test_case_90_every_reading_tells_address_type_and_name_in_the_order_sent(app):
    first, second, third = (
        "data:text/plain;base64," + base64.b64encode(text.encode()).decode() for text in ("one", "two", "three")
    )
    message = {
        "id": "m1",
        "role": "user",
        "threadId": "t1",
        "resourceId": "ada",
        "content": {
            "format": 2,
            "parts": [
                {"type": "text", "text": "apples"},
                {"type": "file", "data": third, "mimeType": "text/plain", "filename": "3.txt"},
            ],
            "experimental_attachments": [
                {"url": first, "contentType": "text/plain", "name": "1.txt"},
                {"url": second, "contentType": "text/plain", "name": "2.txt"},
            ],
        },
    }
    saved = app.post("/api/memory/save-messages", {"messages": [message]}, agentId=AGENT)
    assert saved.status == 200
    app.indexed("ada", "t1")
    clone = app.post("/api/memory/threads/t1/clone", {"newThreadId": "t2"}, agentId=AGENT)
    include = json.dumps([{"id": "m1", "threadId": "t1"}])
    pages = {
        "save": saved.json["messages"][0],
        "list": app.messages("t1")[0],
        "include": app.messages("t2", include=include)[0],
        "clone": app.messages("t2")[0],
    }
    assert clone.status == 200
    for where, found in pages.items():
        content = found["content"]
        named = [(a["contentType"], a["name"]) for a in content["experimental_attachments"]]
        assert named == [("text/plain", "1.txt"), ("text/plain", "2.txt")], where
        bodies = [fetch(a["url"])[0] for a in content["experimental_attachments"]]
        assert bodies == [b"one", b"two"], where
        (part,) = [part for part in content["parts"] if part["type"] == "file"]
        assert (part["mimeType"], part["filename"], fetch(part["data"])[0]) == ("text/plain", "3.txt", b"three"), where
    (page,) = app.get("/api/chat/t1", agentId=AGENT, resourceId="ada").json["messages"]
    files = [part for part in page["parts"] if part["type"] == "file"]
    assert [(part["mediaType"], part["filename"]) for part in files] == [("text/plain", f"{n}.txt") for n in (1, 2, 3)]


def test_case_92_pictures_in_tool_results_leave_the_row(app):
    big = "data:image/png;base64," + base64.b64encode(PNG * 2_000).decode()
    invocation = {"state": "result", "toolCallId": "c1", "toolName": "camera", "args": {}, "result": {"image": big}}
    messages = [
        {"id": "u1", "role": "user", "content": "look", "threadId": "t1", "resourceId": "ada"},
        {
            "id": "a1",
            "role": "assistant",
            "threadId": "t1",
            "resourceId": "ada",
            "content": {"format": 2, "parts": [{"type": "tool-invocation", "toolInvocation": invocation}]},
        },
    ]
    assert app.post("/api/memory/save-messages", {"messages": messages}, agentId=AGENT).status == 200
    assert len(row_text(app)) < 10_000
    result = app.messages("t1")[1]["content"]["parts"][0]["toolInvocation"]["result"]
    assert fetch(result["image"])[0] == PNG * 2_000
    assert app.run("generate", "say fine").json["text"] == "fine"


def test_case_97_one_large_picture_goes_by_upload_and_the_thread_stays_usable(app):
    large = "data:image/png;base64," + "A" * 8_000_000
    body = {
        "messages": [{"role": "user", "content": [{"type": "file", "mediaType": "image/png", "url": large}]}],
        "memory": {"thread": "t1", "resource": "ada"},
    }
    answer = app.post("/api/agents/conformance/generate", body)
    assert answer.status == 413
    assert "upload" in answer.json["error"]
    data = PNG + bytes(8_000_000)
    promise = uploaded(app, data)
    for turn in range(2):
        history = [
            {"id": m["id"], "role": m["role"], "content": m["content"]["parts"]}
            for m in (app.messages() if turn else [])
        ]
        answer = app.run("generate", [*history, picture(promise["reference"], id=f"u{turn}")])
        assert answer.json["text"] == f'FILES [{{"mediaType":"image/png","size":{len(data)}}}]'


def test_an_upload_that_nobody_uses_and_one_that_was_used_are_removed_in_their_time(app, monkeypatch):
    later = Later(monkeypatch)
    app.deployment.files._clock = lambda: clock.now()
    unused, used, unfinished = uploaded(app), uploaded(app), ask(app).json
    assert put(unfinished, PNG) == 200
    assert save(app, file_part(used["reference"])).status == 200
    later.advance(hours=26)
    sweep(app)
    there = {key.rpartition("/")[2] for key in app.deployment.blobs.list_keys("o/")}
    assert there == {used["id"]}
    assert complete(app, unused).status == 404
    answer = save(app, file_part(unused["reference"]), id="m2")
    assert (answer.status, answer.json["code"]) == (400, "ATTACHMENT_NOT_FOUND")

    old = app.rows("messages")
    assert (
        app.post("/api/memory/messages/delete", {"messageIds": ["m1"]}, agentId=AGENT, resourceId="ada").status == 200
    )
    records = [
        {"dynamodb": {"Keys": {name: row[name] for name in ("pk", "sk")}, "OldImage": row, "SequenceNumber": str(n)}}
        for n, row in enumerate(old)
    ]
    deployment = app.deployment
    changes = [change for record in records if (change := read_file_change(record)) is not None]
    removed_files.apply(changes, deployment.store, deployment.files, deployment.blobs)
    sweep(app)
    assert app.get(f"/api/attachments/{used['id']}", resourceId="ada").status == 302, "for another day"
    later.advance(hours=26)
    sweep(app)
    assert app.get(f"/api/attachments/{used['id']}", resourceId="ada").status == 404
    assert app.deployment.blobs.list_keys("o/") == ()


def test_a_clone_for_another_owner_has_files_of_its_own(app):
    promise = uploaded(app)
    save(app, file_part(promise["reference"]))
    clone = app.post("/api/memory/threads/t1/clone", {"newThreadId": "t2", "resourceId": "bob"}, agentId=AGENT)
    assert clone.status == 200, clone.json
    (message,) = app.messages("t2", resourceId="bob")
    link = message["content"]["parts"][1]["data"]
    assert owner_prefix("bob") in link
    assert fetch(link)[0] == PNG
    same = app.post("/api/memory/threads/t1/clone", {"newThreadId": "t3"}, agentId=AGENT)
    assert same.status == 200
    keys = app.deployment.blobs.list_keys("o/")
    assert len(keys) == 2, "one for each owner"
    uses = [row for row in app.rows("runs") if "token" in row]
    assert sorted(row["thread"]["S"] for row in uses) == ["t1", "t2", "t3"]
    moved = app.post("/api/memory/threads/t3/transfer", {"resourceId": "cleo"}, agentId=AGENT)
    assert moved.status == 200, moved.json
    (message,) = app.messages("t3", resourceId="cleo")
    assert fetch(message["content"]["parts"][1]["data"])[0] == PNG


def test_a_failed_turn_keeps_its_words_and_their_picture(app):
    assert app.run("generate", [picture(PNG_URL, "fail now")]).status >= 500
    assert len(app.rows("messages")) == len(app.deployment.blobs.list_keys("o/")) == 1


def test_the_hourly_round_starts_the_removal_of_files_once_an_hour(app):
    services = app.deployment.services
    for _ in range(2):
        assert start(services, "sweep", {}, owner=None).state == "finished"
    kinds = [(job.kind, job.state) for job in services.jobs.list_jobs(None)]
    assert kinds.count(("files", "finished")) == 1
