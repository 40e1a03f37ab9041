"""Writes of a thread's header inside a transaction: a new thread, or the fields that a commit changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from agent_memory import clock
from agent_memory._json import FrozenDict, dumps, freeze
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import Base, dead_turns, metadata_text, title_text
from agent_memory.aws.dynamodb.items import (
    TURN_FIELDS,
    USAGE_FIELDS,
    StoredHeader,
    new_incarnation,
    write_turn,
    write_usage,
)
from agent_memory.aws.dynamodb.turns import LIVE
from agent_memory.aws.dynamodb.values import expression, to_item
from agent_memory.ports import Thread, ThreadHeader, ThreadUsage, TitleSource, TurnRecord

# What a dead header may still hold and a new thread under its id must not.
FORGOTTEN = (
    "hold",
    "hold_until",
    "until",
    "out_of_order",
    "rows_expire",
    "last_created",
    "metadata",
    "expires_at",
    "idle_s",
    "edits",
    *USAGE_FIELDS,
)


@dataclass(frozen=True, slots=True)
class HeaderChange:
    """What a commit does to the header of a live thread.

    `rows` counts new rows and `removed` deleted ones. `hold` is the token under which the rows were written ahead.
    """

    rows: int = 0
    removed: int = 0
    last_created: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    turn: TurnRecord | None = None
    rows_expire: bool = False
    out_of_order: bool = False
    rows_changed: bool = False
    hold: str | None = None
    usage: ThreadUsage | None = None


class Headers(Base):
    """Builds header actions."""

    def _creation(
        self,
        header: ThreadHeader,
        *,
        dead: StoredHeader | None,
        state: str = "live",
        until: datetime | None = None,
    ) -> list[dict[str, Any]]:
        """Actions that make the thread of `header`, in place of `dead` where a dead header is in its place.

        The header is the first action. A live thread is counted and claimed by the others; one that is being built
        is when it goes live.
        """
        thread = header.thread
        fields = self._fields_of(header, state=state, until=until)
        written = {name: content for name, content in fields.items() if content is not None}
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in written)
        conditions: dict[str, Any] = {}
        condition = "attribute_not_exists(#pk)"
        if dead is not None:
            gone = [name for name in FORGOTTEN if name not in written]
            update += " REMOVE " + ", ".join(f"#{name}" for name in gone)
            condition = "#incarnation = :dead AND #next_seq = :dead_next AND #state = :dead_state"
            conditions = {
                "dead": dead.header.incarnation,
                "dead_next": dead.header.next_seq,
                "dead_state": dead.state,
            }
        actions: list[dict[str, Any]] = [
            {
                "Update": {
                    "TableName": self._threads,
                    "Key": self._header_key(thread.resource_id, thread.id),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    **expression(update=update, condition=condition, **written, **conditions),
                }
            }
        ]
        expired = dead is not None and dead.state == "live"
        if expired:
            actions.append(self._memory_removal(thread.resource_id, thread.id))
        if state == "live":
            was_expiring = expired and dead is not None and dead.header.thread.expires_at is not None
            actions += self._going_live(
                thread,
                threads=0 if expired else 1,
                expiring=int(thread.expires_at is not None) - int(was_expiring),
            )
        elif expired and dead is not None:
            # It counted until now, and counts again when it is live.
            expiring = -int(dead.header.thread.expires_at is not None)
            actions.append(self._resource_change(thread.resource_id, threads=-1, expiring=expiring, new=True))
        else:
            actions.append(self._unlocked(thread.resource_id))
        return actions

    @staticmethod
    def _fields_of(header: ThreadHeader, *, state: str, until: datetime | None = None) -> dict[str, Any]:
        """All fields of a header's item; those that are None are not written."""
        thread = header.thread
        fields: dict[str, Any] = {
            "v": keys.SCHEMA,
            "state": state,
            "title": title_text(thread.title),
            "title_source": header.title_source,
            "metadata": None if thread.metadata is None else metadata_text(thread.metadata),
            "metadata_version": 0,
            "created_key": keys.date_key(thread.created_at),
            "updated_key": keys.date_key(thread.updated_at),
            "last_created": None if header.last_created_at is None else clock.to_ms(header.last_created_at),
            "next_seq": header.next_seq,
            "first_seq": header.first_seq,
            "message_count": header.message_count,
            "incarnation": header.incarnation,
            "revision": 0,
            "turns": {keys.turn_slot(turn.key): write_turn(turn) for turn in header.turns},
            "expires_at": None if thread.expires_at is None else clock.to_ms(thread.expires_at),
            "idle_s": header.idle_s,
            "rows_expire": header.rows_expire or None,
            "out_of_order": None if header.in_date_order else True,
            "until": None if until is None else clock.to_ms(until),
            **write_usage(thread.usage),
        }
        if state != "live":
            # Out of the list indexes until it is live.
            fields["hidden_created"] = fields.pop("created_key")
            fields["hidden_updated"] = fields.pop("updated_key")
        return fields

    def _going_live(
        self, thread: Thread, *, threads: int = 1, expiring: int | None = None, claimed_by: str | None = None
    ) -> list[dict[str, Any]]:
        """Actions that count a thread and claim its id, which `claimed_by` gives away where it is transferred."""
        expiring = int(thread.expires_at is not None) if expiring is None else expiring
        actions: list[dict[str, Any]] = []
        if threads or expiring:
            actions.append(self._resource_change(thread.resource_id, threads=threads, expiring=expiring, new=True))
        else:
            actions.append(self._unlocked(thread.resource_id))
        if self._claims is not None:
            actions.append(
                {
                    "Put": {
                        "TableName": self._claims,
                        "Item": to_item(
                            {"pk": keys.claim_pk(thread.id), "v": keys.SCHEMA, "resource": thread.resource_id}
                        ),
                        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                        **expression(
                            condition="attribute_not_exists(#pk) OR #resource = :resource",
                            resource=claimed_by or thread.resource_id,
                        ),
                    }
                }
            )
        return actions

    def _memory_removal(self, resource_id: str, thread_id: str) -> dict[str, Any]:
        return {
            "Delete": {
                "TableName": self._threads,
                "Key": to_item({"pk": keys.owner_pk(resource_id), "sk": keys.memory_sk(thread_id)}),
            }
        }

    def _change(self, header: ThreadHeader, change: HeaderChange, now: datetime) -> tuple[dict[str, Any], ThreadHeader]:
        """The action that applies `change` to a live thread's own fields only, and the header as it is afterwards."""
        after, merged = self._after(header, change, now)
        sets = ["#v = :v", "#updated_key = :updated_key"]
        adds = ["#revision :one"]
        removes: list[str] = []
        conditions = [LIVE, "#incarnation = :incarnation", "#next_seq = :was"]
        values: dict[str, Any] = {
            "v": keys.SCHEMA,
            "updated_key": keys.date_key(after.thread.updated_at),
            "one": 1,
            "live": "live",
            "now": clock.to_ms(now),
            "incarnation": header.incarnation,
            "was": header.next_seq,
        }
        given: dict[str, str] = {}
        if header.idle_s is not None and after.thread.expires_at is not None:
            sets.append("#expires_at = :expires")
            values["expires"] = clock.to_ms(after.thread.expires_at)
            # A time that somebody has set meanwhile stays.
            conditions.append("#idle_s = :idle")
            values["idle"] = header.idle_s
        if change.rows:
            sets.append("#next_seq = :next_seq")
            values["next_seq"] = after.next_seq
        if change.last_created is not None and after.last_created_at is not None:
            sets.append("#last_created = :last_created")
            values["last_created"] = clock.to_ms(after.last_created_at)
        if change.rows != change.removed:
            adds.append("#message_count :count")
            values["count"] = change.rows - change.removed
        for name, count in write_usage(change.usage).items():
            adds.append(f"#{name} :{name}")
            values[name] = count
        if change.removed or change.rows_changed:
            adds.append("#edits :one")
            conditions.append("#first_seq = :first")
            values["first"] = header.first_seq
        if change.rows_expire and not header.rows_expire:
            sets.append("#rows_expire = :true")
            values["true"] = True
        if change.out_of_order and header.in_date_order:
            sets.append("#out_of_order = :true")
            values["true"] = True
        if merged is not None:
            sets += ["#metadata = :metadata", "#metadata_version = :metadata_version"]
            conditions.append("#metadata_version = :metadata_was")
            values |= {
                "metadata": metadata_text(merged),
                "metadata_version": header.metadata_version + 1,
                "metadata_was": header.metadata_version,
            }
        if change.turn is not None:
            sets.append("#turns.#slot = :turn")
            conditions.append(
                "(attribute_not_exists(#turns.#slot) OR #turns.#slot.#r = :run OR #turns.#slot.#s <> :finished)"
            )
            given["slot"] = keys.turn_slot(change.turn.key)
            values |= {
                "turn": write_turn(change.turn),
                "run": change.turn.run_id,
                "finished": TURN_FIELDS["finished"],
            }
            for number, key in enumerate(dead_turns(header.turns, change.turn.key, clock.to_ms(now))):
                given[f"old{number}"] = keys.turn_slot(key)
                removes.append(f"#turns.#old{number}")
        if change.hold is None:
            conditions.append("attribute_not_exists(#hold)")
        else:
            conditions.append("#hold = :hold")
            values["hold"] = change.hold
            removes += ["#hold", "#hold_until"]
        update = f"SET {', '.join(sets)} ADD {', '.join(adds)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
        action = {
            "Update": {
                "TableName": self._threads,
                "Key": self._header_key(header.thread.resource_id, header.thread.id),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(update=update, condition=" AND ".join(conditions), given=given, **values),
            }
        }
        return action, after

    def _after(
        self, header: ThreadHeader, change: HeaderChange, now: datetime
    ) -> tuple[ThreadHeader, FrozenDict | None]:
        merged: FrozenDict | None = None
        if change.metadata:
            candidate = freeze({**(header.thread.metadata or {}), **change.metadata})
            # Compared as text, because in Python 1 equals true.
            merged = candidate if dumps(candidate) != dumps(header.thread.metadata) else None
        newest = [date for date in (header.last_created_at, change.last_created) if date is not None]
        turns = header.turns
        if change.turn is not None:
            dropped = {change.turn.key, *dead_turns(turns, change.turn.key, clock.to_ms(now))}
            turns = (*(turn for turn in turns if turn.key not in dropped), change.turn)
        thread = replace(
            header.thread,
            updated_at=max(now, header.thread.updated_at),
            metadata=header.thread.metadata if merged is None else merged,
            usage=_sum(header.thread.usage, change.usage),
        )
        if header.idle_s is not None:
            thread = replace(thread, expires_at=now + timedelta(seconds=header.idle_s))
        after = replace(
            header,
            thread=thread,
            next_seq=header.next_seq + change.rows,
            message_count=header.message_count + change.rows - change.removed,
            last_created_at=max(newest, default=None),
            metadata_version=header.metadata_version + (merged is not None),
            turns=turns,
            rows_expire=header.rows_expire or change.rows_expire,
            in_date_order=header.in_date_order and not change.out_of_order,
        )
        return after, merged

    def _new_header(
        self,
        thread: Thread,
        *,
        title_source: TitleSource,
        dead: StoredHeader | None,
        rows: int = 0,
        last_created: datetime | None = None,
        turn: TurnRecord | None = None,
        rows_expire: bool = False,
        in_date_order: bool = True,
    ) -> ThreadHeader:
        """A header that starts behind all rows of an earlier life of its id."""
        first_seq = 1 if dead is None else dead.header.next_seq
        idle_s = self._retention_s if thread.expires_at is None else None
        if idle_s is not None:
            thread = replace(thread, expires_at=self._clock() + timedelta(seconds=idle_s))
        return ThreadHeader(
            thread=thread,
            next_seq=first_seq + rows,
            first_seq=first_seq,
            message_count=rows,
            incarnation=new_incarnation(),
            title_source=title_source,
            last_created_at=last_created,
            turns=() if turn is None else (turn,),
            rows_expire=rows_expire,
            in_date_order=in_date_order,
            idle_s=idle_s,
        )


def _sum(before: ThreadUsage | None, added: ThreadUsage | None) -> ThreadUsage | None:
    if not write_usage(added) or added is None:
        return before
    return added if before is None else before + added
