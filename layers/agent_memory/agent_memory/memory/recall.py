"""Reading messages: pages, included ones with neighbours, and what a search finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from agent_memory.errors import InvalidInputError
from agent_memory.ids import check_id
from agent_memory.memory.base import UNSET, MemoryBase, Owner, Unset
from agent_memory.memory.filters import (
    DEFAULT_MESSAGES_PER_PAGE,
    Include,
    PerPage,
    matches,
    read_include,
    read_message_filter,
    read_order,
    read_page,
)
from agent_memory.memory.results import RecallResult, SearchResult
from agent_memory.memory.windows import Want, Window, in_order, read_headers, read_windows
from agent_memory.messages import Message
from agent_memory.options import MemoryOptions, SemanticRecallOptions
from agent_memory.ports import DateRange, Hit, IndexQuery, MessagePage, MessageQuery, ThreadHeader

MAX_ROUNDS: Final = 3  # a search whose hits are gone from the table is widened twice
WIDEN: Final = 3
SearchMode = Literal["word", "meaning", "both"]
_INDEX_MODES: Final[Mapping[str, Any]] = {"word": "text", "meaning": "vector", "both": "hybrid"}


@dataclass(frozen=True, slots=True)
class _Found:
    hit: Hit
    header: ThreadHeader
    window: Window


class Recall(MemoryBase):
    """The part of the facade that reads messages."""

    def recall(
        self,
        thread_id: str | Unset = UNSET,
        *,
        resource_id: Owner = UNSET,
        page: int = 0,
        per_page: PerPage = None,
        order_by: Mapping[str, Any] | None = None,
        filter: Mapping[str, Any] | None = None,
        include: Sequence[Any] | None = None,
        vector_search_string: str | None = None,
        thread_config: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        include_total: bool = True,
        max_bytes: int | None = None,
    ) -> RecallResult:
        """Messages of a thread: a page of it, messages by id, or what a search by meaning finds.

        Results are always oldest first. Without `order_by`, or with direction ``DESC``, pages count from the newest end.
        Where only `include` or a search is asked for (no page, page size, cursor or filter), no page comes with it.

        Args:
            thread_id: The thread; may be left out for a search over a whole resource.
            resource_id: Its owner; when left out, the thread's owner is looked up. '' and None are errors.
            page: From 0.
            per_page: 40 by default; False: all; 0: only what `include` or the search adds.
            order_by: ``{"field": "createdAt", "direction": "ASC" | "DESC"}``.
            filter: ``{"dateRange": {"start", "end", "startExclusive", "endExclusive"}, "metadata": {…}}``. Metadata values are
                strings, finite numbers, booleans or None; None matches only a key that is set to None.
            include: ``[{"id", "withPreviousMessages"?, "withNextMessages"?}]`` or bare ids: these messages come too, from
                whichever thread of the resource holds them. Unknown ids are left out.
            vector_search_string: Finds messages by meaning (semantic recall must be on, here or in `thread_config`).
            thread_config: Memory options for this call.
            cursor: `next_cursor` of an earlier page; takes the place of `page` and stays right while messages arrive.
            include_total: False saves counting.
            max_bytes: Cuts the page by size; it then has `has_more` and a cursor.

        Raises:
            InvalidInputError: No thread and no search, or a value out of range.
            NotFoundError: A named resource has no such thread (without a resource the result is empty).
            AccessDeniedError: The thread belongs to another resource.
            ConfigurationError: A search without a vector index or embedder.
        """
        options = self._merged(thread_config)
        number, size = read_page(page, per_page, DEFAULT_MESSAGES_PER_PAGE)
        field, newest_first = read_order(order_by)
        if field != "createdAt":
            raise InvalidInputError("order_by.field", "expected createdAt for messages, found updatedAt")
        dates, metadata = read_message_filter(filter)
        includes = read_include(include)
        search = self._search_options(options, vector_search_string)
        filtered = search is None and (dates is not None or metadata is not None)
        if (includes or search) and per_page is None and number == 0 and cursor is None and not filtered:
            size = 0
        owner, header = self._place(thread_id, resource_id, anywhere=search is not None and search.scope == "resource")
        if owner is None:
            return RecallResult((), 0 if include_total else None, number, size, False)
        query = MessageQuery(
            page=number,
            per_page=None if size is False else size,
            newest_first=newest_first,
            date_range=dates,
            metadata=metadata,
            cursor=cursor,
            include_total=include_total,
            max_bytes=max_bytes,
        )
        found = self._page(header, query)
        messages = {(m.thread_id, m.id): m for m in found.messages}
        for message in self._included(owner, header, includes):
            messages.setdefault((message.thread_id, message.id), message)
        scores: dict[tuple[str, str], float] = {}
        if search is not None and vector_search_string is not None:
            where = None if search.scope == "resource" or header is None else header.thread.id
            for item in self._find(
                owner, search, vector_search_string, where, dates=dates, metadata=metadata, mode=search.mode
            ):
                scores[item.hit.thread_id, item.hit.message_id] = item.hit.score
                for message in item.window.all():
                    messages.setdefault((message.thread_id, message.id), message)
        return RecallResult(
            messages=in_order(tuple(messages.values())),
            total=found.total,
            page=number,
            per_page=size,
            has_more=found.has_more,
            next_cursor=found.next_cursor,
            scores=scores or None,
        )

    def search(
        self,
        query: str,
        resource_id: str,
        *,
        mode: SearchMode = "both",
        limit: int = 20,
        neighbours: int = 2,
        thread_id: str | None = None,
        filter: Mapping[str, Any] | None = None,
        thread_config: Mapping[str, Any] | MemoryOptions | None = None,
    ) -> tuple[SearchResult, ...]:
        """Search all of a resource's messages by words, by meaning, or by both; best first.

        Args:
            query: What to look for.
            resource_id: Whose messages.
            mode: ``word`` needs no embedder.
            limit: The most results, 1 to 100.
            neighbours: Messages on either side of each result.
            thread_id: Search this thread only.
            filter: As for `recall`.
            thread_config: Memory options for this call; of recall's, `threshold` and `filter` count here.

        Raises:
            InvalidInputError: A blank query or a value out of range.
            ConfigurationError: No vector index, or no embedder where meaning counts.
            UnavailableError: The index does not answer.
        """
        check_id("resource_id", resource_id)
        if not isinstance(query, str) or not query.strip():
            raise InvalidInputError("query", "expected a text to look for, found none")
        if mode not in _INDEX_MODES:
            raise InvalidInputError("mode", f"expected word, meaning or both, found {mode!r:.20}")
        for name, value, low, high in (("limit", limit, 1, 100), ("neighbours", neighbours, 0, 20)):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInputError(name, f"expected a whole number from {low} to {high}, found {value!r:.20}")
        if thread_id is not None:
            check_id("thread_id", thread_id)
        dates, metadata = read_message_filter(filter)
        recall = self._merged(thread_config).semantic_recall or SemanticRecallOptions()
        wanted = replace(recall, top_k=limit)
        found = self._find(
            resource_id,
            wanted,
            query,
            thread_id,
            dates=dates,
            metadata=metadata,
            mode=_INDEX_MODES[mode],
            around=(neighbours, neighbours),
        )
        return tuple(
            SearchResult(
                message=item.window.message,
                score=item.hit.score,
                thread_id=item.hit.thread_id,
                thread_title=item.header.thread.title,
                before=item.window.before,
                after=item.window.after,
            )
            for item in found
        )

    # -- inside

    def _search_options(self, options: MemoryOptions, text: str | None) -> SemanticRecallOptions | None:
        if text is None:
            return None
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError("vector_search_string", "expected a text to look for, found none")
        if options.semantic_recall is None:
            raise InvalidInputError(
                "vector_search_string",
                "semantic recall is off; pass thread_config={'semantic_recall': True} or switch it on for this memory",
            )
        return options.semantic_recall

    def _place(
        self, thread_id: str | Unset, resource_id: Owner, *, anywhere: bool
    ) -> tuple[str | None, ThreadHeader | None]:
        """Owner and header of a call; no owner where there is nothing to find, no header for a search of a resource."""
        if isinstance(thread_id, Unset):
            if isinstance(resource_id, Unset) or not anywhere:
                check_id("resource_id", None if isinstance(resource_id, Unset) else resource_id)
                raise InvalidInputError("thread_id", "expected a thread; only a search of a whole resource needs none")
            return check_id("resource_id", resource_id), None
        owner = self._owner(thread_id, resource_id)
        header = None if owner is None else self.storage.get_thread(owner, thread_id)
        if header is not None or owner is None:
            return owner, header
        if isinstance(resource_id, Unset):
            return None, None
        error = self._missing(thread_id, owner)
        if anywhere and error.status == 404:
            return owner, None
        raise error

    def _page(self, header: ThreadHeader | None, query: MessageQuery) -> MessagePage:
        if header is None:
            return MessagePage((), 0 if query.include_total else None, False)
        if query.per_page != 0:
            return self.storage.list_messages(header, query)
        if not query.include_total:
            return MessagePage((), None, False)
        if query.date_range is None and query.metadata is None and not header.rows_expire:
            return MessagePage((), header.message_count, False)
        counted = self.storage.list_messages(header, replace(query, page=0, per_page=1, cursor=None, max_bytes=None))
        return MessagePage((), counted.total, False)

    def _included(self, owner: str, header: ThreadHeader | None, includes: Sequence[Include]) -> Sequence[Message]:
        """The included messages with their neighbours: from this thread, the hinted one, or any other of the owner."""
        if not includes:
            return ()
        hinted = [item.thread_id for item in includes if item.thread_id is not None]
        headers = read_headers(self.storage, owner, [t for t in hinted if header is None or t != header.thread.id])
        if header is not None:
            headers[header.thread.id] = header
        places: dict[str, tuple[str, int]] = {}
        for thread in headers.values():
            rest = [item.id for item in includes if item.id not in places]
            for message_id, seq in self.storage.find(owner, thread.thread.id, rest).items() if rest else ():
                if thread.first_seq <= seq < thread.next_seq:
                    places[message_id] = (thread.thread.id, seq)
        unknown = [item.id for item in includes if item.id not in places]
        if unknown:
            refs = self.storage.locate(owner, unknown)
            headers |= read_headers(self.storage, owner, [r.thread_id for r in refs if r.thread_id not in headers])
            for ref in refs:
                if ref.thread_id in headers:
                    places.setdefault(ref.message_id, (ref.thread_id, ref.seq))
        wants = [
            Want(headers[place[0]], place[1], item.id, item.before, item.after)
            for item in includes
            if (place := places.get(item.id)) is not None
        ]
        return [m for window in read_windows(self.storage, owner, wants) if window for m in window.all()]

    def _find(
        self,
        owner: str,
        options: SemanticRecallOptions,
        text: str,
        thread_id: str | None,
        *,
        dates: DateRange | None,
        metadata: Mapping[str, Any] | None,
        mode: Literal["vector", "text", "hybrid"],
        around: tuple[int, int] | None = None,
    ) -> list[_Found]:
        """Live messages that a search finds, best first: one search and one batch of rows, more only for dead hits."""
        index = self.vector
        self._check_search(mode)
        if index is None:
            return []
        pairs = {**(options.filter or {}), **(metadata or {})} or None
        passes = matches(dates, pairs)
        before, after = around or (options.message_range.before, options.message_range.after)
        vector = None
        if mode != "text" and self.embedder is not None:
            from agent_memory.recall.indexing import query_text

            vector = self.embedder.embed_query(query_text(text, self.embedder.max_chars))
        limit, found = options.top_k, list[_Found]()
        for _ in range(MAX_ROUNDS):
            hits = index.search(
                IndexQuery(
                    resource_id=owner,
                    limit=limit,
                    thread_id=thread_id,
                    vector=vector,
                    text=text if mode != "vector" else None,
                    mode=mode,
                    metadata=pairs,
                    threshold=options.threshold if mode == "vector" else None,
                    date_range=dates,
                )
            )
            found = self._alive(owner, hits, before, after, passes)
            if len(found) >= options.top_k or len(hits) < limit:
                break
            limit *= WIDEN
        return found[: options.top_k]

    def _alive(
        self, owner: str, hits: Sequence[Hit], before: int, after: int, passes: Callable[[Message], bool]
    ) -> list[_Found]:
        """Hits whose rows are still there, with their neighbours. Rows are read under the owner's own key."""
        own = [hit for hit in hits if hit.resource_id == owner]
        headers = read_headers(self.storage, owner, [hit.thread_id for hit in own])
        known = [hit for hit in own if hit.thread_id in headers]
        wants = [Want(headers[hit.thread_id], hit.seq, hit.message_id, before, after) for hit in known]
        windows = read_windows(self.storage, owner, wants)
        return [
            _Found(hit, headers[hit.thread_id], window)
            for hit, window in zip(known, windows, strict=True)
            if window is not None and passes(window.message)
        ]

    def _check_search(self, mode: str) -> None:
        if mode == "text" and self.vector is not None:
            return
        on = self.options.semantic_recall or SemanticRecallOptions()
        self._check_recall(replace(self.options, semantic_recall=on))
