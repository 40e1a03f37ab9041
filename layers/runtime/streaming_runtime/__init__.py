"""Lets a Python handler stream from AWS Lambda, whose managed Python runtime would buffer its answer.

A handler is a function ``handler(event, context)``. It may return

- an object with `status`, `headers` and `body` (an iterable of bytes): it is streamed, one chunk for each piece;
- an API Gateway answer (a mapping with ``statusCode``): it is sent as a stream of one piece, because a front door that
  expects a stream needs the stream's form for every answer;
- anything else that is JSON: it is sent as it is (asynchronous invocations).

`loop` runs on Lambda, `buffered` runs the same handler where nothing streams. Nothing but the standard library is used.
"""

from streaming_runtime.answer import Streamed, buffered
from streaming_runtime.pump import KEEP_ALIVE, Pump

__all__ = ["KEEP_ALIVE", "Pump", "Streamed", "buffered"]
