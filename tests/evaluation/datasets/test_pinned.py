"""The pinned question sets on the real files: counts, and the first, the tenth and the last row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeAlias

import pytest

from epicrisis.evaluation.datasets.catalogue import catalogue
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import load
from epicrisis.evaluation.datasets.sampling import per_class
from epicrisis.types import Question

pytestmark = pytest.mark.data

Row: TypeAlias = tuple[str, str, int, str, tuple[str, ...]]
"""Id, the question's beginning, how many options, the gold letter or the answer's beginning, gold documents."""

PUBMEDQA_TEST: list[Row] = [
    ("12377809", "Is anorectal endosonography valuable in ", 3, "A", ("pubmed:12377809",)),
    ("24481006", "Should cavitation in proximal surfaces b", 3, "A", ("pubmed:24481006",)),
    ("26134053", "Outcome Feedback within Emergency Medici", 3, "C", ("pubmed:26134053",)),
]
ROWS: dict[str, list[Row]] = {
    "mirage/medqa": [
        ("0000", "A junior orthopaedic surgery resident is", 4, "B", ()),
        ("0009", "A 23-year-old woman comes to the physici", 4, "A", ()),
        ("1272", "A 79-year-old man presents to the office", 4, "C", ()),
    ],
    "mirage/medmcqa": [
        ("45258d3d-b974-44dd-a161-c3fccbdadd88", "Which of the following is not true for m", 4, "A", ()),
        ("de09d388-bd4e-42a9-ac6b-ee2d95f822e2", "A blue new born presents with cyanosis. ", 4, "B", ()),
        ("0c49a620-48a0-4240-9754-acf9310cd53c", "Most common type of Non-Hodgkin's lympho", 4, "A", ()),
    ],
    "mirage/pubmedqa": PUBMEDQA_TEST,
    "mirage/bioasq": [
        ("6402c910201352f04a00000c", "Can losartan reduce brain atrophy in Alz", 2, "B", ("pubmed:34687634",)),
        (
            "63f043e4f36125a426000023", "Is Baricitinib effective for Alopecia Ar", 2, "A",
            ("pubmed:35330989", "pubmed:35334197"),
        ),
        (
            "5c9e738decadf2e73f000037", "Can mitochondria transfer from cell to c", 2, "A",
            ("pubmed:29158129", "pubmed:29357914"),
        ),
    ],
    "mirage/mmlu": [
        ("anatomy-000", "A lesion causing compression of the faci", 4, "A", ()),
        ("anatomy-009", "Primary motor cortex activity results in", 4, "D", ()),
        ("professional_medicine-271", "A 52-year-old man is brought to the emer", 4, "B", ()),
    ],
    "pubmedqa": [
        ("21645374", "Do mitochondria play a role in remodelli", 3, "A", ("pubmed:21645374",)),
        ("10966337", "A short stay or 23-hour ward in a genera", 3, "A", ("pubmed:10966337",)),
        ("17559449", "Are sugars-free medicines more erosive t", 3, "B", ("pubmed:17559449",)),
    ],
    "pubmedqa/test": PUBMEDQA_TEST,
    "medq": [
        ("medq-1", "In hyperglycemic patients (P), how does ", 0, "Interdisciplinary collaboratio", ()),
        ("medq-10", "What are the differential diagnoses for ", 0, "The differential diagnoses for", ()),
        ("medq-48", "Does prolonged exposure to pain medicati", 0, "Yes, prolonged exposure to pai", ()),
    ],
}  # fmt: skip

CLASSES = {
    "mirage/medqa": {"A": 353, "B": 309, "C": 346, "D": 265},
    "mirage/medmcqa": {"A": 1348, "B": 1085, "C": 925, "D": 825},
    "mirage/pubmedqa": {"yes": 276, "no": 169, "maybe": 55},
    "mirage/bioasq": {"yes": 395, "no": 223},
    "mirage/mmlu": {"A": 235, "B": 254, "C": 248, "D": 352},
    "pubmedqa": {"yes": 552, "no": 338, "maybe": 110},
    "pubmedqa/test": {"yes": 276, "no": 169, "maybe": 55},
    "medq": {"Dermatology": 23, "Headache": 18, "Diabetes": 7},
}


def row(question: Question) -> Row:
    return question.id, question.text[:40], len(question.options), (question.gold or "")[:30], question.gold_documents


@pytest.fixture(scope="module")
def sets(data_folder: Path) -> dict[str, Dataset]:
    return {name: load(name, Path("nowhere"), data_folder) for name in catalogue()}


def test_counts_and_rows(sets: dict[str, Dataset]) -> None:
    assert {name: [row(s.questions[place]) for place in (0, 9, -1)] for name, s in sets.items()} == ROWS
    assert {name: dict(Counter(s.classes.values())) for name, s in sets.items()} == CLASSES
    assert sum(len(s.questions) for name, s in sets.items() if name.startswith("mirage/")) == 7663


def test_every_question_can_be_told_from_every_other_and_scored(sets: dict[str, Dataset]) -> None:
    for name, dataset in sets.items():
        assert len({q.id for q in dataset.questions}) == len({q.key for q in dataset.questions})
        assert len({q.id for q in dataset.questions}) == catalogue()[name].count
        for question in dataset.questions:
            assert list(question.options) == sorted(question.options)
            assert question.form == ("choice" if question.options else "open")
            assert question.gold in question.options if question.options else question.gold


def test_gold_documents(sets: dict[str, Dataset]) -> None:
    told = {name: sum(len(q.gold_documents) for q in s.questions) for name, s in sets.items() if s.questions}
    assert {name: n for name, n in told.items() if n} == {
        "mirage/pubmedqa": 500, "mirage/bioasq": 3556, "pubmedqa": 1000, "pubmedqa/test": 500,
    }  # fmt: skip
    assert len({d for q in sets["mirage/bioasq"].questions for d in q.gold_documents}) == 3467
    assert all(q.gold_documents for q in sets["mirage/bioasq"].questions)


def test_mirages_pubmedqa_is_the_test_split_without_its_contexts(sets: dict[str, Dataset]) -> None:
    mirage, with_context = sets["mirage/pubmedqa"], sets["pubmedqa/test"]
    assert mirage.questions == with_context.questions
    assert mirage.sha256 == with_context.sha256
    assert (len(mirage.documents), len(with_context.documents), len(sets["pubmedqa"].documents)) == (0, 500, 1000)
    first = with_context.documents["pubmed:12377809"]
    assert first.text.startswith("Dyschesia can be provoked by inappropriate defecation movements.")
    assert first.title == ""


def test_the_papers_sample_is_35_a_class(sets: dict[str, Dataset]) -> None:
    drawn = per_class(sets["pubmedqa/test"], 35, seed=0)
    assert Counter(drawn.classes[q.id] for q in drawn.questions) == {"yes": 35, "no": 35, "maybe": 35}
    assert drawn.questions == per_class(sets["mirage/pubmedqa"], 35, seed=0).questions
    assert [q.id for q in drawn.questions[:3]] == ["12377809", "9427037", "26370095"]
