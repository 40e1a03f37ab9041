import random

import pytest

from agent_memory.local.hashing import HashingEmbedder
from agent_memory.recall.chunks import MAX_CHUNKS, chunks
from agent_memory.recall.indexing import passages, query_text

LONG = 60_000
TEXTS = {
    "english": ("The harbour was quiet. Nobody spoke, and the boats lay still! Would it rain? " * 1000)[:LONG],
    "chinese without stops": "漢" * LONG,
    "chinese": ("今天天气很好。我们去海边散步，看了日落！" * 4000)[:LONG],
    "base64": ("QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 3000)[:LONG],
    "emoji": "👩‍👩‍👧‍👦❤️👍🏽" * (LONG // 12),
    "lines": "a line of a log\n" * (LONG // 16),
    "spaces inside": "begin" + " " * LONG + "end",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("size", [1, 50, 2_000])
def test_case_74_chunks_of_any_text_join_back_fit_and_are_never_blank(name, size):
    text = TEXTS[name] if size > 1 else TEXTS[name][:500]
    found = chunks(text, size)
    assert "".join(found) == text
    assert all(piece.strip() for piece in found)
    assert max(len(piece.strip()) for piece in found) <= size


@pytest.mark.parametrize("text", ["", "   ", "\n\t\u3000" * 1000])
def test_case_74_blank_text_has_no_chunks(text):
    assert chunks(text, 100) == []


def test_cuts_fall_behind_sentences_and_words():
    text = "One two three. Four five six. Seven eight nine ten eleven"
    assert chunks(text, 20) == ["One two three. ", "Four five six. ", "Seven eight nine ", "ten eleven"]
    assert chunks("我喜欢茶。他喜欢咖啡。", 8) == ["我喜欢茶。", "他喜欢咖啡。"]


def test_an_emoji_of_several_characters_stays_whole():
    family = "👩‍👩‍👧‍👦"
    assert all(piece.count("👩") == 2 for piece in chunks(family * 10, 10))


def test_random_texts_are_cut_without_loss():
    dice = random.Random(7)
    for _ in range(300):
        text = "".join(dice.choice("ab 漢字。.\n\t😀é\u0301\u200d") for _ in range(dice.randrange(200)))
        size = dice.randrange(1, 40)
        found = chunks(text, size)
        assert "".join(found) == (text if text.strip() else "")
        assert all(0 < len(piece.strip()) <= size for piece in found)


def test_very_long_text_is_embedded_in_a_bounded_number_of_pieces_with_both_ends():
    text = "".join(f"Line {n}.\n" for n in range(5_000))
    found = passages(text, 50)
    assert len(found) == MAX_CHUNKS
    assert found[0].startswith("Line 0.") and found[-1].endswith("Line 4999.")


@pytest.mark.parametrize("name", TEXTS)
def test_case_74_a_long_question_is_cut_to_what_the_embedder_takes(name):
    cut = query_text(TEXTS[name], 500)
    assert 0 < len(cut) <= 500
    assert len(HashingEmbedder(max_chars=500).embed_query(cut)) == 256


def test_a_short_question_stays_as_it_is():
    assert query_text("  where is it? ", 500) == "where is it?"
