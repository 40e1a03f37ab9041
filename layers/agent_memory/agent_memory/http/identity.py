"""Who calls, and whose data a call means."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_memory.auth.context import ADMIN_KEY, EXPIRY_KEY, LEEWAY_S, RESOURCE_KEY
from agent_memory.errors import AuthenticationError, InvalidInputError
from agent_memory.ids import check_id
from agent_memory.memory.base import UNSET, Owner


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller.

    `resource_id` is the one resource that a signed-in end user may name. It is None for a trusted caller (a server that
    signs its requests, or anybody on a local machine), which names resources itself.
    """

    resource_id: str | None = None

    @property
    def trusted(self) -> bool:
        """Whether the caller names resources itself."""
        return self.resource_id is None

    def resource(self, named: str | None) -> str | None:
        """The resource that a call means: the caller's own, else the named one. None: none is named."""
        return self.resource_id if self.resource_id is not None else named

    def owner(self, named: str | None) -> Owner:
        """The same for calls on a thread, whose owner is looked up where none is named."""
        found = self.resource(named)
        return UNSET if found is None else found

    def required(self, named: str | None, field: str = RESOURCE_KEY) -> str:
        """The same for calls that need a resource. Raises InvalidInputError naming `field`."""
        found = self.resource(named)
        if found is None:
            raise InvalidInputError(field, "expected the id of the owner, found nothing")
        return found


TRUSTED: Final = Identity()


def identify(auth_mode: str, authorizer: Mapping[str, Any]) -> Identity:
    """The caller, from what the authorizer of the front door said. Raises AuthenticationError.

    In mode ``iam`` the front door has checked the signature and every caller is trusted. In mode ``jwt`` the authorizer
    hands over the resource of the token and its end; a caller marked as admin is trusted. The end is looked at again here,
    because the gateway keeps what the authorizer said for a while.
    """
    if auth_mode == "iam":
        return TRUSTED
    if _ends_at(authorizer.get(EXPIRY_KEY)) + LEEWAY_S <= time.time():
        raise AuthenticationError("sign in: the call carries no identity, or one that has ended")
    if str(authorizer.get(ADMIN_KEY, "")).lower() in ("true", "1"):
        return TRUSTED
    resource = authorizer.get(RESOURCE_KEY)
    if not isinstance(resource, str) or not resource:
        raise AuthenticationError("sign in: the call carries no identity")
    return Identity(check_id(RESOURCE_KEY, resource))


def _ends_at(value: Any) -> float:
    """Seconds since 1970; long ago for what is no number, so that a missing end counts as passed."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0
