"""Tables and the bucket for tests, as template.yaml describes them."""

from __future__ import annotations

import functools
import uuid
from dataclasses import dataclass
from typing import Any

from infra.local import resources
from infra.local.template import Template


@dataclass(frozen=True)
class Names:
    """Names of the tables and the bucket of one test."""

    threads: str
    messages: str
    runs: str
    claims: str
    bucket: str


@functools.cache
def _template() -> Template:
    return Template()


def create(dynamodb: Any, s3: Any | None = None, *, prefix: str | None = None) -> Names:
    """Create the four tables, and the bucket where an S3 client is given, under names of their own."""
    physical = resources.names(_template(), prefix or f"t-{uuid.uuid4().hex[:12]}")
    resources.create_tables(dynamodb, _template(), physical)
    if s3 is not None:
        resources.create_buckets(s3, _template(), physical)
    return Names(
        threads=physical["ThreadsTable"],
        messages=physical["MessagesTable"],
        runs=physical["RunsTable"],
        claims=physical["ClaimsTable"],
        bucket=physical["AttachmentsBucket"],
    )
