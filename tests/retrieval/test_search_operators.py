"""Boolean search strings: what the search reads as words is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document, Scope
from epicrisis.retrieval.retriever import Retriever
from epicrisis.retrieval.search_operators import describe_operators, lower_operators
from tests.support.patient_records import ENCODER, library, papers


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("aspirin NOT children", ["“NOT children”"]),
        ("(aspirin OR heparin) AND stroke NOT (animals OR mice)", ["“NOT (animals OR mice)”"]),
        ("NOT review[pt] aspirin", ["“NOT review[pt]”"]),
        ("aspirin -children -mice -rats", ["“-children”, “-mice” and 1 more"]),
        ('aspirin AND "myocardial infarction"', ['“"myocardial infarction"”']),
        ("aspirin “myocardial infarction” NOT “heart failure”", ["“NOT heart failure”", "“myocardial infarction”"]),
        ('-"heart failure" aspirin', ['“-"heart failure"”']),
        ("statins AND muscle NOT rhabdomyolysis?", ["“NOT rhabdomyolysis”"]),
        ("gout ADJ3 diuretics", ["“ADJ3”"]),
        ('gout NEAR/5 diuretics AND "tophi of gout"', ['“"tophi of gout"”', "“NEAR/5”"]),
        ('"gout diuretics"[tiab:~3] ANDNOT mice', ["“ANDNOT mice”", '“"gout diuretics"”', "“~3”"]),
        ("next generation sequencing, near misses", []),
        ("aspirin AND stroke", []),
        ("aspirin[tiab] AND strok*", []),
        ("Which beta blockers are NOT cardioselective?", []),
        ('What does "take as directed" mean?', []),
        ("COVID-19 long-term effects of beta-blockers", []),
        ("potassium change of -0.3 to -1.2 mmol/L", []),
        ('the word "aspirin" alone', []),
        ("ASPIRIN NOT CHILDREN " * 300, []),
        ("aspirin is not for children", []),
    ],
)
def test_operators_that_are_not_obeyed_are_named(text: str, named: list[str]) -> None:
    notes = describe_operators(text)
    assert len(notes) == len(named)
    for note, words in zip(notes, named, strict=True):
        assert words in note
        assert "not obeyed" in note


@pytest.mark.parametrize(
    ("text", "lowered"),
    [
        ("aspirin OR warfarin OR heparin", "aspirin or warfarin or heparin"),
        ("(aspirin OR heparin) AND stroke NOT mice", "(aspirin or heparin) and stroke not mice"),
        ('"heart attack" OR "myocardial infarction"', '"heart attack" or "myocardial infarction"'),
        ("aspirin[tiab] OR heparin[tiab]", "aspirin[tiab] or heparin[tiab]"),
        ("IT AND errors", "IT and errors"),
        ("adjusted OR 1.5", "adjusted OR 1.5"),
        ("the pooled OR for death", "the pooled OR for death"),
        ("laparoscopy OR time", "laparoscopy OR time"),
        ("Does surgery by robots change OR planning?", "Does surgery by robots change OR planning?"),
        ("does inhaled NO help", "does inhaled NO help"),
        ("ASPIRIN OR STROKE", "ASPIRIN OR STROKE"),
    ],
)
def test_operators_between_terms_are_no_abbreviations(text: str, lowered: str) -> None:
    assert lower_operators(text) == lowered


def test_operator_does_not_find_odds_ratios(tmp_path: Path) -> None:
    texts = {
        "odds": "The OR of death was 1.5, and the OR of stroke 1.4.",
        "gout": "Allopurinol and gout were studied in adults of the region.",
        **{f"other{number}": f"Hip fracture {number} of adults." for number in range(8)},
    }
    with library(tmp_path / "lib", [Document(id_, text) for id_, text in texts.items()]) as store:
        ranking = Retriever(store, ENCODER, expands=True).documents("gout OR allopurinol", 5, "bm25", Scope())
        odds = Retriever(store, ENCODER).documents("the OR of death", 5, "bm25", Scope())
    assert ([hit.document_id for hit in ranking.passages], ranking.notes) == (["gout"], ())
    assert [hit.document_id for hit in odds.passages] == ["odds"]


@pytest.mark.parametrize("by", ["bm25", "dense", "hybrid"])
def test_ranking_names_operators_in_its_notes(tmp_path: Path, by: str) -> None:
    with library(tmp_path / "lib", papers()) as store:
        retriever = Retriever(store, ENCODER)
        notes = retriever.documents("aspirin NOT stroke", 2, by, Scope()).notes  # type: ignore[arg-type]
    assert [note.partition(":")[0] for note in notes] == ["NOT and minus are not obeyed"]
