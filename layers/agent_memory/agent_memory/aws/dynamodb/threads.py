"""Threads: created, changed, listed, hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from agent_memory import clock
from agent_memory._json import freeze
from agent_memory.aws.dynamodb import keys
from agent_memory.aws.dynamodb.base import being_built, metadata_text, title_text
from agent_memory.aws.dynamodb.client import ConditionFailed, TransactionRefused
from agent_memory.aws.dynamodb.commits import Commits
from agent_memory.aws.dynamodb.cursors import read_cursor, write_cursor
from agent_memory.aws.dynamodb.items import StoredHeader, new_incarnation, read_header, read_thread, write_usage
from agent_memory.aws.dynamodb.matching import matches
from agent_memory.aws.dynamodb.turns import LIVE
from agent_memory.aws.dynamodb.values import Item, expression, from_item, to_item
from agent_memory.ports import Thread, ThreadHeader, ThreadPage, ThreadQuery, ThreadUsage, TitleSource

_LIST_PAGE = 1_000  # threads that one request of a filtered walk evaluates


class Threads(Commits):
    """Threads of resources."""

    def get_thread(self, resource_id: str, thread_id: str) -> ThreadHeader | None:
        """See `MessageStore.get_thread`."""
        stored = self._stored_header(resource_id, thread_id)
        return stored.header if stored is not None and stored.is_live(self._clock()) else None

    def create_thread(self, thread: Thread, *, title_source: TitleSource = "given") -> ThreadHeader:
        """See `MessageStore.create_thread`. One request for a new id."""
        backoff = self._db.backoff(f"the creation of thread {thread.id}")
        dead: StoredHeader | None = None
        while True:
            header = self._new_header(thread, title_source=title_source if thread.title else "none", dead=dead)
            try:
                self._db.transact(self._creation(header, dead=dead))
                return header
            except TransactionRefused as refused:
                now = self._clock()
                stored = self._stored_header(thread.resource_id, thread.id)
                if stored is not None and stored.is_building(now):
                    raise being_built(thread.id) from refused
                if stored is not None and stored.is_live(now):
                    return stored.header
                if not refused.reasons[0].failed:
                    self._explain_creation(thread.resource_id, thread.id, refused.reasons)
                dead = stored
                backoff.wait(refused)

    def update_thread(
        self,
        resource_id: str,
        thread_id: str,
        *,
        title: str | None = None,
        title_source: TitleSource = "person",
        metadata: Mapping[str, Any] | None = None,
        replace_metadata: bool = False,
        expires_at: datetime | None = None,
        forget_expiry: bool = False,
    ) -> Thread:
        """See `MessageStore.update_thread`. One request, two with a merge, three with an expiry."""
        backoff = self._db.backoff(f"the change of thread {thread_id}")
        while True:
            now = self._clock()
            sets = ["#updated_key = :updated"]
            conditions = [LIVE]
            values: dict[str, Any] = {
                "updated": keys.date_key(now),
                "live": "live",
                "now": clock.to_ms(now),
            }
            adds: list[str] = []
            extra: list[dict[str, Any]] = []
            if title is not None:
                sets += ["#title = :title", "#title_source = :source"]
                values |= {"title": title_text(title), "source": title_source}
            if metadata is not None and replace_metadata:
                sets.append("#metadata = :metadata")
                adds.append("#metadata_version :one")
                values |= {"metadata": metadata_text(metadata), "one": 1}
            stored = None
            expiry = expires_at is not None or forget_expiry
            if (metadata is not None and not replace_metadata) or expiry:
                stored = self._live_header(resource_id, thread_id)
                conditions.append("#incarnation = :incarnation")
                values["incarnation"] = stored.header.incarnation
            if stored is not None and metadata is not None and not replace_metadata:
                merged = freeze({**(stored.header.thread.metadata or {}), **metadata})
                sets += ["#metadata = :metadata", "#metadata_version = :version"]
                conditions.append("#metadata_version = :was")
                values |= {
                    "metadata": metadata_text(merged),
                    "version": stored.header.metadata_version + 1,
                    "was": stored.header.metadata_version,
                }
            removes: list[str] = []
            if stored is not None and expiry:
                default = None if self._retention_s is None else now + timedelta(seconds=self._retention_s)
                new = expires_at if expires_at is not None else default
                fields = {
                    "expires_at": None if new is None else clock.to_ms(new),
                    "idle_s": self._retention_s if expires_at is None else None,
                }
                sets += [f"#{name} = :{name}" for name, content in fields.items() if content is not None]
                values |= {name: content for name, content in fields.items() if content is not None}
                removes = [name for name, content in fields.items() if content is None]
                had = stored.header.thread.expires_at is not None
                conditions.append(f"attribute_{'' if had else 'not_'}exists(#expires_at)")
                if had != (new is not None):
                    extra.append(self._resource_change(resource_id, threads=0, expiring=-1 if had else 1))
            update = f"SET {', '.join(sets)}" + (f" ADD {', '.join(adds)}" if adds else "")
            update += f" REMOVE {', '.join(f'#{name}' for name in removes)}" if removes else ""
            written = expression(update=update, condition=" AND ".join(conditions), **values)
            try:
                if not extra:
                    item = self._db.update(
                        self._threads, self._header_key(resource_id, thread_id), returns="ALL_NEW", **written
                    )
                    return read_header(item).header.thread
                action = {
                    "TableName": self._threads,
                    "Key": self._header_key(resource_id, thread_id),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    **written,
                }
                self._db.transact([{"Update": action}, *extra])
                return self._live_header(resource_id, thread_id).header.thread
            except (ConditionFailed, TransactionRefused) as refused:
                self._live_header(resource_id, thread_id)
                backoff.wait(refused)

    def set_generated_title(
        self, resource_id: str, thread_id: str, title: str, *, usage: ThreadUsage | None = None
    ) -> bool:
        """See `MessageStore.set_generated_title`."""
        now = self._clock()
        counts = write_usage(usage)
        adding = " ADD " + ", ".join(f"#{name} :{name}" for name in counts) if counts else ""
        try:
            self._db.update(
                self._threads,
                self._header_key(resource_id, thread_id),
                **expression(
                    update="SET #title = :title, #title_source = :generated, #updated_key = :updated" + adding,
                    condition=f"{LIVE} AND #title = :empty AND #title_source <> :person",
                    title=title_text(title),
                    generated="generated",
                    updated=keys.date_key(now),
                    live="live",
                    now=clock.to_ms(now),
                    empty="",
                    person="person",
                    **counts,
                ),
            )
        except ConditionFailed:
            return False
        return True

    # Lists.

    def list_threads(self, resource_id: str, query: ThreadQuery) -> ThreadPage:
        """See `MessageStore.list_threads`."""
        if query.metadata:
            return self._list_filtered(resource_id, query)
        total = self._thread_total(resource_id)
        if query.per_page == 0:
            return ThreadPage((), total, total > 0)
        skip = 0 if query.cursor is not None or query.per_page is None else query.page * query.per_page
        # One more than the page tells whether another follows, also after a cursor.
        limit = None if query.per_page is None else skip + query.per_page + 1
        rows = self._thread_rows(resource_id, query, page_limit=limit)
        chosen: list[Thread] = []
        more = False
        for number, thread in enumerate(rows):
            if number < skip:
                continue
            if query.per_page is not None and len(chosen) == query.per_page:
                more = True
                break
            chosen.append(thread)
        return ThreadPage(tuple(chosen), total, more, _cursor(query, chosen) if more else None)

    def _list_filtered(self, resource_id: str, query: ThreadQuery) -> ThreadPage:
        wanted = query.metadata or {}
        found = [
            thread
            for thread in self._thread_rows(resource_id, replace(query, cursor=None), page_limit=_LIST_PAGE)
            if matches(thread.metadata, wanted)
        ]
        start = 0
        if query.cursor is not None:
            place, thread_id = read_cursor(query.order_by, query.cursor, str, str)
            ordered = [(_order_key(query, thread), thread.id) for thread in found]
            start = len([key for key in ordered if (key[0] >= place if query.newest_first else key[0] <= place)])
            if (place, thread_id) in ordered:
                start = ordered.index((place, thread_id)) + 1
        elif query.per_page is not None:
            start = query.page * query.per_page
        end = len(found) if query.per_page is None else start + query.per_page
        chosen = found[start:end]
        more = end < len(found)
        return ThreadPage(tuple(chosen), len(found), more, _cursor(query, chosen) if more else None)

    def _thread_rows(self, resource_id: str, query: ThreadQuery, *, page_limit: int | None) -> Any:
        created = query.order_by == "createdAt"
        sort = "created_key" if created else "updated_key"
        request: dict[str, Any] = {}
        if query.cursor is not None:
            place, thread_id = read_cursor(query.order_by, query.cursor, str, str)
            request["ExclusiveStartKey"] = to_item(
                {"pk": keys.owner_pk(resource_id), "sk": keys.thread_sk(thread_id), sort: place}
            )
        now = self._clock()
        rows = self._db.query(
            self._threads,
            page_limit=page_limit,
            IndexName=keys.BY_CREATED if created else keys.BY_UPDATED,
            ConsistentRead=True,
            ScanIndexForward=not query.newest_first,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id)}),
            **request,
        )
        threads = (read_thread(row) for row in rows)
        return (thread for thread in threads if thread.expires_at is None or thread.expires_at > now)

    def _thread_total(self, resource_id: str) -> int:
        item = self._db.get(self._threads, self._resource_key(resource_id))
        if item is None:
            return 0
        fields = from_item(item)
        if fields.get("expiring", 0) <= 0:
            return int(fields.get("threads", 0))
        # Some threads expire: those that are due and not swept yet must not be counted.
        return self._db.count(
            self._threads,
            IndexName=keys.BY_CREATED,
            ConsistentRead=True,
            KeyConditionExpression="#pk = :pk",
            FilterExpression="attribute_not_exists(#expires_at) OR #expires_at > :now",
            ExpressionAttributeNames={"#pk": "pk", "#expires_at": "expires_at"},
            ExpressionAttributeValues=to_item({":pk": keys.owner_pk(resource_id), ":now": clock.to_ms(self._clock())}),
        )

    def _resource_key(self, resource_id: str) -> Item:
        return to_item({"pk": keys.owner_pk(resource_id), "sk": keys.RESOURCE_SK})

    # Deletion.

    def delete_thread(self, resource_id: str, thread_id: str) -> bool:
        """See `MessageStore.delete_thread`. Two requests."""
        backoff = self._db.backoff(f"the deletion of thread {thread_id}")
        while True:
            stored = self._stored_header(resource_id, thread_id)
            if stored is None or not stored.is_live(self._clock()):
                return False
            try:
                self._db.transact(
                    [
                        *self._burial(stored),
                        *self._release_claim(resource_id, thread_id),
                        self._memory_removal(resource_id, thread_id),
                    ]
                )
                return True
            except TransactionRefused as refused:
                backoff.wait(refused)

    def _burial(self, stored: StoredHeader, *, condition: str = "", **values: Any) -> list[dict[str, Any]]:
        """Actions that turn a live (or expired) thread into a tombstone: hidden at once, its numbers never used again."""
        thread = stored.header.thread
        expiring = thread.expires_at is not None
        header = {
            "Update": {
                "TableName": self._threads,
                "Key": self._header_key(thread.resource_id, thread.id),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                **expression(
                    update="SET #state = :deleted, #incarnation = :new, #until = :now, #message_count = :zero "
                    "REMOVE #title, #title_source, #metadata, #created_key, #updated_key, #turns, #last_created, "
                    "#hold, #hold_until, #expires_at, #idle_s, #rows_expire, #out_of_order",
                    condition="#state = :live AND #incarnation = :incarnation AND "
                    + ("attribute_exists(#expires_at)" if expiring else "attribute_not_exists(#expires_at)")
                    + condition,
                    deleted="deleted",
                    new=new_incarnation(),
                    now=clock.to_ms(self._clock()),
                    zero=0,
                    live="live",
                    incarnation=stored.header.incarnation,
                    **values,
                ),
            }
        }
        return [header, self._resource_change(thread.resource_id, threads=-1, expiring=-int(expiring))]

    def _release_claim(self, resource_id: str, thread_id: str) -> list[dict[str, Any]]:
        if self._claims is None:
            return []
        return [
            {
                "Delete": {
                    "TableName": self._claims,
                    "Key": to_item({"pk": keys.claim_pk(thread_id)}),
                    **expression(condition="attribute_not_exists(#pk) OR #resource = :resource", resource=resource_id),
                }
            }
        ]


def _order_key(query: ThreadQuery, thread: Thread) -> str:
    return keys.date_key(thread.created_at if query.order_by == "createdAt" else thread.updated_at)


def _cursor(query: ThreadQuery, chosen: list[Thread]) -> str | None:
    return write_cursor(query.order_by, _order_key(query, chosen[-1]), chosen[-1].id) if chosen else None
