"""Sizes and counts that requests are held to."""

from __future__ import annotations

from typing import Final

MAX_PER_PAGE: Final = 10_000  # far above what fits into an answer; a larger number is a mistake
MAX_PAGE: Final = 1_000_000_000
MAX_TITLE_CHARS: Final = 1_000
MAX_METADATA_BYTES: Final = 16 * 1024  # of a thread, as JSON in UTF-8; it lies in the thread's header item
MAX_QUERY_CHARS: Final = 2_000  # of a search
MAX_SEARCH_LIMIT: Final = 100
MAX_IDS: Final = 1_000  # ids that one call may name
MAX_STEPS: Final = 100  # model calls that one request may ask for
MAX_KEY_CHARS: Final = 255  # of an Idempotency-Key
MAX_UPLOAD_BYTES: Final = 2**53 - 1  # what JSON numbers carry; how much is taken is a setting, and more is a 413
MAX_KEPT_ANSWER_BYTES: Final = 300_000  # of an answer kept for repeats; a DynamoDB item ends at 400 KB

PAGE_SHARE: Final = 0.8  # of the largest answer that a page of messages fills; JSON and links need the rest
