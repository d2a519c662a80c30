"""PubMedQA's file, and questions as JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, EvidenceSpan, Question
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.readers.question_files import read_pubmedqa_questions, read_questions
from epicrisis.corpus.readers.sources import read_sources

ENTRY: dict[str, Any] = {
    "QUESTION": "Does aspirin help?",
    "CONTEXTS": ["We asked.", "It helped."],
    "LABELS": ["BACKGROUND", "RESULTS"],
    "MESHES": ["Aspirin"],
    "YEAR": "2011",
    "final_decision": "maybe",
    "LONG_ANSWER": "It does.",
}


def _put(folder: Path, entries: object) -> Path:
    path = folder / "ori_pqal.json"
    path.write_text(json.dumps(entries))
    return path


def _lines(folder: Path, *lines: object) -> list[Question | Skipped]:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return list(read_questions(path))


def test_pubmedqa_document_omits_question_and_answer(tmp_path: Path) -> None:
    document, _ = read_sources([_put(tmp_path, {"21645374": ENTRY})])
    assert document == Document(
        id="pubmed:21645374",
        text="We asked.\nIt helped.",
        source="PubMedQA",
        date="2011",
        metadata={"labels": ["BACKGROUND", "RESULTS"], "meshes": ["Aspirin"]},
    )


def test_pubmedqa_question_has_option_letters(tmp_path: Path) -> None:
    path = _put(tmp_path, {"21645374": ENTRY, "2": {**ENTRY, "final_decision": None}})
    first, second = read_pubmedqa_questions(path)
    assert first == Question(
        text="Does aspirin help?",
        options={"A": "yes", "B": "no", "C": "maybe"},
        form="choice",
        id="21645374",
        gold="C",
        gold_documents=("pubmed:21645374",),
    )
    assert second.gold is None
    assert list(read_questions(path)) == [first, second]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"CONTEXTS": "text"}, "CONTEXTS: Input should be a valid list"),
        ({"CONTEXTS": [" "]}, "CONTEXTS: empty"),
        ({"QUESTION": ""}, "QUESTION: empty"),
        ({"YEAR": "MMXI"}, "YEAR: not a date of the form YYYY, YYYY-MM or YYYY-MM-DD"),
        ({"MESHES": ["\0"]}, "contains a NUL character"),
    ],
)
def test_malformed_pubmedqa_entry_is_skipped_as_document_and_fails_as_question(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    path = _put(tmp_path, {"1": ENTRY, "2": {**ENTRY, **change}})
    good, bad, _ = read_sources([path])
    assert isinstance(good, Document)
    assert bad == Skipped(str(path), "entry '2'", reason)
    with pytest.raises(InputError, match=r"entry '2'.*fetch the file again"):
        list(read_pubmedqa_questions(path))


def test_pubmedqa_unknown_decision_has_no_letter(tmp_path: Path) -> None:
    path = _put(tmp_path, {"1": {**ENTRY, "final_decision": "perhaps"}})
    assert len([item for item in read_sources([path]) if isinstance(item, Document)]) == 1
    with pytest.raises(InputError, match="final_decision: neither yes, no nor maybe"):
        list(read_pubmedqa_questions(path))


@pytest.mark.data
def test_real_pubmedqa_is_read(data_folder: Path) -> None:
    path = data_folder / "pubmedqa" / "ori_pqal.json"
    asked = list(read_pubmedqa_questions(path))
    assert Counter(question.gold for question in asked) == {"A": 552, "B": 338, "C": 110}
    documents = [item for item in read_sources([path]) if isinstance(item, Document)]
    assert len(documents) == 1000
    assert sum(document.date is None for document in documents) == 58
    for question, document in zip(asked, documents, strict=True):
        assert question.gold_documents == (document.id,)
        assert question.text not in document.text
    assert (asked[0].id, asked[0].gold, documents[0].date) == ("21645374", "A", "2011")


def test_question_lines_are_read(tmp_path: Path) -> None:
    assert _lines(
        tmp_path,
        {"text": "Why?"},
        {"id": "q", "question": "Which?", "options": ["x", "y"], "gold": "B", "gold_documents": ["d", 5]},
        {"id": 9, "text": "Which?", "options": {"C": "x", "A": "y"}, "patient": 3},
        {"text": "Why?", "options": {}, "gold": "because"},
    ) == [
        Question(text="Why?", id="1"),
        Question(
            text="Which?", options={"A": "x", "B": "y"}, form="choice", id="q", gold="B", gold_documents=("d", "5")
        ),
        Question(text="Which?", options={"C": "x", "A": "y"}, form="choice", id="9", patient="3"),
        Question(text="Why?", id="4", gold="because"),
    ]


def test_question_line_has_form_and_evidence(tmp_path: Path) -> None:
    evidence = [{"document_id": "note:7", "start": 3, "end": 9, "section": "PLAN"}]
    place = {"form": "extractive", "gold": "5 mg", "also": ["five mg"], "category": "temporal", "evidence": evidence}
    assert _lines(
        tmp_path,
        {"text": "How much?", "patient": 1, **place},
        {"text": "Which?", "options": ["x", "y"], "form": "choice", "gold": "A"},
        {"text": "How much?", "form": "extractive"},
        {"text": "Any allergies?", "form": "open", "gold": "", "category": "absence"},
    ) == [
        Question(
            text="How much?",
            form="extractive",
            id="1",
            gold="5 mg",
            patient="1",
            other_answers=("five mg",),
            evidence=(EvidenceSpan("note:7", 3, 9),),
            category="temporal",
        ),
        Question(text="Which?", options={"A": "x", "B": "y"}, form="choice", id="2", gold="A"),
        Question(text="How much?", form="extractive", id="3"),
        Question(text="Any allergies?", form="open", id="4", gold="", category="absence"),
    ]


def test_options_keep_order(tmp_path: Path) -> None:
    (question,) = _lines(tmp_path, {"text": "?", "options": {"C": "x", "A": "y"}})
    assert isinstance(question, Question)
    assert list(question.options) == ["C", "A"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({}, "text: Field required"),
        ({"question": " "}, "question: empty"),
        ({"text": "?", "options": ["x", "y"], "gold": "C"}, "gold: not a letter of the options"),
        ({"text": "?", "options": ["x", "y"], "gold": "x"}, "gold: not a letter of the options"),
        ({"text": "?", "options": {"yes": "x"}}, "options: each key must be one letter, A to Z"),
        ({"text": "?", "options": {"": "x"}}, "options: each key must be one letter, A to Z"),
        ({"text": "?", "options": ["x", 3]}, "options.B: Input should be a valid string"),
        ({"text": "?", "options": ["x"] * 27}, "options: more than 26, the number of letters A to Z"),
        (
            {"text": "?", "patient": "unknown"},
            "patient: empty or a placeholder; name the patient, or leave it out for literature",
        ),
        ({"text": "?", "gold": ""}, "gold: empty; leave it out, or add the form if no document has the answer"),
        ({"text": "?", "gold": " ", "form": "open"}, "gold: empty"),
        ({"text": "?", "options": ["x"], "gold": "", "form": "choice"}, "gold: not a letter of the options"),
        ({"text": "?", "form": "span"}, "form: Input should be 'choice', 'extractive' or 'open'"),
        ({"text": "?", "form": "choice"}, "form: choice needs options, extractive and open have none"),
        (
            {"text": "?", "options": ["x"], "form": "open"},
            "form: choice needs options, extractive and open have none",
        ),
        ({"text": "?", "also": ["x"]}, "also: other right answers need a gold text and no options"),
        (
            {"text": "?", "evidence": [{"document_id": "d", "start": 4, "end": 4}]},
            "evidence.0: end: not after start; offsets are in characters, the end excluded",
        ),
        ({"text": "?", "evidence": [{"start": 4, "end": 5}]}, "evidence.0.document_id: Field required"),
        ({"text": "?", "gold_documents": "d"}, "gold_documents: Input should be a valid list"),
        ({"text": "?", "id": 1}, "id: the same as an earlier question's; use each id once"),
    ],
)
def test_malformed_question_is_skipped_and_reported(tmp_path: Path, line: dict[str, object], reason: str) -> None:
    good, bad = _lines(tmp_path, {"text": "Why?"}, line)
    assert good == Question(text="Why?", id="1")
    assert bad == Skipped(str(tmp_path / "questions.jsonl"), "line 2", reason)


def test_path_without_questions_raises_before_reading(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("a,b")
    (tmp_path / "q.jsonl").write_text("")
    with pytest.raises(InputError, match="a folder; give the file in it"):
        read_pubmedqa_questions(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match=r"questions come as \.jsonl"):
        read_questions(tmp_path / "q.csv")
    with pytest.raises(InputError, match="the file is empty"):
        read_questions(tmp_path / "q.jsonl")
    with pytest.raises(InputError, match="a folder"):
        read_questions(tmp_path)
