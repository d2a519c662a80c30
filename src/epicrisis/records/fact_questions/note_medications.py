"""What the newest list of medications in the notes names beside structured entries.

Orders of a hospital seldom have what another prescribes, and notes do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.references import STARTS
from epicrisis.core.types import Passage
from epicrisis.reading.support import find_drugs
from epicrisis.records.fact_questions.computation import join_words
from epicrisis.records.fact_questions.subjects import drug_key, split_words
from epicrisis.records.fact_questions.synonyms import list_variants, names_drug
from epicrisis.retrieval.record_context import restore_notes, sort_by_time

_TITLE = re.compile(r"\b(?:medications?|meds)\b", re.IGNORECASE)
_OTHER_TITLE = re.compile(
    r"\b(?:admission|arrival|admitted|past|previous|prior|allerg\w*|held|stopped|discontinued|given|administered|inpatient)\b",
    re.IGNORECASE,
)
_DOSE = re.compile(r"\d\s?(?:mg|mcg|g|units?|iu|ml|meq|puffs?|tab\w*|cap\w*|drops?|%)(?![a-z])", re.IGNORECASE)
_NOT_TAKEN = re.compile(
    r"\b(?:stop\w*|discontinu\w*|held|hold|off|no longer|not|never|declin\w*|refus\w*|avoid)\b", re.IGNORECASE
)
_BULLET = re.compile(r"^\s*(?:[-*\u2022]+|\d{1,2}[.)])\s+")
_BETWEEN_ITEMS = re.compile(r"[\n;]|,\s+(?=[^\W\d])")
_SHOWN = 12


def describe_note_medications(
    passages: Sequence[Passage], words: Sequence[str], current: Iterable[ClinicalFact]
) -> str:
    """Return what the newest list of medications in a record's notes names and current entries do not, or nothing.

    With `words`, only lines that have the drug of these words are meant.
    """
    notes = restore_notes([passage for passage in passages if passage.patient and FACTS not in passage.metadata])
    variants = [set(variant) for variant in list_variants(words, "medication")] if words else []
    known = {variant[0] for fact in current for variant in list_variants(drug_key(fact).split(), "medication")}
    for note in reversed(sort_by_time([note for note in notes if note.date])):
        items = list(_read_items(note))
        if not items:
            continue
        others: list[str] = []
        for item in items:
            named = set(split_words(item))
            is_asked = any(variant <= named for variant in variants) if words else named.isdisjoint(known)
            if is_asked:
                others.append(f"“{item}”")
        if not others:
            return ""
        more = [f"{len(others) - _SHOWN} more"] if len(others) > _SHOWN else []
        day = str(note.date)[:10]
        place = note.title if day in note.title else f"{note.title}, {day}"
        return f"the newest list of medications in the notes ({place}) has {join_words([*others[:_SHOWN], *more])}"
    return ""


def _read_items(note: Passage) -> Iterator[str]:
    """Yield the drugs of a note's lists of medications, in its words."""
    sections = [(note.start, str(note.metadata.get("section", "")))]
    sections += [(int(start), str(title)) for start, title in note.metadata.get(f"section{STARTS}", ())]
    for (start, title), (end, _) in pairwise([*sections, (note.end, "")]):
        if not _TITLE.search(title) or _OTHER_TITLE.search(title):
            continue
        body = note.text[start - note.start : end - note.start].removeprefix(title).lstrip(" :")
        for part in _BETWEEN_ITEMS.split(body):
            item = " ".join(_BULLET.sub("", part).split()).strip(" .,").removeprefix("and ")
            is_drug = _DOSE.search(item) or find_drugs(item) or names_drug(split_words(item))
            if is_drug and not _NOT_TAKEN.search(item):
                yield item
