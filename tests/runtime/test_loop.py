"""The streaming runtime against a stand-in of Lambda's Runtime API."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streaming_runtime import KEEP_ALIVE
from streaming_runtime.api import RuntimeApi
from streaming_runtime.loop import DeadlineError, Loop
from tests.runtime.handlers import Response, handler
from tests.support.runtime_api import RuntimeApiServer

LAYER = Path(__file__).resolve().parents[2] / "layers" / "runtime"


@pytest.fixture
def api():
    with RuntimeApiServer() as server:
        yield server


@pytest.fixture
def client(api):
    """The runtime's side of the connection."""
    client = RuntimeApi(api.address)
    yield client
    client.close()


def run(api, client, *events, silence_s=15.0, **options):
    """Queue events, answer them with a loop in this process, and return the answers."""
    answers = [api.invoke(event, **options) for event in events]
    loop = Loop(client, handler, silence_s=silence_s)
    for _ in answers:
        loop.run_one()
    return [answer.wait() for answer in answers]


def test_a_streamed_answer_has_the_prelude_eight_nuls_and_the_body(api, client):
    (answer,) = run(api, client, {"count": 2})

    assert answer.headers["lambda-runtime-function-response-mode"] == "streaming"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.headers["content-type"] == "application/vnd.awslambda.http-integration-response"
    assert answer.prelude == {"statusCode": 200, "headers": {"content-type": "text/event-stream"}}
    assert answer.payload.decode() == "data: 0 ø漢\n\ndata: 1 ø漢\n\ndata: [DONE]\n\n"
    assert answer.trailers == {}
    assert answer.complete


def test_each_piece_leaves_at_once_as_its_own_chunk(api, client):
    (answer,) = run(api, client, {"count": 3, "pause_s": 0.4})

    assert [data for _, data in answer.pieces][-1] == b"data: [DONE]\n\n"
    assert len(answer.pieces) == 4
    gaps = [later - earlier for (earlier, _), (later, _) in zip(answer.pieces, answer.pieces[1:], strict=False)]
    assert min(gaps) > 0.1


def test_a_silent_event_stream_gets_comments_between_events(api, client):
    (answer,) = run(api, client, {"count": 2, "pause_s": 0.8}, silence_s=0.1)

    pieces = [data for _, data in answer.pieces]
    assert pieces[0].startswith(b"data: 0")
    assert pieces.count(KEEP_ALIVE) >= 4
    assert b"".join(piece for piece in pieces if piece != KEEP_ALIVE).startswith(b"data: 0 \xc3\xb8")


def test_other_content_types_get_no_comments(api, client):
    answer = api.invoke({})
    body = (piece for piece in [b"one", b"two"] if not time.sleep(0.25))

    slow = Response(200, body, {"content-type": "application/json"})
    Loop(client, lambda event, context: slow, silence_s=0.05).run_one()

    assert answer.wait().payload == b"onetwo"


def test_an_error_after_the_first_byte_goes_into_the_trailers_and_the_loop_goes_on(api, client):
    first, second = run(api, client, {"count": 1, "raise_after": "model gone"}, {"count": 1})

    assert first.prelude["statusCode"] == 200
    assert first.trailers["lambda-runtime-function-error-type"] == "RuntimeError"
    assert "model gone" not in str(first.trailing_error)  # what an error says may quote a message
    assert any("_pieces" in line for line in first.trailing_error["stackTrace"])
    assert second.trailers == {}


def test_an_error_before_the_answer_is_reported_as_lambda_reports_it(api, client):
    (answer,) = run(api, client, {"kind": "raise"})

    assert answer.error["errorType"] == "KeyError"
    assert answer.headers["lambda-runtime-function-error-type"] == "KeyError"
    assert answer.error["stackTrace"]


def test_an_answer_that_is_not_json_is_an_error_not_a_crash(api, client):
    first, second = run(api, client, {"kind": "object"}, {"kind": "plain"})

    assert first.error["errorType"] == "TypeError"
    assert second.json["id"] == second.request_id


def test_a_gateway_answer_is_sent_in_the_streams_form(api, client):
    (answer,) = run(api, client, {"kind": "gateway"})

    assert answer.prelude["statusCode"] == 404
    assert json.loads(answer.payload) == {"error": "ø"}


def test_repeated_headers_are_kept_and_no_nul_enters_the_prelude(api, client):
    (answer,) = run(api, client, {"kind": "cookies"})

    assert answer.body.count(b"\0" * 8) == 1
    assert answer.prelude["multiValueHeaders"] == {"set-cookie": ["a=1", "b=2"]}
    assert answer.prelude["headers"] == {"x-odd": "a\0b"}
    assert answer.payload == b"made\0"


def test_a_reader_that_goes_away_does_not_stop_the_turn_from_being_stored(api, client, tmp_path):
    mark = tmp_path / "mark"
    gone = api.invoke({"count": 20, "pause_s": 0.02, "mark": str(mark)}, hang_up_after=2)
    after = api.invoke({"count": 1})
    loop = Loop(client, handler)

    loop.run_one()
    loop.run_one()

    assert not gone.wait().complete
    assert mark.read_text() == "ran to its end"
    assert after.wait().complete


def test_an_answer_is_closed_in_order_just_before_the_deadline(api, client):
    answer = api.invoke({"count": 50, "pause_s": 0.1}, timeout_s=0.8)

    with pytest.raises(DeadlineError):
        Loop(client, handler).run_one()

    assert answer.wait().complete
    assert answer.payload.startswith(b"data: 0")
    assert answer.trailers["lambda-runtime-function-error-type"] == "Function.Deadline"


def test_the_trace_id_of_each_invocation_is_in_the_environment(api, client, monkeypatch):
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "old")
    traced = api.invoke({"kind": "plain"}, trace_id="Root=1-5759e988-bd862e3fe1be46a994272793")
    untraced = api.invoke({"kind": "plain"})
    loop = Loop(client, handler)
    loop.run_one()
    loop.run_one()

    assert traced.wait().json["trace"] == "Root=1-5759e988-bd862e3fe1be46a994272793"
    assert 0 < traced.json["left"] <= 30_000
    assert untraced.wait().json["trace"] is None


@pytest.fixture
def layer(tmp_path):
    """The layer as it lies below /opt."""
    opt = tmp_path / "opt"
    shutil.copytree(LAYER / "streaming_runtime", opt / "python" / "streaming_runtime")
    shutil.copy2(LAYER / "streaming", opt / "streaming")
    return opt


def start(api, layer, name, task_root, **env):
    """Start a runtime process as Lambda starts it: the wrapper, and the runtime's own command as its arguments."""
    return subprocess.Popen(
        [str(layer / "streaming"), sys.executable, "/var/runtime/bootstrap.py"],
        env={
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": api.address,
            "LAMBDA_TASK_ROOT": str(task_root),
            "_HANDLER": name,
            **env,
        },
        cwd=task_root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def stop(process):
    process.kill()
    process.communicate()


def test_the_exec_wrapper_starts_the_loop(api, layer):
    process = start(api, layer, "handlers.handler", Path(__file__).parent)
    try:
        answer = api.invoke({"count": 1}).wait()
    finally:
        stop(process)

    assert answer.payload.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("given", [None, "AWS_Lambda_python{}.{}", "somewhere-else"])
def test_packages_of_the_layer_are_found_whatever_the_runtime_calls_itself(api, layer, given):
    version = sys.version_info[:2]
    packages = layer / "python" / "lib" / "python{}.{}".format(*version) / "site-packages"
    packages.mkdir(parents=True)
    (packages / "only_here.py").write_text("def handler(event, context):\n    return {'found': True}\n")
    env = {} if given is None else {"AWS_EXECUTION_ENV": given.format(*version)}
    process = start(api, layer, "only_here.handler", Path(__file__).parent, **env)
    try:
        answer = api.invoke({}).wait()
    finally:
        stop(process)

    assert answer.json == {"found": True}


def test_a_handler_that_cannot_be_imported_is_an_init_error(api, layer):
    process = start(api, layer, "absent.handler", Path(__file__).parent)
    try:
        assert api.init_failed.wait(10)
        assert process.wait(10) != 0
    finally:
        stop(process)

    assert api.init_error["errorType"] == "ModuleNotFoundError"


def test_after_a_deadline_the_process_ends_so_that_no_old_turn_runs_beside_a_new_one(api, layer):
    process = start(api, layer, "handlers.handler", Path(__file__).parent)
    try:
        answer = api.invoke({"count": 100, "pause_s": 0.1}, timeout_s=1.5).wait()
        assert process.wait(10) == 1
    finally:
        stop(process)

    assert answer.trailers["lambda-runtime-function-error-type"] == "Function.Deadline"


def test_with_snap_start_nothing_is_fetched_before_the_restore(api, layer):
    answer = api.invoke({"kind": "plain"})
    process = start(api, layer, "handlers.handler", Path(__file__).parent, AWS_LAMBDA_INITIALIZATION_TYPE="snap-start")
    try:
        early = answer.done.wait(0.7)
        api.restore.set()
        late = answer.done.wait(10)
    finally:
        stop(process)

    assert (early, late, api.restores) == (False, True, 1)


def test_the_loop_needs_the_standard_library_alone(layer):
    code = (
        "import sys; before = set(sys.modules); import streaming_runtime.loop;"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(layer / "python")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.strip() == "['streaming_runtime']"


def test_no_thread_is_left_after_an_answer(api, client):
    before = {thread.ident for thread in threading.enumerate()}
    run(api, client, {"count": 2})
    left = [thread for thread in threading.enumerate() if thread.ident not in before and thread.name == "body"]
    for thread in left:
        thread.join(10)

    assert [thread for thread in left if thread.is_alive()] == []
