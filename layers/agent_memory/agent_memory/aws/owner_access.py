"""Database credentials for one owner at a time.

A call of an end user then reaches the database with credentials that open the owner's own partitions and no others, so a
mistake in this library could not read another owner's items. They come from a role that the functions may assume, narrowed
by a session policy on the leading keys. What no owner's key names is read by the function's own role: the index of bare
message ids, whose finds are narrowed to the owner's prefix.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials

from agent_memory import clock, observe
from agent_memory.acting import owner_at_work
from agent_memory.aws.dynamodb import keys
from agent_memory.errors import ConfigurationError, InvalidInputError

LIFETIME_S: Final = 3600  # the most that a role which was assumed itself may ask for
RENEW_BEFORE: Final = timedelta(minutes=5)
KEPT_OWNERS: Final = 256
MAX_POLICY_CHARS: Final = 2048
# Rows that belong to the deployment and that an owner's writes come with: pointers to jobs and runs by their id, to jobs
# that have not ended, and to files that must be looked at again. They hold ids and owners, and no content.
SHARED_KEYS: Final = ("I#*", "N#JO", "N#M#*")
READS: Final = ("BatchGetItem", "GetItem", "Query")
WRITES: Final = ("BatchWriteItem", "ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")


def policy_for(owner: str) -> str:
    """The session policy of an owner, as JSON text. Raises InvalidInputError for an id that is too long for one.

    A transaction is allowed whether its keys are looked at action by action or all together: writes of an owner's items
    and of the deployment's rows stand in one statement.
    """
    own = [keys.owner_pk(owner), f"{keys.messages_prefix(owner)}*"]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            _allowed(READS, own),
            _allowed(WRITES, [*own, *SHARED_KEYS]),
            # The keys of this index are bare message ids, which anybody chooses.
            {"Effect": "Deny", "Action": "dynamodb:*", "Resource": f"*/index/{keys.BY_ID}"},
            {"Effect": "Allow", "Action": "kms:*", "Resource": "*"},  # no more than the role has
        ],
    }
    text = json.dumps(policy, separators=(",", ":"))  # STS takes no characters beyond Latin
    if len(text) > MAX_POLICY_CHARS:
        raise InvalidInputError("resourceId", "expected a shorter id: database credentials of its own cannot hold it")
    return text


def _allowed(actions: tuple[str, ...], leading_keys: list[str]) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": [f"dynamodb:{action}" for action in actions],
        "Resource": "*",  # the role names the tables
        "Condition": {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": leading_keys},
            "Null": {"dynamodb:LeadingKeys": "false"},  # "all of none" would hold as well
        },
    }


@dataclass(frozen=True, slots=True)
class _Kept:
    credentials: ReadOnlyCredentials
    expires_at: datetime


class OwnerCredentials:
    """Credentials by owner, each asked for once and renewed in time. Safe between threads.

    Args:
        sts: A boto3 ``sts`` client.
        role_arn: The role to assume.
        now: The clock.
    """

    def __init__(self, sts: Any, role_arn: str, *, now: Callable[[], datetime] = clock.now) -> None:
        self._sts = sts
        self._role_arn = role_arn
        self._now = now
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, owner: str) -> ReadOnlyCredentials:
        """Credentials of an owner. One request to STS an hour for each owner and process."""
        with self._lock:  # the first requests of a turn come together; one of them asks
            found = self._kept.get(owner)
            if found is None or found.expires_at - RENEW_BEFORE <= self._now():
                found = self._kept[owner] = self._ask(owner)
            self._kept.move_to_end(owner)
            while len(self._kept) > KEPT_OWNERS:
                self._kept.popitem(last=False)
            return found.credentials

    def _ask(self, owner: str) -> _Kept:
        answer = self._sts.assume_role(
            RoleArn=self._role_arn,
            RoleSessionName=f"owner-{observe.pseudonym(owner)}",
            Policy=policy_for(owner),
            DurationSeconds=LIFETIME_S,
        )["Credentials"]
        credentials = ReadOnlyCredentials(
            answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"], None
        )
        return _Kept(credentials, answer["Expiration"])


class OwnerClient:
    """A DynamoDB client whose requests for an owner are signed with the owner's credentials.

    Args:
        own: The client of the function's own role.
        scoped: A client of `scoped_client`.
        claims_table: Where claims on thread ids are; no owner's keys open it.
    """

    def __init__(self, own: Any, scoped: Any, claims_table: str | None = None) -> None:
        self._own = own
        self._scoped = scoped
        self._claims_table = claims_table

    def __getattr__(self, name: str) -> Any:
        scoped = getattr(self._scoped, name)
        own = getattr(self._own, name)
        if not callable(scoped):
            return own

        def send(**request: Any) -> Any:
            return (scoped if self._is_scoped(request) else own)(**request)

        return send

    def _is_scoped(self, request: dict[str, Any]) -> bool:
        if owner_at_work() is None or request.get("IndexName") == keys.BY_ID:
            return False
        return self._claims_table is None or request.get("TableName") != self._claims_table


def scoped_client(credentials: OwnerCredentials) -> Any:
    """A DynamoDB client that signs with the credentials of the owner at work. One connection pool for all owners."""
    import boto3
    import botocore.session

    from agent_memory.aws import clients

    session = botocore.session.Session()
    session.register_component("credential_provider", CredentialResolver([_Provider(_Acting(credentials))]))
    made = boto3.session.Session(botocore_session=session).client("dynamodb", config=clients.config("dynamodb"))
    clients.meter.attach(made)
    return made


class _Acting(Credentials):
    """Credentials that are found when a request is signed."""

    def __init__(self, found: OwnerCredentials) -> None:
        super().__init__("", "")
        self._found = found

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        owner = owner_at_work()
        if owner is None:
            raise ConfigurationError("expected a request for one owner, found one for nobody in particular")
        return self._found.of(owner)


class _Provider(CredentialProvider):
    METHOD = "owner"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        return self._credentials
