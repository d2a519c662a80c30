"""A citation of a trial, for tests of answers in files."""

from __future__ import annotations

from epicrisis.core.answers import Citation
from epicrisis.core.references import Link, Reference
from epicrisis.core.study_types import StudyTypeMatch

ADDRESS = "https://pubmed.ncbi.nlm.nih.gov/28657417/"
TRIAL = Citation(
    1,
    "pubmed:1#0",
    "pubmed:1",
    "Aspirin and pre-eclampsia.",
    "PubMed",
    "2017-08",
    0,
    40,
    "Aspirin lowered the risk.",
    True,
    reference=Reference(
        ("Rolnik, Daniel L",),
        "N Engl J Med",
        "2017",
        (Link("PMID", "28657417", ADDRESS),),
        StudyTypeMatch("randomised-trial", "publication type"),
        section="Results",
        page=3,
    ),
)
