"""Which notes of a record a question is about: ordinals, stays, days, ranges, events, and what says nothing of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.dates import find_dates, is_before, may_overlap, time_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.event_mentions import EventMentions, find_event_mentions
from epicrisis.retrieval.hospital_stays import NoteTime, group_stays
from epicrisis.retrieval.timeline import Resolution, resolve


def note(
    document: str,
    date: str | None,
    note_type: str,
    stay: str | None = None,
    admitted: str | None = None,
    discharged: str | None = None,
) -> NoteTime:
    return NoteTime(document, date, note_type, stay, admitted, discharged)


RECORD = (
    note("d1", "2150-01-10", "Discharge summary", "A", "2150-01-03", "2150-01-10"),
    note("p1", "2150-01-04", "Progress note", "A"),
    note("r1", "2150-01-05T10:30", "Radiology", "A"),
    note("o2", "2150-03-05", "Operative note", "B"),
    note("d2", "2150-03-12", "Discharge summary", "B", "2150-03-04", "2150-03-12"),
    note("r2", "2150-03-06", "Radiology", "B"),
    note("p2", "2150-03-07", "Progress note", "B"),
    note("x", "2150-03-08", "Pathology"),
    note("d3", "2151-06-20", "Discharge summary", "C", "2151-06-15", "2151-06-20"),
)
ALL = " ".join(sorted(each.document_id for each in RECORD))


TEXTS = {
    "o2": "Operative report. Hemiarthroplasty of the right hip.",
    "d2": "Had surgery for a broken hip.",
    "d3": "Service: SURGERY. She underwent a total hip replacement on 2151-06-16 without complications.",
}


def told_of(words: str) -> Mapping[str, EventMentions]:
    return find_event_mentions(words, passages(TEXTS))


def passages(texts: Mapping[str, str]) -> list[Passage]:
    return [
        Passage(id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text)
        for name, text in texts.items()
    ]


def asked(question: str, record: Sequence[NoteTime] = RECORD) -> Resolution:
    return resolve(question, record, told_of)


@pytest.mark.parametrize(
    ("question", "documents"),
    [
        # The paper's: appendix F, case 10083814, and the examples of appendix G.
        ("What were the patient's final diagnoses?", "d3"),
        (
            "What was the outcome of the colonoscopy as described in the discharge summary from the stay starting on"
            " 2150-03-04?",
            "d2",
        ),
        ("What was the patient's diagnosis for the hospital admission on 2151-06-15?", "d3"),
        ("What was the patient's blood pressure at discharge?", "d1 d2 d3 o2"),
        # Ordinals of stays.
        ("What was found during the first admission?", "d1 p1 r1"),
        ("What was done during the second hospitalization?", "d2 o2 p2 r2 x"),
        ("Which drugs were stopped in her 3rd stay?", "d3"),
        ("Why was he admitted in the initial hospitalization?", "d1 p1 r1"),
        ("What was the reason for the earliest admission?", "d1 p1 r1"),
        ("Why did the latest hospital stay happen?", "d3"),
        ("What were the complications of the most recent admission?", "d3"),
        ("Is there fever in the current hospitalization?", "d3"),
        ("What was prescribed in the penultimate admission?", "d2 o2 p2 r2 x"),
        ("What was prescribed in the second to last admission?", "d2 o2 p2 r2 x"),
        ("What was prescribed in the second of his three admissions?", "d2 o2 p2 r2 x"),
        ("What was given in the first two admissions?", "d1 d2 o2 p1 p2 r1 r2 x"),
        ("What was given in the last 2 hospitalizations?", "d2 d3 o2 p2 r2 x"),
        ("What changed between the first and the last admission?", ALL),
        ("Compare the first admission with the third admission.", "d1 d3 p1 r1"),
        # Stays by date.
        ("Which antibiotics were given in the stay starting on January 3, 2150?", "d1 p1 r1"),
        ("What happened in the March 2150 admission?", "d2 o2 p2 r2 x"),
        ("Why was the patient admitted to the hospital on 2150-01-03?", "d1 p1 r1"),
        ("What was she discharged home with on 2150-01-10?", "d1 p1 r1"),
        ("What was the diagnosis in the hospitalization of March 2150?", "d2 o2 p2 r2 x"),
        # Kinds of notes.
        ("According to the latest discharge summary, what is the plan?", "d3"),
        ("What does the first discharge summary say?", "d1"),
        ("What does the second discharge summary say?", "d2"),
        ("What was the final discharge disposition?", "d3"),
        ("What is the final discharge diagnosis of the first admission?", "d1"),
        ("What did the last radiology report show?", "r2"),
        ("What did the first imaging report show?", "r1"),
        ("What did the final pathology report show?", "x"),
        ("What does the most recent progress note say?", "p2"),
        ("What does the discharge summary from 2150-03-12 say?", "d2"),
        ("What does the discharge summary from 2150-03-04 say?", "d2"),
        ("What does the radiology report of 2150-01-05 say?", "r1"),
        ("What does the discharge summary of the first admission say?", "d1"),
        ("First radiology report of the second admission?", "r2"),
        # At discharge and at admission.
        ("What was the condition on discharge from the second hospitalization?", "d2 o2"),
        ("Which weight was measured at the time of discharge from the first stay?", "d1"),
        ("What was the creatinine at the last discharge?", "d3"),
        ("Which symptoms were there on admission for the second stay?", "d2 o2 p2 r2 x"),
        ("Which drugs did she take prior to admission?", ALL),
        # Days.
        ("What was the creatinine on 2150-03-06?", "d2 o2 p2 r2 x"),
        ("What was the creatinine on March 6th, 2150?", "d2 o2 p2 r2 x"),
        ("What was the creatinine on 6 Mar 2150?", "d2 o2 p2 r2 x"),
        ("What was the creatinine on 13/03/2150 or on 3/12/2150 or on 03/06/2150?", None),
        ("Which tests were made in March 2150?", "d2 d3 o2 p2 r2 x"),
        ("Which tests were made in 2151?", "d3"),
        ("Labs on hospital day 3 of the first stay?", "d1 p1 r1"),
        ("Labs on POD 2 of the second admission?", "d2 p2 r2 x"),
        ("How was he on postoperative day #1?", "d2 o2 p2 r2 x"),
        # Ranges.
        ("Which drugs were given between March 2150 and April 4, 2150?", "d2 o2 p2 r2 x"),
        ("Which drugs were given from 2150-01-01 to 2150-01-05?", "d1 p1 r1"),
        ("What was measured since 2151?", "d3"),
        ("What was known as of 2150-01-04?", "d1 d2 d3 o2 p1 r1"),
        ("What was known until February 2150?", "d1 d2 d3 o2 p1 r1 x"),
        ("Which diagnoses were made after the first admission?", ALL),
        ("Which diagnoses were made before the last admission?", ALL),
        # Why she came and what she took before stands in that stay's own first note and summary.
        ("Was there pain prior to the second admission?", ALL),
        ("What happened since the second admission?", "d2 d3 o2 p2 r2 x"),
        # What a discharge is the edge of.
        ("Was the patient readmitted after the first discharge?", "d1 d2 d3 o2 p2 r2 x"),
        ("What happened between the first and the second discharge?", "d1 d2 o2 p2 r2 x"),
        ("What happened between her first and second discharges?", "d1 d2 o2 p2 r2 x"),
        ("What happened between the first discharge and the second admission?", "d1 d2 o2 p2 r2 x"),
        ("What was found since the second discharge?", "d2 d3 o2"),
        ("What was known until the first discharge?", "d1 d2 d3 o2 p1 r1"),
        ("What happened after discharge from the second admission?", "d2 d3 o2"),
        ("What happened after she was discharged on 2150-03-12?", "d2 d3 o2"),
        # Events. Later notes that look back are read with what was before.
        ("What was the hemoglobin before the surgery?", ALL),
        ("What was the hemoglobin after surgery?", "d2 d3 o2 p2 r2 x"),
        ("Was he walking prior to his hip replacement?", ALL),
        ("Was he walking after his hip replacement?", "d3"),
        ("The last radiology report before the surgery?", "r1 r2"),
    ],
)
def test_question_keeps_matching_notes(question: str, documents: str | None) -> None:
    found = asked(question)
    if documents is None:
        assert found.documents is None
        assert found.unresolved
        return
    assert found.unresolved == ()
    assert found.documents is not None
    assert " ".join(sorted(found.documents)) == documents
    assert found.explanations


@pytest.mark.parametrize(
    "question",
    [
        "What is the patient's last name?",
        "Which is the first-line therapy of his disease?",
        "Is there a first degree relative with cancer?",
        "How long did the pain last?",
        "Did she take any drugs in the last 3 days?",
        "Which of the following procedures was done?",
        "Which of the following surgeries would be best?",
        "What were the patient's postoperative course details?",
        "How many tablets of dilaudid did the patient receive?",
        "What family history does the patient have?",
        "What is the patient's discharge condition?",
        "What were the patient's discharge diagnoses?",
        "What was the cause of the second metatarsal fracture?",
        "When was her last menstrual period?",
        "Was he seen by surgery?",
        "What did the radiology report say?",
        "Was the patient, born 1950-03-04, a smoker?",
        "Did he take 2000 mg of it?",
        "",
    ],
)
def test_question_without_time_excludes_no_note(question: str) -> None:
    assert asked(question) == Resolution()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What surgeries has the patient undergone and in what order?", "in what order"),
        ("Did the fever start before or after the surgery?", "before or after"),
        ("How many days after the surgery was she discharged?", "how many days after"),
        ("What was the same in each admission?", "each admission"),
        ("How did creatinine change over time?", "over time"),
        ("What is the most recent hemoglobin?", "most recent hemoglobin"),
        ("What are the patient's current medications?", "current medications"),
        ("What were the initial symptoms?", "initial symptoms"),
        ("What happened in the previous admission?", "previous admission"),
        ("What is on the final echocardiogram?", "final echocardiogram"),
    ],
)
def test_question_about_order_is_noted_and_excludes_no_note(question: str, said: str) -> None:
    found = asked(question)
    assert (found.documents, found.unresolved) == (None, ())
    assert any(each.startswith(said) for each in found.explanations)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("What was found during the fourth admission?", "the fourth admission: there are 3 stays"),
        ("What happened on 03/04/2150?", "on 03/04/2150: it can be 2150-03-04 or 2150-04-03"),
        ("What was given between March 2150 and 3/4/2151?", "3/4/2151 can be 2151-03-04 or 2151-04-03"),
        ("Which operation was done in 2120?", "in 2120: no note tells of that time"),
        ("What happened before the colonoscopy?", "no note says when the colonoscopy was"),
        ("What happened before the second surgery?", "which one is the second surgery cannot be told"),
        ("Labs on hospital day 3?", "of which of 3 stays is not said"),
        ("What does the last nursing note say?", "there is no nursing note"),
        ("Diagnosis for the stay starting on 2150-03-06?", "no stay of the record is of that time"),
        ("Labs in 2151 during the first admission?", "no note tells of that time"),
    ],
)
def test_unresolved_time_is_reported_and_excludes_no_note(question: str, why: str) -> None:
    found = asked(question)
    assert found.documents is None
    assert any(why in each for each in found.unresolved), found


def test_event_without_search_is_not_resolved() -> None:
    found = resolve("What was given before the surgery?", RECORD)
    assert found == Resolution(unresolved=("before the surgery: notes that tell of the surgery were not looked up",))


def test_notice_names_choice_and_reason() -> None:
    assert asked("final diagnoses?").explanations == ("final diagnoses: of 3 discharge summaries the last, 2151-06-20",)
    assert asked("the second stay?").explanations == (
        "the second stay: of 3 stays the 2nd, 2150-03-04 to 2150-03-12, and 1 more note of about that time, with a "
        "date of it in the text, or without a time",
    )


def test_stay_without_admission_date_starts_after_previous_summary() -> None:
    """As the study's data are: discharge summaries alone."""
    record = (
        note("a", "2113-08-01", "DS", "1"),
        note("b", "2113-10-05", "DS", "2"),
        note("c", "2113-10-30", "DS", "3"),
    )
    found = resolve("What was found in the stay starting on 2113-09-30?", record)
    assert found.documents == frozenset({"b"})
    assert "no note gives its day of admission" in found.explanations[0]
    assert resolve("The stay starting on 2113-06-01?", record).documents is None


def test_possible_last_note_is_kept() -> None:
    month = note("m", "2150-03", "Discharge summary", "M")
    day = note("d", "2150-03-20", "Discharge summary", "D")
    early = note("e", "2149", "Discharge summary", "E")
    assert resolve("final diagnoses?", [month, day, early]).documents == frozenset({"m", "d"})
    assert resolve("first discharge summary?", [month, day, early]).documents == frozenset({"e"})
    unsure = resolve("final diagnoses?", [month, day])
    assert unsure.documents is None
    assert "do not say which one it is" in unsure.unresolved[0]


def test_addendum_belongs_to_its_summary() -> None:
    record = (*RECORD, note("d3a", "2151-06-22", "Discharge summary addendum", "C"))
    assert resolve("final diagnoses?", record).documents == frozenset({"d3", "d3a"})


def test_undated_note_is_kept_for_any_time() -> None:
    record = (*RECORD, note("u", None, "Progress note", "B"))
    found = resolve("What was the creatinine on 2150-03-06?", record)
    assert found.documents == frozenset({"d2", "o2", "p2", "r2", "u", "x"})
    assert found.explanations == ("on 2150-03-06: notes that may tell of 2150-03-06, or 1 without a time",)


def test_hospital_stays_are_ordered_by_time() -> None:
    stays = group_stays(RECORD)
    assert [stay.encounter for stay in stays] == ["A", "B", "C"]
    assert [len(stay.notes) for stay in stays] == [3, 4, 1]
    assert str(stays[1]) == "2150-03-04 to 2150-03-12"
    untimed = group_stays([*RECORD, note("u", None, "Nursing", "0")])
    assert untimed[-1].encounter == "0"


def test_partial_admission_dates_are_compared_as_ranges() -> None:
    stays = group_stays([note("b", None, "DS", "B", "2150-10"), note("a", None, "DS", "A", "2150-09-01")])
    assert [stay.encounter for stay in stays] == ["A", "B"]


def test_note_times_are_read_from_passages() -> None:
    told = {"note_type": "Discharge summary", "encounter": 7, "admitted": "2150-03-04", "discharged": "soon"}
    passages = [
        Passage(id="b#1", document_id="b", ordinal=1, start=5, end=9, text="text", date="2150-03", metadata=told),
        Passage(id="b#0", document_id="b", ordinal=0, start=0, end=4, text="text", date="2150-03", metadata=told),
        Passage(id="a#0", document_id="a", ordinal=0, start=0, end=4, text="text", date="2150-03-04T99:99"),
    ]
    assert NoteTime.from_passages(passages) == (
        NoteTime("a"),
        NoteTime("b", "2150-03", "Discharge summary", "7", "2150-03-04", None),
    )


# -- what holds of every question and record ------------------------------------------------------------------------

DATES = st.one_of(
    st.none(),
    st.dates().map(lambda day: f"{day:%Y}".zfill(4)),
    st.dates().map(lambda day: day.isoformat()[:7]),
    st.dates().map(lambda day: day.isoformat()),
    st.datetimes().map(lambda time: time.isoformat(timespec="minutes")),
)
NOTES = st.builds(
    NoteTime,
    st.sampled_from("abcdefgh"),
    DATES,
    st.sampled_from(["Discharge summary", "Radiology", "Nursing", "Operative note", "Admission note", ""]),
    st.sampled_from([None, "1", "2", "3"]),
    DATES,
    DATES,
)
QUESTIONS = st.sampled_from(
    [
        "final diagnoses?",
        "the second admission?",
        "the last two stays?",
        "on 2150-03-04?",
        "in 2000?",
        "before the last admission?",
        "after the first discharge?",
        "between the first and the last discharge?",
        "after the first stay?",
        "since the surgery?",
        "at discharge of the first stay?",
        "on admission?",
        "the last radiology report before the second admission?",
        "hospital day 2?",
        "POD 1?",
        "the admission on 2000-01-01?",
        "between 1000 and 3000, between 2000-01 and the last stay?",
    ]
)


@pytest.mark.slow
@given(QUESTIONS, st.lists(NOTES, unique_by=lambda each: each.document_id), st.randoms())
def test_note_order_does_not_change_result(question: str, notes: list[NoteTime], luck: Random) -> None:
    def mentions(words: str) -> Mapping[str, EventMentions]:
        done = EventMentions(True, (time_range("2000-03-04"),))
        return {"a": EventMentions(True), "b": done, "nowhere": done}

    found = resolve(question, notes, mentions)
    assert found.documents is None or found.documents
    assert (found.documents or frozenset()) <= {each.document_id for each in notes}
    assert not (found.documents and found.unresolved)
    assert found.documents is None or found.explanations
    shuffled = sorted(notes, key=lambda each: luck.random())
    assert resolve(question, shuffled, mentions) == found


@pytest.mark.slow
@given(st.text())
def test_any_question_is_handled(question: str) -> None:
    assert (asked(question).documents or frozenset()) <= {each.document_id for each in RECORD}


# -- the dates beneath ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("on 2150-03-04 10:30", ["2150-03-04T10:30"]),
        ("on 2150-3-4T00:05:09,", ["2150-03-04T00:05"]),
        ("[**2150-3-4**]", ["2150-03-04"]),
        ("2150/3/4", ["2150-03-04"]),
        ("in 2150-03.", ["2150-03"]),
        ("March 4th, 2150", ["2150-03-04"]),
        ("the 4th of March 2150", ["2150-03-04"]),
        ("4-Mar-2150", ["2150-03-04"]),
        ("Sept. 2150", ["2150-09"]),
        ("13/04/2150", ["2150-04-13"]),
        ("7/7/2150", ["2150-07-07"]),
        ("03/04/2150", ["2150-03-04", "2150-04-03"]),
        ("04.03.2150", ["2150-03-04"]),
        ("3/14/19", ["1919-03-14", "2019-03-14", "2119-03-14"]),
        ("2150-13-01 and 2150-02-30", []),
        ("BP 120/80, 5/5 strength, 1-2-3, version 1.2.3, in 2150", []),
    ],
)
def test_written_dates_are_parsed(text: str, readings: list[str]) -> None:
    assert [each for written in find_dates(text) for each in written.readings] == readings


def test_date_range_of_partial_date() -> None:
    assert [f"{each:%Y-%m-%dT%H:%M}" for each in time_range("2150-02")] == ["2150-02-01T00:00", "2150-02-28T23:59"]
    assert [f"{each:%H:%M}" for each in time_range("2150-02-01T10")] == ["10:00", "10:59"]
    assert time_range("2150-02-01T10:30:15+01:00")[0] == time_range("2150-02-01 10:30")[1]
    assert is_before(time_range("2150-09-01"), time_range("2150-10"))
    assert may_overlap(time_range("2150"), time_range("2150-10-01T10:30"))
    assert not may_overlap(time_range("2150-10-01T10:30"), time_range("2150-10-01T10:31"))
    for wrong in ("2150-02-01T25:00", "2150-02-01T10:61", "2150-02-01Tnoon", "soon"):
        with pytest.raises(ValueError, match="not a "):
            time_range(wrong)


@given(st.datetimes())
def test_narrower_date_lies_within_wider_date(time: object) -> None:
    written = str(time).replace(" ", "T")
    spans = [time_range(written[:length]) for length in (4, 7, 10, 13, 16)]
    for wide, narrow in pairwise(spans):
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
