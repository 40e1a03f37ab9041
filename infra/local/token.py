"""``python -m infra.local.token ada``: a token for the local stack that was started with ``make dev AUTH=jwt``."""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.local.issuer import HOURS, Issuer
from infra.local.template import ROOT


def main(arguments: list[str] | None = None) -> int:
    """Print a token; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.token", description="Prints a token for a local user.")
    parser.add_argument("resource", help="the user, who is the owner of what they write")
    parser.add_argument("--admin", action="store_true", help="a trusted caller, which names resources itself")
    parser.add_argument("--hours", type=float, default=HOURS, help=f"how long it holds (default {HOURS:.0f})")
    parser.add_argument("--port", type=int, default=8000, help="port of the stack (default 8000)")
    parser.add_argument("--data", type=Path, default=ROOT / ".data", help="data folder of the stack")
    options = parser.parse_args(arguments)
    issuer = Issuer(f"http://127.0.0.1:{options.port}", options.data)
    print(issuer.token(options.resource, admin=options.admin, hours=options.hours))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
