"""Questions about trials: Evidence Inference with exact places of evidence, and MedEvidence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import EvidenceSpan
from epicrisis.evaluation.datasets.download import download_dataset
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.datasets.trial_questions import read_evidence_inference, read_med_evidence

TEXT = "TITLE: A trial.\nMortality fell from 10 % to 5 % (p = 0.01). Pain did not change.\nNothing else was found."


def mark(label: str, sentence: str) -> dict[str, Any]:
    start = TEXT.index(sentence)
    return {"label": label, "start": start, "end": start + len(sentence)}


def prompt(id_: str, *marks: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": id_,
        "outcome": "pain",
        "intervention": "aspirin",
        "comparator": "placebo",
        "annotations": list(marks),
    }


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_evidence_spans_are_verbatim_at_their_offsets(tmp_path: Path) -> None:
    sentence = "Pain did not change."
    row = {"pmcid": "PMC1", "text": TEXT, "prompts": [prompt("7", mark("no significant difference", sentence))]}
    (question,), documents = read_evidence_inference(write(tmp_path / "a.jsonl.gz", row))
    (span,) = question.evidence
    assert documents["pmc:PMC1"].text == TEXT
    assert documents[span.document_id].text[span.start : span.end] == sentence
    assert question.options[question.gold or ""] == "no significant difference"
    assert question.text == "What is the effect of aspirin compared with placebo on pain?"
    assert question.gold_documents == ("pmc:PMC1",)


def test_equal_marks_of_two_annotators_become_one_span(tmp_path: Path) -> None:
    twice = [mark("no significant difference", "Pain did not change.")] * 2
    (question,), _ = read_evidence_inference(
        write(tmp_path / "a.jsonl.gz", {"pmcid": "PMC1", "text": TEXT, "prompts": [prompt("7", *twice)]})
    )
    start = TEXT.index("Pain")
    assert question.evidence == (EvidenceSpan("pmc:PMC1", start, start + len("Pain did not change.")),)


def test_annotators_without_majority_leave_the_question_out(tmp_path: Path) -> None:
    up, down = (mark(f"significantly {word}", "Pain did not change.") for word in ("increased", "decreased"))
    row = {"pmcid": "PMC1", "text": TEXT, "prompts": [prompt("1", up, down), prompt("2", up, down, down)]}
    questions, _ = read_evidence_inference(write(tmp_path / "a.jsonl.gz", row))
    assert [(question.id, question.options[question.gold or ""]) for question in questions] == [
        ("2", "significantly decreased")
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": TEXT[:20]}, "beyond the article's end"),
        ({"pmcid": None}, "line 1: not as expected at pmcid"),
        ({"prompts": [{"id": "1"}]}, "line 1: not as expected at prompts.0.outcome"),
    ],
)
def test_article_with_wrong_content_is_refused_with_its_line(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    row = {"pmcid": "PMC1", "text": TEXT, "prompts": [prompt("7", mark("significantly decreased", "Pain"))]}
    with pytest.raises(InputError, match=message):
        read_evidence_inference(write(tmp_path / "a.jsonl.gz", row | change))


def test_review_question_has_its_relevant_sources_as_gold(tmp_path: Path) -> None:
    sources = {"11": {"content": "One.", "title": "First"}, "12": {"content": "Two.", "title": None}}
    row = {"question_id": 3, "question": "Higher?", "answer": "insufficient data", "sources": sources}
    (question,), documents = read_med_evidence(
        write(tmp_path / "a.jsonl.gz", row | {"relevant_sources": ["12", "99"], "source_concordance": 1.0})
    )
    assert question.gold == "E"
    assert question.gold_documents == ("pubmed:12",)
    assert [(id_, document.text, document.title) for id_, document in documents.items()] == [
        ("pubmed:11", "One.", "First"),
        ("pubmed:12", "Two.", ""),
    ]


def test_pull_of_a_set_without_address_names_its_source(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"build it from https://github\.com/jayded.* put it at .*validation\.jsonl"):
        download_dataset("evidence-inference/validation", tmp_path)
    with pytest.raises(InputError, match=r"build it from https://github\.com/zy-f/med-evidence"):
        load_dataset("med-evidence", tmp_path)


def test_real_evidence_is_where_the_annotators_marked_it(data_folder: Path, tmp_path: Path) -> None:
    dataset = load_dataset("evidence-inference/validation", tmp_path, data_folder)
    marked: dict[str, set[str]] = {}
    with gzip.open(data_folder / "evidence_inference" / "validation.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            for entry in row["prompts"]:
                marked[entry["id"]] = {row["text"][each["start"] : each["end"]] for each in entry["annotations"]} - {""}
    assert len(dataset.questions) == 229
    for question in dataset.questions:
        texts = {dataset.documents[span.document_id].text[span.start : span.end] for span in question.evidence}
        assert texts == marked[question.id]
        assert texts


def test_real_sets_hold_every_gold_document(data_folder: Path, tmp_path: Path) -> None:
    for name, n in (("evidence-inference/train", 1907), ("med-evidence", 132)):
        dataset = load_dataset(name, tmp_path, data_folder)
        assert len(dataset.questions) == n
        for question in dataset.questions:
            assert set(question.gold_documents) <= dataset.documents.keys()
