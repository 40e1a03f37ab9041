"""One shape for what providers answer when they fail."""

from __future__ import annotations

from typing import Final

from agent_memory.errors import ModelError
from agent_memory.models.retry import RETRY_STATUS

_MAX_DETAIL: Final = 500
_CODES: Final = {
    400: "MODEL_REQUEST_REFUSED",
    401: "MODEL_ACCESS_DENIED",
    403: "MODEL_ACCESS_DENIED",
    404: "MODEL_NOT_FOUND",
    408: "MODEL_TIMEOUT",
    413: "MODEL_REQUEST_REFUSED",
    422: "MODEL_REQUEST_REFUSED",
    429: "MODEL_THROTTLED",
    504: "MODEL_TIMEOUT",
}


def refused(model: str, status: int, detail: str) -> ModelError:
    """The error for an HTTP status and what the provider said to it (cut to 500 characters)."""
    retryable = status in RETRY_STATUS
    code = _CODES.get(status, "MODEL_UNAVAILABLE" if retryable else "MODEL_FAILED")
    detail = " ".join(detail.split())[:_MAX_DETAIL] or "no reason given"
    return ModelError(f"{model} answered {status}: {detail}", code=code, provider_status=status, retryable=retryable)


def unreachable(model: str, detail: str, *, timeout: bool = False) -> ModelError:
    """The error for a provider that gave no answer."""
    code = "MODEL_TIMEOUT" if timeout else "MODEL_UNAVAILABLE"
    return ModelError(f"{model} gave no answer: {detail}", code=code, retryable=True)


def cut_off(model: str) -> ModelError:
    """The error for a stream that ended before the answer did."""
    return ModelError(f"{model} ended its stream before the answer was complete", code="MODEL_STREAM_CUT")
