"""A stack in the emulator: deploying it, and what a test asks about it.

AWS clients find the emulator through the environment (``AWS_ENDPOINT_URL``, ``AWS_CA_BUNDLE`` and dummy keys).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from infra.stack.tools import sam

ARTIFACTS = "deployment-artifacts"


def client(service: str) -> Any:
    """A client of the emulator with the keys of its account."""
    import boto3

    make: Any = boto3.session.Session().client
    return make(service)


def deploy(built: Path, stack: str, parameters: Mapping[str, str]) -> Deployment:
    """Deploy a built template with SAM. Raises ToolError with what SAM said."""
    client("s3").create_bucket(Bucket=ARTIFACTS)
    sam(
        "deploy",
        *("--template", str(built), "--stack-name", stack, "--s3-bucket", ARTIFACTS, "--no-progressbar"),
        *("--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND", "--on-failure", "DO_NOTHING"),
        *("--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())),
    )
    return Deployment(stack)


class Deployment:
    """A deployed stack.

    Attributes:
        name: The stack's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def resources(self) -> dict[str, dict[str, str]]:
        """Physical ids by logical id by type, e.g. ``resources["AWS::Lambda::Function"]["ChatFunction"]``."""
        found: dict[str, dict[str, str]] = {}
        answer = client("cloudformation").describe_stack_resources(StackName=self.name)
        for resource in answer["StackResources"]:
            of_type = found.setdefault(resource["ResourceType"], {})
            of_type[resource["LogicalResourceId"]] = resource["PhysicalResourceId"]
        return found

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The stack's outputs."""
        stacks = client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stacks[0].get("Outputs", ())}

    @property
    def functions(self) -> dict[str, str]:
        """Names of the functions by logical id."""
        return self.resources["AWS::Lambda::Function"]

    @property
    def api_id(self) -> str:
        """The REST API's id."""
        (found,) = self.resources["AWS::ApiGateway::RestApi"].values()
        return found

    @property
    def address(self) -> str:
        """Where the REST API answers, its stage included, without a slash at the end."""
        (stage,) = self.resources["AWS::ApiGateway::Stage"].values()
        return f"{os.environ['AWS_ENDPOINT_URL']}/_aws/execute-api/{self.api_id}/{stage}"

    def set_variables(self, function: str, variables: Mapping[str, str]) -> None:
        """Set some variables of a function, by its logical id; its aliases then name a version that has them."""
        functions, name = client("lambda"), self.functions[function]
        known = functions.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": {**known, **variables}})
        aliases = functions.list_aliases(FunctionName=name)["Aliases"]
        version = functions.publish_version(FunctionName=name)["Version"] if aliases else None
        for alias in aliases:
            functions.update_alias(FunctionName=name, Name=alias["Name"], FunctionVersion=version)

    def log(self, function: str) -> str:
        """What a function wrote, by its logical id."""
        logs = client("logs")
        configured = client("lambda").get_function_configuration(FunctionName=self.functions[function])
        group = configured.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{self.functions[function]}"
        try:
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
            return "\n".join(event["message"].rstrip() for page in pages for event in page["events"])
        except logs.exceptions.ResourceNotFoundException:
            return ""
