"""Where the sections of a note begin: "History of Present Illness:", "FINDINGS:", "DISCHARGE DIAGNOSES".

A line that gives a value (`BP: 120/80`, `Hemoglobin: 9.1`) begins no section: with text behind its colon only a heading
that is known by name counts. Knows no note type and no place.
"""

from __future__ import annotations

import re


def _names(text: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in text.split(","))


KNOWN = _names(
    """
    a/p, active issues, addendum, admission diagnoses, admission diagnosis, admission labs, admission medications,
    allergies, anesthesia, assessment, assessment & plan, assessment and plan, assessment and recommendations,
    assessment/plan, brief hospital course, chief complaint, chief complaints, chronic issues, clinical history,
    clinical indication, clinical information, comparison, complications, conclusion, conclusions, condition at
    discharge, condition on discharge, consultations, course in hospital, current medications, diagnoses, diagnosis,
    discharge condition, discharge diagnoses, discharge diagnosis, discharge disposition, discharge exam, discharge
    instructions, discharge labs, discharge medications, discharge plan, disposition, ed course, emergency department
    course, exam, examination, facility, family history, final diagnoses, final diagnosis, final report, findings,
    follow up, follow-up, follow-up instructions, followup, followup instructions, history, history of present illness,
    home medications, hospital course, hospital course by problem, hpi, imaging, immunizations, impression, indication,
    indications, infusions, instructions, interval history, laboratory data, laboratory results, labs, labs on
    admission, labs on discharge, major surgical or invasive procedure, medical history, medications, medications on
    admission, medications on discharge, medications prior to admission, microbiology, objective, operation, operations,
    operative findings, operative procedure, past medical history, past medical/surgical history, past surgical history,
    pertinent results, physical exam, physical examination, physical examination on admission, plan, postoperative
    diagnosis, preoperative diagnosis, present illness, primary diagnoses, primary diagnosis, principal diagnosis,
    procedure, procedures, reason for consultation, reason for exam, reason for examination, reason for this
    examination, reason for visit, recommendations, results, review of systems, secondary diagnoses, secondary
    diagnosis, social history, studies, subjective, subjective complaint, summary, surgical history, technique,
    transitional issues, vital signs, vitals, wet read
    """
)
"""Headings by name, in small letters; any of them may have text behind its colon, or stand alone without one."""

_LINE = re.compile(r"[ \t]*+(?P<title>[A-Za-z][A-Za-z /&'(),-]{1,58}[A-Za-z)])[ \t]*+(?P<colon>:?+)(?P<rest>[^\n]*+)")
_SMALL = _names("a, an, and, at, by, for, from, in, of, on, or, the, to, with")
_WORDS = 7
_LETTERS = 5
"""A heading that is not known has at least so many: `BP:` and `NPO` are none."""


def find_sections(text: str) -> list[list[int | str]]:
    """`[start, end, title]` of each section in the text's order, offsets in characters; they follow each other without
    gaps from the first heading to the text's end. A title is as written, without its colon."""
    found: list[tuple[int, str]] = []
    start, before = 0, ""
    for line in text.split("\n"):
        title = _heading(line, not before.strip())
        if title:
            found.append((start, title))
        start, before = start + len(line) + 1, line
    ends = [*(start for start, _ in found), len(text)][1:]
    return [[start, end, title] for (start, title), end in zip(found, ends, strict=True)]


def _heading(line: str, after_blank: bool) -> str:
    """The heading that this line is or begins with; empty for none."""
    match = _LINE.fullmatch(line)
    if match is None:
        return ""
    title, alone = " ".join(match["title"].split()), not match["rest"].strip()
    capital = title[0].isupper()
    if title.lower() in KNOWN and capital and (match["colon"] or (alone and after_blank)):
        return title
    if not alone or len(title.split()) > _WORDS or sum(map(str.isalpha, title)) < _LETTERS:
        return ""
    if match["colon"]:
        return title if title.isupper() or _title_case(title) else ""
    return title if title.isupper() and after_blank and " " in title else ""


def _title_case(title: str) -> bool:
    return title[0].isupper() and all(
        word[:1].isupper() for word in re.findall(r"[A-Za-z]+", title) if word not in _SMALL
    )
