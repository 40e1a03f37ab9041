"""What is known of files, in RunsTable beside their owner's runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from agent_memory import clock as clock_module
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import resource_locked
from agent_memory.aws.dynamodb.client import ConditionFailed, Dynamo, TransactionRefused
from agent_memory.aws.dynamodb.uses import mark_item, mark_key, read_mark
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import UnavailableError
from agent_memory.ports.files import GRACE_S, FileMark, FileRecord, FileUse

_FILES_AT_ONCE: Final = 40  # two actions each and a check: a transaction takes 100
_GONE_LIFETIME_S: Final = 7 * 86_400  # of the note that a file is gone: longer than any page waits to send a link back
_REMOVAL_LASTS_S: Final = 1_200  # at most: a function ends after 15 minutes
_FIRST_LOOK_BACK: Final = timedelta(days=30)  # of the first walk over marks, when nothing says where to begin
_POINTER: Final = {"pk": "N#M", "sk": "D"}  # the first day whose marks may not all be done with
_UPLOADS: Final = "u-"


class DynamoFileStore:
    """`FileStore` on RunsTable.

    Args:
        client: A boto3 ``dynamodb`` client.
        runs_table: Name of RunsTable.
        threads_table: Name of ThreadsTable, which says whether a resource is being erased; None: that is not asked.
        clock: The current time.
        sleep: Waits between tries, in seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        runs_table: str,
        threads_table: str | None = None,
        clock: Callable[[], datetime] = clock_module.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._db = Dynamo(client, sleep=sleep)
        self._table = runs_table
        self._threads = threads_table
        self._clock = clock

    # What writers do.

    def expect(self, resource_id: str, files: Sequence[FileRecord]) -> None:
        """See `FileStore.expect`."""
        due = self._due()
        for start in range(0, len(files), _FILES_AT_ONCE):
            lock = self._unlocked(resource_id)
            actions = list(lock)
            for file in files[start : start + _FILES_AT_ONCE]:
                actions += [self._mark(resource_id, file.name, due), self._expected(resource_id, file, due)]
            try:
                self._db.transact(actions)
            except TransactionRefused as refused:
                if lock and refused.reasons[0].failed:
                    raise resource_locked(resource_id) from refused
                raise UnavailableError(
                    "expected files that may be written, found one that was removed moments ago; call again later",
                    retry_after_s=_REMOVAL_LASTS_S,
                ) from refused

    def _expected(self, resource_id: str, file: FileRecord, due: int) -> dict[str, Any]:
        known = {
            "v": keys.SCHEMA,
            "due": due,
            "promised": True if file.state == "promised" else None,
            "type": file.media_type,
            "filename": file.filename,
            "size": file.size,
        }
        fields: dict[str, Any] = {name: content for name, content in known.items() if content is not None}
        sets = ", ".join(f"#{name} = :{name}" for name in fields)
        return {
            "Update": {
                "TableName": self._table,
                "Key": to_item(_key(resource_id, file.name)),
                **expression(
                    update=f"SET {sets} REMOVE #gone, #ttl, #withdrawn",
                    # A file comes back only as a copy for another owner, and not while the last one may still be removed.
                    condition="attribute_not_exists(#gone) OR #gone < :lately",
                    lately=self._now_ms() - _REMOVAL_LASTS_S * 1000,
                    **fields,
                ),
            }
        }

    def find(self, resource_id: str, name: str) -> FileRecord | None:
        """See `FileStore.find`."""
        item = self._db.get(self._table, to_item(_key(resource_id, name)))
        return None if item is None else self._seen(resource_id, item)

    def hold(self, resource_id: str, names: Sequence[str]) -> Mapping[str, FileRecord]:
        """See `FileStore.hold`."""
        wanted = list(dict.fromkeys(names))
        items = self._db.batch_get(self._table, [to_item(_key(resource_id, name)) for name in wanted])
        found = {record.name: record for record in (self._seen(resource_id, item) for item in items)}
        left = [name for name in wanted if name in found or not name.startswith(_UPLOADS)]
        left = [name for name in left if name not in found or found[name].state != "gone"]
        due = self._due()
        while left:
            batch, left = left[:_FILES_AT_ONCE], left[_FILES_AT_ONCE:]
            kept = self._keep(resource_id, batch, due)
            for name in batch:
                if name not in kept:
                    found.pop(name, None)
                else:
                    found.setdefault(name, FileRecord(name=name))
        return {name: record for name, record in found.items() if record.state != "gone"}

    def _keep(self, resource_id: str, names: Sequence[str], due: int) -> list[str]:
        """Set the time of files anew; those of them that are not gone."""
        left = list(names)
        while left:
            lock = self._unlocked(resource_id)
            actions = list(lock)
            for name in left:
                known = "attribute_exists(#pk) AND " if name.startswith(_UPLOADS) else ""
                condition = f"{known}attribute_not_exists(#gone)"
                actions += [self._delay(resource_id, name, due, condition), self._mark(resource_id, name, due)]
            try:
                self._db.transact(actions)
                return left
            except TransactionRefused as refused:
                if lock and refused.reasons[0].failed:
                    raise resource_locked(resource_id) from refused
                reasons = refused.reasons[len(lock) :]
                left = [name for number, name in enumerate(left) if not reasons[2 * number].failed]
        return left

    def settle(self, resource_id: str, file: FileRecord) -> bool:
        """See `FileStore.settle`."""
        given = {"type": file.media_type, "filename": file.filename, "size": file.size}
        values: dict[str, Any] = {name: content for name, content in given.items() if content is not None}
        try:
            self._db.update(
                self._table,
                to_item(_key(resource_id, file.name)),
                **expression(
                    update="SET #v = :v, " + ", ".join(f"#{name} = :{name}" for name in values) + " REMOVE #promised",
                    condition="attribute_exists(#promised) AND attribute_not_exists(#gone)",
                    v=keys.SCHEMA,
                    **values,
                ),
            )
        except ConditionFailed:
            return False
        return True

    def refuse(self, resource_id: str, name: str) -> None:
        """See `FileStore.refuse`."""
        try:
            self._set_gone(resource_id, name, "attribute_exists(#promised)")
        except ConditionFailed:
            return

    # What follows from removed and changed messages.

    def uses(self, resource_id: str, uses: Sequence[FileUse]) -> Mapping[FileUse, str]:
        """See `FileStore.uses`."""
        by_sk = {keys.use_sk(use.name, use.thread_id, use.message_id): use for use in uses}
        pk = keys.owner_pk(resource_id)
        items = self._db.batch_get(
            self._table, [to_item({"pk": pk, "sk": sk}) for sk in by_sk], attributes=("sk", "token")
        )
        return {by_sk[item["sk"]["S"]]: item["token"]["S"] for item in items}

    def release(self, resource_id: str, use: FileUse, token: str) -> bool:
        """See `FileStore.release`."""
        due = self._due()
        key = to_item({"pk": keys.owner_pk(resource_id), "sk": keys.use_sk(use.name, use.thread_id, use.message_id)})
        delete = {
            "Delete": {"TableName": self._table, "Key": key, **expression(condition="#token = :token", token=token)}
        }
        # The mark and the new time come with the removal: two last uses that go at once cannot each leave it to the other.
        try:
            self._db.transact(
                [delete, self._mark(resource_id, use.name, due), self._delay(resource_id, use.name, due, None)]
            )
        except TransactionRefused:
            return False
        return True

    def withdraw(self, resource_id: str, uses: Sequence[FileUse]) -> None:
        """See `FileStore.withdraw`."""
        for start in range(0, len(uses), keys.MAX_BATCH_GET):
            for use, token in self.uses(resource_id, uses[start : start + keys.MAX_BATCH_GET]).items():
                self.release(resource_id, use, token)
        for name in dict.fromkeys(use.name for use in uses):
            note = expression(
                update="SET #v = :v, #withdrawn = :true, #due = if_not_exists(#due, :due)",
                v=keys.SCHEMA,
                true=True,
                due=self._due(),
            )
            self._db.update(self._table, to_item(_key(resource_id, name)), **note)

    # What the janitor does.

    def due(self, *, limit: int = 100) -> tuple[tuple[FileMark, ...], bool]:
        """See `FileStore.due`."""
        now = self._clock()
        for day in self._days(now):
            rows = list(
                self._db.query(
                    self._table,
                    limit=limit,
                    ConsistentRead=True,
                    KeyConditionExpression="#pk = :pk AND #sk < :now",
                    ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
                    ExpressionAttributeValues=to_item(
                        {":pk": keys.mark_pk(_day(day)), ":now": f"{clock_module.to_ms(now) + 1:015d}"}
                    ),
                )
            )
            if rows:
                return tuple(read_mark(row) for row in rows), True
            # Marks are made for a time to come, so a day that is over gets no more of them.
            if day.date() < now.date():
                pointer = {**_POINTER, "v": keys.SCHEMA, "day": _day(day + timedelta(days=1))}
                self._db.call("put_item", TableName=self._table, Item=to_item(pointer))
        return (), False

    def condemn(self, mark: FileMark) -> bool:
        """See `FileStore.condemn`. Two requests, and one more where the file must go or the mark is dropped."""
        row = self._db.get(self._table, to_item(_key(mark.resource_id, mark.name)))
        if row is not None and "gone" in row:
            return True
        kept_until = mark.due if row is None else int(row["due"]["N"])
        if kept_until <= self._now_ms() and not self._is_used(mark.resource_id, mark.name):
            try:
                unchanged = "attribute_not_exists(#pk)" if row is None else "#due = :seen"
                self._set_gone(mark.resource_id, mark.name, unchanged, seen=kept_until)
                return True
            except ConditionFailed:
                pass  # somebody is about to use it
        self.clear([mark])
        return False

    def clear(self, marks: Sequence[FileMark]) -> None:
        """See `FileStore.clear`."""
        self._db.batch_write(self._table, [{"DeleteRequest": {"Key": to_item(mark_key(mark))}} for mark in marks])

    # Inside.

    def _now_ms(self) -> int:
        return clock_module.to_ms(self._clock())

    def _due(self) -> int:
        return self._now_ms() + GRACE_S * 1000

    def _mark(self, resource_id: str, name: str, due: int) -> dict[str, Any]:
        return {"Put": {"TableName": self._table, "Item": mark_item(FileMark(resource_id, name, due))}}

    def _delay(self, resource_id: str, name: str, due: int, condition: str | None) -> dict[str, Any]:
        return {
            "Update": {
                "TableName": self._table,
                "Key": to_item(_key(resource_id, name)),
                **expression(update="SET #v = :v, #due = :due", condition=condition, v=keys.SCHEMA, due=due),
            }
        }

    def _unlocked(self, resource_id: str) -> list[Mapping[str, Any]]:
        if self._threads is None:
            return []
        key = to_item({"pk": keys.owner_pk(resource_id), "sk": keys.RESOURCE_SK})
        condition = expression(condition="attribute_not_exists(#locked)")
        return [{"ConditionCheck": {"TableName": self._threads, "Key": key, **condition}}]

    def _set_gone(self, resource_id: str, name: str, condition: str, **values: Any) -> None:
        self._db.update(
            self._table,
            to_item(_key(resource_id, name)),
            **expression(
                update="SET #v = :v, #gone = :now, #ttl = :ttl",
                condition=condition,
                v=keys.SCHEMA,
                now=self._now_ms(),
                ttl=self._now_ms() // 1000 + _GONE_LIFETIME_S,
                **values,
            ),
        )

    def _seen(self, resource_id: str, item: Item) -> FileRecord:
        """A file as its owner sees it: one that was withdrawn is gone unless another message of theirs uses it."""
        record = _read(item)
        if "withdrawn" in item and not self._is_used(resource_id, record.name):
            return replace(record, state="gone")
        return record

    def _is_used(self, resource_id: str, name: str) -> bool:
        rows = self._db.query(
            self._table,
            limit=1,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id), ":prefix": keys.uses_prefix(name)}),
            attributes=("sk",),
        )
        return any(True for _ in rows)

    def _days(self, now: datetime) -> Iterator[datetime]:
        """Days whose marks may be due, oldest first, up to today."""
        item = self._db.get(self._table, to_item(_POINTER))
        day = now - _FIRST_LOOK_BACK
        if item is not None:
            day = datetime.strptime(item["day"]["S"], "%Y%m%d").replace(tzinfo=now.tzinfo)
        while day.date() <= now.date():
            yield day
            day += timedelta(days=1)


def _key(resource_id: str, name: str) -> dict[str, Any]:
    return {"pk": keys.owner_pk(resource_id), "sk": keys.file_sk(name)}


def _day(time: datetime) -> str:
    return f"{time:%Y%m%d}"


def _read(item: Item) -> FileRecord:
    fields = from_item(item)
    state = "gone" if "gone" in fields else "promised" if "promised" in fields else "ready"
    return FileRecord(
        name=fields["sk"].split("#")[1],
        state=state,  # type: ignore[arg-type]
        media_type=fields.get("type"),
        filename=fields.get("filename"),
        size=fields.get("size"),
        kept_until=clock_module.from_ms(fields["due"]) if "due" in fields else None,
    )
