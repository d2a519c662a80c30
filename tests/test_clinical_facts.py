"""Structured facts are stored with the passages that state them."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, read_facts, write_facts
from epicrisis.core.types import Document
from epicrisis.corpus.base.chunking import build_passages
from epicrisis.library.base.splitters import split_document
from epicrisis.testing.hashing_encoder import HashingEncoder

CREATININE = ClinicalFact(
    "laboratory",
    "Creatinine",
    start=0,
    end=22,
    time="2150-03-04T08:10",
    codes=("loinc:2160-0",),
    value="1.8",
    number=1.8,
    unit="mg/dL",
    source="fhir:Observation/1",
)
POTASSIUM = ClinicalFact("laboratory", "Potassium", start=23, end=43, value="4.1", number=4.1, unit="mmol/L")
TEXT = "Creatinine: 1.8 mg/dL\nPotassium: 4.1 mmol/L"


def _document(patient: str | None = "p1") -> Document:
    return Document("note:1", TEXT, patient=patient, metadata={FACTS: write_facts([POTASSIUM, CREATININE])})


def test_read_facts_returns_what_was_written() -> None:
    (passage,) = build_passages(_document(), [(0, len(TEXT))])
    facts = read_facts(passage)
    assert [fact.name for fact in facts] == ["Creatinine", "Potassium"]
    assert facts[0].document_id == "note:1"
    assert facts[0].codes == ("loinc:2160-0",)
    assert write_facts(facts) == write_facts([CREATININE, POTASSIUM])


def test_facts_of_literature_are_not_read() -> None:
    (passage,) = build_passages(_document(patient=None), [(0, len(TEXT))])
    assert read_facts(passage) == ()


def test_passage_has_only_the_facts_that_begin_in_it() -> None:
    lines = [f"Creatinine: {number / 10} mg/dL" for number in range(10, 60)]
    facts, offset = [], 0
    for line in lines:
        facts.append(ClinicalFact("laboratory", "Creatinine", start=offset, end=offset + len(line), value=line[12:15]))
        offset += len(line) + 1
    document = Document("note:1", "\n".join(lines), patient="p1", metadata={FACTS: write_facts(facts)})
    passages = split_document(document, "tokens", HashingEncoder().token_spans, 40, 0)
    assert len(passages) > 1
    values = [fact.value for passage in passages for fact in read_facts(passage)]
    assert values == [fact.value for fact in facts]
    for passage in passages:
        for fact in read_facts(passage):
            assert passage.start <= fact.start < passage.end


@pytest.mark.parametrize(
    "value",
    [
        "creatinine",
        {"start": 0},
        [1, 2],
        [{"start": 0}],
        [{"kind": "laboratory", "name": "Creatinine", "start": "0", "end": 3}],
        [{"kind": "lab", "name": "Creatinine", "start": 0, "end": 3}],
        [{"kind": "laboratory", "name": "Creatinine", "start": 0, "end": 3, "time": "yesterday"}],
        [{"kind": "laboratory", "name": "Creatinine", "start": 0, "end": 3, "number": float("nan")}],
        [{"kind": "laboratory", "name": "Creatinine", "start": 0, "end": 3, "codes": [1]}],
        [{"kind": "laboratory", "name": "Creatinine", "start": 0, "end": 3, "document_id": "note:2"}],
    ],
)
def test_metadata_of_a_user_under_the_key_is_left_as_it_is(value: Any) -> None:
    document = Document("note:1", TEXT, patient="p1", metadata={FACTS: value})
    passages = split_document(document, "tokens", HashingEncoder().token_spans, 8, 0)
    assert all(passage.metadata[FACTS] == value for passage in passages)
    assert all(read_facts(passage) == () for passage in passages)
