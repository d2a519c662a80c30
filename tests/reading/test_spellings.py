"""British and American spellings."""

from __future__ import annotations

import pytest

from epicrisis.reading.spellings import list_spellings, spell_american

PAIRS = """
oedema edema, haematochezia hematochezia, tumour tumor, sulphate sulfate, anaemia anemia, leukaemic leukemic,
anaesthesia anesthesia, paediatric pediatric, orthopaedics orthopedics, aetiology etiology, oesophagitis
esophagitis, oestrogen estrogen, foetal fetal, diarrhoea diarrhea, coeliac celiac, dyspnoea dyspnea,
randomised randomized, hospitalisation hospitalization, analysed analyzed, behavioural behavioral, labour
labor, centre center, fibre fiber, ageing aging, programme program, leucocytes leukocytes, gynaecology
gynecology, caesarean cesarean, haemorrhoids hemorrhoids
"""


@pytest.mark.parametrize("pair", PAIRS.replace("\n", " ").strip().split(", "))
def test_each_spelling_has_the_other(pair: str) -> None:
    british, american = pair.split()
    assert american in list_spellings(british)
    assert british in list_spellings(american.capitalize())
    assert spell_american(british) == american


def test_both_parts_of_a_word_change() -> None:
    assert list_spellings("anaesthetised") == ["anaesthetised", "anesthetized", "anaesthetized"]


@pytest.mark.parametrize(
    "word",
    """
    exercise disease precise supervised chemical hemisphere themes mathematics pandemic epidemic systemic academic
    pedicle diameter laboratory colorectal humoral fibrosis size leucine never need
    """.split(),  # noqa: SIM905
)
def test_words_with_one_spelling_stay(word: str) -> None:
    assert list_spellings(word) == [word]
