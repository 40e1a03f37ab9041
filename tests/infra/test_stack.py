"""`make dev` as a person runs it: a process, a port, Ctrl-C, and everything still there the next time."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Dev:
    """A running local stack."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.local", "--port", "0", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert found, first + self.process.communicate(timeout=10)[1]
        self.address = found[0]

    def ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data=data, method=method, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def interrupt(self):
        """Ctrl-C; the exit code and what was printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=40)
        return self.process.returncode, out + err


@contextlib.contextmanager
def dev(*arguments):
    running = Dev(*arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()


@pytest.mark.slow
def test_a_conversation_is_still_there_after_ctrl_c_and_another_start(tmp_path):
    data = tmp_path / "data"
    with dev("--data", str(data)) as first:
        answer = first.ask(
            "/api/agents/assistant/generate",
            {"messages": "My dog is called Rex.", "memory": {"thread": "t1", "resource": "ada"}},
        )
        code, output = first.interrupt()
    with dev("--data", str(data)) as second:
        messages = json.loads(second.ask("/api/memory/threads/t1/messages?agentId=assistant&resourceId=ada"))
        found = json.loads(second.ask("/api/memory/search?agentId=assistant&resourceId=ada&searchQuery=dog"))
        second.interrupt()

    assert json.loads(answer)["text"]
    assert code == 0, output
    assert "Traceback" not in output
    assert [message["role"] for message in messages["messages"]] == ["user", "assistant"]
    assert "My dog is called Rex." in [result["content"] for result in found["results"]]
    assert not (data / "dead-letters.jsonl").exists()


@pytest.mark.slow
def test_the_conformance_stack_streams_and_keeps_nothing(tmp_path):
    with dev("--conformance") as stack:
        assert json.loads(stack.ask("/health")) == {"status": "ok"}
        request = urllib.request.Request(
            f"{stack.address}/api/agents/conformance/stream",
            data=json.dumps({"messages": "slow 4 150", "memory": {"thread": "t", "resource": "ada"}}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            times = [time.monotonic() for line in answer if b'"text-delta"' in line]
        code, output = stack.interrupt()

    assert len(times) == 4
    assert times[-1] - times[0] > 0.35
    assert code == 0, output


@pytest.mark.slow
def test_a_busy_port_or_folder_gives_one_sentence(tmp_path):
    with dev("--data", str(tmp_path)) as running:
        port = running.address.rsplit(":", 1)[1]
        command = [sys.executable, "-m", "infra.local"]
        busy_port = subprocess.run(
            [*command, "--port", port, "--data", str(tmp_path / "other")], cwd=ROOT, capture_output=True, text=True
        )
        busy_folder = subprocess.run(
            [*command, "--port", "0", "--data", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
        )
        running.interrupt()

    assert (busy_port.returncode, busy_folder.returncode) == (1, 1)
    assert re.fullmatch(rf"expected port {port} to be free, found .*; .* make dev PORT=\d+\n", busy_port.stderr)
    assert busy_folder.stderr.startswith("expected ")
    assert busy_folder.stderr.count("\n") == 1
