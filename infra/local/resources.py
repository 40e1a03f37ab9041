"""Creates the tables and the bucket of template.yaml in an emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.local.template import Template

# What CloudFormation knows of a table and CreateTable takes as it is; backups and protection mean nothing locally.
_CREATE = ("KeySchema", "AttributeDefinitions", "LocalSecondaryIndexes", "GlobalSecondaryIndexes")


def names(template: Template, prefix: str) -> dict[str, str]:
    """Names of tables and buckets by logical id: ``ThreadsTable`` becomes ``<prefix>-threads``."""
    logical = [*template.of_type("AWS::DynamoDB::Table"), *template.of_type("AWS::S3::Bucket")]
    return {name: f"{prefix}-{name.removesuffix('Table').removesuffix('Bucket').lower()}" for name in logical}


def create_tables(dynamodb: Any, template: Template, physical: Mapping[str, str]) -> list[str]:
    """Create the tables that do not exist yet; returns the logical ids of those it made."""
    made = []
    for logical, table in template.of_type("AWS::DynamoDB::Table").items():
        name = physical[logical]
        stream = table.get("StreamSpecification")
        try:
            dynamodb.create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                **{key: table[key] for key in _CREATE if key in table},
                **({"StreamSpecification": {"StreamEnabled": True, **stream}} if stream else {}),
            )
        except dynamodb.exceptions.ResourceInUseException:
            continue
        if "TimeToLiveSpecification" in table:
            dynamodb.update_time_to_live(
                TableName=name, TimeToLiveSpecification=_booleans(table["TimeToLiveSpecification"])
            )
        made.append(logical)
    return made


def create_buckets(s3: Any, template: Template, physical: Mapping[str, str]) -> list[str]:
    """Create the buckets that do not exist yet; returns the logical ids of those it made."""
    existing = {bucket["Name"] for bucket in s3.list_buckets().get("Buckets", ())}
    made = []
    for logical, bucket in template.of_type("AWS::S3::Bucket").items():
        name = physical[logical]
        if name in existing:
            continue
        s3.create_bucket(Bucket=name)
        cors = bucket.get("CorsConfiguration")
        if cors:
            s3.put_bucket_cors(
                Bucket=name, CORSConfiguration={"CORSRules": [_cors(rule) for rule in cors["CorsRules"]]}
            )
        made.append(logical)
    return made


def _booleans(specification: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value == "true" if value in ("true", "false") else value for key, value in specification.items()}


def _cors(rule: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {"MaxAge": "MaxAgeSeconds"}
    return {renamed.get(key, key): value for key, value in rule.items()}
