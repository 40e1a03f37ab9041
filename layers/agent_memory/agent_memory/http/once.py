"""Calls with an `Idempotency-Key`: done once, answered the same again for a day."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from agent_memory import runtime
from agent_memory._json import dumps
from agent_memory.errors import AgentMemoryError, ConflictError, TooLargeError, TurnInProgressError
from agent_memory.http.call import Call
from agent_memory.http.limits import MAX_KEPT_ANSWER_BYTES
from agent_memory.http.response import Response
from agent_memory.http.router import Handler
from agent_memory.ids import new_id

if TYPE_CHECKING:
    from agent_memory.ports import RunStore

_FAILED: Final = b'data: {"type":"error"'


def run_once(call: Call, handler: Handler) -> Response:
    """Run `handler` unless an equal call was answered before. A failed call is not remembered.

    Raises ConflictError for the same key with another request, TurnInProgressError while the first call is at work.
    """
    runs, key = runtime.services().runs, call.idempotency_key
    if runs is None or key is None:
        return _response(handler(call))
    kept = _Kept(runs, _owner(call), key, _digest(call))
    earlier = kept.claim()
    if earlier is not None:
        return earlier
    try:
        response = _response(handler(call))
    except BaseException:
        kept.forget()
        raise
    if isinstance(response.body, bytes):
        kept.keep(response, response.body)
    else:
        response.body = kept.watch(response, response.body)
    return response


class _Kept:
    """What one key stands for."""

    def __init__(self, runs: RunStore, owner: str | None, key: str, digest: str) -> None:
        self._runs = runs
        self._owner = owner
        self._key = key
        self._digest = digest
        self._claim = new_id("call-")

    def claim(self) -> Response | None:
        """Claim the key for this call, or return what the first call answered."""
        found = self._runs.remember(self._owner, self._key, self._digest, None, run_id=self._claim)
        if found is None:
            return None
        if found["hash"] != self._digest:
            raise ConflictError(
                "this Idempotency-Key was used for another request; send a new key with a new request",
                code="IDEMPOTENCY_KEY_USED",
            )
        result = found["result"]
        if result is None:
            raise TurnInProgressError("the first call with this Idempotency-Key is at work; ask again in a moment")
        if "body" not in result:
            return None  # too large to keep: the run answers from what it stored
        return Response(result["status"], dict(result["headers"]), str(result["body"]).encode())

    def keep(self, response: Response, body: bytes) -> None:
        """Remember the answer."""
        kept: dict[str, Any] = {"status": response.status}
        if len(body) <= MAX_KEPT_ANSWER_BYTES:
            kept |= {"headers": dict(response.headers), "body": body.decode()}
        try:
            self._runs.remember(self._owner, self._key, self._digest, kept, run_id=self._claim)
        except TooLargeError:
            self._runs.remember(self._owner, self._key, self._digest, {"status": response.status}, run_id=self._claim)

    def forget(self) -> None:
        """Release the key."""
        try:
            self._runs.forget(self._owner, self._key)
        except AgentMemoryError:
            pass  # the claim ends by itself; the call's own error is what counts

    def watch(self, response: Response, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces of a streamed body; remembered when it ended well."""
        said: list[bytes] = []
        done = False
        try:
            for piece in pieces:
                said.append(piece)
                yield piece
            done = True
        finally:
            if done and not any(piece.startswith(_FAILED) for piece in said):
                self.keep(response, b"".join(said))
            else:
                self.forget()


def _response(value: Any) -> Response:
    return value if isinstance(value, Response) else Response.json(value)


def _owner(call: Call) -> str | None:
    """Whose key it is, so that one resource's keys mean nothing to another."""
    memory = call.body.get("memory") or {}
    return call.identity.resource(call.named_resource or memory.get("resource"))


def _digest(call: Call) -> str:
    request = call.request
    described = dumps([request.method, call.route.pattern, dict(call.params), sorted(request.query.items())])
    return hashlib.sha256(described.encode("utf-8", "surrogatepass") + b"\n" + request.body).hexdigest()
