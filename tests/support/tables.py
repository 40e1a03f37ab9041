"""Tables and the bucket for tests: from template.yaml where it defines them, else from the definitions below."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"
PROJECTED = ["title", "metadata", "created_key", "updated_key", "expires_at"]


def _key(**names: str) -> list[dict[str, str]]:
    kinds = ["HASH", "RANGE"]
    return [{"AttributeName": name, "KeyType": kinds[i]} for i, name in enumerate(names)]


def _attributes(**types: str) -> list[dict[str, str]]:
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()]


DEFINITIONS: dict[str, dict[str, Any]] = {
    "ThreadsTable": {
        "KeySchema": _key(pk="S", sk="S"),
        "AttributeDefinitions": _attributes(pk="S", sk="S", updated_key="S", created_key="S"),
        "LocalSecondaryIndexes": [
            {
                "IndexName": "by_updated",
                "KeySchema": _key(pk="S", updated_key="S"),
                "Projection": {
                    "ProjectionType": "INCLUDE",
                    "NonKeyAttributes": [name for name in PROJECTED if name != "updated_key"],
                },
            },
            {
                "IndexName": "by_created",
                "KeySchema": _key(pk="S", created_key="S"),
                "Projection": {
                    "ProjectionType": "INCLUDE",
                    "NonKeyAttributes": [name for name in PROJECTED if name != "created_key"],
                },
            },
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    },
    "MessagesTable": {
        "KeySchema": _key(pk="S", sk="N"),
        "AttributeDefinitions": _attributes(pk="S", sk="N", mid="S"),
        "LocalSecondaryIndexes": [
            {
                "IndexName": "by_mid",
                "KeySchema": _key(pk="S", mid="S"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by_id",
                "KeySchema": _key(mid="S", pk="S"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"},
    },
    "RunsTable": {
        "KeySchema": _key(pk="S", sk="S"),
        "AttributeDefinitions": _attributes(pk="S", sk="S"),
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"},
    },
    "ClaimsTable": {
        "KeySchema": _key(pk="S"),
        "AttributeDefinitions": _attributes(pk="S"),
    },
}
_CREATE = (
    "KeySchema",
    "AttributeDefinitions",
    "LocalSecondaryIndexes",
    "GlobalSecondaryIndexes",
    "StreamSpecification",
)


@dataclass(frozen=True)
class Names:
    """Names of the tables and the bucket of one test."""

    threads: str
    messages: str
    runs: str
    claims: str
    bucket: str


def definitions() -> dict[str, dict[str, Any]]:
    """The tables by logical id, as template.yaml has them where it does."""
    if not TEMPLATE.exists():
        return DEFINITIONS
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads CloudFormation's short tags as plain values."""

    def plain(loader: Any, _suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return loader.construct_scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node)
        return loader.construct_mapping(node)

    Loader.add_multi_constructor("!", plain)
    resources = yaml.load(TEMPLATE.read_text(), Loader).get("Resources", {})
    found = {name: resources[name]["Properties"] for name in DEFINITIONS if name in resources}
    for name, properties in found.items():
        stream = properties.get("StreamSpecification")
        if stream is not None:
            properties["StreamSpecification"] = {"StreamEnabled": True, **stream}
        if "KeySchema" not in properties:
            raise AssertionError(f"{name} in template.yaml has no KeySchema")
    return {**DEFINITIONS, **found}


def create(dynamodb: Any, s3: Any | None = None, *, prefix: str | None = None) -> Names:
    """Create the four tables, and the bucket where an S3 client is given, under names of their own."""
    prefix = prefix or f"t-{uuid.uuid4().hex[:12]}"
    names = Names(*(f"{prefix}-{part}" for part in ("threads", "messages", "runs", "claims", "files")))
    physical = {
        "ThreadsTable": names.threads,
        "MessagesTable": names.messages,
        "RunsTable": names.runs,
        "ClaimsTable": names.claims,
    }
    for logical, definition in definitions().items():
        dynamodb.create_table(
            TableName=physical[logical],
            BillingMode="PAY_PER_REQUEST",
            **{key: definition[key] for key in _CREATE if key in definition},
        )
        ttl = definition.get("TimeToLiveSpecification")
        if ttl:
            dynamodb.update_time_to_live(TableName=physical[logical], TimeToLiveSpecification=ttl)
    if s3 is not None:
        s3.create_bucket(Bucket=names.bucket)
    return names
