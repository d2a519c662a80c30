"""A citation of a trial, for tests of answers in files."""

from __future__ import annotations

from epicrisis.core.answers import Citation
from epicrisis.core.references import Link, Reference
from epicrisis.core.study_types import StudyTypeMatch

ADDRESS = "https://pubmed.ncbi.nlm.nih.gov/28657417/"
TRIAL = Citation(
    number=1,
    passage_id="pubmed:1#0",
    document_id="pubmed:1",
    title="Aspirin and pre-eclampsia.",
    source="PubMed",
    date="2017-08",
    start=0,
    end=40,
    quotation="Aspirin lowered the risk.",
    verified=True,
    reference=Reference(
        authors=("Rolnik, Daniel L",),
        journal="N Engl J Med",
        year="2017",
        links=(Link("PMID", "28657417", ADDRESS),),
        study=StudyTypeMatch("randomised-trial", "publication type"),
        section="Results",
        page=3,
    ),
)
