"""The template as the emulator can run it: worked out from template.yaml, so that whatever is added there comes along.

What differs, because the emulator cannot do it:

- Functions run on the emulator's own Python and on this machine, so layers are built for those.
- Streaming integrations become plain ones, and their functions answer through `streaming_runtime.buffered`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.template import load

# The part before the slash may go on with a version.
_STREAMING = re.compile(r"/2021-11-15/functions/(\$\{(\w+)\.Arn\}[^/]*)/response-streaming-invocations")
_ENTRY = "buffered_entry"
_ENTRY_CODE = """\
from {module} import {name} as streaming
from streaming_runtime import buffered

handler = buffered(streaming)
"""
_FUNCTION = "AWS::Serverless::Function"
_LAYER = "AWS::Serverless::LayerVersion"
_CODE = {_FUNCTION: "CodeUri", _LAYER: "ContentUri"}
_NESTED = {"AWS::Serverless::Application": "Location", "AWS::CloudFormation::Stack": "TemplateURL"}


@dataclass(frozen=True)
class Host:
    """Where the functions will run: ``python3.11`` and ``x86_64`` or ``arm64``."""

    runtime: str
    architecture: str


def derive(template: Path, target: Path, host: Host) -> Path:
    """Write the derived template and the code it names below the folder `target`; returns the template's path.

    Nested templates are derived too, each at its place.
    """
    shutil.rmtree(target, ignore_errors=True)
    _derive(template, template.parent, target, host)
    return target / template.name


def _derive(template: Path, source: Path, target: Path, host: Host) -> None:
    document = read(template)
    place = target / template.parent.relative_to(source)
    place.mkdir(parents=True, exist_ok=True)
    resources: dict[str, dict[str, Any]] = document["Resources"]
    for resource in resources.values():
        key = _CODE.get(resource["Type"])
        if key is not None and isinstance(resource["Properties"].get(key), str):
            folder = resource["Properties"][key]
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(template.parent / folder, place / folder, ignore=ignored, dirs_exist_ok=True)
    for nested in _nested(document):
        _derive(template.parent / nested, source, target, host)
    _run_on(document, host)
    for name in sorted(_buffer(document)):
        _wrap(document, name, place)
    (place / template.name).write_text(dump(document), encoding="utf-8")


def templates(template: Path) -> list[Path]:
    """A template and all that are nested in it."""
    nested = [template.parent / name for name in _nested(read(template))]
    return [template, *(found for inner in nested for found in templates(inner))]


def _nested(document: dict[str, Any]) -> list[str]:
    places = [
        resource.get("Properties", {}).get(_NESTED.get(resource["Type"], ""))
        for resource in document["Resources"].values()
    ]
    return [place for place in places if isinstance(place, str) and "://" not in place]


def read(template: Path) -> dict[str, Any]:
    """A template as plain data that nothing shares: what the file says once under an anchor is here as often as it is named."""
    document: dict[str, Any] = json.loads(json.dumps(load(template)))
    return document


def dump(document: dict[str, Any]) -> str:
    """A template as text. JSON is YAML, and says the intrinsic functions in their long form."""
    return json.dumps(_plain(document), indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"Fn::GetAtt"} and isinstance(value["Fn::GetAtt"], str):
            return {"Fn::GetAtt": value["Fn::GetAtt"].split(".", 1)}
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _run_on(document: dict[str, Any], host: Host) -> None:
    functions = [document.get("Globals", {}).get("Function", {})]
    for resource in document["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == _FUNCTION:
            functions.append(properties)
        if resource["Type"] == _LAYER:
            properties |= {"CompatibleRuntimes": [host.runtime], "CompatibleArchitectures": [host.architecture]}
            resource.setdefault("Metadata", {})["BuildArchitecture"] = host.architecture
    for properties in functions:
        for key, value in (("Runtime", host.runtime), ("Architectures", [host.architecture])):
            if key in properties:
                properties[key] = value


def _buffer(document: dict[str, Any]) -> set[str]:
    """Make streaming integrations plain; returns the logical ids of their functions."""
    names = set()
    for node in _nodes(document):
        uri = node.get("uri")
        given = uri.get("Fn::Sub") if isinstance(uri, dict) else None
        text, *values = given if isinstance(given, list) else [given]
        if isinstance(text, str) and (match := _STREAMING.search(text)):
            names.add(match[2])
            plain = _STREAMING.sub(r"/2015-03-31/functions/\1/invocations", text)
            node["uri"] = {"Fn::Sub": [plain, *values] if values else plain}
            node.pop("responseTransferMode", None)
    return names


def _wrap(document: dict[str, Any], name: str, place: Path) -> None:
    properties = document["Resources"][name]["Properties"]
    handler = properties.get("Handler") or document["Globals"]["Function"]["Handler"]
    module, _, function = handler.rpartition(".")
    entry = place / properties["CodeUri"] / f"{_ENTRY}.py"
    entry.write_text(_ENTRY_CODE.format(module=module, name=function), encoding="utf-8")
    properties["Handler"] = f"{_ENTRY}.handler"


def without_action(document: dict[str, Any], role: str, action: str) -> None:
    """Take one action out of a role's own policies. Raises ValueError where the role does not have it."""
    found = False
    for node in _nodes(document["Resources"][role]["Properties"]["Policies"]):
        actions = node.get("Action")
        if isinstance(actions, list) and action in actions:
            node["Action"] = [other for other in actions if other != action]
            found = True
    if not found:
        raise ValueError(f"expected the action {action} in the policies of {role}, found none")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(item)
