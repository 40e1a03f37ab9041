"""JSON as it is read: what is no JSON is refused, also where Python would take it."""

from __future__ import annotations

import pytest

from agent_memory._json import loads


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", '{"a": [-1e400]}'])
def test_numbers_that_json_cannot_carry_are_refused(text):
    with pytest.raises(ValueError, match=r"JSON|number"):
        loads(text)


def test_other_numbers_are_read_as_they_are():
    assert loads("[1.5, -2e3, 0.1, 12345678901234567890, 1e308]") == [1.5, -2000.0, 0.1, 12345678901234567890, 1e308]
