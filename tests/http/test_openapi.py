"""The API description, held against the route table and the shapes that check requests."""

from __future__ import annotations

import pytest

from agent_memory.http.openapi import describe
from agent_memory.http.routes import CHAT_ROUTES, MEMORY_ROUTES, ROUTES
from agent_memory.http.shapes import read_body

WITH_EXAMPLES = [(route, example) for route in ROUTES for example in route.examples]


def test_every_route_is_described(app):
    document = app.get("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.pattern) for route in ROUTES}
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_every_route_is_served_by_one_function_and_its_handler_is_there():
    served = {(route.method, route.pattern) for route in (*MEMORY_ROUTES, *CHAT_ROUTES)}
    assert served == {(route.method, route.pattern) for route in ROUTES}
    for route in ROUTES:
        assert callable(route.load())


@pytest.mark.parametrize(
    ("route", "example"), WITH_EXAMPLES, ids=[f"{r.method} {r.pattern} {n}" for n, (r, _) in enumerate(WITH_EXAMPLES)]
)
def test_examples_fit_the_described_schema_and_the_check(route, example):
    import jsonschema

    body = describe()["paths"][route.pattern][route.method.lower()]["requestBody"]["content"]["application/json"]
    jsonschema.validate(example, body["schema"])
    assert read_body(route.body, dict(example))


def test_bodies_of_posts_have_examples():
    without = [
        route.pattern
        for route in ROUTES
        if route.body is not None and route.body.required and not route.examples and route.answer == "json"
    ]
    assert len(without) <= 4  # decisions, whose bodies hold ids of runs


def test_description_is_valid_openapi():
    document = describe()
    for methods in document["paths"].values():
        for operation in methods.values():
            assert set(operation) <= {"summary", "operationId", "tags", "parameters", "responses", "requestBody"}
            for parameter in operation["parameters"]:
                assert parameter["in"] in ("path", "query", "header")
                assert parameter["required"] is True if parameter["in"] == "path" else True
