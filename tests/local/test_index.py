import pytest

from agent_memory import clock
from agent_memory.errors import InvalidInputError
from agent_memory.local.index import EmbeddedIndex, file_of
from agent_memory.ports import IndexedMessage, IndexQuery
from agent_memory.recall.resolve import resolve_embedder, resolve_index
from agent_memory.settings import Settings


def test_each_embedder_has_a_file_of_its_own_and_a_former_ones_can_be_dropped(tmp_path):
    settings = Settings(index_path=str(tmp_path / "index.sqlite"))
    former = resolve_index(settings, resolve_embedder("hashing", dimension=8))
    index = resolve_index(settings, resolve_embedder("hashing"))
    former.ensure()
    index.ensure()
    assert {file.name for file in tmp_path.glob("*.sqlite")} == {"index-hashing-8.sqlite", "index-hashing-256.sqlite"}
    with pytest.raises(InvalidInputError):
        index.drop("hashing-256")
    with pytest.raises(InvalidInputError):
        index.drop("../hashing-8")
    assert index.drop("hashing-8") is True
    assert index.drop("hashing-8") is False
    assert {file.name for file in tmp_path.glob("*.sqlite")} == {"index-hashing-256.sqlite"}


def test_a_file_named_by_hand_stands_alone(tmp_path):
    index = EmbeddedIndex(tmp_path / "mine.sqlite", "hashing", 8)
    with pytest.raises(InvalidInputError):
        index.drop("hashing-256")
    assert file_of("/x/index.sqlite", "a-8").name == "index-a-8.sqlite"


def test_a_file_of_before_there_were_stamps_is_taken_as_it_is(tmp_path):
    index = EmbeddedIndex(tmp_path / "index.sqlite", "hashing", 8)
    index.ensure()
    index._db.execute("DELETE FROM identity WHERE name NOT IN ('embedder', 'dimension')")
    (target,) = EmbeddedIndex(tmp_path / "index.sqlite", "hashing", 8).targets()
    assert target.stamps == {"hashing-8"}


def test_what_is_erased_leaves_the_file(tmp_path):
    embedder = resolve_embedder("hashing")
    index = EmbeddedIndex(tmp_path / "index.sqlite", embedder.id, embedder.dimension)
    for owner, word in (("ada", "quokka"), ("bob", "wombat")):
        for number in range(20):
            text = f"the {word} number {number}"
            (vector,) = embedder.embed_passages([text])
            entry = IndexedMessage(owner, "t", f"m{number}", number, 1, "user", clock.now(), text, {}, (tuple(vector),))
            index.upsert([entry])

    def found(word):
        return [file.name for file in tmp_path.iterdir() if word.encode() in file.read_bytes()]

    assert found("quokka")
    assert index.delete_resource("ada") == (20, None)
    assert found("quokka") == []
    assert found("wombat")
    assert len(index.search(IndexQuery("bob", 5, text="wombat", mode="text"))) == 5
