"""``python -m infra.local``: the whole stack on one port of this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from infra.local.emulator import EmulatorError
from infra.local.issuer import PATH, Issuer
from infra.local.server import PortInUseError
from infra.local.stack import SNAPSHOT_S, DataInUseError, Stack
from infra.local.template import ROOT


class _WithFields(logging.Formatter):
    """Lines as a person reads them: the fields that the cloud's JSON lines carry stand behind the message."""

    _plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = super().format(record)
        fields = {name: value for name, value in vars(record).items() if name not in self._plain}
        return " ".join([line, *(f"{name}={value}" for name, value in fields.items())])


def main(arguments: list[str] | None = None) -> int:
    """Run until interrupted; the exit code."""
    parser = argparse.ArgumentParser(prog="make dev", description="The whole stack on one port of this machine.")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (0: a free one)")
    parser.add_argument("--data", type=Path, default=ROOT / ".data", help="folder that keeps everything")
    parser.add_argument("--conformance", action="store_true", help="serve the conformance agents and keep nothing")
    parser.add_argument(
        "--auth",
        choices=("open", "jwt"),
        default="open",
        help="open: every caller is trusted and names resources; jwt: callers bring a token of a local issuer",
    )
    options = parser.parse_args(arguments)
    lines = logging.StreamHandler()
    lines.setFormatter(_WithFields("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    logging.getLogger("infra.local").setLevel(logging.INFO)
    # The front door shows every request anyhow; who asks for the functions' own lines gets them.
    if os.environ.get("LOG_LEVEL"):
        logging.getLogger("agent_memory").setLevel(os.environ["LOG_LEVEL"].upper())

    started = time.monotonic()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        stack = (
            _conformance(options.port, options.auth == "jwt")
            if options.conformance
            else Stack(port=options.port, data=options.data, sign_in=options.auth == "jwt")
        )
        stack.start()
    except (PortInUseError, DataInUseError, EmulatorError) as error:
        print(error, file=sys.stderr)
        return 1
    took_s = time.monotonic() - started
    print(f"agent-memory is ready on {stack.server.address} ({took_s:.1f} s)")
    if options.conformance:
        print("Conformance agents; nothing is kept.")
    else:
        print(f"Data: {stack.data} (a kill -9 can lose the last {SNAPSHOT_S:.0f} s; Ctrl-C loses nothing)")
    if stack.issuer is not None:
        _print_tokens(stack.issuer, options)
    print("Stop with Ctrl-C.", flush=True)
    stopped.wait()
    print("\nStopping…", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # a second Ctrl-C ends it at once
    stack.stop()
    return 0


def _print_tokens(issuer: Issuer, options: argparse.Namespace) -> None:
    print("Callers sign in: send one of these tokens as `authorization: Bearer …`.")
    for name in ("ada", "bob"):
        print(f"  {name}  {issuer.token(name)}")
    if not options.conformance:
        port = issuer.name.removesuffix(PATH).rpartition(":")[2]
        more = ("" if port == "8000" else f" --port {port}") + (
            "" if options.data == ROOT / ".data" else f" --data {options.data}"
        )
        print(f"More: .venv/bin/python -m infra.local.token carol{more} (--admin for a trusted caller)")


def _conformance(port: int, sign_in: bool) -> Stack:
    from infra.conformance.agents import AGENTS, VARIABLES

    return Stack(port=port, agents=AGENTS, variables=VARIABLES, sign_in=sign_in)


if __name__ == "__main__":
    sys.exit(main())
