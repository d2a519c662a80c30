"""Test that abbreviations are found where a document explains them."""

from __future__ import annotations

import pytest

from epicrisis.reading.support import find_abbreviations, spell_out

TEXT = "Peak inspiratory pressure (PIP) and quality of life (QOL) were recorded (see Table)."


def test_find_abbreviations_needs_the_letters_of_the_words() -> None:
    assert find_abbreviations(TEXT) == {"PIP": "Peak inspiratory pressure", "QOL": "quality of life"}
    assert find_abbreviations("Peak pressure (PIP) was recorded (no).") == {}


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("PIP was lower.", "Peak inspiratory pressure was lower."),
        ("PIPE was lower.", "PIPE was lower."),
        ("Peak inspiratory pressure (PIP) was lower.", "Peak inspiratory pressure (PIP) was lower."),
    ],
)
def test_spell_out_replaces_whole_names(text: str, spelled: str) -> None:
    assert spell_out(text, find_abbreviations(TEXT)) == spelled
