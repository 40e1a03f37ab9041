"""Every file of tests/events, fed to its function's handler as Lambda would call it."""

from __future__ import annotations

import os
import uuid

import pytest

from agent_memory import runtime
from agent_memory.aws import clients
from infra.local.functions import Functions
from infra.local.stack import kept_environment
from infra.local.template import TEMPLATE, load
from streaming_runtime import Streamed
from tests.support import events, packages
from tests.support.events import CASES, EVENTS, Answer, Feeder

TEMPLATE_FUNCTIONS = packages.template().functions()
BY_FOLDER = {function.folder.name: function for function in TEMPLATE_FUNCTIONS.values()}


def test_every_file_has_its_case_and_every_case_its_file():
    assert {str(file.relative_to(EVENTS)) for file in EVENTS.rglob("*.json")} == CASES.keys()


def test_every_function_of_the_template_has_events():
    named = {
        name
        for name, resource in load(TEMPLATE)["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }
    assert named == TEMPLATE_FUNCTIONS.keys(), "a function stands under a condition that these tests do not fulfil"
    assert {f.folder.name for f in TEMPLATE_FUNCTIONS.values()} == {name.partition("/")[0] for name in CASES}


@pytest.fixture(scope="module")
def feeder():
    with kept_environment(), events.world(packages.template(), f"e-{uuid.uuid4().hex[:8]}") as world:
        functions = Functions(TEMPLATE_FUNCTIONS)
        plain = dict(os.environ)

        def call(folder, event):
            function = BY_FOLDER[folder]
            os.environ.clear()
            os.environ.update(plain)
            # Its own variables alone, so one that the template forgot is missing here too.
            chosen = world.variables(function.variables)
            os.environ.update({key: value for key, value in chosen.items() if value})
            clients.reset()
            runtime.configure(None)
            try:
                answer = functions.call(function.name, event)
                streamed = Streamed.of(answer)
                if streamed is not None:
                    return Answer(streamed.status, dict(streamed.headers), b"".join(streamed.body))
            except Exception as error:
                return Answer(error=type(error).__name__, value=str(error))
            return Answer(value=answer)

        yield Feeder(world, call)
        runtime.configure(None)
        clients.reset()


@pytest.mark.parametrize("name", CASES)
def test_an_event_file_is_answered_as_it_should_be(feeder, name):
    feeder.feed_and_check(name)
