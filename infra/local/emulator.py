"""The AWS emulator that `make dev` and the tests talk to: DynamoDB with streams, S3, Lambda, IAM on loopback.

The emulator pins other library versions than this project, so it lives in a virtual environment of its own, which is
made on first use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venvs" / "emulator"
LOCK = Path(__file__).with_name("requirements-emulator.lock")
REGION = "us-east-1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0  # a clean stop that saves its state was seen to take 4 s
STOP_WITHOUT_STATE_S = 2.0


class EmulatorError(RuntimeError):
    """The emulator could not be installed, started or reached."""


@dataclass(frozen=True)
class Certificate:
    """PEM files of a self-signed certificate for 127.0.0.1 and of its key."""

    file: Path
    key: Path


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ensure_installed(venv: Path = VENV) -> Path:
    """Return the emulator's Python, making its virtual environment first where there is none or its lock has changed.

    Raises EmulatorError when the packages cannot be installed.
    """
    python = venv / "bin" / "python"
    if _is_current(venv):
        return python
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / "emulator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process installs, the others wait for it
        if not _is_current(venv):
            _install(venv)
    return python


def _install(venv: Path) -> None:
    # Built beside and renamed, so that nobody sees half an environment.
    # A venv's scripts name its place, so only the interpreter is used, never the scripts.
    building = Path(tempfile.mkdtemp(prefix="emulator-", dir=venv.parent))
    pip = [str(building / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(building)], check=True)
        subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(LOCK)], check=True)
        shutil.copyfile(LOCK, building / LOCK.name)
        shutil.rmtree(venv, ignore_errors=True)
        building.rename(venv)
    except subprocess.CalledProcessError as error:
        raise EmulatorError(
            f"expected to install the packages of {LOCK.name} into {venv}, found exit code {error.returncode}; "
            "check the package index and run it again"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _is_current(venv: Path) -> bool:
    installed = venv / LOCK.name
    return installed.exists() and installed.read_bytes() == LOCK.read_bytes()


class Emulator:
    """One emulator process on loopback.

    Attributes:
        port: The port it listens on; a free one where None was given.
        endpoint: Its address, for ``AWS_ENDPOINT_URL``.
        state_dir: Where its state is kept between runs; None keeps nothing.
    """

    def __init__(
        self,
        port: int | None = None,
        state_dir: Path | str | None = None,
        *,
        snapshot_every_s: float = 60.0,
        env: dict[str, str] | None = None,
        log_file: Path | str | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        """Prepare; `start` runs it.

        Args:
            port: Port to listen on.
            state_dir: Folder for tables, objects and stacks; None for a run that leaves nothing.
            snapshot_every_s: How often the state is written while it runs (0: only at a clean stop).
            env: Further settings of the emulator, e.g. ``{"AUTH": "true"}``.
            log_file: Where its output goes; by default a file in the state folder, or nowhere.
            certificate: Serve HTTPS with it, and HTTP no more. Functions in the emulator trust it.
        """
        self.port = port or free_port()
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.state_dir = Path(state_dir).resolve() if state_dir is not None else None
        self._snapshot_every_s = snapshot_every_s
        self._env = dict(env or {})
        self._certificate = certificate
        if certificate is not None:
            self._env |= {
                "USE_SSL": "1",
                "MINISTACK_SSL_CERT": str(certificate.file),
                "MINISTACK_SSL_KEY": str(certificate.key),
                # Functions take these over; this machine's own would hide the certificate from them.
                "SSL_CERT_FILE": str(certificate.file),
                "REQUESTS_CA_BUNDLE": str(certificate.file),
            }
        self._log_file = Path(log_file) if log_file is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: str | None = None

    def start(self) -> Emulator:
        """Start it and wait until it answers. Raises EmulatorError when it does not."""
        python = ensure_installed()
        self._scratch = tempfile.mkdtemp(prefix="agent-memory-emulator-")
        state = self.state_dir or Path(self._scratch)
        state.mkdir(parents=True, exist_ok=True)
        keep = "1" if self.state_dir else "0"
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PYTHON"))},
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_REGION": REGION,
            "PERSIST_STATE": keep,
            "STATE_DIR": str(state / "state"),
            "S3_PERSIST": keep,
            "S3_DATA_DIR": str(state / "objects"),
            "TMPDIR": self._scratch,
            "LOG_LEVEL": "WARNING",
            "SNAPSHOT_EVERY_S": str(self._snapshot_every_s),
            **self._env,
        }
        log_path = self._log_file or (state / "emulator.log" if self.state_dir else None)
        log: IO[bytes] | int = open(log_path, "ab") if log_path else subprocess.DEVNULL  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [
                    str(python),
                    "-P",
                    str(Path(__file__).with_name("emulator_main.py")),
                ],  # -P: files beside it hide no module
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it through `stop`, after its clients have ended
            )
        finally:
            if not isinstance(log, int):
                log.close()
        try:
            self.wait_ready()
        except EmulatorError:
            self.stop()
            raise
        return self

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it answers. Raises EmulatorError after `timeout_s` seconds, or when the process has ended."""
        context = ssl.create_default_context(cafile=self._certificate.file) if self._certificate else None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise EmulatorError(
                    f"expected the emulator to run on port {self.port}, found that it ended with {code}"
                )
            try:
                with urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2, context=context) as answer:
                    answer.read()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise EmulatorError(f"expected an answer on {self.endpoint} within {timeout_s:.0f} s, found none")

    def stop(self) -> None:
        """Stop it, saving its state first where it keeps one. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                # Connections of the functions' processes can hold it up; where nothing is kept there is nothing to wait for.
                process.wait(STOP_TIMEOUT_S if self.state_dir else STOP_WITHOUT_STATE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def environment(self) -> dict[str, str]:
        """Environment variables that point every AWS client at it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **({"AWS_CA_BUNDLE": str(self._certificate.file)} if self._certificate else {}),
        }

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client for it."""
        import boto3

        make: Any = boto3.session.Session().client
        return make(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            **({"verify": str(self._certificate.file)} if self._certificate else {}),
            **options,
        )

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
