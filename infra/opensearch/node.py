"""A real OpenSearch node on loopback, assembled from Maven Central: ``node.py start|stop|run -- command``.

No distribution is needed: TestNode.java starts the server with its plugins from the class path, and k-NN's Lucene
engine has no native part. Artefacts and compiled class are kept outside the tree, in ~/.cache/agent-memory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
VERSION: Final = "2.19.6"
START_S: Final = 90.0
HEAP: Final = "512m"


class Unavailable(Exception):
    """The node cannot be had here; the text says which piece is missing."""


@dataclass
class Node:
    """A running node and the folder of its data, which goes with it."""

    url: str
    process: subprocess.Popen[bytes]
    folder: Path

    def stop(self) -> None:
        """End the node and remove its data."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def cache() -> Path:
    """Where artefacts of this version are kept; a change of pom.xml or TestNode.java makes a new folder."""
    sources = (HERE / "pom.xml").read_bytes() + (HERE / "TestNode.java").read_bytes()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "agent-memory" / f"opensearch-{VERSION}-{hashlib.sha256(sources).hexdigest()[:8]}"


def assemble() -> Path:
    """Fetch and compile what is missing. Raises Unavailable."""
    target = cache()
    if (target / "ready").exists():
        return target
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise Unavailable(f"expected {tool} on PATH, found none; install Java 17 and Maven")
    work = Path(tempfile.mkdtemp(prefix="opensearch-", dir=_made(target.parent)))
    try:
        print("Fetching OpenSearch from Maven Central (first time: about a minute)", file=sys.stderr)
        pom = str(HERE / "pom.xml")
        _run("mvn", "-B", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={work / 'lib'}")
        plugin = next((work / "lib").glob("opensearch-knn-*.zip"))
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(work / "knn", [name for name in archive.namelist() if name.endswith(".jar")])
        _run("javac", "-cp", f"{work}/lib/*:{work}/knn/*", "-d", str(work / "classes"), str(HERE / "TestNode.java"))
        (work / "ready").touch()
        try:
            work.rename(target)
        except OSError:
            if not (target / "ready").exists():  # another process was quicker
                raise
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def start_for_process(port: int = 0) -> Node:
    """Start a node that the caller stops. Raises Unavailable."""
    target = assemble()
    folder = Path(tempfile.mkdtemp(prefix="opensearch-node-"))
    port = port or _free_port()
    log = folder / "node.log"
    classes = f"{target}/classes:{target}/lib/*:{target}/knn/*"
    command = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", classes, "TestNode", str(folder), str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    node = Node(f"http://127.0.0.1:{port}", process, folder)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(node.url, timeout=2):
                return node
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    tail = log.read_text(errors="replace")[-2000:]
    node.stop()
    raise Unavailable(f"the node did not answer within {START_S:.0f} s:\n{tail}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _state() -> Path:
    return _made(cache().parent) / "opensearch-node.pid"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="A real OpenSearch node for tests")
    parser.add_argument("action", choices=["start", "stop", "run"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("command", nargs="*", help="for run: the command, which finds the node in OPENSEARCH_TEST_URL")
    chosen = parser.parse_args()
    try:
        if chosen.action == "stop":
            return _stop()
        node = start_for_process(chosen.port)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    if chosen.action == "start":
        _state().write_text(f"{node.process.pid} {node.folder}")
        print(node.url)
        return 0
    try:
        return subprocess.run(
            chosen.command, env={**os.environ, "OPENSEARCH_TEST_URL": node.url}, check=False
        ).returncode
    finally:
        node.stop()


def _stop() -> int:
    state = _state()
    if not state.exists():
        print("no node was started", file=sys.stderr)
        return 1
    pid, folder = state.read_text().split(" ", 1)
    command = Path(f"/proc/{pid}/cmdline")
    if not command.exists() or b"TestNode" in command.read_bytes():  # the number may be another process's by now
        try:
            os.kill(int(pid), signal.SIGTERM)
        except ProcessLookupError:
            pass
    shutil.rmtree(folder, ignore_errors=True)
    state.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
