"""The checks of a bearer token (a JWT of an OIDC issuer), and what it says about its bearer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_memory.auth.context import LEEWAY_S
from agent_memory.errors import AuthenticationError, ConfigurationError, InvalidInputError
from agent_memory.ids import check_id

if TYPE_CHECKING:
    from agent_memory.auth.keys import IssuerKeys
    from agent_memory.settings import Settings

_SCOPES: Final = ("scope", "scp")  # claims whose text is a list of words


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows: one resource, or everything for an admin. `expires_at` is in seconds since 1970."""

    resource_id: str | None
    admin: bool
    expires_at: int


class Verifier:
    """Checks tokens of the issuer that the settings name.

    Raises ConfigurationError where issuer or audience is not set: a token for somebody else's service must not open this one.
    """

    def __init__(self, settings: Settings, keys: IssuerKeys) -> None:
        self._issuer = settings.required("jwt_issuer")
        self._audience = list(settings.jwt_audience)
        if not self._audience:
            raise ConfigurationError(
                "expected the environment variable JWT_AUDIENCE to be set, found none", code="SETTING_MISSING"
            )
        self._algorithms = settings.jwt_algorithms
        self._resource_claim = settings.jwt_resource_claim
        self._admin = (settings.jwt_admin_claim, settings.jwt_admin_value)
        self._keys = keys

    def verify(self, token: str) -> Grant:
        """Check a token. Raises AuthenticationError with the reason as its code, UnavailableError without keys.

        Raises ConfigurationError where the package that checks signatures does not run here.
        """
        import jwt

        try:
            claims = self._claims(token)
        except jwt.ExpiredSignatureError:
            raise _refused("TOKEN_EXPIRED") from None
        except jwt.InvalidSignatureError:
            raise _refused("TOKEN_SIGNATURE") from None
        except (jwt.InvalidIssuerError, jwt.InvalidAudienceError):
            raise _refused("TOKEN_OF_ANOTHER_SERVICE") from None
        except jwt.ImmatureSignatureError:
            raise _refused("TOKEN_NOT_YET_VALID") from None
        except jwt.exceptions.MissingCryptographyError as error:
            # No fault of the token: its user must not be signed out for it.
            raise ConfigurationError(
                "expected the package cryptography beside this function, found none that runs here; build the function for "
                "its own architecture and Python",
                code="PACKAGE_MISSING",
            ) from error
        except jwt.PyJWTError:
            raise _refused("TOKEN_INVALID") from None
        admin = self._is_admin(claims)
        return Grant(None if admin else self._resource(claims), admin, int(claims["exp"]))

    def _claims(self, token: str) -> Mapping[str, Any]:
        import jwt

        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        # The setting says which algorithms there are; the token only chooses among them.
        if algorithm not in self._algorithms:
            raise _refused("TOKEN_ALGORITHM")
        key = self._keys.find(key_id, algorithm)
        if key is None:
            raise _refused("TOKEN_KEY_UNKNOWN")
        claims: Mapping[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm),
            algorithms=[algorithm],
            issuer=self._issuer,
            audience=self._audience,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return claims

    def _is_admin(self, claims: Mapping[str, Any]) -> bool:
        name, wanted = self._admin
        if name is None:
            return False
        found = claims.get(name)
        if isinstance(found, bool):
            return found and wanted == "true"
        if isinstance(found, str) and name in _SCOPES:
            return wanted in found.split()
        return wanted in found if isinstance(found, list) else found == wanted

    def _resource(self, claims: Mapping[str, Any]) -> str:
        # An address that was never verified is whatever its owner typed.
        if self._resource_claim == "email" and claims.get("email_verified") is not True:
            raise _refused("TOKEN_WITHOUT_RESOURCE")
        try:
            return check_id(self._resource_claim, claims.get(self._resource_claim))
        except InvalidInputError:
            raise _refused("TOKEN_WITHOUT_RESOURCE") from None


def bearer(header: Any) -> str:
    """The token of an `Authorization` header. Raises AuthenticationError."""
    scheme, _, token = header.strip().partition(" ") if isinstance(header, str) else ("", "", "")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise _refused("NO_TOKEN")
    return token


def _refused(code: str) -> AuthenticationError:
    return AuthenticationError("sign in: the token is missing or does not hold", code=code)
