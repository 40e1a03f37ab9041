"""What the clock calls, in the template and on the local stack."""

from __future__ import annotations

import threading
import time

from agent_memory.jobs.schedule import PERIODS
from infra.local import stack as local
from infra.local.template import Template


class Background:
    def __init__(self):
        self.events = []

    def dispatch(self, target, event):
        self.events.append((target, event))


def test_every_schedule_of_the_template_is_one_that_the_janitor_knows():
    schedules = {schedule.event["schedule"]: schedule for schedule in Template().schedules()}

    assert {name: (found.function, found.every_s) for name, found in schedules.items()} == {
        "sweep": ("JanitorFunction", 3_600),
        "reconcile": ("JanitorFunction", 86_400),
    }
    assert set(schedules) == set(PERIODS)


def test_the_local_clock_calls_soon_after_the_start_and_then_at_its_rate(monkeypatch):
    monkeypatch.setattr(local, "FIRST_TICK_S", 0.01)
    stack = local.Stack(port=0)
    try:
        stack.background = background = Background()
        stack._start_clock()
        end = time.monotonic() + 60
        while len(background.events) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
    finally:
        stack._stopped.set()
        stack.server.server_close()
    assert sorted(event["schedule"] for _, event in background.events) == ["reconcile", "sweep"]
    assert {target for target, _ in background.events} == {"janitor"}


def test_a_schedule_is_called_again_after_its_period_and_not_after_the_stop(monkeypatch):
    monkeypatch.setattr(local, "FIRST_TICK_S", 0.01)
    stack = local.Stack(port=0)
    stack.server.server_close()
    stack.background = background = Background()

    ticking = threading.Thread(target=stack._tick, args=("janitor", {"schedule": "sweep"}, 0.02))
    ticking.start()
    end = time.monotonic() + 60
    while len(background.events) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    stack._stopped.set()
    ticking.join(60)
    assert not ticking.is_alive()
    count = len(background.events)
    assert count >= 3
    time.sleep(0.1)
    assert len(background.events) == count


def test_the_janitor_may_call_itself_for_as_long_as_a_job_takes():
    # Lambda takes a function that calls itself for a runaway after 16 calls, unless it is told not to.
    assert Template().resources["JanitorFunction"]["Properties"]["RecursiveLoop"] == "Allow"
