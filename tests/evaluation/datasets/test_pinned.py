"""Test the pinned question sets on the real files: counts, and the first, tenth and last row.

CareQA's file is not available: `test_readers.py` reads a small one of the same format.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import pytest

from epicrisis.core.types import Question
from epicrisis.evaluation.datasets.dataset import Dataset, sample_at_random, sample_per_class
from epicrisis.evaluation.datasets.load import load_catalogue, load_dataset

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
            "63f043e4f36125a426000023",
            "Is Baricitinib effective for Alopecia Ar",
            2,
            "A",
            ("pubmed:35330989", "pubmed:35334197"),
        ),
        (
            "5c9e738decadf2e73f000037",
            "Can mitochondria transfer from cell to c",
            2,
            "A",
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
    "medqa/validation": [
        ("medqa_4opt_validation_0", "A 21-year-old sexually active male compl", 4, "C", ()),
        ("medqa_4opt_validation_9", "A 60-year-old woman presents to her prim", 4, "A", ()),
        ("medqa_4opt_validation_1271", "A 63-year-old man presents to the emerge", 4, "A", ()),
    ],
    "medqa/open-test": [
        ("medqa_4opt_test_0", "A junior orthopaedic surgery resident is", 0, "Tell the attending that he can", ()),
        ("medqa_4opt_test_9", "A 23-year-old woman presents to the phys", 0, "Silvery plaques on extensor su", ()),
        ("medqa_4opt_test_1272", "A 79-year-old man presents to the office", 0, "Chronic obstructive pulmonary ", ()),
    ],
    "medqa/test": [
        ("medqa_4opt_test_0", "A junior orthopaedic surgery resident is", 4, "B", ()),
        ("medqa_4opt_test_9", "A 23-year-old woman comes to the physici", 4, "A", ()),
        ("medqa_4opt_test_1272", "A 79-year-old man presents to the office", 4, "C", ()),
    ],
    "medmcqa/train-10k": [
        ("medmcqa_train_111695", "Cubitus varus is most commonly seen in", 4, "D", ()),
        ("medmcqa_train_157688", "A 10 year old female patient diagnosed a", 4, "B", ()),
        ("medmcqa_train_62331", "Inventory of material means which one of", 4, "D", ()),
    ],
    "mmlu/anatomy": [
        ("anatomy-000", "A lesion causing compression of the faci", 4, "A", ()),
        ("anatomy-009", "Primary motor cortex activity results in", 4, "D", ()),
        ("anatomy-134", "Which of the following structures should", 4, "D", ()),
    ],
    "mmlu/clinical_knowledge": [
        ("clinical_knowledge-000", "What size of cannula would you use in a ", 4, "A", ()),
        ("clinical_knowledge-009", "Fatty acids are transported into the mit", 4, "D", ()),
        ("clinical_knowledge-264", "The patient's self-report of pain is imp", 4, "C", ()),
    ],
    "mmlu/college_biology": [
        ("college_biology-000", "Based on the characteristic population c", 4, "C", ()),
        ("college_biology-009", "When an influenza virus enters a cell, i", 4, "C", ()),
        ("college_biology-143", "Which of the following is the symplastic", 4, "D", ()),
    ],
    "mmlu/college_medicine": [
        ("college_medicine-000", "A police officer carries out hundreds of", 4, "B", ()),
        ("college_medicine-009", "Performance enhancing synthetic steroids", 4, "A", ()),
        ("college_medicine-172", "The descending loop of Henle of the neph", 4, "B", ()),
    ],
    "mmlu/medical_genetics": [
        ("medical_genetics-000", "In a Robertsonian translocation fusion o", 4, "B", ()),
        ("medical_genetics-009", "Exon skipping is associated with:", 4, "C", ()),
        ("medical_genetics-099", "Which of the following conditions is not", 4, "D", ()),
    ],
    "mmlu/professional_medicine": [
        ("professional_medicine-000", "A 67-year-old woman comes to the physici", 4, "C", ()),
        ("professional_medicine-009", "A 42-year-old man comes to the physician", 4, "B", ()),
        ("professional_medicine-271", "A 52-year-old man is brought to the emer", 4, "B", ()),
    ],
    "evidence-inference/train": [
        ("11609", "What is the effect of 100 mg codeine pho", 3, "C", ("pmc:PMC101395",)),
        ("12920", "What is the effect of arteriovenous (AV)", 3, "C", ("pmc:PMC1065073",)),
        ("11190", "What is the effect of tobacco-use preven", 3, "C", ("pmc:PMC88884",)),
    ],
    "evidence-inference/validation": [
        ("12833", "What is the effect of chloroquine (CQ) a", 3, "A", ("pmc:PMC1087200",)),
        ("11316", "What is the effect of recombinant FSH (r", 3, "B", ("pmc:PMC1550405",)),
        ("11739", "What is the effect of Active Schools: Sk", 3, "C", ("pmc:PMC5982050",)),
    ],
    "med-evidence": [
        (
            "10",
            "Is the breast cancer detection rate in w",
            5,
            "A",
            ("pubmed:34406400", "pubmed:29571797", "pubmed:23116728", "pubmed:26549432"),
        ),
        ("24", "Is the risk of HIV transmission at 12 mo", 5, "B", ("pubmed:21237718",)),
        ("280", "Is measures of pain at any of the time p", 5, "C", ("pubmed:8734709", "pubmed:11491635")),
    ],
}

CLASSES = {
    "mirage/medqa": {"A": 353, "B": 309, "C": 346, "D": 265},
    "mirage/medmcqa": {"A": 1348, "B": 1085, "C": 925, "D": 825},
    "mirage/pubmedqa": {"yes": 276, "no": 169, "maybe": 55},
    "mirage/bioasq": {"yes": 395, "no": 223},
    "mirage/mmlu": {"A": 235, "B": 254, "C": 248, "D": 352},
    "pubmedqa": {"yes": 552, "no": 338, "maybe": 110},
    "pubmedqa/test": {"yes": 276, "no": 169, "maybe": 55},
    "medq": {"Dermatology": 23, "Headache": 18, "Diabetes": 7},
    "medqa/validation": {"A": 330, "B": 316, "C": 352, "D": 274},
    "medqa/open-test": {},
    "medqa/test": {"A": 353, "B": 309, "C": 346, "D": 264},
    "medmcqa/train-10k": {"A": 2957, "B": 2595, "C": 2371, "D": 2077},
    "mmlu/anatomy": {"A": 25, "B": 34, "C": 45, "D": 31},
    "mmlu/clinical_knowledge": {"A": 57, "B": 71, "C": 58, "D": 79},
    "mmlu/college_biology": {"A": 37, "B": 32, "C": 37, "D": 38},
    "mmlu/college_medicine": {"A": 36, "B": 36, "C": 43, "D": 58},
    "mmlu/medical_genetics": {"A": 30, "B": 26, "C": 20, "D": 24},
    "mmlu/professional_medicine": {"A": 50, "B": 55, "C": 45, "D": 122},
    "evidence-inference/train": {"A": 514, "B": 462, "C": 931},
    "evidence-inference/validation": {"A": 70, "B": 64, "C": 95},
    "med-evidence": {"A": 23, "B": 37, "C": 41, "D": 21, "E": 10},
}


def row(question: Question) -> Row:
    return question.id, question.text[:40], len(question.options), (question.gold or "")[:30], question.gold_documents


@pytest.fixture(scope="module")
def sets(data_folder: Path) -> dict[str, Dataset]:
    return {name: load_dataset(name, Path("nowhere"), data_folder) for name in load_catalogue() if name != "careqa"}


@pytest.mark.long
def test_pinned_sets_have_expected_counts_and_rows(sets: dict[str, Dataset]) -> None:
    assert {name: [row(s.questions[place]) for place in (0, 9, -1)] for name, s in sets.items()} == ROWS
    assert {name: dict(Counter(s.classes.values())) for name, s in sets.items()} == CLASSES
    assert sum(len(s.questions) for name, s in sets.items() if name.startswith("mirage/")) == 7663


@pytest.mark.long
def test_pinned_questions_have_unique_ids_and_gold_answers(sets: dict[str, Dataset]) -> None:
    for name, dataset in sets.items():
        assert len({q.id for q in dataset.questions}) == len({q.key for q in dataset.questions})
        assert len({q.id for q in dataset.questions}) == load_catalogue()[name].count
        for question in dataset.questions:
            assert list(question.options) == sorted(question.options)
            assert question.form == ("choice" if question.options else "open")
            assert question.gold in question.options if question.options else question.gold


def test_pinned_sets_have_expected_gold_documents(sets: dict[str, Dataset]) -> None:
    gold_counts = {name: sum(len(q.gold_documents) for q in s.questions) for name, s in sets.items() if s.questions}
    assert {name: n for name, n in gold_counts.items() if n} == {
        "mirage/pubmedqa": 500,
        "mirage/bioasq": 3556,
        "pubmedqa": 1000,
        "pubmedqa/test": 500,
        "evidence-inference/train": 1907,
        "evidence-inference/validation": 229,
        "med-evidence": 291,
    }
    assert len({d for q in sets["mirage/bioasq"].questions for d in q.gold_documents}) == 3467
    assert all(q.gold_documents for q in sets["mirage/bioasq"].questions)


def test_mirage_pubmedqa_equals_test_split_without_contexts(sets: dict[str, Dataset]) -> None:
    mirage, with_context = sets["mirage/pubmedqa"], sets["pubmedqa/test"]
    assert mirage.questions == with_context.questions
    assert mirage.sha256 == with_context.sha256
    assert (len(mirage.documents), len(with_context.documents), len(sets["pubmedqa"].documents)) == (0, 500, 1000)
    first = with_context.documents["pubmed:12377809"]
    assert first.text.startswith("Dyschesia can be provoked by inappropriate defecation movements.")
    assert first.title == ""


def test_pinned_files_match_checksums(data_folder: Path) -> None:
    observed = set()
    for file in {file.path: file for item in load_catalogue().values() for file in item.files if file.sha256}.values():
        folder = data_folder / file.path.split("/")[0].replace("prompt_engine", "medprompt")
        path = folder / Path(file.path).name
        if path.name == "careqa_test.json" and not path.exists():
            continue
        content = path.read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)
        observed.add(Path(file.path).name)
    assert {"medqa_4opt_val.json", "medmcqa_val.json", "openmedqa_test.json", "ori_pqal.json"} < observed


def test_mmlu_subjects_equal_mirage_mmlu(sets: dict[str, Dataset]) -> None:
    subjects = [dataset for name, dataset in sets.items() if name.startswith("mmlu/")]
    assert len(subjects) == 6
    assert tuple(q for subject in subjects for q in subject.questions) == sets["mirage/mmlu"].questions


def test_medmcqa_train_10k_is_labelled_train(sets: dict[str, Dataset]) -> None:
    """Errata P13: the study's `medmcqa_val.json`."""
    sample, examples = sets["mirage/medmcqa"], sets["medmcqa/train-10k"]
    assert {q.id.rpartition("_")[0] for q in examples.questions} == {"medmcqa_train"}
    assert [load_catalogue()[dataset.name].split for dataset in (sample, examples)] == ["validation", "train"]


def test_medmcqa_train_10k_shares_one_question_with_validation(sets: dict[str, Dataset]) -> None:
    """As the page says: the leak check must find it by its words, as the ids are others."""
    sample = {normalize_words(q.text): q for q in sets["mirage/medmcqa"].questions}
    (leak,) = [q for q in sets["medmcqa/train-10k"].questions if normalize_words(q.text) in sample]
    same = sample[normalize_words(leak.text)]
    assert (leak.id, leak.text, same.gold) == ("medmcqa_train_30288", "Muscle spindle is -", leak.gold)
    assert len(set(leak.options.values()) & set(same.options.values())) == 2


@pytest.mark.slow
def test_openmedqa_is_reworded_test_split(sets: dict[str, Dataset]) -> None:
    test, opened = sets["mirage/medqa"].questions, sets["medqa/open-test"].questions
    places = [int(q.id.rpartition("_")[2]) for q in opened]
    assert sorted({*range(len(test))} - {*places}) == [454]
    answers = {place: test[place].options[test[place].gold or ""] for place in places}
    assert sum(q.gold == answers[place] for place, q in zip(places, opened, strict=True)) == 1266
    assert (
        sum(
            normalize_words(q.text) == normalize_words(test[place].text)
            for place, q in zip(places, opened, strict=True)
        )
        == 3
    )
    assert not {normalize_words(q.text) for q in test} & {
        normalize_words(q.text) for q in sets["medqa/validation"].questions
    }


def test_medqa_test_and_openmedqa_draw_the_same_questions(sets: dict[str, Dataset]) -> None:
    """The experiment openmedprompt asks both, each as a sample of its own."""
    with_options, opened = (sample_at_random(sets[name], 20, seed=3) for name in ("medqa/test", "medqa/open-test"))
    assert [q.id for q in with_options.questions] == [q.id for q in opened.questions]


def normalize_words(text: str) -> str:
    """Return the words of the text in lower case."""
    return " ".join(re.findall(r"\w+", text.lower()))


def test_sample_per_class_draws_35_questions_per_class(sets: dict[str, Dataset]) -> None:
    sample = sample_per_class(sets["pubmedqa/test"], 35, seed=0)
    assert Counter(sample.classes[q.id] for q in sample.questions) == {"yes": 35, "no": 35, "maybe": 35}
    assert sample.questions == sample_per_class(sets["mirage/pubmedqa"], 35, seed=0).questions
    assert [q.id for q in sample.questions[:3]] == ["12377809", "9427037", "26370095"]
