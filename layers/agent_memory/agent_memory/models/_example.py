"""A value that fits a JSON Schema, for the demo model's structured answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 8  # a schema that refers to itself ends here


def example_of(schema: Any, text: str) -> Any:
    """The simplest value that fits `schema`; strings are `text`, cut to the allowed length."""
    root = schema if isinstance(schema, Mapping) else {}
    return _example(root, root, text, 0)


def _example(schema: Any, root: Mapping[str, Any], text: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return _example(_resolve(reference, root), root, text, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], root, text, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            wanted = schema.get("required", list(schema.get("properties", {})) if depth == 0 else [])
            fields = schema.get("properties", {})
            return {name: _example(fields.get(name, {}), root, text, depth + 1) for name in wanted}
        case "array":
            return [_example(schema.get("items", {}), root, text, depth + 1) for _ in range(schema.get("minItems", 1))]
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 0))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return text[: schema.get("maxLength", len(text))].ljust(schema.get("minLength", 0), ".")


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
