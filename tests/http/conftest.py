"""The HTTP application, with empty tables for each test."""

from __future__ import annotations

import pytest

from tests.support.http_app import Tables, serve
from tests.support.pace import Pace


@pytest.fixture(scope="package")
def shared_tables():
    made = Tables()
    yield made
    made.stop()


@pytest.fixture
def app(shared_tables):
    with serve(shared_tables) as app:
        yield app


@pytest.fixture
def signed_in(shared_tables):
    """The application where end users sign in; ada calls."""
    with serve(shared_tables, auth_mode="jwt") as app:
        app.authorizer = {"resourceId": "ada"}
        yield app


@pytest.fixture
def pace(monkeypatch):
    """`slow` answers wait until the test lets them go on."""
    made = Pace(monkeypatch)
    yield made
    made.go_on()
