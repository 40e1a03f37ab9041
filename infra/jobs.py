"""Starts a job that looks after the search index, and follows it to its end: ``python -m infra.jobs replay``.

Against the local stack without more; against a deployed one with ``--api``, its base address: requests are signed with the
AWS credentials at hand, or carry the token in API_TOKEN where end users sign in (an admin's).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

LOCAL: Final = "http://127.0.0.1:8000"
KINDS: Final = {
    "replay": "apply the stream records that were kept because they failed",
    "reconcile": "compare the index with the messages, as every day",
    "reindex": "build the index anew, for NEXT_EMBEDDER where one is set",
    "drop-index": "remove the index of a former embedder (--index)",
}
LOOK_EVERY_S: Final = 2.0


class Refused(Exception):
    """The API refused a request; the text says why."""


def call(api: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request. Raises Refused."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    url = api.rstrip("/") + path
    if os.environ.get("API_TOKEN"):
        headers["authorization"] = f"Bearer {os.environ['API_TOKEN']}"
    elif (urlsplit(api).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        headers = _signed(method, url, data, headers)
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise Refused(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}") from error
    except urllib.error.URLError as error:
        raise Refused(f"expected the API at {api}, found none ({error.reason}); is `make dev` running?") from error


def follow(api: str, job: dict[str, Any]) -> dict[str, Any]:
    """Look at a job until it has ended, and tell its progress."""
    told = None
    while True:
        now = (job["state"], job["progress"])
        if now != told:
            print(f"{job['id']} {job['state']} {json.dumps(job['progress'])}", flush=True)
            told = now
        if job["state"] in ("finished", "failed"):
            return job
        time.sleep(LOOK_EVERY_S)
        job = call(api, "GET", f"/api/jobs/{job['id']}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Ends with 1 where the job failed or was refused."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.jobs",
        description="Start a job of the search index and follow it",
        epilog="\n".join(f"{kind:11} {text}" for kind, text in KINDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--api", default=os.environ.get("API") or LOCAL, help=f"base address (or API); {LOCAL}")
    parser.add_argument("--stamp", action="append", help="reindex: a further index whose rows the new one holds")
    parser.add_argument("--index", help="drop-index: id of the index")
    chosen = parser.parse_args(arguments)
    asked = {"kind": chosen.kind, "stamps": chosen.stamp, "index": chosen.index}
    try:
        job = call(chosen.api, "POST", "/api/jobs", {name: value for name, value in asked.items() if value})
        job = follow(chosen.api, job)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("The job goes on; GET /api/jobs/<id> shows it.", file=sys.stderr)
        return 0
    if job["result"]:
        print(json.dumps(job["result"]))
    if job["error"]:
        print(f"{job['error']['code']}: {job['error']['message']}", file=sys.stderr)
    return 0 if job["state"] == "finished" else 1


def _signed(method: str, url: str, data: bytes | None, headers: dict[str, str]) -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.session import Session

    session = Session()
    credentials = session.get_credentials()
    # <api>.execute-api.<region>.amazonaws.com
    region = (urlsplit(url).hostname or "").split(".")[2]
    if credentials is None:
        raise Refused(
            "expected AWS credentials to sign requests with, found none; set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        )
    request = AWSRequest(method=method, url=url, data=data, headers=headers)
    SigV4Auth(credentials, "execute-api", region).add_auth(request)
    return dict(request.headers.items())


if __name__ == "__main__":
    sys.exit(main())
