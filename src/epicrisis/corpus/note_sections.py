"""Find the sections of a note: "History of Present Illness:", "FINDINGS:", "DISCHARGE DIAGNOSES".

A line with a value (`BP: 120/80`, `Hemoglobin: 9.1`) begins no section: only the headings of `KNOWN_HEADINGS` may be
followed by text after the colon.
"""

from __future__ import annotations

import re


def _split_names(text: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in text.split(","))


KNOWN_HEADINGS = _split_names(
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
"""Headings in small letters; any of them may have text after its colon, or be alone without one."""

_LINE = re.compile(r"[ \t]*+(?P<title>[A-Za-z][A-Za-z /&'(),-]{1,58}[A-Za-z)])[ \t]*+(?P<colon>:?+)(?P<rest>[^\n]*+)")
_SMALL_WORDS = _split_names("a, an, and, at, by, for, from, in, of, on, or, the, to, with")
_MAX_WORDS = 7
_MIN_LETTERS = 5
"""Letters of any other heading: `BP:` and `NPO` are none."""


def find_sections(text: str) -> list[list[int | str]]:
    """Return `[start, end, title]` of each section in order, as offsets in characters.

    The sections follow each other without gaps from the first heading to the end of the text. A title is as written,
    without its colon.
    """
    headings: list[tuple[int, str]] = []
    start, previous = 0, ""
    for line in text.split("\n"):
        title = _find_heading(line, not previous.strip())
        if title:
            headings.append((start, title))
        start, previous = start + len(line) + 1, line
    sections: list[list[int | str]] = []
    for index, (start, title) in enumerate(headings, 1):
        end = headings[index][0] if index < len(headings) else len(text)
        sections.append([start, end, title])
    return sections


def _find_heading(line: str, is_after_blank: bool) -> str:
    """Return the heading with which the line begins, or an empty string."""
    match = _LINE.fullmatch(line)
    if match is None:
        return ""
    title, is_alone = " ".join(match["title"].split()), not match["rest"].strip()
    has_colon = bool(match["colon"])
    if title.lower() in KNOWN_HEADINGS and title[0].isupper() and (has_colon or (is_alone and is_after_blank)):
        return title
    if not is_alone or len(title.split()) > _MAX_WORDS or sum(map(str.isalpha, title)) < _MIN_LETTERS:
        return ""
    if has_colon:
        is_heading = title.isupper() or _is_title_case(title)
    else:
        is_heading = title.isupper() and is_after_blank and " " in title
    return title if is_heading else ""


def _is_title_case(title: str) -> bool:
    words = [word for word in re.findall(r"[A-Za-z]+", title) if word not in _SMALL_WORDS]
    return title[0].isupper() and all(word[:1].isupper() for word in words)
