"""Saves: messages written by id, in their place, outside of a turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import change_row, delete_row, put_row, replace_row, stamps
from agent_memory.aws.dynamodb.base import being_built
from agent_memory.aws.dynamodb.client import TransactionRefused
from agent_memory.aws.dynamodb.commits import Commits
from agent_memory.aws.dynamodb.headers import HeaderChange
from agent_memory.aws.dynamodb.items import CHANGEABLE, StoredHeader, is_due, message_key
from agent_memory.aws.dynamodb.uses import names_of
from agent_memory.aws.dynamodb.values import Item, to_item
from agent_memory.errors import ConflictError
from agent_memory.messages import Message
from agent_memory.ports import Thread, ThreadHeader

_FEW_IDS = 8  # up to here a query per id, together, is quicker than a walk over the index of ids


@dataclass(slots=True)
class Plan:
    """What one try of a save does to a thread that exists."""

    puts: list[Mapping[str, Any]] = field(default_factory=list)
    uses: list[Mapping[str, Any]] = field(default_factory=list)
    changes: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    """Each with the uses of its row, in one transaction with it."""
    moves: list[Mapping[str, Any]] = field(default_factory=list)
    new: int = 0
    newest: datetime | None = None
    out_of_order: bool = False
    stored: dict[str, Message] = field(default_factory=dict)
    unused_bodies: list[str | None] = field(default_factory=list)


class Saves(Commits):
    """Saves messages."""

    def save_messages(
        self,
        resource_id: str,
        thread_id: str,
        messages: Sequence[Message],
        *,
        index: str | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[Message, ...]:
        """See `MessageStore.save_messages`."""
        unique = list({message.id: message for message in messages}.values())
        if not unique:
            return ()
        fields = {message.id: self._message_fields(resource_id, thread_id, message) for message in unique}
        written: set[str] = set()
        backoff = self._db.backoff(f"the save into thread {thread_id}")
        while True:
            now = self._clock()
            stored = self._stored_header(resource_id, thread_id)
            if stored is not None and stored.is_building(now):
                raise being_built(thread_id)
            try:
                if stored is None or not stored.is_live(now):
                    self._renew_bodies((resource_id, thread_id), unique, fields, written)
                    saved = self._save_new(resource_id, thread_id, unique, fields, stored, index, expires_at, written)
                else:
                    if stored.hold is not None and not stored.is_held(now):
                        self._release_hold(stored)
                    saved = self._save_into(stored.header, unique, fields, index, expires_at, written)
                return tuple(saved[message.id] for message in unique)
            except TransactionRefused as refused:
                if not refused.reasons[0].failed:
                    if stored is None or not stored.is_live(now):
                        self._explain_creation(resource_id, thread_id, refused.reasons)
                        self._clear_ahead(resource_id, thread_id, stored)
                    elif not stored.is_held(now):
                        self._clear_ahead_of(stored.header)
                backoff.wait(refused)

    def _renew_bodies(
        self,
        place: tuple[str, str],
        messages: Sequence[Message],
        fields: dict[str, dict[str, Any]],
        written: set[str],
        known: Mapping[str, Item] | None = None,
    ) -> None:
        """Write overflow bodies anew that rows of an earlier try pointed to and do not any more: they may be gone."""
        for message in messages:
            body = fields[message.id].get("body")
            row = (known or {}).get(message.id, {})
            if body in written and row.get("body", {}).get("S") != body:
                fields[message.id] = self._message_fields(*place, message)

    def _save_new(
        self,
        resource_id: str,
        thread_id: str,
        messages: Sequence[Message],
        fields: Mapping[str, Mapping[str, Any]],
        dead: StoredHeader | None,
        index: str | None,
        expires_at: datetime | None,
        written: set[str],
    ) -> dict[str, Message]:
        now = self._clock()
        ordered = [
            message.replace(expires_at=self._expiry(message, expires_at))
            for message in sorted(messages, key=lambda message: message.created_at)
        ]
        header = self._new_header(
            Thread(id=thread_id, resource_id=resource_id, created_at=now, updated_at=now),
            title_source="none",
            dead=dead,
            rows=len(ordered),
            last_created=ordered[-1].created_at,
            rows_expire=_expire(ordered),
        )
        pk = keys.messages_pk(resource_id, thread_id)
        placed = [_placed(message, header, header.first_seq + number) for number, message in enumerate(ordered)]
        puts = [
            put_row(self._messages, pk, message.seq or 0, {**fields[message.id], **stamps(index, message.expires_at)})
            for message in placed
        ]
        uses = [use for message in placed for use in self._uses(resource_id, thread_id, message.id, fields[message.id])]
        if self._fits([*puts, *uses]):
            self._db.transact([*self._creation(header, dead=dead), *puts, *uses])
        else:
            written |= _bodies(fields)
            self._create_in_batches(header, dead, [*puts, *uses])
        return {message.id: message for message in placed}

    def _save_into(
        self,
        header: ThreadHeader,
        messages: Sequence[Message],
        fields: dict[str, dict[str, Any]],
        index: str | None,
        expires_at: datetime | None,
        written: set[str],
    ) -> dict[str, Message]:
        known = self._stored_rows(header, [message.id for message in messages])
        self._renew_bodies((header.thread.resource_id, header.thread.id), messages, fields, written, known)
        fresh = [
            message.replace(expires_at=self._expiry(message, expires_at))
            for message in sorted(messages, key=lambda message: message.created_at)
            if message.id not in known
        ]
        plan = self._plan(header, [m for m in messages if m.id in known], fresh, known, fields, index)
        now = self._clock()
        change = HeaderChange(
            rows=plan.new,
            last_created=plan.newest,
            out_of_order=plan.out_of_order,
            rows_changed=bool(plan.changes or plan.moves),
            rows_expire=_expire(plan.stored.values()),
        )
        if plan.new or plan.changes or plan.moves:
            writes = [*plan.puts, *plan.uses, *itertools.chain(*plan.changes), *plan.moves]
            if self._fits(writes):
                action, _ = self._change(header, change, now)
                self._db.transact([action, *writes])
            elif plan.moves:
                raise too_far_back(header.thread.id)
            else:
                written |= _bodies(fields)
                self._save_in_parts(header, change, plan, now)
        self._drop_bodies(plan.unused_bodies)
        return plan.stored

    def _save_in_parts(self, header: ThreadHeader, change: HeaderChange, plan: Plan, now: datetime) -> None:
        """Replaced rows in transactions of their own, then the new ones, shown together."""
        for part in batches_of(plan.changes):
            changed = HeaderChange(rows_changed=True, out_of_order=plan.out_of_order, rows_expire=change.rows_expire)
            action, header = self._change(header, changed, now)
            self._db.transact([action, *part])
        if plan.puts:
            new = HeaderChange(rows=change.rows, last_created=change.last_created, rows_expire=change.rows_expire)
            writes = [*plan.puts, *plan.uses]
            if self._fits(writes):
                action, _ = self._change(header, new, now)
                self._db.transact([action, *writes])
            else:
                self._append_in_batches(header, new, writes, (), now)

    def _plan(
        self,
        header: ThreadHeader,
        replaced: Sequence[Message],
        fresh: Sequence[Message],
        known: Mapping[str, Item],
        fields: Mapping[str, Mapping[str, Any]],
        index: str | None,
    ) -> Plan:
        plan = Plan(new=len(fresh), newest=max((m.created_at for m in fresh), default=None))
        place = (header.thread.resource_id, header.thread.id)
        pk = keys.messages_pk(*place)
        plan.uses = [use for message in fresh for use in self._uses(*place, message.id, fields[message.id])]
        changed: dict[str, Mapping[str, Any]] = {}
        for message in replaced:
            row = known[message.id]
            seq, version = int(row["sk"]["N"]), int(row["ver"]["N"])
            old, new = row.get("body", {}).get("S"), fields[message.id].get("body")
            before = clock.from_ms(int(row["ttl"]["N"]) * 1000) if "ttl" in row else None
            # Without a time of its own it expires when it did before.
            expires_at = before if message.expires_at is None else self._expiry(message, None)
            message = message.replace(expires_at=expires_at)
            same = (
                expires_at == before
                and keys.same_body(old, new)
                and all(
                    to_item({name: fields[message.id].get(name)}).get(name) == row.get(name)
                    for name in CHANGEABLE
                    if name != "body"
                )
            )
            if same:
                plan.stored[message.id] = _placed(message, header, seq, version)
                # An earlier try of this very save may have stored it.
                if new != old:
                    plan.unused_bodies.append(new)
                continue
            if int(row["created"]["N"]) != clock.to_ms(message.created_at):
                plan.out_of_order = True
            changed[message.id] = fields[message.id]
            plan.stored[message.id] = _placed(message, header, seq, version + 1)
            if old != new:
                plan.unused_bodies.append(old)
        last = header.last_created_at
        tail: list[Item] = []
        if fresh and last is not None and fresh[0].created_at < last:
            tail = self._rows_after(header, fresh[0].created_at, keys.MAX_TRANSACTION_ITEMS - len(fresh))
        if tail:
            moved: dict[str, Mapping[str, Any]] = {row["mid"]["S"]: {"files": names_of(row)} for row in tail}
            moved |= {id: content for id, content in changed.items() if id in moved}
            plan.uses += [use for id, content in moved.items() for use in self._uses(*place, id, content)]
            self._move(header, plan, tail, fresh, changed, fields, index)
        else:
            for number, message in enumerate(fresh):
                placed = _placed(message, header, header.next_seq + number)
                plan.stored[message.id] = placed
                plan.puts.append(
                    put_row(
                        self._messages,
                        pk,
                        placed.seq or 0,
                        {**fields[message.id], **stamps(index, message.expires_at)},
                    )
                )
        for id, content in changed.items():
            row = known[id]
            change = change_row(
                self._messages,
                pk,
                int(row["sk"]["N"]),
                content,
                version=int(row["ver"]["N"]),
                expires_at=plan.stored[id].expires_at,
            )
            plan.changes.append([*self._uses(*place, id, content), change])
        return plan

    def _move(
        self,
        header: ThreadHeader,
        plan: Plan,
        tail: Sequence[Item],
        fresh: Sequence[Message],
        changed: dict[str, Mapping[str, Any]],
        fields: Mapping[str, Mapping[str, Any]],
        index: str | None,
    ) -> None:
        """Number the tail anew with the fresh messages in their places; the last one gets the last new number."""
        pk = keys.messages_pk(header.thread.resource_id, header.thread.id)
        entries: list[tuple[int, int, Message | Item]] = [
            *((int(row["created"]["N"]), 0, row) for row in tail),
            *((clock.to_ms(message.created_at), 1, message) for message in fresh),
        ]
        entries.sort(key=lambda entry: entry[:2])
        first = header.next_seq + len(fresh) - len(entries)
        occupied = {int(row["sk"]["N"]): row for row in tail}
        for seq, (_, _, entry) in enumerate(entries, first):
            if isinstance(entry, Message):
                placed = _placed(entry, header, seq)
                plan.stored[entry.id] = placed
                item = to_item({"pk": pk, "sk": seq, **fields[entry.id], **stamps(index, entry.expires_at)})
            else:
                id, version = entry["mid"]["S"], int(entry["ver"]["N"]) + 1
                item = {**entry, "sk": {"N": str(seq)}, "ver": {"N": str(version)}}
                content = changed.pop(id, None)
                if content is not None:
                    item = {name: item[name] for name in item if name not in CHANGEABLE}
                    item |= to_item({name: content.get(name) for name in CHANGEABLE})
                    item |= to_item({"ttl": stamps(None, plan.stored[id].expires_at)["ttl"]})
                if id in plan.stored:
                    plan.stored[id] = plan.stored[id].replace(seq=seq, version=version)
            there = occupied.pop(seq, None)
            if there is None:
                plan.moves.append(
                    {
                        "Put": {
                            **put_row(self._messages, pk, seq, {})["Put"],
                            "Item": item,
                        }
                    }
                )
            else:
                plan.moves.append(replace_row(self._messages, there, item))
        plan.moves += [delete_row(self._messages, pk, seq, row["mid"]["S"]) for seq, row in occupied.items()]

    def _rows_after(self, header: ThreadHeader, date: datetime, room: int) -> list[Item]:
        """Whole rows dated after `date`, oldest first. Raises ConflictError when there are more than `room`."""
        found: list[Item] = []
        rows = self._db.query(
            self._messages,
            page_limit=keys.MAX_TRANSACTION_ITEMS,
            ConsistentRead=True,
            ScanIndexForward=False,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {
                    ":pk": keys.messages_pk(header.thread.resource_id, header.thread.id),
                    ":first": header.first_seq,
                    ":last": header.next_seq - 1,
                }
            ),
        )
        for row in rows:
            if int(row["created"]["N"]) <= clock.to_ms(date):
                break
            found.append(row)
            if len(found) > room:
                raise too_far_back(header.thread.id)
        return found[::-1]

    def _stored_rows(self, header: ThreadHeader, ids: Sequence[str]) -> dict[str, Item]:
        """Whole rows of the ids that the thread shows."""
        thread = header.thread
        if header.next_seq == header.first_seq:
            return {}
        if len(ids) <= _FEW_IDS:
            numbers = self._numbers(thread.resource_id, thread.id, ids, first_seq=header.first_seq)
        else:
            numbers = self._all_numbers(header, set(ids))
        shown = {id: seq for id, seq in numbers.items() if seq < header.next_seq}
        rows = self._db.batch_get(
            self._messages, [message_key(thread.resource_id, thread.id, seq) for seq in shown.values()]
        )
        now = self._clock()
        return {row["mid"]["S"]: row for row in rows if not is_due(row, now)}

    def _all_numbers(self, header: ThreadHeader, wanted: set[str]) -> dict[str, int]:
        thread = header.thread
        rows = self._db.query(
            self._messages,
            IndexName=keys.BY_MID,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues=to_item({":pk": keys.messages_pk(thread.resource_id, thread.id)}),
        )
        found: dict[str, int] = {}
        for row in rows:
            id, seq = row["mid"]["S"], int(row["sk"]["N"])
            if id in wanted and seq >= header.first_seq:
                found[id] = max(seq, found.get(id, 0))
        return found


def batches_of(groups: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[list[Mapping[str, Any]]]:
    """The actions of whole groups, about half of what a transaction takes at a time."""
    batch: list[Mapping[str, Any]] = []
    for group in groups:
        if batch and len(batch) + len(group) > keys.MAX_TRANSACTION_ITEMS // 2:
            yield batch
            batch = []
        batch.extend(group)
    if batch:
        yield batch


def _bodies(fields: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {content["body"] for content in fields.values() if "body" in content}


def _expire(messages: Iterable[Message]) -> bool:
    return any(message.expires_at is not None for message in messages)


def _placed(message: Message, header: ThreadHeader, seq: int, version: int = 1) -> Message:
    return message.replace(seq=seq, version=version, thread_id=header.thread.id, resource_id=header.thread.resource_id)


def too_far_back(thread_id: str) -> ConflictError:
    """An import that would renumber more than one transaction can."""
    return ConflictError(
        f"thread {thread_id}: expected messages dated after the newest ones, found some that belong before more than "
        f"{keys.MAX_TRANSACTION_ITEMS} rows or {keys.MAX_TRANSACTION_BYTES // 1_000_000} MB; import them into a new "
        "thread",
        code="IMPORT_TOO_FAR_BACK",
    )
