"""HTTP requests that are signed as a trusted server signs them (SigV4 for API Gateway)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION = "us-east-1"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: urllib3.HTTPHeaderDict
    body: bytes

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The events of a stream: JSON, or the text that is none."""
        lines = self.body.decode().splitlines()
        texts = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]


class SignedApi:
    """An API at an address. `keys` is an access key and its secret; None signs nothing."""

    def __init__(self, address, keys):
        self.address = address
        self._credentials = Credentials(*keys) if keys else None
        self._http = urllib3.PoolManager(ca_certs=os.environ.get("AWS_CA_BUNDLE"))

    def __call__(self, method, path, body=None, *, query=None, headers=None):
        url = self.address + quote(path) + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        data = None if body is None else json.dumps(body)
        sent = {**({"content-type": "application/json"} if body is not None else {}), **(headers or {})}
        if self._credentials is not None:
            request = AWSRequest(method, url, sent, data)
            SigV4Auth(self._credentials, "execute-api", REGION).add_auth(request)
            sent = dict(request.headers)
        answer = self._http.request(method, url, body=data, headers=sent, timeout=60, retries=False, redirect=False)
        return Answer(answer.status, answer.headers, answer.data)
