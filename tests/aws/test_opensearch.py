import json

import pytest

from agent_memory.aws.opensearch import OpenSearchIndex, connect
from agent_memory.clock import from_ms
from agent_memory.errors import ConfigurationError, InvalidInputError, UnavailableError
from agent_memory.ports import IndexedMessage, IndexQuery
from agent_memory.recall.targets import targets_of
from tests.support.opensearch_fake import OpenSearchFake


@pytest.fixture(params=[False, True], ids=["domain", "collection"])
def fake(request):
    made = OpenSearchFake(serverless=request.param)
    yield made
    made.close()


@pytest.fixture
def collection():
    made = OpenSearchFake(serverless=True)
    yield made
    made.close()


def index_on(fake, **options):
    return OpenSearchIndex(
        connect(fake.url), "m", 2, serverless=fake.serverless, alias="vectors", sleep=lambda _: None, **options
    )


def message(message_id, *, seq=1, version=1, thread="t", vectors=((1.0, 0.0),)):
    return IndexedMessage("r", thread, message_id, seq, version, "user", from_ms(1), "green tea", {}, vectors)


QUERY = IndexQuery("r", 3, thread_id="t", vector=(1.0, 0.0), text="tea", metadata={"a": 1})


def test_case_72_the_filter_is_inside_the_knn_clause_and_the_engine_can_do_it(fake):
    index = index_on(fake)
    index.search(QUERY)
    clause = json.loads(fake.requests[-1][2])["query"]["knn"]["vector"]
    terms = [{"term": {"resource": "r"}}, {"term": {"thread": "t"}}, {"term": {"tags": "a=1"}}]
    assert clause["filter"] == {"bool": {"filter": terms}}
    mapping = fake.indexes["vectors.1"]["mappings"]["properties"]
    assert mapping["vector"]["method"] == {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
    assert {mapping[name]["type"] for name in ("resource", "thread", "message", "tags")} == {"keyword"}


@pytest.mark.parametrize(("mode", "route"), [("vector", "_search"), ("text", "_search"), ("hybrid", "_msearch")])
def test_each_search_is_one_request(fake, mode, route):
    index = index_on(fake)
    index.ensure()
    before = len(fake.requests)
    index.search(IndexQuery("r", 3, vector=(1.0, 0.0), text="tea", mode=mode))
    assert [path.rsplit("/", 1)[-1] for _, path, _ in fake.requests[before:]] == [route]


def test_case_69_a_write_needs_no_refresh_and_shows_after_a_while(collection):
    index = index_on(collection)
    index.upsert([message("a")])
    assert index.search(IndexQuery("r", 3, vector=(1.0, 0.0))) == ()
    collection.now += 31
    assert len(index.search(IndexQuery("r", 3, vector=(1.0, 0.0)))) == 1
    assert not any("refresh" in path for _, path, _ in collection.requests)


def test_case_68_copies_that_a_repeat_left_are_folded_and_later_removed(collection):
    index = index_on(collection)
    index.upsert([message("a", vectors=((1.0, 0.0), (0.0, 1.0)))])
    index.upsert([message("a", vectors=((1.0, 0.0), (0.0, 1.0)))])  # the first is not visible yet
    collection.settle()
    assert len(index.search(IndexQuery("r", 3, vector=(1.0, 0.0)))) == 1
    index.upsert([message("a", vectors=((1.0, 0.0), (0.0, 1.0)))])
    collection.settle()
    assert sorted(document["chunk"] for document in collection.documents()) == [0, 1]


def test_case_70_a_thread_of_2500_vectors_is_deleted_to_the_last_though_the_engine_pushes_back(collection):
    index = index_on(collection)
    index.upsert([message(f"m{n}", seq=n) for n in range(2_500)])
    index.upsert([message("other", thread="u")])
    collection.settle()
    assert index.delete("r", "t", ["m1", "m2", "m3"]) == 3
    collection.settle()
    collection.refuse_next = 250
    assert index.delete("r", "t") == 2_497
    assert [document["message"] for document in collection.documents()] == ["other"]


def test_case_70_a_deletion_that_stays_refused_is_an_error_not_done(collection):
    index = index_on(collection)
    index.upsert([message("a")])
    collection.settle()
    collection.refuse_next = 1_000_000
    with pytest.raises(UnavailableError):
        index.delete("r", "t")


def test_entries_that_stay_refused_are_an_error(fake):
    index = index_on(fake)
    index.ensure()
    fake.refuse_next = 1_000_000
    with pytest.raises(UnavailableError, match="went on refusing 1 of 1"):
        index.upsert([message("a")])
    fake.refuse_next = 2
    index.upsert([message("a")])
    assert len(fake.documents()) == 1


def test_more_hits_than_one_chunk_each_still_fill_the_limit(fake):
    index = index_on(fake)
    index.upsert([message(f"m{n}", seq=n, vectors=((1.0, 0.0), (1.0, 0.1), (1.0, 0.2))) for n in range(40)])
    fake.settle()
    assert len(index.search(IndexQuery("r", 20, vector=(1.0, 0.0)))) == 20


def test_a_few_long_messages_do_not_push_out_the_others(fake):
    index = index_on(fake)
    long = [message(f"l{n}", seq=n, vectors=tuple((1.0, chunk / 1e4) for chunk in range(64))) for n in range(3)]
    index.upsert([*long, message("a", seq=7, vectors=((1.0, 0.5),)), message("b", seq=8, vectors=((1.0, 0.6),))])
    fake.settle()
    before = len(fake.requests)
    for mode in ("vector", "hybrid"):
        hits = index.search(IndexQuery("r", 6, vector=(1.0, 0.0), text="nothing of it", mode=mode))
        assert {hit.message_id for hit in hits} == {"l0", "l1", "l2", "a", "b"}
    assert len(fake.requests) - before == 3, "hybrid asks for so many that it needs no second request here"


def test_ids_that_a_parameter_would_part_or_escape_are_written_found_and_deleted(fake):
    index = index_on(fake)
    owners = ("a,b", "a", "b", "a b", "a/b?c=d&e#f", "a%2Cb", "漢,字", "a:b")
    for owner in owners:
        index.upsert([IndexedMessage(owner, "t", "m", 1, 1, "user", from_ms(1), "green tea", {}, ((1.0, 0.0),))])
    fake.settle()
    for left, owner in enumerate(reversed(owners), 1):
        for mode in ("vector", "text", "hybrid"):
            (hit,) = index.search(IndexQuery(owner, 3, vector=(1.0, 0.0), text="tea", mode=mode))
            assert hit.resource_id == owner
        assert index.delete(owner, "t", ["m"]) == 1
        fake.settle()
        assert len(fake.documents()) == len(owners) - left


def test_a_text_that_is_no_valid_unicode_is_looked_for_all_the_same(fake):
    index = index_on(fake)
    index.upsert([message("a")])
    fake.settle()
    assert len(index.search(IndexQuery("r", 3, vector=(1.0, 0.0), text="tea \ud800", mode="hybrid"))) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda index: index["mappings"]["properties"]["vector"].update(dimension=768), "dimension 2, found 768"),
        (lambda index: index["mappings"]["properties"].update(vector={"type": "float"}), "knn_vector, found float"),
        (lambda index: index["settings"]["index"].pop("knn"), "index.knn true, found absent"),
        (lambda index: index["mappings"].update(_meta={"embedder": "x"}), "embedder m, found x"),
        (lambda index: index["mappings"]["_meta"].update(schema=1), "schema 2, found 1"),
        (lambda index: index.update(mappings={}), "knn_vector, found None"),
    ],
)
def test_case_73_a_wrong_index_is_named_with_expected_and_found(fake, change, expected):
    index_on(fake).ensure()
    change(fake.indexes["vectors.1"])
    with pytest.raises(ConfigurationError, match=expected):
        index_on(fake).search(IndexQuery("r", 1, vector=(1.0, 0.0)))


@pytest.mark.parametrize(
    ("status", "error"), [(429, UnavailableError), (503, UnavailableError), (403, ConfigurationError)]
)
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_failures_of_the_engine_become_errors_of_the_port(fake, status, error, mode):
    index = index_on(fake)
    index.ensure()
    fake.down = status
    with pytest.raises(error):
        index.search(IndexQuery("r", 1, vector=(1.0, 0.0), text="tea", mode=mode))


def test_an_engine_that_is_gone_is_unavailable(fake):
    index = index_on(fake)
    index.ensure()
    gone = OpenSearchIndex(connect("http://127.0.0.1:9", timeout_s=1), "m", 2)
    with pytest.raises(UnavailableError):
        gone.search(IndexQuery("r", 1, vector=(1.0, 0.0)))


def test_requests_to_aws_are_signed_for_the_right_service(monkeypatch):
    for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("REGION", "eu-west-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    for serverless, host, service in (
        (False, "search-x.eu-west-1.es.amazonaws.com", "es"),
        (True, "x.eu-west-1.aoss.amazonaws.com", "aoss"),
        (False, "search-x.eu-west-1.es.amazonaws.com.cn", "es"),
        (False, "search-x.aos.eu-west-1.on.aws", "es"),
    ):
        client = connect(f"https://{host}", serverless=serverless)
        connection = client.transport.get_connection()
        headers = connection.http_auth("GET", f"https://{host}/", "", {}) if connection.http_auth else {}
        assert f"/eu-west-1/{service}/aws4_request" in headers["Authorization"]


def test_a_switch_that_ended_before_the_old_index_went_is_finished_by_the_next(fake):
    index = index_on(fake)
    index.ensure()
    index.build(())
    aliases = [
        {"add": {"index": "vectors.2", "alias": "vectors"}},
        {"remove": {"index": "vectors.2", "alias": "vectors.building"}},
        {"remove": {"index": "vectors.1", "alias": "vectors"}},
        {"add": {"index": "vectors.1", "alias": "vectors.old"}},
    ]
    fake.answer("POST", "/_aliases", {}, json.dumps({"actions": aliases}).encode())
    assert index.switch() is False
    assert (list(fake.indexes), fake.aliases) == (["vectors.2"], {"vectors": "vectors.2"})


def test_the_alias_moves_in_one_request_so_that_every_search_has_an_index(fake):
    index = index_on(fake)
    index.ensure()
    index.build(())
    before = len(fake.requests)
    index.switch()
    changes = [(method, path) for method, path, _ in fake.requests[before:] if method != "GET"]
    assert changes == [("POST", "/_aliases"), ("DELETE", "/vectors.1")]


def test_another_embedders_index_is_dropped_whole_and_the_current_one_never(fake):
    former = OpenSearchIndex(connect(fake.url), "old", 2, serverless=fake.serverless, alias="former")
    former.ensure()
    former.build(())
    index = index_on(fake)
    index.ensure()
    with pytest.raises(InvalidInputError):
        index.drop("vectors")
    assert index.drop("former") is True
    assert index.drop("former") is False
    assert list(fake.indexes) == ["vectors.1"]


def test_an_index_that_is_not_of_this_library_is_not_dropped(fake):
    index = index_on(fake)
    fake.answer("PUT", "/customers", {}, b"{}")
    with pytest.raises(ConfigurationError, match="nothing was removed"):
        index.drop("customers")
    assert "customers" in fake.indexes


def test_what_a_collection_holds_twice_old_or_in_part_is_told_and_a_write_mends_it(collection):
    index = index_on(collection)
    two = ((1.0, 0.0), (0.0, 1.0))
    index.upsert([message("double", seq=1)])
    index.upsert([message("double", seq=1), message("old", seq=2), message("part", seq=3, vectors=two)])
    index.upsert([message("old", seq=2, version=2)])
    collection.settle()
    shown = collection.indexes["vectors.1"]["shown"]
    rest = next(key for key, entry in shown.items() if entry["_source"]["message"] == "part")
    del shown[rest], collection.indexes["vectors.1"]["docs"][rest]
    places = [("r", "t", name) for name in ("double", "old", "part")]
    assert [(e.message_id, e.version, e.whole) for e in index.entries(places)] == [
        ("double", 1, False),
        ("old", 2, False),
        ("part", 1, False),
    ]
    index.upsert([message("double", seq=1), message("old", seq=2, version=2), message("part", seq=3, vectors=two)])
    collection.settle()
    assert all(entry.whole for entry in index.scan(None, 10).entries)
    assert len(collection.documents()) == 4


def test_a_message_with_more_documents_than_a_page_is_scanned_once(fake):
    index = index_on(fake)
    index.upsert([message("a", vectors=((1.0, 0.0),) * 5), message("b", seq=2), message("c", seq=3)])
    fake.settle()
    found, after = [], None
    while (page := index.scan(after, 2)).entries:
        found += [entry.message_id for entry in page.entries]
        after = page.next
        if after is None:
            break
    assert found == ["a", "b", "c"]


def test_a_scan_asks_neither_for_a_scroll_nor_for_a_point_in_time(collection):
    index = index_on(collection)
    index.ensure()
    before = len(collection.requests)
    index.scan(None, 10)
    ((_, path, body),) = collection.requests[before:]
    assert path == "/vectors/_search"
    assert "scroll" not in body and "pit" not in body


def test_an_index_that_somebody_removed_is_made_again_before_the_next_write_and_never_by_the_engine(fake):
    index = index_on(fake)
    targets_of(index, None)
    fake.answer("DELETE", "/vectors.1", {}, b"")
    (target,) = targets_of(index, None)
    assert target.leading and target.index is index
    index.upsert([message("a")])
    assert (list(fake.indexes), fake.aliases) == (["vectors.1"], {"vectors": "vectors.1"})


def test_a_copy_that_sorts_like_the_last_document_of_a_page_is_deleted_too(collection):
    index = index_on(collection)
    index.upsert([message("alone", seq=0)])
    for _ in range(2):
        index.upsert([message(f"m{n}", seq=n) for n in range(1, 601)])  # the first ones are not visible yet
    collection.settle()
    assert len(collection.documents()) == 1_201
    index.delete("r", "t")
    assert collection.documents() == []
