"""Questions about more than one time: comparisons, lists of ordinals, readmissions."""

from __future__ import annotations

import pytest

from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.time_expressions import find_time_expressions
from epicrisis.retrieval.timeline import Resolution, resolve


def stay(name: str, admitted: str, discharged: str) -> tuple[NoteTime, ...]:
    summary = NoteTime(f"d{name}", discharged, "Discharge summary", name, admitted, discharged)
    return summary, NoteTime(f"r{name}", admitted, "Radiology report", name, admitted, discharged)


RECORD = (
    *stay("1", "2150-01-02", "2150-01-09"),
    *stay("2", "2150-01-20", "2150-01-25"),
    *stay("3", "2151-05-01", "2151-05-09"),
)


def asked(question: str) -> Resolution:
    return resolve(question, RECORD)


@pytest.mark.parametrize(
    "question",
    [
        "Was the patient readmitted within 30 days of the first discharge?",
        "Was there a stroke within two weeks of the first discharge?",
        "Was there a re-admission for what the first discharge summary tells?",
        "Was the patient who was discharged on 2150-01-09 readmitted?",
        "Compare the last admission with what was before.",
        "How did creatinine differ from the first admission?",
        "What was different in the second admission?",
        "What has changed since the last admission?",
        "What changed since 2150-01-20?",
        "Compare the last radiology report of the first and of the second admission.",
        "Was more given in the second admission than in the last?",
        "What is the difference between the first admission and the last discharge summary?",
    ],
)
def test_comparison_with_one_side_excludes_no_note(question: str) -> None:
    found = asked(question)
    assert (found.documents, found.unresolved) == (None, ())
    assert "so no note is left out" in found.explanations[0]


@pytest.mark.parametrize(
    ("question", "bare"),
    [
        ("What drug was not given during the last admission but during the first?", "the first"),
        ("Was aspirin on the last discharge summary but not on the first?", "the first"),
        ("Which drugs of the second admission, and of the first one, were stopped?", "the first one"),
    ],
)
def test_ordinal_without_noun_beside_time_excludes_no_note(question: str, bare: str) -> None:
    found = asked(question)
    assert found.documents is None
    assert f"{bare}: of what is not said" in found.unresolved


@pytest.mark.parametrize(
    ("question", "documents"),
    [
        ("What changed from the first to the second admission?", "d1 d2 r1 r2"),
        ("What happened from his first to his third stay?", "d1 d2 d3 r1 r2 r3"),
        ("Compare the first and the last discharge summaries.", "d1 d3"),
        ("What was given in the first but not in the third admission?", "d1 d3 r1 r3"),
        ("What was given in the first, the second, or third stay?", "d1 d2 d3 r1 r2 r3"),
        ("Was it higher in the last than in the first admission?", "d1 d3 r1 r3"),
        ("Compare the first to the last admission.", "d1 d3 r1 r3"),
        ("What was the weight at the first and at the second discharge?", "d1 d2"),
        ("Was it seen in the first or the last radiology report?", "r1 r3"),
    ],
)
def test_ordinals_with_shared_noun_are_read(question: str, documents: str) -> None:
    found = asked(question)
    assert found.unresolved == ()
    assert found.documents == frozenset(documents.split())


@pytest.mark.parametrize(
    ("question", "documents"),
    [
        ("How did creatinine change from the first to the last day of the second stay?", "d2 r2"),
        ("Was metoprolol changed from 25 to 50 mg in the second admission?", "d2 r2"),
        ("What changed since admission in the second stay?", "d2 r2"),
        ("What is the differential diagnosis in the second admission?", "d2 r2"),
        ("Was there a compartment syndrome in the second admission?", "d2 r2"),
        ("What was given within 24 hours of admission in the second stay?", "d2 r2"),
        ("What was prescribed in the second to last admission?", "d2 r2"),
        ("Which drug was given first in the second admission?", "d2 r2"),
        ("Were the second and third toes treated in the last admission?", "d3 r3"),
        ("What was the reason for the readmission on 2150-01-20?", "d2 r2"),
        ("Was the patient readmitted after the first discharge?", "d1 d2 d3 r2 r3"),
        ("Compare the last two admissions.", "d2 d3 r2 r3"),
        ("How did it change between 2150-01-02 and 2150-01-09?", "d1 r1"),
    ],
)
def test_single_time_is_unchanged(question: str, documents: str) -> None:
    found = asked(question)
    assert found.unresolved == ()
    assert found.documents == frozenset(documents.split())


@pytest.mark.parametrize(
    "question", ["Is it in the first or in the second?", "How do the two drugs differ?", "Was the patient readmitted?"]
)
def test_comparison_without_time_gives_no_expression(question: str) -> None:
    assert asked(question) == Resolution()


def test_range_of_stays_is_span() -> None:
    (span,) = find_time_expressions("From the first to the third admission?")
    assert (span.kind, span.relation, [each.which for each in span.anchors]) == ("range", "between", [1, 3])
    assert span.text == "from the first to the third admission"
