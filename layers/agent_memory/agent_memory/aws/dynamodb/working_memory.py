"""Working memory: one current text with a version, and its last versions."""

from __future__ import annotations

from typing import Any

from agent_memory import clock
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import Base, resource_locked
from agent_memory.aws.dynamodb.client import TransactionRefused
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.errors import ConflictError, InvalidInputError
from agent_memory.ports import WorkingMemoryRecord


class WorkingMemory(Base):
    """Working memory of resources and threads."""

    def get_working_memory(self, resource_id: str, thread_id: str | None) -> WorkingMemoryRecord | None:
        """See `MessageStore.get_working_memory`."""
        item = self._db.get(self._threads, self._memory_key(resource_id, thread_id))
        return None if item is None or "text" not in item else _record(item)

    def put_working_memory(
        self, resource_id: str, thread_id: str | None, text: str, *, expected_version: int | None
    ) -> WorkingMemoryRecord:
        """See `MessageStore.put_working_memory`. One request, two where any version may be replaced."""
        size = len(text.encode(errors="replace"))
        if size > keys.MAX_WORKING_MEMORY_BYTES:
            raise InvalidInputError(
                "workingMemory", f"expected at most {keys.MAX_WORKING_MEMORY_BYTES} UTF-8 bytes, found {size}"
            )
        return self._write_memory(
            resource_id, thread_id, text.encode(errors="replace").decode(), expected_version=expected_version
        )

    def delete_working_memory(self, resource_id: str, thread_id: str | None, *, expected_version: int | None) -> None:
        """See `MessageStore.delete_working_memory`."""
        if expected_version is None and self.get_working_memory(resource_id, thread_id) is None:
            return
        self._write_memory(resource_id, thread_id, None, expected_version=expected_version)

    def working_memory_history(self, resource_id: str, thread_id: str | None) -> tuple[WorkingMemoryRecord, ...]:
        """See `MessageStore.working_memory_history`. A version that was cleared has an empty text."""
        current = self._memory_version(resource_id, thread_id)
        rows = self._db.query(
            self._threads,
            limit=keys.WORKING_MEMORY_VERSIONS,
            ConsistentRead=True,
            ScanIndexForward=False,
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :first AND :last",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues=to_item(
                {
                    ":pk": keys.owner_pk(resource_id),
                    # Above the current version lie at most versions of a deleted thread of the same id.
                    ":first": keys.memory_version_sk(thread_id, 0),
                    ":last": keys.memory_version_sk(thread_id, current),
                }
            ),
        )
        return tuple(_record(row) for row in rows)

    def _memory_key(self, resource_id: str, thread_id: str | None) -> Item:
        return to_item({"pk": keys.owner_pk(resource_id), "sk": keys.memory_sk(thread_id)})

    def _memory_version(self, resource_id: str, thread_id: str | None) -> int:
        item = self._db.get(self._threads, self._memory_key(resource_id, thread_id), attributes=("ver",))
        return 0 if item is None else int(item["ver"]["N"])

    def _write_memory(
        self, resource_id: str, thread_id: str | None, text: str | None, *, expected_version: int | None
    ) -> WorkingMemoryRecord:
        backoff = self._db.backoff("the change of working memory")
        while True:
            before = self._memory_version(resource_id, thread_id) if expected_version is None else expected_version
            record = WorkingMemoryRecord(text or "", before + 1, self._clock())
            try:
                self._db.transact(self._memory_actions(resource_id, thread_id, text, record))
                return record
            except TransactionRefused as refused:
                if refused.reasons[0].failed:
                    raise resource_locked(resource_id) from refused
                if expected_version is not None:
                    raise ConflictError(
                        f"expected working memory of version {expected_version}, found another; "
                        "read it again and repeat the change",
                        code="WORKING_MEMORY_CONFLICT",
                    ) from refused
                backoff.wait(refused)

    def _memory_actions(
        self, resource_id: str, thread_id: str | None, text: str | None, record: WorkingMemoryRecord
    ) -> list[dict[str, Any]]:
        before = record.version - 1
        pk = keys.owner_pk(resource_id)
        updated = clock.to_ms(record.updated_at)
        cleared = text is None
        current = {
            "Update": {
                "TableName": self._threads,
                "Key": self._memory_key(resource_id, thread_id),
                **expression(
                    update="SET #v = :v, #ver = :ver, #updated = :updated"
                    + (" REMOVE #text" if cleared else ", #text = :text"),
                    condition="attribute_not_exists(#ver)" if before == 0 else "#ver = :before",
                    v=keys.SCHEMA,
                    ver=record.version,
                    updated=updated,
                    before=before,
                    text=text,
                ),
            }
        }
        kept = {
            "Put": {
                "TableName": self._threads,
                "Item": to_item(
                    {
                        "pk": pk,
                        "sk": keys.memory_version_sk(thread_id, record.version),
                        "v": keys.SCHEMA,
                        "ver": record.version,
                        "updated": updated,
                        "text": text,
                    }
                ),
            }
        }
        actions = [self._unlocked(resource_id), current, kept]
        oldest = record.version - keys.WORKING_MEMORY_VERSIONS
        if oldest > 0:
            actions.append(
                {
                    "Delete": {
                        "TableName": self._threads,
                        "Key": to_item({"pk": pk, "sk": keys.memory_version_sk(thread_id, oldest)}),
                    }
                }
            )
        return actions


def _record(item: Item) -> WorkingMemoryRecord:
    fields = from_item(item)
    return WorkingMemoryRecord(fields.get("text", ""), fields["ver"], clock.from_ms(fields["updated"]))
