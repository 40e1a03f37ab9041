"""A real OpenSearch node for a test session: OPENSEARCH_TEST_URL, or one that is started here."""

from __future__ import annotations

import atexit
import functools
import os

import pytest

from infra.opensearch.node import Unavailable, start_for_process


@functools.cache
def node_url() -> str:
    """The node's address; the test is skipped where there is none and none can be started."""
    url = os.environ.get("OPENSEARCH_TEST_URL")
    if url:
        return url
    try:
        node = start_for_process()
    except Unavailable as error:
        pytest.skip(f"no OpenSearch node: {error}")
    atexit.register(node.stop)
    return node.url
