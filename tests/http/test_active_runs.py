"""Running answers as other requests see them."""

from __future__ import annotations

from agent_memory import runtime
from agent_memory.http import active_runs
from agent_memory.http.active_runs import ActiveRun


def test_a_run_is_found_again_once_a_shorter_turn_beside_it_has_ended(app, monkeypatch):
    monkeypatch.setattr(active_runs, "LOOK_EVERY_S", 0.0)
    runs = runtime.services().runs
    assert runs is not None
    first, second = (ActiveRun(runs, "ada", "t1", "conformance", keep_chunks=True) for _ in range(2))
    first.start("run-1")
    second.start("run-2")
    assert not first.should_stop()
    second.end()
    assert runs.get_active("ada", "t1") is None

    assert not first.should_stop()
    assert runs.request_abort("ada", "t1", "run-1")
    assert first.should_stop()

    first.end()
    assert runs.get_active("ada", "t1") is None
    assert first.should_stop()
    assert runs.get_active("ada", "t1") is None
