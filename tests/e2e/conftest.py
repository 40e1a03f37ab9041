"""The stack under test: deployed once for a session into the emulator that `make stack` starts.

`api` calls it as a trusted server, `stack` knows the names of its tables, bucket and functions, `search` holds what was
indexed; calls.py has the steps. A new area gets a file of its own in this folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from infra.local.emulator import Certificate
from infra.stack.deployment import Deployment, client, deploy
from infra.stack.tools import ToolError
from tests.support.embeddings_server import MODEL, EmbeddingsServer
from tests.support.https import server_context
from tests.support.opensearch_fake import OpenSearchFake
from tests.support.signed_api import SignedApi

HERE = Path(__file__).parent
STACK = "agent-memory"
PROVIDER_KEY = "key-of-the-embeddings-service"


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.timeout(240))  # the first test waits for the deployment


@pytest.fixture(scope="session")
def built():
    """The template that was built."""
    if "STACK_BUILT" not in os.environ:
        pytest.skip("no built stack: `make stack` builds one and runs these tests")
    return Path(os.environ["STACK_BUILT"])


@pytest.fixture(scope="session")
def tls(built):
    """The certificate that the functions trust."""
    return server_context(Certificate(Path(os.environ["STACK_CERTIFICATE"]), Path(os.environ["STACK_CERTIFICATE_KEY"])))


@pytest.fixture(scope="session")
def search(tls):
    """A search service, which shows what is new after `settle()`. The emulator names it as that of every domain."""
    fake = OpenSearchFake(tls=tls, port=int(os.environ["STACK_SEARCH_PORT"]))
    yield fake
    fake.close()


@pytest.fixture(scope="session")
def embeddings(tls):
    """An embeddings service that wants a key."""
    server = EmbeddingsServer(PROVIDER_KEY, tls=tls)
    yield server
    server.close()


@pytest.fixture(scope="session")
def provider(embeddings):
    """Parameters of the template for an embedder whose key is a secret."""
    secret = client("secretsmanager").create_secret(Name="provider-key", SecretString=PROVIDER_KEY)
    return {
        "Embedder": f"openai:{MODEL}",
        "OpenAiBaseUrl": embeddings.url,
        "OpenAiKeySecretArn": secret["ARN"],
    }


@pytest.fixture(scope="session")
def parameters(provider, search):
    """Parameters of the template for trusted callers, with a search service and a key for receipts that are there already."""
    key = client("kms").create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")["KeyMetadata"]
    return {
        **provider,
        "Search": "existing",
        "OpenSearchUrl": search.url,
        "OpenSearchArn": "arn:aws:es:us-east-1:000000000000:domain/stack",
        "ReceiptKeyArn": key["Arn"],
    }


@pytest.fixture(scope="session")
def deployed(request, built):
    """Deploys a built template under a name: `deployed(template, name, parameters)`. Keeps logs where tests fail."""
    stacks = []

    def make(template, name, parameters):
        stacks.append(Deployment(name))
        try:
            return deploy(template, name, parameters)
        except ToolError as error:
            pytest.fail(str(error), pytrace=False)

    yield make
    if request.session.testsfailed:
        for stack in stacks:
            with contextlib.suppress(ClientError):  # a stack that was never begun
                for function in stack.functions:
                    file = built.parents[1] / f"{stack.name}-{function}.log"
                    file.write_text(stack.log(function), encoding="utf-8")


@pytest.fixture(scope="session")
def stack(deployed, built, parameters):
    """The deployed stack."""
    return deployed(built, STACK, parameters)


@pytest.fixture(scope="session")
def api(stack):
    """The API as a server calls it that may call this API and do nothing else."""
    return SignedApi(stack.address, keys_of("caller", f"arn:aws:execute-api:*:*:{stack.api_id}/*"))


@pytest.fixture
def owner():
    """A resource that no other test names."""
    return f"owner-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def thread():
    """A thread id that no other test names."""
    return f"thread-{uuid.uuid4().hex[:8]}"


def keys_of(user, resource):
    """The access key of a new user that may call the API methods of `resource`."""
    iam = client("iam")
    iam.create_user(UserName=user)
    statement = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=user, PolicyName="call", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]
