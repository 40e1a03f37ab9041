from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory.memory import Memory
from tests.support.memories import Bench
from tests.support.memories import bench as make_bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with make_bench() as made:
        yield made


@pytest.fixture
def memory(bench: Bench) -> Memory:
    return bench.memory()
