"""Checks the token of a call and answers the policy that lets it in. Runs where callers are signed-in end users.

The policy covers the whole stage, because API Gateway keeps it for a token and asks it for every other route. Which
resource a call may touch is decided by the functions, from the context given here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from agent_memory import observe
from agent_memory.auth.context import ADMIN_KEY, EXPIRY_KEY, RESOURCE_KEY
from agent_memory.auth.keys import IssuerKeys
from agent_memory.auth.tokens import Grant, Verifier, bearer
from agent_memory.errors import AuthenticationError
from agent_memory.settings import Settings

_log = logging.getLogger("agent_memory.auth")


class Unauthorized(Exception):
    """API Gateway answers 401 to this one message, and 500 to any other failure."""

    def __init__(self) -> None:
        super().__init__("Unauthorized")


@observe.function("authorizer", answers=(Unauthorized,))
def handler(event: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a TOKEN authorizer's event: `authorizationToken` and `methodArn`.

    Raises Unauthorized for a token that does not hold. While the issuer cannot be reached another error is raised: the caller's
    token may be good, and a page must not sign its user out.
    """
    try:
        grant = verifier().verify(bearer(event.get("authorizationToken")))
    except AuthenticationError as error:
        _log.info("a call was not let in", extra={"code": error.code})
        observe.metrics(SignInRefusals=1)
        raise Unauthorized from None
    return policy(grant, event["methodArn"])


@cache
def verifier() -> Verifier:
    """Made from the environment on first use; its keys are kept between calls."""
    settings = Settings.from_env()
    return Verifier(settings, IssuerKeys(settings.required("jwt_issuer")))


def policy(grant: Grant, method_arn: str) -> dict[str, Any]:
    """Allows every method of the stage in `method_arn` (``arn:…:<api>/<stage>/<method>/<path>``)."""
    stage = "/".join(method_arn.split("/", 2)[:2])
    context: dict[str, Any] = {ADMIN_KEY: grant.admin, EXPIRY_KEY: grant.expires_at}
    if grant.resource_id is not None:
        context[RESOURCE_KEY] = grant.resource_id
    return {
        "principalId": grant.resource_id or "admin",
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [{"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{stage}/*"}],
        },
        "context": context,
    }
