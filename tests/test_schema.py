"""JSON Schemas that callers bring."""

from __future__ import annotations

import pytest
from fastjsonschema import JsonSchemaValueException

from agent_memory._schema import SchemaError, check_schema, compile_schema
from agent_memory.errors import InvalidInputError


def test_a_schema_may_point_into_itself():
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["a"]}}}
    assert compile_schema(schema)({"a": 1}) == {"a": 1}
    with pytest.raises(JsonSchemaValueException):
        compile_schema(schema)({})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/x.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "other.json"},
        {"$id": "https://example.org/a/", "properties": {"x": {"$ref": "b"}}},
        {"properties": {"x": {"$id": "https://example.org/b", "allOf": [{"$ref": "https://example.org/c#/d"}]}}},
    ],
)
def test_a_schema_fetches_nothing_from_outside_case_86(monkeypatch, schema):
    def opened(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a schema made the server open an address")

    monkeypatch.setattr("urllib.request.urlopen", opened)
    with pytest.raises(SchemaError, match="leads out of it"):
        compile_schema(schema)


@pytest.mark.parametrize(
    "schema", [{"type": "zzz"}, {"$ref": "#/nope"}, {"properties": 1}, {"pattern": "("}, {"enum": 3}, {"required": "a"}]
)
def test_what_is_no_schema_is_named(schema):
    with pytest.raises(InvalidInputError, match="expected a JSON Schema"):
        check_schema("structuredOutput.schema", schema)
