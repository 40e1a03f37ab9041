"""What every vector index must do: the embedded one, OpenSearch on a domain and in a collection, and a real node."""

import threading
import uuid

import pytest

from agent_memory.aws.opensearch import OpenSearchIndex, connect
from agent_memory.clock import from_ms
from agent_memory.errors import ConfigurationError, InvalidInputError, UnavailableError
from agent_memory.local.hashing import HashingEmbedder
from agent_memory.local.index import EmbeddedIndex
from agent_memory.ports import DateRange, IndexedMessage, IndexQuery, RebuildableIndex, VectorIndex
from agent_memory.recall.indexing import passages, query_text
from tests.support.opensearch_fake import OpenSearchFake
from tests.support.opensearch_node import node_url

EMBEDDER = HashingEmbedder(64, max_chars=2_000)


class Place:
    """One kind of index; `make` gives another handle on the same one."""

    def __init__(self, make, settle=lambda index: None, close=lambda: None):
        self.make, self._settle, self.close = make, settle, close
        self.index = make("hashing", 64)

    def put(self, *messages, index=None):
        index = index or self.index
        index.upsert(messages)
        self._settle(index)

    def delete(self, *args):
        gone = self.index.delete(*args)
        self._settle(self.index)
        return gone

    def ids(self, resource="r", limit=10, text="tea", mode="vector", **fields):
        query = IndexQuery(resource, limit, vector=EMBEDDER.embed_query(text), text=text, mode=mode, **fields)
        return [hit.message_id for hit in self.index.search(query)]


def embedded(tmp_path):
    return Place(lambda name, size: EmbeddedIndex(tmp_path / "index.sqlite", name, size))


def faked(serverless):
    fake = OpenSearchFake(serverless=serverless)

    def make(name, size):
        return OpenSearchIndex(
            connect(fake.url), name, size, serverless=serverless, alias="vectors", sleep=lambda _: None
        )

    return Place(make, lambda index: fake.settle(), fake.close)


def real():
    client, alias = connect(node_url(), timeout_s=30), f"t-{uuid.uuid4().hex}"

    def make(name, size):
        return OpenSearchIndex(client, name, size, engine="lucene", alias=alias)

    return Place(
        make,
        lambda index: client.indices.refresh(index=index.id),
        lambda: client.indices.delete(index=f"{alias}.*", ignore=[404]),
    )


@pytest.fixture(params=["embedded", "domain", "collection", pytest.param("node", marks=[pytest.mark.opensearch])])
def place(request, tmp_path):
    kinds = {
        "embedded": lambda: embedded(tmp_path),
        "domain": lambda: faked(False),
        "collection": lambda: faked(True),
        "node": real,
    }
    made = kinds[request.param]()
    yield made
    made.close()


def message(message_id, text="green tea", *, seq=1, version=1, resource="r", thread="t", vectors=None, **metadata):
    if vectors is None:
        vectors = tuple(map(tuple, EMBEDDER.embed_passages(passages(text, EMBEDDER.max_chars))))
    return IndexedMessage(
        resource, thread, message_id, seq, version, "user", from_ms(seq), text, metadata, tuple(vectors)
    )


def direction(*start):
    return (*start, *([0.0] * (64 - len(start))))


def test_it_is_a_vector_index(place):
    assert isinstance(place.index, VectorIndex)
    assert isinstance(place.index, RebuildableIndex)
    assert place.ids() == []


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_a_message_is_found_with_its_place_and_version(place, mode):
    place.put(message("a", seq=7, version=3), message("b", "the weather in Rome", seq=8))
    query = IndexQuery("r", 1, vector=EMBEDDER.embed_query("tea"), text="tea", mode=mode)
    (hit,) = place.index.search(query)
    assert (hit.resource_id, hit.thread_id, hit.message_id, hit.seq, hit.version) == ("r", "t", "a", 7, 3)


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_case_80_each_resource_finds_its_own_alone_ids_compared_exactly(place, mode):
    owners = ["team-1", "team-2", "TEAM-1", "team-1 x", "*", "team"]
    place.put(*[message(f"pin of {owner}", "my PIN is 4", resource=owner) for owner in owners])
    for owner in owners:
        assert place.ids(owner, text="PIN", mode=mode) == [f"pin of {owner}"]
    assert place.ids("tea", text="PIN", mode=mode) == []
    with pytest.raises(InvalidInputError):
        place.ids("", text="PIN", mode=mode)


def test_case_72_a_small_tenant_finds_all_of_its_own_beside_a_thousand_nearer_vectors(place):
    near, far = direction(1.0, 0.01), direction(1.0, 1.0)
    place.put(*[message(f"b{n}", "x", seq=n, resource="big", vectors=[near]) for n in range(1000)])
    place.put(*[message(f"a{n}", "x", seq=n, resource="small", vectors=[far]) for n in range(3)])
    hits = place.index.search(IndexQuery("small", 3, vector=direction(1.0)))
    assert sorted(hit.message_id for hit in hits) == ["a0", "a1", "a2"]


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_a_thread_narrows_the_search(place, mode):
    place.put(message("a", thread="one"), message("b", thread="two"))
    assert place.ids(thread_id="two", mode=mode) == ["b"]
    assert sorted(place.ids(mode=mode)) == ["a", "b"]


def test_case_79_the_threshold_is_the_cosine_and_its_bound_is_inside(place):
    for name, cosine in (("a", 0.8), ("b", 0.7), ("c", 0.69)):
        place.put(message(name, "x", vectors=[direction(cosine, (1 - cosine**2) ** 0.5)]))
    place.put(message("opposite", "x", vectors=[direction(-1.0)]))

    def found(threshold):
        hits = place.index.search(IndexQuery("r", 10, vector=direction(1.0), threshold=threshold))
        return {hit.message_id: hit.score for hit in hits}

    assert found(0.7) == pytest.approx({"a": 0.8, "b": 0.7}, abs=1e-5)
    assert found(0.0).keys() == {"a", "b", "c"}
    assert found(None)["opposite"] == pytest.approx(-1.0, abs=1e-5)


def test_the_score_is_the_cosine_whatever_the_length_of_the_vectors(place):
    long, short = (tuple(scale * value for value in direction(0.6, 0.8)) for scale in (250.0, 0.004))
    place.put(message("long", "x", vectors=[long]), message("short", "x", seq=2, vectors=[short]))
    asked = tuple(30.0 * value for value in direction(1.0))
    hits = place.index.search(IndexQuery("r", 10, vector=asked))
    assert [hit.score for hit in hits] == pytest.approx([0.6, 0.6], abs=1e-5)


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_metadata_pairs_are_compared_exactly_and_by_type(place, mode):
    place.put(
        message("a", topic="Tea", n=1, done=True, none=None),
        message("b", topic="tea", n="1", done=1, long="x" * 2000),
        message("c", **{"not a key": "Tea"}, nested={"topic": "Tea"}),
    )
    for pairs, expected in (
        ({"topic": "Tea"}, ["a"]),
        ({"n": 1}, ["a"]),
        ({"n": 1.0, "topic": "Tea"}, ["a"]),
        ({"n": "1"}, ["b"]),
        ({"done": True}, ["a"]),
        ({"none": None}, ["a"]),
        ({"long": "x" * 2000}, ["b"]),
        ({"topic": "Te"}, []),
    ):
        assert place.ids(metadata=pairs, mode=mode) == expected, pairs


LONG_QUESTIONS = {
    "chinese": "".join(chr(0x4E00 + number % 20_000) for number in range(60_000)),
    "emoji": "\U0001f642" * 60_000,
    "words": " ".join(f"w{number}" for number in range(12_000)),
    "unbroken": "x" * 60_000,
}


@pytest.mark.parametrize("name", LONG_QUESTIONS)
def test_case_74_a_question_of_60000_characters_finds_by_what_it_ends_with(place, name):
    place.put(message("a", "rhubarb crumble"), message("b", "the car needs oil", seq=2))
    for mode in ("text", "hybrid"):
        assert place.ids(text=f"{LONG_QUESTIONS[name]} rhubarb", mode=mode)[0] == "a"


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_a_range_of_dates_is_inside_the_search_with_both_ends(place, mode):
    place.put(*[message(f"m{seq}", seq=seq) for seq in range(1, 60)])  # created at as many milliseconds

    def found(start, end, limit=5):
        dates = DateRange(start and from_ms(start), end and from_ms(end))
        return sorted(place.ids(mode=mode, limit=limit, date_range=dates))

    assert found(3, 5) == ["m3", "m4", "m5"]
    assert found(None, 2) == ["m1", "m2"]
    assert found(58, None) == ["m58", "m59"]
    assert len(found(None, None)) == 5
    assert found(60, 70) == []


@pytest.mark.parametrize("pairs", [{"a b": 1}, {"1a": 1}, {"a.b": 1}, {"a": {}}, {"a": float("nan")}])
def test_a_metadata_filter_that_could_match_nothing_is_refused(place, pairs):
    with pytest.raises(InvalidInputError):
        place.ids(metadata=pairs)


def test_an_older_version_never_replaces_a_newer_one(place):
    place.put(message("a", "green tea", version=3))
    place.put(message("a", "red wine", version=2))
    assert place.ids(text="wine", mode="text") == []
    place.put(message("a", "black coffee", version=4))
    assert place.ids(text="coffee", mode="text") == ["a"]
    assert place.ids(text="green", mode="text") == []


def test_a_message_stored_again_under_a_higher_number_replaces_the_old_one(place):
    place.put(message("a", "green tea", seq=4, version=9))
    place.put(message("a", "green tea", seq=12, version=1))
    hits = place.index.search(IndexQuery("r", 10, vector=EMBEDDER.embed_query("tea")))
    assert [(hit.seq, hit.version) for hit in hits] == [(12, 1)]


def test_case_68_a_repeat_leaves_one_entry(place):
    for _ in range(3):
        place.put(message("a"))
    assert place.ids() == ["a"]
    assert place.delete("r", "t", ["a"]) == 1
    assert place.ids() == []


def test_case_71_deleted_messages_leave_room_for_those_that_live(place):
    place.put(*[message(f"m{n}", "tea " * n, seq=n) for n in range(1, 6)])
    assert place.delete("r", "t", ["m1", "m2", "m3", "unknown"]) == 3
    assert sorted(place.ids(limit=2)) == ["m4", "m5"]
    assert place.delete("other", "t") == 0
    assert place.delete("r", "t") == 2
    assert place.ids() == []


TEXTS = {
    "english": "The harbour was quiet that night. " * 1765,
    "chinese": "漢" * 60_000,
    "base64": "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 2308,
    "emoji": "😀" * 60_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_case_74_long_texts_are_indexed_by_chunks_and_found_once(place, name):
    text = TEXTS[name]
    place.put(message("long", text), message("short", "nothing like it", seq=2))
    asked = query_text(text, EMBEDDER.max_chars)
    assert place.ids(text=asked, limit=5).count("long") == 1
    assert place.delete("r", "t", ["long"]) >= 1
    assert "long" not in place.ids(text=asked)


def test_an_edit_to_a_shorter_text_leaves_no_chunk_of_the_old_one(place):
    place.put(message("a", "coffee. " * 2000, version=1))
    place.put(message("a", "green tea", version=2))
    (hit,) = place.index.search(IndexQuery("r", 10, vector=EMBEDDER.embed_query("coffee")))
    assert hit.version == 2
    assert hit.score < 0.5


@pytest.mark.parametrize(
    ("stored", "question"),
    [
        ("我家的猫叫小黑，今年三岁", "猫叫什么名字"),
        ("Le chat de la voisine s'appelle Élodie", "comment s'appelle elodie"),
        ("The order number is AB-20931", "where is order AB-20931?"),
    ],
)
@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_words_are_found_in_chinese_french_and_english(place, stored, question, mode):
    place.put(message("yes", stored, seq=1), message("no", "明天下午三点开会 zzz", seq=9))
    assert place.ids(text=question, mode=mode)[0] == "yes"
    assert place.ids(text="qqqq", mode="text") == []


def test_hybrid_raises_what_stands_beside_a_match(place):
    place.put(
        message("question", "Which tea shall we buy?", seq=1),
        message("answer", "oolong, tea from Taiwan", seq=2),
        message("apart", "oolong, tea from Taiwan", seq=50),
    )
    query = IndexQuery("r", 3, vector=EMBEDDER.embed_query("which tea"), text="which tea", mode="hybrid")
    hits = [hit.message_id for hit in place.index.search(query)]
    assert hits.index("answer") < hits.index("apart")


def test_the_limit_holds_and_zero_finds_nothing(place):
    place.put(*[message(f"m{n}", seq=n) for n in range(30)])
    assert len(place.ids(limit=3)) == 3
    assert len(place.ids(limit=30)) == 30
    assert place.ids(limit=0) == []


@pytest.mark.parametrize(("name", "size"), [("hashing", 32), ("other", 64)])
def test_case_73_an_index_of_another_embedder_is_a_clear_error(place, name, size):
    place.put(message("a"))
    with pytest.raises(ConfigurationError) as caught:
        place.make(name, size).ensure()
    assert "expected" in caught.value.message and "found" in caught.value.message
    assert caught.value.code == "INDEX_MISMATCH"


def test_case_73_a_vector_of_another_length_is_refused_not_ignored(place):
    with pytest.raises(ConfigurationError, match="expected vectors of 64 dimensions"):
        place.put(message("a", vectors=[(1.0, 2.0)]))
    with pytest.raises(ConfigurationError, match="expected vectors of 64 dimensions"):
        place.index.search(IndexQuery("r", 1, vector=[1.0]))


def test_case_73_two_creations_at_once_both_succeed(place):
    errors = []

    def create(index):
        try:
            index.ensure()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=create, args=(place.make("hashing", 64),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    place.put(message("a"))
    assert place.ids() == ["a"]


def test_one_resource_among_a_thousand_is_found(place):
    place.put(*[message(f"m{n}", resource=f"r{n}", seq=n) for n in range(1000)])
    assert place.ids("r777") == ["m777"]


def scanned(index, limit):
    """All entries, page by page; no page holds more than it should."""
    found, after = [], None
    while True:
        page = index.scan(after, limit)
        assert len(page.entries) <= limit
        found += page.entries
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("limit", [1, 3, 7, 1_000])
def test_a_scan_shows_each_message_of_all_resources_once(place, limit):
    many = "word " * 2_000  # several chunks
    put = [
        message(f"m{n}", many if n % 3 == 0 else "tea", seq=n, version=n + 1, resource=owner, thread=thread)
        for owner in ("a", "ä", "B")
        for thread in ("t", "t 2")
        for n in range(1, 4)
    ]
    place.put(*put)
    found = scanned(place.index, limit)
    assert sorted((e.resource_id, e.thread_id, e.message_id, e.seq, e.version) for e in found) == sorted(
        (m.resource_id, m.thread_id, m.message_id, m.seq, m.version) for m in put
    )
    assert limit < 7 or all(entry.whole for entry in found)
    assert [entry.message_id for entry in scanned(place.index, limit)] == [entry.message_id for entry in found]


def test_a_scan_of_nothing_and_behind_the_last_is_empty(place):
    assert place.index.scan(None, 10) == place.index.scan('["z", "z", "z"]', 10)
    place.put(message("a"))
    page = place.index.scan(None, 1)
    assert len(page.entries) == 1
    assert page.next is None or place.index.scan(page.next, 1).entries == ()


def test_entries_tell_what_is_there_of_the_messages_asked_for(place):
    place.put(*[message(f"m{n}", seq=n, version=2, thread=f"t{n % 60}") for n in range(200)])
    asked = [("r", f"t{n % 60}", f"m{n}") for n in range(0, 200, 2)]
    found = place.index.entries([*asked, ("r", "t0", "m1"), ("other", "t0", "m0"), *asked])
    assert sorted((e.resource_id, e.thread_id, e.message_id) for e in found) == sorted(asked)
    assert {(entry.version, entry.whole) for entry in found} == {(2, True)}
    assert place.index.entries([]) == ()


def test_an_index_is_built_beside_the_one_that_is_searched_and_takes_its_place(place):
    place.put(message("a"), message("gone"))
    assert place.index.stamps == {place.index.id}
    built = place.index.build({"former-8", place.index.id})
    assert built.stamps == {place.index.id, "former-8"}
    assert place.index.scan(None, 10).entries and not built.scan(None, 10).entries
    place.put(message("a", version=2), message("b"), index=built)
    assert sorted(place.ids()) == ["a", "gone"]
    # Another process finds what is being built, and to begin again is to go on.
    again = place.make("hashing", 64)
    current, building = again.targets()
    assert (current.stamps, building.stamps) == ({place.index.id}, built.stamps)
    assert [entry.message_id for entry in again.build(()).scan(None, 10).entries] == ["a", "b"]

    assert place.index.switch() is True
    assert sorted(place.ids()) == ["a", "b"]
    assert [target.stamps for target in again.targets()] == [{place.index.id, "former-8"}]
    assert place.index.switch() is False
    # A writer that began before the switch ends in the new index, not in one that nobody searches.
    place.put(message("late"), index=building)
    assert sorted(place.ids()) == ["a", "b", "late"]


def test_what_was_begun_for_other_rows_is_begun_anew(place):
    place.put(message("a"), index=place.index.build({"former-8"}))
    assert place.index.build({"former-8"}).scan(None, 10).entries
    built = place.index.build({"other-8"})
    assert built.stamps == {place.index.id, "other-8"}
    assert built.scan(None, 10).entries == ()


def test_it_can_be_built_anew_again_and_again(place):
    for name in ("one", "two", "three"):
        built = place.index.build(())
        place.put(message(name), index=built)
        assert place.index.switch()
        assert place.ids() == [name]
    (target,) = place.make("hashing", 64).targets()
    assert target.stamps == {place.index.id}


def test_a_first_index_that_is_being_built_is_not_searched_before_it_is_whole(place):
    assert place.index.targets() == ()
    built = place.index.build({"former-8"})
    place.put(message("a"), index=built)
    with pytest.raises(UnavailableError, match="being built"):
        place.make("hashing", 64).ensure()
    assert [target.stamps for target in place.index.targets()] == [{place.index.id, "former-8"}]
    assert place.index.switch() is True
    assert place.ids() == ["a"]
    assert place.make("hashing", 64).targets()[0].stamps == {place.index.id, "former-8"}


def test_entries_deleted_while_another_index_is_built_go_from_that_one_alone(place):
    place.put(message("a"))
    built = place.index.build(())
    place.put(message("a"), index=built)
    assert built.delete("r", "t", ["a"]) == 1
    assert place.ids() == ["a"]


def erased(place, resource, limit):
    """Entries of a resource that were found and removed, page by page."""
    found, cursor, rounds = 0, None, 0
    while True:
        count, cursor = place.index.delete_resource(resource, cursor=cursor, limit=limit)
        assert count <= limit
        found, rounds = found + count, rounds + 1
        if cursor is None:
            place._settle(place.index)
            return found, rounds


@pytest.mark.parametrize("limit", [3, 1_000])
def test_a_resource_is_removed_page_by_page_and_no_other_one(place, limit):
    others = ("ada2", "ADA", "ada#x", "ad")
    place.put(*[message(f"m{n}", seq=n, resource="ada", thread=f"t{n % 3}") for n in range(1, 9)])
    place.put(*[message("m1", resource=owner) for owner in others])
    found, rounds = erased(place, "ada", limit)
    assert found == 8
    assert rounds >= 8 // limit
    assert place.ids("ada") == []
    assert [entry.resource_id for entry in scanned(place.index, 100)] == sorted(others)
    assert erased(place, "ada", limit)[0] == 0


def test_a_resource_is_removed_from_the_index_that_is_being_built_too(place):
    place.put(message("m1", resource="ada"), message("m1", resource="bob"))
    built = place.index.build(place.index.stamps)
    built.upsert([message("m1", resource="ada"), message("m1", resource="bob")])
    place._settle(built)
    assert erased(place, "ada", 10)[0] == 2
    place._settle(built)
    assert [entry.resource_id for entry in scanned(built, 100)] == ["bob"]
