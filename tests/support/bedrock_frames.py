"""Converse's answers on the wire: AWS event stream frames with the payloads that the service sends.

Shapes recorded from the published examples of the ConverseStream API, not from a run against AWS.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32

import boto3
from botocore.config import Config

from tests.support.canned_server import Canned

STREAM_TYPE = "application/vnd.amazon.eventstream"


def frame(event: str, payload: dict, *, kind: str = "event") -> bytes:
    """One event, or with kind ``exception`` one error inside the stream."""
    name = ":event-type" if kind == "event" else ":exception-type"
    headers = b"".join(
        struct.pack(f"!B{len(key)}sBH{len(value)}s", len(key), key, 7, len(value), value)
        for key, value in (
            (name.encode(), event.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", kind.encode()),
        )
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack("!I", crc32(prelude)) + headers + body
    return start + struct.pack("!I", crc32(start))


def text_block(index: int, *texts: str) -> list[bytes]:
    """A text block; Converse sends no start event for text."""
    deltas = [frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": text}}) for text in texts]
    return [*deltas, frame("contentBlockStop", {"contentBlockIndex": index})]


def reasoning_block(index: int, text: str, signature: str) -> list[bytes]:
    """A reasoning block that ends in its signature."""
    deltas = [{"text": text}, {"signature": signature}]
    return [
        *(
            frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"reasoningContent": delta}})
            for delta in deltas
        ),
        frame("contentBlockStop", {"contentBlockIndex": index}),
    ]


def tool_block(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    """A tool call whose input comes in pieces."""
    start = {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": call_id, "name": name}}}
    return [
        frame("contentBlockStart", start),
        *(
            frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}})
            for piece in pieces
        ),
        frame("contentBlockStop", {"contentBlockIndex": index}),
    ]


def answer(*blocks: list[bytes], reason: str = "end_turn", usage: dict | None = None, **fields) -> Canned:
    """A whole answer."""
    counted = usage or {"inputTokens": 30, "outputTokens": 7, "totalTokens": 37}
    pieces = [
        frame("messageStart", {"role": "assistant"}),
        *(piece for block in blocks for piece in block),
        frame("messageStop", {"stopReason": reason}),
        frame("metadata", {"usage": counted, "metrics": {"latencyMs": 551}}),
    ]
    return Canned(pieces, headers={"content-type": STREAM_TYPE, "x-amzn-requestid": "req-1"}, **fields)


def refusal(status: int, code: str, message: str) -> Canned:
    """An error instead of a stream."""
    return Canned(
        [json.dumps({"message": message}).encode()],
        status=status,
        headers={"content-type": "application/json", "x-amzn-errortype": code},
        chunked=False,
    )


def client_of(url: str, *, read_timeout_s: float = 5.0):
    """A Bedrock client that calls a local server."""
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout_s),
    )
