"""template.yaml as the local stack uses it: tables, bucket, functions and routes, so that nothing is described twice.

Only what a local run needs is understood: parameters at their defaults, conditions, and the intrinsic functions that
the template uses. A reference to a resource gives its logical id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template.yaml"

_SUB = re.compile(r"\$\{([^!}][^}]*)\}")
_INTEGRATION = re.compile(r"/functions/(\w+)\.Arn(?::\w+)?/")
_OMIT = object()
_PSEUDO = {
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "000000000000",
    "AWS::Partition": "aws",
    "AWS::StackName": "local",
    "AWS::StackId": "arn:aws:cloudformation:us-east-1:000000000000:stack/local/00000000-0000-0000-0000-000000000000",
    "AWS::URLSuffix": "amazonaws.com",
}


@dataclass(frozen=True)
class Function:
    """A function of the template. `folder` holds its code, `retries` those of asynchronous events."""

    name: str
    folder: Path
    handler: str
    timeout_s: int
    memory_mb: int
    variables: Mapping[str, str]
    retries: int = 2


@dataclass(frozen=True)
class AuthorizerSpec:
    """A function that says who calls. `expected` is what the Authorization header must match; answers are kept `keeps_s`."""

    function: str
    keeps_s: float
    expected: str


@dataclass(frozen=True)
class RouteSpec:
    """A path and method of the API, the function that serves it, and the one that is asked before."""

    method: str
    path: str
    function: str
    streams: bool
    authorizer: AuthorizerSpec | None = None


@dataclass(frozen=True)
class StreamMapping:
    """A function fed by a table's stream, with the rules of the event source mapping. Retries None: without end."""

    function: str
    table: str
    batch_size: int
    window_s: float
    retries: int | None
    bisect: bool
    partial: bool


@dataclass(frozen=True)
class Schedule:
    """A function that the clock calls with an event."""

    function: str
    every_s: float
    event: Any


class Template:
    """The template, with every intrinsic function worked out.

    Args:
        path: The file.
        parameters: Values other than the defaults.
    """

    def __init__(self, path: Path = TEMPLATE, parameters: Mapping[str, str] | None = None) -> None:
        self.folder = path.parent
        self._source = load(path)
        self._parameters = {
            name: parameter.get("Default", "") for name, parameter in self._source.get("Parameters", {}).items()
        } | dict(parameters or {})
        self._conditions: Mapping[str, Any] = self._source.get("Conditions", {})
        self.resources: dict[str, dict[str, Any]] = {
            name: self._resolve(resource)
            for name, resource in self._source["Resources"].items()
            if "Condition" not in resource or self._holds(resource["Condition"])
        }

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties by logical id of the resources of one type."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def functions(self) -> dict[str, Function]:
        """All functions by logical id."""
        common = self._resolve(self._source.get("Globals", {}).get("Function", {}))
        found = {}
        for name, own in self.of_type("AWS::Serverless::Function").items():
            both = {**common, **own}
            variables = {
                **common.get("Environment", {}).get("Variables", {}),
                **own.get("Environment", {}).get("Variables", {}),
            }
            found[name] = Function(
                name=name,
                folder=self.folder / both["CodeUri"],
                handler=both["Handler"],
                timeout_s=int(both.get("Timeout", 3)),
                memory_mb=int(both.get("MemorySize", 128)),
                variables={key: str(value) for key, value in variables.items()},
                retries=int(own.get("EventInvokeConfig", {}).get("MaximumRetryAttempts", 2)),
            )
        return found

    def routes(self) -> tuple[RouteSpec, ...]:
        """All routes of the APIs' documents."""
        found = []
        for api in self.of_type("AWS::Serverless::Api").values():
            authorizers = _authorizers(api["DefinitionBody"])
            for path, methods in api["DefinitionBody"]["paths"].items():
                for method, operation in methods.items():
                    integration = operation["x-amazon-apigateway-integration"]
                    match = _INTEGRATION.search(integration["uri"])
                    if match is None:
                        raise ValueError(f"{method} {path}: expected the integration of a function, found another")
                    streams = integration.get("responseTransferMode") == "STREAM"
                    schemes = [name for scheme in operation["security"] for name in scheme]
                    authorizer = next((authorizers[name] for name in schemes if name in authorizers), None)
                    found.append(RouteSpec(method.upper(), path, match[1], streams, authorizer))
        return tuple(found)

    def stream_mappings(self) -> tuple[StreamMapping, ...]:
        """All functions that a table's stream feeds."""
        found = []
        for name, function in self.of_type("AWS::Serverless::Function").items():
            for event in function.get("Events", {}).values():
                if event["Type"] != "DynamoDB":
                    continue
                given = event["Properties"]
                retries = int(given.get("MaximumRetryAttempts", -1))
                found.append(
                    StreamMapping(
                        function=name,
                        table=given["Stream"].split(".")[0],
                        batch_size=int(given.get("BatchSize", 100)),
                        window_s=float(given.get("MaximumBatchingWindowInSeconds", 0)),
                        retries=None if retries < 0 else retries,
                        bisect=bool(given.get("BisectBatchOnFunctionError", False)),
                        partial="ReportBatchItemFailures" in given.get("FunctionResponseTypes", ()),
                    )
                )
        return tuple(found)

    def schedules(self) -> tuple[Schedule, ...]:
        """All functions that the clock calls."""
        found = []
        for name, function in self.of_type("AWS::Serverless::Function").items():
            for event in function.get("Events", {}).values():
                if event["Type"] == "Schedule":
                    given = event["Properties"]
                    found.append(Schedule(name, _seconds(given["Schedule"]), json.loads(given.get("Input", "{}"))))
        return tuple(found)

    def _holds(self, name: str) -> bool:
        return bool(self._resolve(self._conditions[name]))

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [item for item in map(self._resolve, value) if item is not _OMIT]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            if name == "Ref" or name.startswith("Fn::") or (name == "Condition" and isinstance(argument, str)):
                return self._intrinsic(name.removeprefix("Fn::"), argument)
        resolved = {key: self._resolve(item) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not _OMIT}

    def _intrinsic(self, name: str, argument: Any) -> Any:
        match name:
            case "Ref":
                return self._ref(argument)
            case "Condition":
                return self._holds(argument)
            case "If":
                return self._resolve(argument[1] if self._holds(argument[0]) else argument[2])
            case "GetAtt":
                return argument if isinstance(argument, str) else ".".join(argument)
            case "Sub":
                text, names = argument if isinstance(argument, list) else (argument, {})
                given = {key: self._resolve(item) for key, item in names.items()}
                return _SUB.sub(lambda match: str(given.get(match[1], self._ref(match[1]))), text)
            case "Join":
                separator, parts = argument
                resolved = self._resolve(parts)
                return separator.join([resolved] if isinstance(resolved, str) else map(str, resolved))
            case "Select":
                index, parts = argument
                resolved = self._resolve(parts)
                return (resolved.split(",") if isinstance(resolved, str) else resolved)[int(index)]
            case "Split":
                return str(self._resolve(argument[1])).split(argument[0])
        conditions = [self._resolve(item) for item in argument]
        match name:
            case "Equals":
                return str(conditions[0]) == str(conditions[1])
            case "Not":
                return not conditions[0]
            case "And":
                return all(conditions)
            case "Or":
                return any(conditions)
        raise ValueError(f"expected an intrinsic function that the local stack knows, found Fn::{name}")

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _OMIT
        return self._parameters.get(name, _PSEUDO.get(name, name))


def _seconds(rate: str) -> float:
    match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", rate)
    if match is None:
        raise ValueError(f"expected a schedule like rate(1 hour), found {rate}")
    return int(match[1]) * {"minute": 60.0, "hour": 3_600.0, "day": 86_400.0}[match[2]]


def _authorizers(body: Mapping[str, Any]) -> dict[str, AuthorizerSpec]:
    """The Lambda authorizers of an API's document by the name of their scheme."""
    found = {}
    for name, scheme in body["components"]["securitySchemes"].items():
        authorizer = scheme.get("x-amazon-apigateway-authorizer")
        if authorizer is not None:
            match = _INTEGRATION.search(authorizer["authorizerUri"])
            if match is None or authorizer["type"] != "token":
                raise ValueError(f"{name}: expected a token authorizer that is a function, found another")
            found[name] = AuthorizerSpec(
                match[1],
                float(authorizer["authorizerResultTtlInSeconds"]),
                authorizer["identityValidationExpression"],
            )
    return found


def load(path: Path) -> dict[str, Any]:
    """A template as plain data, the short tags (``!Ref``) in their long form."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Knows CloudFormation's tags."""

    def intrinsic(loader: Any, tag: str, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode):
            value = loader.construct_scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            value = loader.construct_mapping(node, deep=True)
        return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}

    Loader.add_multi_constructor("!", intrinsic)
    with path.open(encoding="utf-8") as file:
        loaded: dict[str, Any] = yaml.load(file, Loader)
    return loaded
