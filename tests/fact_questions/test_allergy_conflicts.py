"""Notes that deny allergies to drugs, against entries of allergies as FHIR and C-CDA have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.records.fact_questions.fact_conflicts import NoteSentence, find_allergy_conflicts

RXNORM = "http://www.nlm.nih.gov/research/umls/rxnorm"


def read_allergy(folder: Path, **fields: Any) -> ClinicalFact:
    """Return the fact of a FHIR allergy of 2149."""
    allergy = {
        "resourceType": "AllergyIntolerance",
        "id": "a1",
        "patient": {"reference": "Patient/p"},
        "recordedDate": "2149-05-01",
        **fields,
    }
    resources = {"resourceType": "Patient", "id": "p"}, allergy
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": item} for item in resources]}
    (folder / "allergy.json").write_text(json.dumps(bundle), encoding="utf-8")
    documents = [item for item in read_sources([folder]) if isinstance(item, Document)]
    (row,) = documents[0].metadata[FACTS]
    return ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))})


def conflicts(fact: ClinicalFact, text: str) -> int:
    passage = Passage(
        id="n#0", document_id="n", ordinal=0, start=0, end=len(text), text=text, date="2150-03-04", patient="p"
    )
    return len(find_allergy_conflicts([NoteSentence(passage, 0, text)], [fact]))


@pytest.mark.parametrize(
    "text", ["No known drug allergies.", "NKDA.", "Denies medication allergies.", "No known allergies."]
)
@pytest.mark.parametrize(
    "fields",
    [
        {"code": {"text": "Cefazolin"}, "type": "allergy", "category": ["medication"]},
        {"code": {"text": "Cefazolin"}, "category": "medication"},
        {"code": {"text": "Cefazolin", "coding": [{"system": RXNORM, "code": "2180"}]}, "type": "allergy"},
        {"code": {"text": "Penicillin"}, "type": "allergy"},
        {"code": {"text": "Allergy to penicillin"}},
    ],
)
def test_note_that_denies_drug_allergies_conflicts_with_an_allergy_to_a_drug(
    tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    assert conflicts(read_allergy(tmp_path, **fields), text) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"code": {"text": "Peanut"}, "type": "allergy", "category": ["food"]},
        {"code": {"text": "Latex"}, "type": "allergy"},
        {"code": {"text": "Codeine"}, "type": "intolerance", "category": ["medication"]},
        {"code": {"text": "Codeine"}, "type": {"coding": [{"code": "intolerance"}]}, "category": ["medication"]},
    ],
)
def test_note_that_denies_drug_allergies_agrees_with_other_allergies(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert conflicts(read_allergy(tmp_path, **fields), "No known drug allergies.") == 0


@pytest.mark.parametrize(
    "text",
    [
        "No known drug allergies except penicillin.",
        "No known allergies other than to penicillin.",
        "NKDA (apart from penicillin).",
        "Her brother has no known allergies.",
        "The patient's son: NKDA.",
    ],
)
def test_note_that_excepts_an_allergy_or_is_about_a_relative_does_not_conflict(tmp_path: Path, text: str) -> None:
    assert conflicts(read_allergy(tmp_path, category=["medication"], code={"text": "Penicillin"}), text) == 0
