"""Events by the words of notes: what was done and when; what is denied, planned, past or a header."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from epicrisis.core.dates import time_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.event_mentions import EventMentions, agree_on_time, find_event_mentions
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.timeline import Resolution, resolve


def notes_of(texts: Mapping[str, str]) -> list[Passage]:
    return [
        Passage(id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text)
        for name, text in texts.items()
    ]


def told(event: str, text: str) -> EventMentions | None:
    return find_event_mentions(event, notes_of({"a": text})).get("a")


@pytest.mark.parametrize(
    "text",
    [
        "s/p hip replacement on 2150-03-04.",
        "Status post left hip replacement 2150-03-04, doing well",
        "She underwent a right total\nhip replacement on March 4, 2150 without complications.",
        "The hip replacement was performed without complication on 2150-03-04.",
        "On 2150-03-04, the patient underwent an elective hip replacement.",
        "He had a hip replacement (2150-03-04).",
    ],
)
def test_event_stated_as_done_near_date_has_time(text: str) -> None:
    found = told("hip replacement", text)
    assert found is not None
    assert found.dates == (time_range("2150-03-04"),)


@pytest.mark.parametrize(
    "text",
    [
        "No surgery was needed. Seen on 2150-03-04.",
        "Service: SURGERY\nAdmitted on 2150-03-04.",
        "Surgery is planned for 2150-03-04.",
        "Surgery is scheduled on 2150-03-04.",
        "She will have undergone surgery on 2150-03-04.",
        "The patient underwent evaluation by surgery on 2150-03-04.",
        "The patient underwent CT before surgery on 2150-03-04.",
        "She did not undergo surgery on 2150-03-04.",
        "He had surgery on 2150-03-04 cancelled.",
        "Surgery was not performed on 2150-03-04.",
        "Her mother underwent surgery on 2150-03-04.",
        "s/p surgery. Admitted on 2150-03-04.",
        "s/p surgery and admitted on 2150-03-04.",
    ],
)
def test_event_denied_planned_or_undated_has_no_time(text: str) -> None:
    found = told("surgery", text)
    assert found is not None, "it may tell of it all the same"
    assert found.dates == ()


def test_event_mentions_are_detected() -> None:
    texts = {"a": "Hip films.", "b": "POD 2.", "c": "Laparoscopic cholecystectomy.", "d": "Slept well."}
    assert set(find_event_mentions("surgery", notes_of(texts))) == {"b", "c"}
    assert set(find_event_mentions("hip replacement", notes_of(texts))) == {"a", "b"}


def test_event_times_are_combined() -> None:
    month, day, next_day, year = (
        time_range("2150-03"),
        time_range("2150-03-04"),
        time_range("2150-03-05"),
        time_range("2151"),
    )
    assert agree_on_time([month, day]) == day
    assert agree_on_time([day, next_day]) == (day[0], next_day[1])
    assert agree_on_time([day, year]) is None
    assert agree_on_time([]) is None


# A record as MIMIC-IV's: discharge summaries and radiology reports, no operative note.
RECORD = (
    NoteTime("d1", "2150-01-10", "DS", "A", "2150-01-03", "2150-01-10"),
    NoteTime("r1", "2150-01-04", "RR", "A"),
    NoteTime("r2", "2150-03-01", "RR", "B"),
    NoteTime("r3", "2150-03-25", "RR", "B"),
    NoteTime("r4", "2150-03-09", "RR", "B"),
    NoteTime("d2", "2150-03-12", "DS", "B", "2150-03-01", "2150-03-12"),
    NoteTime("d3", "2151-06-20", "DS", "C", "2151-06-15", "2151-06-20"),
)
TEXTS = {
    "d1": "Service: SURGERY. Gallstones. No surgery was needed; surgery is planned in March. Hemoglobin 12.",
    "r1": "Gallstones.",
    "r2": "Hemoglobin 11. Evaluate before surgery.",
    "r3": "Chest film clear.",
    "r4": "Changes after surgery.",
    "d2": "Hemoglobin was 11 on arrival. She underwent surgery ___.",
    "d3": "Chest pain. s/p cholecystectomy.",
}
DATED = {"d2": "Hemoglobin was 11 on arrival. She underwent surgery on 2150-03-04."}


def asked(question: str, texts: Mapping[str, str], *more: NoteTime) -> Resolution:
    return resolve(question, (*RECORD, *more), lambda event: find_event_mentions(event, notes_of(texts)))


@pytest.mark.parametrize("relation", ["before", "after", "since", "until"])
def test_event_words_without_date_give_no_time(relation: str) -> None:
    found = asked(f"What was the hemoglobin {relation} the surgery?", TEXTS)
    assert found == Resolution(unresolved=(f"{relation} the surgery: no note says when the surgery was",))


def test_question_before_event_excludes_only_later_notes() -> None:
    found = asked("What was the hemoglobin before the surgery?", {**TEXTS, **DATED})
    assert found.documents == frozenset({"d1", "r1", "r2", "r4", "d2", "d3"})
    assert found.explanations == ("before the surgery: the surgery was 2150-03-04",)


def test_question_after_event_keeps_notes_that_mention_it() -> None:
    found = asked("What was the hemoglobin after the surgery?", {**TEXTS, **DATED})
    assert found.documents == frozenset({"r3", "r4", "d2", "d3"})


def test_operative_note_dates_event_but_surgeon_note_does_not() -> None:
    operative = NoteTime("o", "2150-03-04T18:00", "Operative report", "B")
    consult = NoteTime("c", "2150-01-05", "Surgery consult note", "A")
    texts = {**TEXTS, "o": "Gallbladder taken out.", "c": "Surgery: nothing to do."}
    found = asked("What was the hemoglobin before the surgery?", texts, operative, consult)
    assert found.documents == frozenset({"d1", "r1", "r2", "r4", "d2", "d3", "o", "c"})
    other = asked(
        "What was measured before the hip replacement?", {**texts, "o": "History of hip replacement."}, operative
    )
    assert other.unresolved == ("before the hip replacement: no note says when the hip replacement was",)


def test_two_operations_give_no_single_time() -> None:
    both = [NoteTime(name, date, "Operative note") for name, date in (("o", "2150-03-04"), ("p", "2151-06-16"))]
    found = asked("What was the hemoglobin before the surgery?", TEXTS, *both)
    assert found.unresolved == ("before the surgery: notes say several times of the surgery",)


def test_event_dated_after_note_is_planned() -> None:
    found = asked("What was measured before the surgery?", {**TEXTS, "d1": "Had undergone surgery on 2151-01-01."})
    assert found.documents is None
