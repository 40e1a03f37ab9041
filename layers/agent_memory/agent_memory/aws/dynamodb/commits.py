"""Commits: everything a turn writes, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.actions import action_bytes, change_row, delete_row, put_row, stamps
from agent_memory.aws.dynamodb.base import being_built, deleted_meanwhile, resource_locked
from agent_memory.aws.dynamodb.client import Reason, TransactionRefused
from agent_memory.aws.dynamodb.headers import HeaderChange
from agent_memory.aws.dynamodb.held import Held
from agent_memory.aws.dynamodb.items import StoredHeader, message_key, read_header, write_usage
from agent_memory.aws.dynamodb.keys import MAX_BATCH_GET
from agent_memory.aws.dynamodb.values import Item, to_item
from agent_memory.errors import AccessDeniedError, UnavailableError
from agent_memory.messages import Message, ToolPart
from agent_memory.ports import Committed, Thread, ThreadHeader, TurnCommit, TurnRecord


@dataclass(slots=True)
class Attempt:
    """The state of a commit between its tries."""

    commit: TurnCommit
    header: ThreadHeader | None
    dead: StoredHeader | None = None
    appended: list[Message] = field(default_factory=list)
    updated: list[Message] = field(default_factory=list)
    removed: list[Message] = field(default_factory=list)
    tried: dict[str, Message] = field(default_factory=dict)
    """New rows as an earlier try would have stored them, by id."""
    done: dict[str, Message] = field(default_factory=dict)
    """Those that turned out to be stored: the answer of that try was lost."""
    fields: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of the rows by message id: built once, so that an overflow body is uploaded once."""
    uploaded: dict[str, str] = field(default_factory=dict)
    ahead: bool = False
    """Whether the last try wrote rows before it was refused."""
    expiries: dict[str, datetime | None] = field(default_factory=dict)


class Commits(Held):
    """Writes commits."""

    def commit(self, commit: TurnCommit) -> Committed:
        """See `MessageStore.commit`."""
        attempt = Attempt(
            commit,
            commit.header,
            appended=list({message.id: message for message in commit.appended}.values()),
            removed=list({message.id: message for message in commit.removed}.values()),
        )
        going = {message.id for message in attempt.removed}
        attempt.updated = list({message.id: message for message in commit.updated if message.id not in going}.values())
        self._leave_out_stored(attempt, first_time=True)
        backoff = self._db.backoff(f"the commit to thread {commit.thread_id}")
        try:
            while True:
                try:
                    return self._try(attempt)
                except TransactionRefused as refused:
                    if attempt.ahead:
                        # What it wrote is removed, and overflow bodies with it.
                        for id in attempt.uploaded:
                            attempt.fields.pop(id, None)
                        attempt.ahead = False
                    # Waits first and reads after, so that what the next try is built on is as fresh as can be.
                    backoff.wait(refused)
                    repeat = self._learn(attempt, refused.reasons)
                    if repeat is not None:
                        return repeat
        except UnavailableError:
            # The last try may have been applied without an answer, so its bodies must stay.
            raise
        except Exception:
            self._drop_bodies(attempt.uploaded.values())
            raise

    # One try.

    def _try(self, attempt: Attempt) -> Committed:
        commit, now = attempt.commit, self._clock()
        last = attempt.header.last_created_at if attempt.header is not None else None
        dated = raise_dates(attempt.appended, last, now)
        first = self._first_number(attempt)
        rows = [
            message.replace(
                seq=first + offset,
                version=1,
                thread_id=commit.thread_id,
                resource_id=commit.resource_id,
                # The same in every try, so that a row is recognised that an earlier one has stored.
                expires_at=attempt.expiries.setdefault(message.id, self._expiry(message, commit.expires_at)),
            )
            for offset, message in enumerate(dated)
        ]
        expire = any(row.expires_at is not None for row in rows)
        attempt.tried |= {message.id: message for message in rows}
        pk = keys.messages_pk(commit.resource_id, commit.thread_id)
        puts = [
            put_row(
                self._messages,
                pk,
                _seq(message),
                {**self._fields(attempt, message), **stamps(commit.index, message.expires_at)},
            )
            for message in rows
        ]
        changes = [
            change_row(self._messages, pk, _seq(message), self._fields(attempt, message), version=message.version or 1)
            for message in attempt.updated
        ]
        deletes = [delete_row(self._messages, pk, _seq(message), message.id) for message in attempt.removed]
        new_uses = self._all_uses(attempt, rows)
        changed_uses = self._all_uses(attempt, attempt.updated)
        writes = [*puts, *new_uses, *changed_uses, *changes, *deletes]
        newest = max((message.created_at for message in rows), default=None)
        # A try whose rows turned out to be stored has counted the tokens too.
        usage = None if attempt.done else commit.usage
        if attempt.header is None:
            header = self._new_header(
                Thread(
                    id=commit.thread_id,
                    resource_id=commit.resource_id,
                    created_at=now,
                    updated_at=now,
                    title=commit.title or "",
                    metadata=_frozen(commit.metadata),
                    usage=usage if write_usage(usage) else None,
                ),
                title_source="given" if commit.title else "none",
                dead=attempt.dead,
                rows=len(rows),
                last_created=newest,
                turn=commit.turn,
                rows_expire=expire,
            )
            if self._fits(writes):
                self._db.transact([*self._creation(header, dead=attempt.dead), *puts, *new_uses])
            else:
                attempt.ahead = True
                self._create_in_batches(header, attempt.dead, [*puts, *new_uses])
        else:
            change = HeaderChange(
                rows=len(rows),
                removed=len(attempt.removed),
                last_created=newest,
                metadata=commit.metadata,
                turn=commit.turn,
                rows_expire=expire,
                rows_changed=bool(changes),
                usage=usage,
            )
            if self._fits(writes):
                action, header = self._change(attempt.header, change, now)
                self._db.transact([action, *writes])
            else:
                attempt.ahead = True
                others = [*changed_uses, *changes, *deletes]
                header = self._append_in_batches(attempt.header, change, [*puts, *new_uses], others, now)
        stored = {**attempt.done, **{message.id: message for message in rows}}
        return Committed(
            header=header,
            appended=tuple(sorted(stored.values(), key=_seq)),
            updated=tuple(message.replace(version=(message.version or 1) + 1) for message in attempt.updated),
        )

    def _first_number(self, attempt: Attempt) -> int:
        if attempt.header is not None:
            return attempt.header.next_seq
        return 1 if attempt.dead is None else attempt.dead.header.next_seq

    def _all_uses(self, attempt: Attempt, messages: Sequence[Message]) -> list[dict[str, Any]]:
        commit = attempt.commit
        return [
            use
            for message in messages
            for use in self._uses(commit.resource_id, commit.thread_id, message.id, self._fields(attempt, message))
        ]

    def _fields(self, attempt: Attempt, message: Message) -> Mapping[str, Any]:
        known = attempt.fields.get(message.id)
        if known is None:
            commit = attempt.commit
            known = self._message_fields(commit.resource_id, commit.thread_id, message)
            attempt.fields[message.id] = known
            if "body" in known:
                attempt.uploaded[message.id] = known["body"]
        # Only the date of a row may differ between two tries.
        return {**known, "created": clock.to_ms(message.created_at)}

    @staticmethod
    def _fits(actions: Sequence[Mapping[str, Any]]) -> bool:
        return (
            len(actions) <= keys.MAX_TRANSACTION_ITEMS and sum(map(action_bytes, actions)) <= keys.MAX_TRANSACTION_BYTES
        )

    # What a refused try teaches.

    def _learn(self, attempt: Attempt, reasons: Sequence[Reason]) -> Committed | None:
        """Prepare the next try. Returns a repeat where the same turn had finished first; raises where no try helps."""
        commit = attempt.commit
        if reasons[0].failed:
            repeat = self._learn_header(attempt)
            if repeat is not None:
                return repeat
            self._leave_out_stored(attempt)
        elif attempt.header is None:
            self._explain_creation(commit.resource_id, commit.thread_id, reasons)
            self._clear_ahead(commit.resource_id, commit.thread_id, attempt.dead)
        self._learn_rows(attempt, reasons)
        if reasons[0].failed:
            self._learn_answers(attempt)
        return None

    def _learn_header(self, attempt: Attempt) -> Committed | None:
        commit, now = attempt.commit, self._clock()
        stored = self._stored_header(commit.resource_id, commit.thread_id)
        if stored is not None and stored.is_building(now):
            raise being_built(commit.thread_id)
        if stored is None or not stored.is_live(now):
            if commit.header is not None:
                raise deleted_meanwhile(commit.thread_id)
            attempt.header, attempt.dead = None, stored
            return None
        if commit.header is not None and stored.header.incarnation != commit.header.incarnation:
            raise deleted_meanwhile(commit.thread_id)
        finished = finished_by_another(stored.header, commit.turn)
        if finished is not None:
            return Committed(header=stored.header, repeat=finished)
        if stored.hold is not None and not stored.is_held(now):
            self._release_hold(stored)
        attempt.header, attempt.dead = stored.header, None
        return None

    def _explain_creation(self, resource_id: str, thread_id: str, reasons: Sequence[Reason]) -> None:
        """Raise for a refused claim or a locked resource; return where rows were in the way."""
        for reason in reasons[1:]:
            if not reason.failed or reason.item is None:
                continue
            if "resource" in reason.item:
                raise AccessDeniedError(f"thread {thread_id}: expected a thread of this resource, found another's")
            if "locked" in reason.item:
                raise resource_locked(resource_id)
        if self._claims is not None and self.owner_of(thread_id) not in (None, resource_id):
            raise AccessDeniedError(f"thread {thread_id}: expected a thread of this resource, found another's")

    def _leave_out_stored(self, attempt: Attempt, *, first_time: bool = False) -> None:
        """Drop new rows whose ids are stored.

        A turn's caller has looked the ids up before, and a turn whose header moved on is looked up again here, so
        before the first try only ids that another recent turn has stored (its record says so) are asked for.
        """
        header = attempt.header
        if header is None:
            return
        ids = [message.id for message in attempt.appended]
        if first_time and attempt.commit.turn is not None:
            recent = {id for turn in header.turns for id in (*turn.user_ids, turn.answer_id)}
            ids = [id for id in ids if id in recent]
        if not ids:
            return
        found = self._numbers(attempt.commit.resource_id, attempt.commit.thread_id, ids, first_seq=header.first_seq)
        found = {id: seq for id, seq in found.items() if seq < header.next_seq}
        if header.rows_expire and found:
            found = self._without_expired(attempt.commit, found)
        self._recognise_own(attempt, found)
        # A new answer may carry the id of the one that it replaces: that row goes in this very commit.
        going = {message.id for message in attempt.removed} - attempt.done.keys()
        attempt.appended = [message for message in attempt.appended if message.id not in found or message.id in going]
        attempt.removed = [message for message in attempt.removed if message.id in going]

    def _recognise_own(self, attempt: Attempt, found: Mapping[str, int]) -> None:
        """Note rows that an earlier try stored without its answer reaching us: at the number it took, and the same."""
        places = [(attempt.commit.thread_id, seq) for id, seq in found.items() if id in attempt.tried]
        if not places:
            return
        for message in self.get_messages(attempt.commit.resource_id, places):
            if attempt.tried.get(message.id) == message:
                attempt.done[message.id] = message

    def _without_expired(self, commit: TurnCommit, found: Mapping[str, int]) -> dict[str, int]:
        rows = self.get_messages(commit.resource_id, [(commit.thread_id, seq) for seq in found.values()])
        shown = {message.seq for message in rows}
        return {id: seq for id, seq in found.items() if seq in shown}

    def _learn_rows(self, attempt: Attempt, reasons: Sequence[Reason]) -> None:
        """Re-read changed and removed rows where the refusal may be theirs."""
        commit, header = attempt.commit, attempt.header
        if header is None:
            return
        changed = len(attempt.updated) + len(attempt.removed)
        if changed == 0:
            if not reasons[0].failed and any(reason.failed for reason in reasons[1:]):
                self._clear_ahead_of(header)
            return
        ids = [message.id for message in (*attempt.updated, *attempt.removed)]
        numbers = self._numbers(commit.resource_id, commit.thread_id, ids, first_seq=header.first_seq)
        stored: dict[str, Message] = {}
        for message in self.get_messages(commit.resource_id, [(commit.thread_id, seq) for seq in numbers.values()]):
            stored[message.id] = message
        updated: list[Message] = []
        for message in attempt.updated:
            current = stored.get(message.id)
            if current is None:
                continue
            if current.seq == message.seq and current.version == message.version:
                updated.append(message)
                continue
            attempt.fields.pop(message.id, None)
            merged = with_newer_outcomes(current, message)
            if merged is not None:
                updated.append(merged)
        attempt.updated = updated
        attempt.removed = [
            message.replace(seq=stored[message.id].seq) for message in attempt.removed if message.id in stored
        ]
        if not reasons[0].failed and not any(reason.failed for reason in reasons[len(reasons) - changed :]):
            self._clear_ahead_of(header)

    def _learn_answers(self, attempt: Attempt) -> None:
        """Let what answers the question of a regenerate by now go too, whoever has answered it meanwhile."""
        commit, header, question = attempt.commit, attempt.header, attempt.commit.regenerates
        if header is None or question is None or not any(message.role == "assistant" for message in attempt.appended):
            return
        found = self._numbers(commit.resource_id, commit.thread_id, [question], first_seq=header.first_seq)
        seq = found.get(question)
        if seq is None or seq + 1 >= header.next_seq:
            return
        rows = self._db.query(
            self._messages,
            limit=MAX_BATCH_GET,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {
                    ":pk": keys.messages_pk(commit.resource_id, commit.thread_id),
                    ":first": seq + 1,
                    ":last": header.next_seq - 1,
                }
            ),
        )
        own = {message.id for message in attempt.appended} | attempt.done.keys()
        going = {message.id for message in attempt.removed}
        for message in self._read(rows):
            if message.id in going:
                continue
            if message.role != "assistant":
                return  # the next question
            if message.id not in own:
                attempt.removed.append(message)

    def get_messages(
        self,
        resource_id: str,
        keys: Sequence[tuple[str, int]],
        *,
        consistent: bool = True,
        live_only: bool = False,
    ) -> tuple[Message, ...]:
        """See `MessageStore.get_messages`."""
        wanted = list(dict.fromkeys(keys))
        if live_only:
            return self._live_rows(resource_id, wanted, consistent=consistent)
        items = self._db.batch_get(
            self._messages,
            [message_key(resource_id, thread_id, seq) for thread_id, seq in wanted],
            consistent=consistent,
        )
        found = {(message.thread_id, message.seq): message for message in self._read(items)}
        return tuple(found[key] for key in wanted if key in found)

    def _live_rows(
        self, resource_id: str, wanted: Sequence[tuple[str, int]], *, consistent: bool
    ) -> tuple[Message, ...]:
        """Rows that their threads show, with the threads' headers in the same request."""
        found: list[Message] = []
        headers: dict[str, StoredHeader] = {}
        size = MAX_BATCH_GET // 2  # every row may be of another thread
        for start in range(0, len(wanted), size):
            batch: dict[str, Any] = {
                self._messages: {
                    "Keys": [message_key(resource_id, t, seq) for t, seq in wanted[start : start + size]],
                    "ConsistentRead": consistent,
                }
            }
            threads = dict.fromkeys(t for t, _seq in wanted[start : start + size] if t not in headers)
            if threads:
                header_keys = [self._header_key(resource_id, thread_id) for thread_id in threads]
                batch[self._threads] = {"Keys": header_keys, "ConsistentRead": consistent}
            items = self._db.batch_get_tables(batch)
            for item in items.get(self._threads, ()):
                read = read_header(item)
                headers[read.header.thread.id] = read
            found += self._read(items[self._messages])
        now = self._clock()
        shown = {
            (m.thread_id, m.seq): m
            for m in found
            if (stored := headers.get(m.thread_id or "")) is not None
            and stored.is_live(now)
            and stored.header.first_seq <= (m.seq or 0) < stored.header.next_seq
        }
        return tuple(shown[key] for key in wanted if key in shown)

    def owner_of(self, thread_id: str) -> str | None:
        """See `MessageStore.owner_of`."""
        item = self._claim(thread_id)
        return None if item is None else str(item["resource"]["S"])

    def _claim(self, thread_id: str) -> Item | None:
        if self._claims is None:
            return None
        return self._db.get(self._claims, {"pk": {"S": keys.claim_pk(thread_id)}})


def raise_dates(messages: Sequence[Message], last: datetime | None, now: datetime) -> list[Message]:
    """New messages whose dates do not go back behind `last` or each other; none is bent past the clock."""
    out: list[Message] = []
    for message in messages:
        created_at = message.created_at
        if last is not None and created_at < last:
            created_at = max(created_at, min(last, now))
        last = created_at if last is None else max(last, created_at)
        out.append(message if created_at == message.created_at else message.replace(created_at=created_at))
    return out


def with_newer_outcomes(stored: Message, changed: Message) -> Message | None:
    """`stored` with those tool parts of `changed` that advance a call that is pending in it; None where none does."""
    newer = {part.invocation.tool_call_id: part for part in changed.parts if isinstance(part, ToolPart)}
    moved = False
    parts = []
    for part in stored.parts:
        if isinstance(part, ToolPart):
            candidate = newer.get(part.invocation.tool_call_id)
            if candidate is not None and part.invocation.advanced_by(candidate.invocation):
                part, moved = candidate, True
        parts.append(part)
    return stored.with_parts(parts) if moved else None


def finished_by_another(header: ThreadHeader, turn: TurnRecord | None) -> TurnRecord | None:
    """The record of `turn`'s key where another run has finished it."""
    if turn is None:
        return None
    for record in header.turns:
        if record.key == turn.key and record.state == "finished" and record.run_id != turn.run_id:
            return record
    return None


def _frozen(metadata: Mapping[str, Any] | None) -> Any:
    return None if metadata is None else freeze(dict(metadata))


def _seq(message: Message) -> int:
    if message.seq is None:
        raise ValueError(f"message {message.id}: expected one that storage has numbered, found one without a number")
    return message.seq
