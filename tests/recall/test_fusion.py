import pytest

from agent_memory.ports import Hit
from agent_memory.recall.fusion import fuse, normalise, smooth


def hit(seq, score, thread="t"):
    return Hit("r", thread, f"m{seq}", seq, score)


def test_scores_are_fused_by_weight_after_normalising():
    near = [hit(10, 0.9), hit(20, 0.8), hit(30, 0.7)]
    said = [hit(20, 12.0), hit(40, 2.0)]
    found = {h.message_id: h.score for h in fuse(near, said, 10)}
    assert found == pytest.approx({"m20": 0.3 * 0.5 + 0.7, "m10": 0.3, "m30": 0.0, "m40": 0.0})


def test_a_score_is_raised_by_its_best_neighbour_in_the_same_thread():
    found = {(h.thread_id, h.seq): h.score for h in smooth([hit(1, 0.2), hit(2, 1.0), hit(3, 0.5), hit(3, 0.5, "u")])}
    assert found == pytest.approx({("t", 1): 0.5, ("t", 2): 1.15, ("t", 3): 0.8, ("u", 3): 0.5})


def test_equal_scores_count_fully():
    assert normalise({("t", "a"): 0.4, ("t", "b"): 0.4}) == {("t", "a"): 1.0, ("t", "b"): 1.0}
    assert normalise({}) == {}


def test_the_best_come_first_and_no_more_than_asked():
    assert [h.message_id for h in fuse([], [hit(1, 1.0), hit(5, 3.0), hit(9, 2.0)], 2)] == ["m5", "m9"]
