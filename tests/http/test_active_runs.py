"""Running answers as other requests see them."""

from __future__ import annotations

import json

from agent_memory import clock, runtime
from agent_memory.http import active_runs
from agent_memory.http.active_runs import ActiveRun
from agent_memory.http.subscriptions import run_events


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


def test_a_run_that_goes_on_after_an_approval_keeps_its_chunks_behind_its_first_ones(app, monkeypatch):
    runs = runtime.services().runs
    assert runs is not None
    now = clock.now_ms()
    for leg, texts in enumerate((["start", "text-delta", "tool-call-approval"], ["start", "tool-result", "finish"])):
        monkeypatch.setattr(clock, "now_ms", lambda leg=leg: now + leg * 60_000)
        run = ActiveRun(runs, "ada", "t1", "resumable", keep_chunks=True)
        run.start("run-1")
        for text in texts:
            run.told(json.dumps([text, {"leg": leg}, None, False]))
        run.end()

    numbers = [number for number, _ in runs.read_chunks("ada", "t1", "run-1", -1)]
    assert len(numbers) == 4 and numbers == sorted(set(numbers))
    shown = [event for event in run_events(runs, "ada", "t1", "run-1") if event is not None]
    assert [event.type for event in shown] == ["start", "tool-result", "finish"]
    assert {event.payload["leg"] for event in shown} == {1}


def test_a_short_run_does_not_look_for_messages_and_a_longer_one_once_more_before_its_end(app, monkeypatch):
    runs = runtime.services().runs
    looks = []
    monkeypatch.setattr(runs, "take_in", lambda *place: looks.append(place) or ())
    run = ActiveRun(runs, "ada", "t1", "resumable", keep_chunks=True)
    run.start("run-1")
    assert run.arrived(True) == ()
    assert looks == []
    monkeypatch.setattr(active_runs, "LOOK_EVERY_S", 0.0)
    assert run.arrived(False) == ()
    assert looks == []
    run.arrived(True)
    assert looks == [("ada", "t1", "run-1")]


def test_messages_are_asked_for_between_steps_where_the_look_at_the_stop_flag_saw_some(app, monkeypatch):
    runs = runtime.services().runs
    run = ActiveRun(runs, "ada", "t1", "resumable", keep_chunks=True)
    run.start("run-1")
    message = {"id": "m1", "role": "user", "content": "hi"}
    assert runs.hand_in("ada", "t1", "run-1", message, agent_id="resumable", at=1)
    assert run.arrived(False) == ()
    monkeypatch.setattr(active_runs, "LOOK_EVERY_S", 0.0)
    assert not run.should_stop()
    assert run.arrived(False) == (message,)
    assert run.arrived(False) == ()


def test_a_run_that_cannot_look_for_messages_goes_on(app, monkeypatch):
    from agent_memory.errors import UnavailableError

    def fail(*_place):
        raise UnavailableError("down")

    runs = runtime.services().runs
    monkeypatch.setattr(runs, "take_in", fail)
    monkeypatch.setattr(active_runs, "LOOK_EVERY_S", 0.0)
    run = ActiveRun(runs, "ada", "t1", "resumable", keep_chunks=True)
    run.start("run-1")
    assert run.arrived(True) == ()
