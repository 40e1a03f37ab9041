"""What the authorizer tells the functions about a caller. API Gateway hands all of it on as text."""

from __future__ import annotations

from typing import Final

RESOURCE_KEY: Final = "resourceId"  # the one resource that the caller may name
ADMIN_KEY: Final = "admin"  # "true": a trusted caller, which names resources itself
EXPIRY_KEY: Final = "exp"  # when the token ends, in seconds since 1970
LEEWAY_S: Final = 30  # by which the clocks of issuer and functions may differ
