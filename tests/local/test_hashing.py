import math

import pytest

from agent_memory.local.hashing import HashingEmbedder


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("question", "near", "far"),
    [
        ("Where is the boat moored?", "The boat is moored in the harbour", "Dinner is at eight"),
        ("我的猫叫什么名字", "我家的猫叫小黑", "明天下午开会"),
        ("Où habite l'élève ?", "L'ELEVE habite à Lyon", "Il pleut beaucoup"),
    ],
)
def test_texts_that_share_words_are_near_in_any_script(question, near, far):
    embedder = HashingEmbedder()
    asked = embedder.embed_query(question)
    first, second = embedder.embed_passages([near, far])
    assert cosine(asked, first) > cosine(asked, second) + 0.2


@pytest.mark.parametrize("text", ["a", "😀😀", "!?", "漢", "\ud800"])
def test_every_text_has_a_unit_vector_of_the_dimension(text):
    vector = HashingEmbedder(64).embed_query(text)
    assert len(vector) == 64
    assert math.isclose(math.hypot(*vector), 1.0)
