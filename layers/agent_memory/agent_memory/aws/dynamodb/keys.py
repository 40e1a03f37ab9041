"""Keys, table attributes and limits of the DynamoDB store: the only code that knows how a key is written.

Every key begins with its owner, so code that holds one owner's identity cannot form another's key::

    ThreadsTable   pk R#<resource>            sk T#<thread>             header of a thread
                                              sk R                      what the resource has in all
                                              sk W, W#<thread>          working memory
                                              sk WV#[<thread>]#<n>      its version n
    MessagesTable  pk R#<resource>#<thread>   sk <seq>                  one message
    RunsTable      pk R#<resource>, N#        sk <kind>#…               short-lived state of runs
                   pk R#<resource>            sk F#<file>               what is known of a file
                                              sk F#<file>#<hash>        a message that uses it
                   pk N#M#<day>               sk <due>#<resource>#<file> look at the file at that time
    ClaimsTable    pk T#<thread>                                        owner of a thread id

An id inside a key has no ``# * ? $ { }`` of its own, so it can neither end a part of a key early nor act as a
pattern or a variable in an access policy.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import datetime
from typing import Final
from urllib.parse import quote

from agent_memory import clock

SCHEMA: Final = 1
"""Version that is written to every item as `v`. Readers accept this one and the one before."""

MAX_TRANSACTION_ITEMS: Final = 96  # DynamoDB takes 100; the rest is for the header, the claim and the resource item
MAX_TRANSACTION_BYTES: Final = 3_500_000  # DynamoDB takes 4 MB; the rest is for keys and expressions
MAX_BATCH_GET: Final = 100
MAX_BATCH_WRITE: Final = 25
MAX_INLINE_BYTES: Final = 300_000  # an item ends at 400 KB, index projections and later outcomes included
MAX_METADATA_BYTES: Final = 16_384
MAX_TITLE_BYTES: Final = 4_096
MAX_WORKING_MEMORY_BYTES: Final = 300_000
WORKING_MEMORY_VERSIONS: Final = 20
KEPT_TURNS: Final = 3  # about 190 bytes each; with them an ordinary header stays under 1 KB, which is one write unit
BUILD_LIFETIME_MS: Final = 900_000  # a function runs for 15 minutes at most
COPY_LIFETIME_MS: Final = 7_200_000  # from each step of a job that copies; the hourly sweep takes up one that stopped
TOMBSTONE_LIFETIME_MS: Final = 86_400_000
HOLD_LIFETIME_MS: Final = 60_000

BY_UPDATED: Final = "by_updated"
BY_CREATED: Final = "by_created"
BY_MID: Final = "by_mid"
BY_ID: Final = "by_id"

_ESCAPES: Final = str.maketrans({"~": "~~", "#": "~h", "*": "~a", "?": "~q", "$": "~d", "{": "~o", "}": "~c"})
_UNESCAPES: Final = {"~": "~", "h": "#", "a": "*", "q": "?", "d": "$", "o": "{", "c": "}"}
_LONG: Final = "~="
_MAX_ESCAPED_BYTES: Final = 1_000  # with its prefix a sort key must stay within 1,024 bytes
_HASHED: Final = "~-"
_MAX_SHORT_BYTES: Final = 500  # two of them and their separators must stay within 1,024 bytes
_MAX_QUOTED_CHARS: Final = 200
_DATE_OFFSET_MS: Final = -clock.to_ms(datetime.min.replace(tzinfo=clock.EPOCH.tzinfo))


def escape(id: str) -> str:
    """An id as it stands in a key: reversible, different for different ids, at most 1,000 bytes for 512 bytes of id."""
    escaped = id.translate(_ESCAPES)
    if len(escaped.encode()) <= _MAX_ESCAPED_BYTES:
        return escaped
    # Only an id of more than 488 special characters comes here. No escaped id begins like this.
    return _LONG + base64.urlsafe_b64encode(id.encode()).decode().replace("=", "")


def unescape(escaped: str) -> str:
    """The id that `escape` was given."""
    if escaped.startswith(_LONG):
        text = escaped[len(_LONG) :]
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    if "~" not in escaped:
        return escaped
    characters = iter(escaped)
    return "".join(_UNESCAPES[next(characters)] if character == "~" else character for character in characters)


def owner_pk(resource_id: str) -> str:
    """Partition of a resource in ThreadsTable and RunsTable."""
    return f"R#{escape(resource_id)}"


def thread_sk(thread_id: str) -> str:
    """Sort key of a thread's header."""
    return f"T#{escape(thread_id)}"


RESOURCE_SK: Final = "R"


def thread_of(sk: str) -> str:
    """The thread id in a header's sort key."""
    return unescape(sk[2:])


def resource_of(pk: str) -> str:
    """The resource id in a partition key of any table."""
    return unescape(pk.split("#")[1])


def memory_sk(thread_id: str | None) -> str:
    """Sort key of working memory: the resource's own, or a thread's."""
    return "W" if thread_id is None else f"W#{escape(thread_id)}"


def memory_thread_of(sk: str) -> str | None:
    """The thread in a sort key of `memory_sk`; None for the resource's own."""
    return unescape(sk[2:]) if sk.startswith("W#") else None


def memory_history_prefix(thread_id: str | None) -> str:
    """Start of the sort keys of working memory's versions."""
    return f"WV#{'' if thread_id is None else escape(thread_id)}#"


def memory_version_sk(thread_id: str | None, version: int) -> str:
    """Sort key of one version of working memory; they sort by number."""
    return f"{memory_history_prefix(thread_id)}{version:010d}"


def messages_pk(resource_id: str, thread_id: str) -> str:
    """Partition of a thread's messages. At most 1,024 bytes, because it is the sort key of the index `by_id` too."""
    return f"R#{_short(resource_id)}#{_short(thread_id)}"


ALL_MESSAGES_PREFIX: Final = "R#"
"""What the message partitions of all resources begin with."""


def messages_prefix(resource_id: str) -> str:
    """What all message partitions of a resource begin with, and those of no other."""
    return f"R#{_short(resource_id)}#"


def long_ids(resource_id: str, thread_id: str) -> dict[str, str]:
    """Attributes `rid` and `tid` of a message's item: the ids that its partition key holds only a hash of."""
    ids = {"rid": resource_id, "tid": thread_id}
    return {name: id for name, id in ids.items() if _short(id).startswith(_HASHED)}


def owner_and_thread(pk: str, *, rid: str | None = None, tid: str | None = None) -> tuple[str, str] | None:
    """Resource and thread id of a message's item from its `pk` and its attributes `rid` and `tid`.

    None where the key holds a hash (of an id that is over 500 bytes in a key) and the attribute is not given.
    """
    _, resource, thread = pk.split("#")
    owner = rid if resource.startswith(_HASHED) else unescape(resource)
    place = tid if thread.startswith(_HASHED) else unescape(thread)
    return None if owner is None or place is None else (owner, place)


def _short(id: str) -> str:
    escaped = escape(id)
    if len(escaped.encode()) <= _MAX_SHORT_BYTES:
        return escaped
    return f"{_HASHED}{hashlib.sha256(id.encode()).hexdigest()}"


def claim_pk(thread_id: str) -> str:
    """Partition of the claim on a thread id."""
    return f"T#{escape(thread_id)}"


def date_key(value: datetime) -> str:
    """A date as text that sorts by time, years before 1970 too. 15 digits: milliseconds since the year 1."""
    return f"{clock.to_ms(value) + _DATE_OFFSET_MS:015d}"


def date_of(key: str) -> datetime:
    """The date in `date_key`'s text."""
    return clock.from_ms(int(key) - _DATE_OFFSET_MS)


def turn_slot(turn_key: str) -> str:
    """Name of a turn's entry in the header's `turns`: short and of one shape, whatever the key is."""
    return hashlib.sha256(turn_key.encode()).hexdigest()[:16]


def blob_prefix(resource_id: str) -> str:
    """What every object key of a resource begins with, and those of no other resource."""
    return f"o/{blob_segment(resource_id)}/"


def overflow_prefix(resource_id: str, thread_id: str) -> str:
    """What the keys of a thread's overflow bodies begin with."""
    return f"{blob_prefix(resource_id)}overflow/{blob_segment(thread_id)}/"


def overflow_key(resource_id: str, thread_id: str, message_id: str, body: bytes) -> str:
    """Object key of a message's parts, another one at every call.

    Once no row points to a key any more, none ever will, so its object can be removed while others write the same parts.
    """
    digest = hashlib.sha256(body).hexdigest()[:40]
    return f"{overflow_prefix(resource_id, thread_id)}{turn_slot(message_id)}-{digest}-{secrets.token_hex(8)}"


def same_body(key: str | None, other: str | None) -> bool:
    """Whether two keys of one message's parts hold the same parts."""
    return (key or "").rpartition("-")[0] == (other or "").rpartition("-")[0]


def file_sk(name: str) -> str:
    """Sort key, among the runs of the owner, of what is known of a file."""
    return f"F#{name}"


def uses_prefix(name: str) -> str:
    """What the sort keys of a file's uses begin with."""
    return f"F#{name}#"


def use_sk(name: str, thread_id: str, message_id: str) -> str:
    """Sort key of the use of a file by a message."""
    place = f"{len(thread_id)}#{thread_id}#{message_id}"
    return f"{uses_prefix(name)}{hashlib.sha256(place.encode()).hexdigest()[:32]}"


def mark_pk(day: str) -> str:
    """Partition of the marks that are due on a day (``20260304``, by UTC)."""
    return f"N#M#{day}"


def mark_sk(due: int, resource_id: str, name: str) -> str:
    """Sort key of a mark; they sort by the time they are due (milliseconds since 1970)."""
    return f"{due:015d}#{_short(resource_id)}#{name}"


def blob_segment(id: str) -> str:
    """An id as one segment of an object key."""
    # "." is quoted so that no segment reads as "." or "..", and "~" so that no quoted id looks like a hashed one.
    quoted = quote(id, safe="").replace(".", "%2E").replace("~", "%7E")
    return quoted if len(quoted) <= _MAX_QUOTED_CHARS else f"~{hashlib.sha256(id.encode()).hexdigest()}"
