"""JSON Schemas made into checks. A schema that came with a request never makes the server read a file or an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from agent_memory._json import dumps, loads
from agent_memory.errors import InvalidInputError

Check = Callable[[Any], Any]
"""Takes a value; raises fastjsonschema.JsonSchemaValueException where it does not fit."""


class SchemaError(ValueError):
    """What was given is no JSON Schema, or one that points outside itself."""


class _Refused(dict[str, Callable[[str], Any]]):
    """Handlers of every scheme, which fetch nothing."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        return _refuse


def _refuse(_uri: str) -> NoReturn:
    raise SchemaError("expected $ref to stay within the schema, found one that leads out of it")


def compile_schema(schema: Mapping[str, Any], *, use_default: bool = False) -> Check:
    """The check of a schema; with `use_default` it fills in what is missing. Raises SchemaError."""
    try:
        return _compiled(dumps(schema), use_default)
    except SchemaError:
        raise
    except Exception as error:  # the compiler meets wrong schemas with errors of many kinds
        raise SchemaError("expected a JSON Schema, found one that cannot be read") from error


def check_schema(field: str, schema: Mapping[str, Any]) -> None:
    """Raise InvalidInputError for what is no JSON Schema."""
    try:
        compile_schema(schema, use_default=True)
    except SchemaError as error:
        raise InvalidInputError(field, str(error)) from None


@lru_cache(maxsize=64)
def _compiled(text: str, use_default: bool) -> Check:
    import fastjsonschema

    check: Check = fastjsonschema.compile(loads(text), handlers=_Refused(), use_default=use_default)
    return check
