"""What code asks of AWS, held against what a role of the template allows."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from infra.local.template import Template

DOMAIN = "arn:aws:es:us-east-1:123456789012:domain/search"
TEMPLATE = Template(parameters={"Search": "existing", "OpenSearchUrl": "https://search.local", "OpenSearchArn": DOMAIN})
_S3 = {
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "DeleteObjects": "s3:DeleteObject",
}


def statements(role):
    """All statements of a role."""
    found = TEMPLATE.of_type("AWS::IAM::Role")[role]
    return [item for policy in found["Policies"] for item in policy["PolicyDocument"]["Statement"] if item]


def allows(role, action, resource, context=None):
    """Whether a statement of the role allows an action on a resource. Of conditions it knows `StringLike`."""
    return any(
        item["Effect"] == "Allow"
        and any(fnmatchcase(action, pattern) for pattern in _list(item["Action"]))
        and any(_matches(resource, pattern) for pattern in _list(item["Resource"]))
        and all(
            any(_matches((context or {}).get(key, ""), pattern) for pattern in _list(patterns))
            for key, patterns in item.get("Condition", {}).get("StringLike", {}).items()
        )
        for item in statements(role)
    )


class Asked:
    """Records what clients ask for, as (action, resource, context), in the template's own names.

    Args:
        names: The tables and the bucket (`tests.support.tables.Names`).
    """

    def __init__(self, names):
        self._names = {
            names.threads: "ThreadsTable",
            names.messages: "MessagesTable",
            names.runs: "RunsTable",
            names.claims: "ClaimsTable",
            names.bucket: "AttachmentsBucket",
        }
        self.found = set()

    def attach(self, client):
        service = client.meta.service_model.service_name
        client.meta.events.register(f"provide-client-params.{service}.*", self._note)

    def note_search(self, requests):
        """Requests that `OpenSearchFake` saw."""
        for method, path, _ in requests:
            self.found.add((f"es:ESHttp{method.capitalize()}", DOMAIN + urlsplit(path).path, ()))

    def refused(self, role):
        """What the role does not allow of it."""
        return sorted((a, r, c) for a, r, c in self.found if not allows(role, a, r, dict(c)))

    def _note(self, params, model, **_):
        operation = model.name
        if model.service_model.service_name == "dynamodb":
            for action, table, index in _tables(operation, params):
                path = f"/index/{index}" if index else ""
                self.found.add((f"dynamodb:{action}", f"{self._names[table]}.Arn{path}", ()))
            return
        bucket, action = f"{self._names[params['Bucket']]}.Arn", _S3.get(operation, f"s3:{operation}")
        if action == "s3:ListBucket":
            self.found.add((action, bucket, (("s3:prefix", params.get("Prefix", "")),)))
            return
        keys = [entry["Key"] for entry in params["Delete"]["Objects"]] if "Delete" in params else [params["Key"]]
        self.found |= {(action, f"{bucket}/{key}", ()) for key in keys}


def _tables(operation, params):
    """Actions of a request, with table and index."""
    if operation in ("BatchGetItem", "BatchWriteItem"):
        return [(operation, table, None) for table in params["RequestItems"]]
    if operation != "TransactWriteItems":
        return [(operation, params["TableName"], params.get("IndexName"))]
    kinds = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
    return [
        (kinds[kind], body["TableName"], None) for action in params["TransactItems"] for kind, body in action.items()
    ]


def _list(value):
    return value if isinstance(value, list) else [value]


def _matches(text, pattern):
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL) is not None
