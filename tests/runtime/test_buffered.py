"""The same handlers where nothing streams: buffered, and under the genuine Python runtime client."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_runtime import buffered
from tests.runtime.handlers import Response, handler
from tests.support.runtime_api import RuntimeApiServer


def test_a_stream_is_collected_into_one_answer():
    answer = buffered(handler)({"count": 1}, None)

    assert answer["statusCode"] == 200
    assert answer["headers"] == {"content-type": "text/event-stream"}
    assert answer["body"] == "data: 0 ø漢\n\ndata: [DONE]\n\n"
    assert answer["isBase64Encoded"] is False


def test_bytes_that_are_not_text_travel_as_base64():
    answer = buffered(lambda event, context: Response(200, [b"\xff\xd8", b"\x00"], {"content-type": "image/jpeg"}))(
        {}, None
    )

    assert answer["isBase64Encoded"] is True
    assert base64.b64decode(answer["body"]) == b"\xff\xd8\x00"


def test_repeated_headers_survive():
    answer = buffered(handler)({"kind": "cookies"}, None)

    assert answer["multiValueHeaders"]["set-cookie"] == ["a=1", "b=2"]


def test_what_is_no_stream_passes_unchanged():
    assert buffered(lambda event, context: {"ok": event})(3, None) == {"ok": 3}
    assert buffered(handler)({"kind": "gateway"}, None)["statusCode"] == 404


def test_a_failing_stream_fails_the_call():
    with pytest.raises(RuntimeError, match="gone"):
        buffered(handler)({"raise_after": "gone"}, None)


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime client is published for Linux only")
def test_a_buffered_handler_runs_under_the_genuine_runtime_client(tmp_path):
    (tmp_path / "app.py").write_text(
        "from streaming_runtime import buffered\nimport handlers\nhandler = buffered(handlers.handler)\n"
    )
    root = Path(__file__).resolve().parents[2]
    with RuntimeApiServer() as api:
        process = subprocess.Popen(
            [sys.executable, "-m", "awslambdaric", "app.handler"],
            env={
                "PATH": os.environ["PATH"],
                "AWS_LAMBDA_RUNTIME_API": api.address,
                "PYTHONPATH": f"{root / 'layers' / 'runtime'}:{root / 'tests' / 'runtime'}",
            },
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            good = api.invoke({"count": 1}).wait()
            bad = api.invoke({"kind": "raise"}).wait()
        finally:
            process.kill()
            process.wait()

    assert good.json["body"] == "data: 0 ø漢\n\ndata: [DONE]\n\n"
    assert bad.error["errorType"] == "KeyError"
