"""Names in the spellings that people use: another patient's is noticed, and words like names refuse nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Question
from epicrisis.library.base.person_names import are_alike, find_mentions, fold, name_keys
from epicrisis.library.core.patient_check import check_patient
from epicrisis.library.core.patients import Roster
from tests.support.patient_records import library

NAMES = {
    "own": "Anna Maria Muster",
    "mueller": "Jörg Müller",
    "strauss": "Franz Josef Strauß",
    "nunez": "José Núñez Peña",
    "ivanov": "Дмитрий Иванов",
    "papa": "Γεώργιος Παπαδόπουλος",
    "oystein": "Øystein Ærø",
    "obrien": "Pat O'Brien",
    "hyphen": "Anna-Lena Beispiel-Meier",
    "lukasz": "Łukasz Żak",
    "middle": "John Fitzgerald Smith",
    "will": "Will May",
    "grace": "Grace Hope Young",
    "comma": "Garcia Lopez, Carmen",
    "initial": "Mary J. Watson",
    "title": "Dr. Eva Kern",
    "twin": "Anna Lena Muster",
    "turkish": "İnci Işık",
    "common": "Mark Rose",
    "han": "\u738b\u5c0f\u660e",
    "hangul": "\uae40 \ubbfc\uc218",
    "short": "Li Na",
    "word": "Do An",
    "dose": "Max Dose",
    "leg": "An Le",
}


@pytest.fixture(scope="module")
def roster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roster]:
    # An id of letters alone counts as a word, too: these are none.
    notes = [
        Document(f"n:{key}", "Fever.", patient=f"{key}-77", metadata={"patient_name": NAMES[key]}) for key in NAMES
    ]
    with library(tmp_path_factory.mktemp("named") / "library", notes) as opened:
        yield Roster(opened)


def is_refused(roster: Roster, text: str, patient: str = "own") -> bool:
    try:
        check_patient([roster], Question(text, patient=f"{patient}-77"))
    except InputError as error:
        message = error.message
    else:
        return False
    words = " ".join(NAMES.values()).split()
    assert not any(word in message for word in words if len(word) > 3)
    return True


SPELLINGS = (
    "Jörg Müller",
    "Joerg Mueller",
    "Jorg Muller",
    "JÖRG MÜLLER",
    "Müller, Jörg",
    "Mueller Joerg",
    "jorg mueller",
    "Franz Josef Strauß",
    "Franz Josef Strauss",
    "Franz Strauss",
    "Strauss, Franz",
    "F. J. Strauss and Franz J. Strauß",
    "José Núñez Peña",
    "Jose Nunez Pena",
    "Jose Pena",
    "Pena, Jose",
    "Dmitry Ivanov",
    "Dmitri Ivanov",
    "Дмитрий Иванов",
    "Ivanov, Dmitriy",
    "Georgios Papadopoulos",
    "Γεωργιος Παπαδοπουλος",
    "Oystein Aero",
    "Øystein Ærø",
    "Pat OBrien",
    "Pat O\u2019Brien",
    "Anna-Lena Beispiel-Meier",
    "Anna Lena Beispiel Meier",
    "Lukasz Zak",
    "Zak, Lukasz",
    "John Smith",
    "John F. Smith",
    "John F Smith",
    "Smith, John",
    "JOHN SMITH",
    "John Fitzgerald Smith",
    "Carmen Garcia Lopez",
    "Carmen Lopez",
    "Mary Watson",
    "Mary Jane Watson",
    "Mary J. Watson",
    "Eva Kern",
    "Dr. Eva Kern",
    "Inci Isik",
    "Will May",
    "WILL MAY",
    "Grace Young",
    "Grace Hope Young",
    "Mark Rose",
    "May, Will",
    "Joerg Mueller's",
    "Jorg Muller\u2019s",
    "John Smith's",
    "JOHN SMITH'S",
    "Eva Kern's",
    "Smith^John^Fitzgerald",
    "SMITH/JOHN",
    "Smith; John",
    "john.smith",
    "john_smith",
    "john-smith",
    "Smith (John)",
    "John \u200bSmith",
    "Jo\u00adhn Sm\u200dith",
    "John \u202eSmith",
    "Pat O\u00b4Brien",
    "Pat O`Brien",
    "Pat O\u2032Brien",
    "Pat O Brien",
    "Jose Nunez-Pena",
    "\u738b\u5c0f\u660e",
    "\u738b\u5c0f\u660e\u7684\u836f",
    "\uae40\ubbfc\uc218",
    "\uae40 \ubbfc\uc218",
)


@pytest.mark.parametrize("name", SPELLINGS)
def test_check_patient_other_name_in_any_spelling_is_refused(name: str, roster: Roster) -> None:
    for text in ("What did {} take?", "{}: which drug?", "Is ({}), seen in May, well?"):
        assert is_refused(roster, text.format(name))


@pytest.mark.parametrize(
    "text",
    [
        "Will may she be discharged?",
        "Will she, may she, and by whose grace?",
        "will may the drug be given?",
        "Grace is young; is there hope?",
        "May I? Will you? Hope so.",
        "Was she seen in May by Will?",
        "Did it mark rose petals?",
        "Is the mark rose or red?",
        "By the grace of hope, young at heart?",
        "What did Dr. Smith say to John?",
        "Was John seen by Dr. Smith?",
        "John was discharged. Smith was the surgeon.",
        "Is Müller's sign present?",
        "Mueller maneuver?",
        "Was Strauss syndrome (Churg-Strauss) considered?",
        "Garcia effect? Lopez enteritis?",
        "Is it Watson-Crick? Mary asked.",
        "Johns Smithson?",
        "Anna Muster?",
        "What did Anna Maria Muster take?",
        "Muster, Anna: which drug?",
        "Anna M. Muster?",
        "ANNA MUSTER?",
        "Did Maria Muster take it?",
        "Ana Muster?",
        "Kern's sign? Eva asked.",
        "Is the patient test positive?",
        "Fitzgerald Smith?",
        "Was Pat seen? O'Brien agreed.",
        "Lena Beispiel?",
        "What were K, Na, Li and Cl?",
        "Did he do an exercise test?",
        "What was the max dose?",
        "Is an LE DVT present?",
        "Was Li/Na measured?",
    ],
)
def test_check_patient_words_like_names_are_accepted(text: str, roster: Roster) -> None:
    assert not is_refused(roster, text)


@pytest.mark.parametrize(
    ("text", "patient", "refuses"),
    [
        ("What did Joerg Mueller take?", "mueller", False),
        ("Muller, Jorg?", "mueller", False),
        ("John Smith?", "middle", False),
        ("Smith, John F.?", "middle", False),
        ("Will May?", "will", False),
        ("Anna Muster?", "twin", False),
        ("Anna Maria Muster?", "twin", True),
        ("Anna Lena Muster?", "own", True),
        ("Grace Young?", "grace", False),
        ("Dmitry Ivanov?", "ivanov", False),
        ("Inci Isik?", "turkish", False),
    ],
)
def test_check_patient_own_name_in_any_spelling_is_accepted(
    text: str, patient: str, refuses: bool, roster: Roster
) -> None:
    assert is_refused(roster, text, patient) is refuses


def test_check_patient_other_name_in_option_is_refused(roster: Roster) -> None:
    with pytest.raises(InputError, match="names another patient"):
        check_patient([roster], Question("Who?", options={"A": "Joerg Mueller"}, form="choice", patient="own-77"))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Ada Byron", "BYRON, ADA", True),
        ("Ada Byron", "Ada Augusta Byron", True),
        ("Müller, J.", "Jörg Mueller", True),
        ("Anna-Lena Meier", "Anna Lena Meier", True),
        ("Ada Byron", "Ada Lovelace", False),
        ("Ada", "Ada Byron", True),
        ("Ada Byron", "Eva Byron", False),
        ("Dr. Ada Byron", "Ada Byron MD", True),
        ("", "", True),
    ],
)
def test_are_alike_compares_names_of_one_person(one: str, other: str, alike: bool) -> None:
    assert are_alike(one, other) is alike
    assert are_alike(other, one) is alike


@pytest.mark.long
def test_fold_is_idempotent_and_find_mentions_is_linear() -> None:
    for name in NAMES.values():
        assert fold(fold(name)) == fold(name)
    assert name_keys("Anna") == frozenset()
    assert name_keys("") == frozenset()
    # A text of 40,000 words has no more runs than words times five.
    assert len(find_mentions("anna muster " * 20_000)) < 200_000
