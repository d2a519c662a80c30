"""Boolean search strings: what the search reads as words is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Scope
from epicrisis.retrieval.retriever import Retriever
from epicrisis.retrieval.search_operators import describe_operators
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


@pytest.mark.parametrize("by", ["bm25", "dense", "hybrid"])
def test_ranking_names_operators_in_its_notes(tmp_path: Path, by: str) -> None:
    with library(tmp_path / "lib", papers()) as store:
        retriever = Retriever(store, ENCODER)
        notes = retriever.documents("aspirin NOT stroke", 2, by, Scope()).notes  # type: ignore[arg-type]
    assert [note.partition(":")[0] for note in notes] == ["NOT and minus are not obeyed"]
