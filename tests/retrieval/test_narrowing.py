"""What narrowing by time leaves out never holds the evidence: questions as clinicians ask them, and generated ones."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from epicrisis.core.types import Passage
from epicrisis.retrieval.event_mentions import find_event_mentions, find_notes_with_date
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.timeline import Resolution, resolve
from tests.support.narrowing import FORMS, MAKERS, UNDERSTOOD, question_of, record_of

A, B, C = ("A", "2014-03-03", "2014-03-10"), ("B", "2016-06-01", "2016-06-15"), ("C", "2018-11-20", "2018-11-28")
RECORD = (
    NoteTime("a-hp", "2014-03-03T18:40", "Admission note", *A),
    NoteTime("a-lab1", "2014-03-03T06:10", "Laboratory report", *A),
    NoteTime("a-ct", "2014-03-05T11:00", "Radiology report", *A),
    NoteTime("a-nurse", "2014-03-06T22:15", "Nursing note", *A),
    NoteTime("a-lab2", "2014-03-10T06:05", "Laboratory report", *A),
    NoteTime("a-dc", "2014-03-12", "Discharge summary", *A),  # dictated two days after
    NoteTime("a-path", "2014-03-19", "Pathology report"),  # signed nine days after, and names no stay
    NoteTime("letter15", "2015-04-20", "Outpatient letter"),
    NoteTime("lab15", "2015-04-20", "Laboratory report"),
    NoteTime("b-ed", "2016-05-31T23:50", "Emergency department note"),  # the evening before
    NoteTime("b-hp", "2016-06-01T02:10", "Admission note", *B),
    NoteTime("b-lab1", "2016-06-01T02:30", "Laboratory report", *B),
    NoteTime("b-op", "2016-06-05", "Operative note", *B),  # of the day before
    NoteTime("b-nurse", "2016-06-08T14:00", "Nursing note", *B),
    NoteTime("b-lab2", "2016-06-15T05:45", "Laboratory report", *B),
    NoteTime("b-dc", "2016-06-30", "Discharge summary", *B),  # dictated two weeks after
    NoteTime("letter17", "2017-02-10", "Outpatient letter"),
    NoteTime("lab17", "2017-02-10", "Laboratory report"),
    NoteTime("ct17", "2017-09-01", "Radiology report"),
    NoteTime("c-hp", "2018-11-20", "Admission note", *C),
    NoteTime("c-lab1", "2018-11-20T09:00", "Laboratory report", *C),
    NoteTime("c-echo", "2018-11-22", "Echocardiogram", *C),
    NoteTime("c-nurse", "2018-11-24T06:00", "Nursing note", *C),
    NoteTime("c-lab2", "2018-11-28T06:00", "Laboratory report", *C),
    NoteTime("c-dc", "2018-11-28", "Discharge summary", *C),
    NoteTime("letter19", "2019-03-01", "Outpatient letter"),
    NoteTime("undated", None, "Progress note"),
)
TEXTS = {
    "b-op": "Operative note. Left hip replacement. Surgery of 2016-06-04.",
    "b-dc": "She underwent surgery on 2016-06-04: left hip replacement.",
    "letter17": "Recovering from surgery. Creatinine in 2014 had been 1.1.",
    "c-hp": "s/p left hip replacement.",
}
PASSAGES = [
    Passage(id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text)
    for name, text in TEXTS.items()
]
ALL = {note.document_id for note in RECORD}


def asked(question: str) -> Resolution:
    return resolve(
        question,
        RECORD,
        lambda words: find_event_mentions(words, PASSAGES),
        lambda time, years: find_notes_with_date(time, PASSAGES, years),
    )


# A question; the notes that may hold what it asks for; some that it is not about, none where all are to be read.
CASES = [
    # The faults that were found.
    ("Where was the patient discharged to after the final admission?", "c-dc", "a-dc b-nurse lab17"),
    ("Where was the patient discharged to after the second admission?", "b-dc b-nurse", "a-dc c-nurse lab17"),
    ("What was the sodium on the day of discharge from the second admission?", "b-lab2 b-dc", "b-lab1 a-lab2 c-lab2"),
    ("What was the potassium on the day of discharge?", "a-lab2 b-lab2 c-lab2", "b-lab1 lab17"),
    ("What changed between 2015 and 2017?", "letter15 lab15 b-hp b-dc letter17 ct17", "a-lab1 c-lab1"),
    ("Was creatinine higher in 2016 than in 2014?", "b-lab1 b-lab2 a-lab1 a-lab2 letter17", "lab15 lab17"),
    ("Any imaging until 2018 or later?", "a-ct ct17 c-echo letter19", ""),
    ("Was the creatinine lower in 2014 or 2016?", "a-lab1 b-lab2", ""),
    ("Creatinine in 2014 versus 2016?", "a-lab1 a-lab2 b-lab1 b-lab2", "lab15 lab17 c-lab1"),
    ("Any imaging in 2018 or later?", "c-echo letter19", "a-ct ct17"),
    ("Any imaging in 2015 or earlier?", "a-ct letter15", "ct17 c-echo"),
    # Borders.
    ("How was she two days after surgery?", "b-nurse b-op b-dc", "a-nurse lab15"),
    ("What was the hemoglobin before surgery?", "b-lab1 b-hp b-dc", "lab17 ct17 c-lab2"),
    ("What did the pathology of the first admission show?", "a-path a-dc", "b-nurse ct17 c-echo"),
    ("Why did she come to the emergency department before the second admission?", "b-ed b-hp b-dc", "lab17 ct17"),
    ("What was the weight the week before the last admission?", "ct17 letter17 c-hp", ""),
    ("What has been found since the second stay?", "b-dc letter17 ct17 c-echo letter19", "a-ct lab15"),
    ("What did the operation on June 4, 2016 show?", "b-op b-dc", "a-dc c-nurse lab17"),
    ("What was measured by 2014-03-05?", "a-lab1 a-ct a-hp", "b-nurse lab17"),
    ("Which drugs was she discharged on from the 2nd hospitalization?", "b-dc", "a-nurse c-nurse"),
    ("What was done on 2014-03-10?", "a-lab2 a-dc", "b-op c-lab1"),
    ("What was the creatinine in June 2016?", "b-lab1 b-lab2 b-dc", "lab15 lab17"),
    ("Creatinine in 2014?", "a-lab1 a-lab2 letter17", "lab15 c-lab1 lab17"),
    ("What was found from 2014 to 2016?", "a-ct letter15 b-dc", "ct17 c-echo"),
    ("Imaging 2014-2017?", "a-ct ct17", "c-echo"),
    ("Imaging in 2016–17?", "ct17 b-op", "a-ct c-echo"),
    ("What happened through 2015?", "a-hp letter15", "ct17 c-nurse"),
    ("What happened from 2017 onwards?", "letter17 ct17 c-hp letter19", "a-ct lab15"),
    ("What was given until the end of 2016?", "b-nurse b-dc a-nurse", "lab17 c-nurse"),
    ("What was prescribed in early 2014?", "a-dc a-nurse", "lab17"),
    ("What was seen on hospital day 3 of the first admission?", "a-ct a-dc", "b-nurse c-echo"),
    ("How was she on the first day of the last admission?", "c-hp c-lab1", "a-hp b-lab1"),
    ("What was her weight on admission for the second stay?", "b-hp b-lab1", "b-lab2 a-lab1"),
    ("What did the last echocardiogram report show?", "c-echo", "a-ct ct17"),
    ("What did the first radiology report show?", "a-ct", "ct17 b-nurse"),
    ("What were the final diagnoses?", "c-dc", "a-dc b-dc"),
    (
        "Which drugs were given between the first and the last admission?",
        "a-nurse letter15 b-nurse letter17 c-nurse",
        "",
    ),
    ("Creatinine at the first discharge?", "a-lab2 a-dc", "c-lab1 lab17"),
    ("How did the creatinine go from the first to the last day of the second admission?", "b-lab1 b-lab2", "a-lab1"),
    ("What was new in the note of 10 February 2017?", "letter17", ""),
    ("What happened by the second admission?", "a-nurse letter15 b-hp b-ed", "lab17 ct17"),
    ("Which drugs were started in the second admission?", "b-nurse b-dc", "a-nurse lab17 c-nurse"),
    ("Was a nodule seen in the first admission?", "a-ct a-dc", "lab15 ct17"),
    ("In the second admission, what was prescribed?", "b-nurse b-dc", "a-nurse lab17"),
    # What is not understood leaves nothing out.
    ("Was the drain placed in the second admission removed?", "b-nurse letter17", ""),
    ("What was done about the nodule found in the first admission?", "a-ct letter15 ct17", ""),
    ("Who follows the nodule seen in 2014?", "a-ct letter15", ""),
    ("Is the lesion seen in 2017 gone?", "ct17 c-echo letter19", ""),
    ("Which complications followed the surgery in 2016?", "b-dc ct17", ""),
    ("Did the surgery in 2016 help?", "b-dc ct17 letter17", ""),
    ("What was her creatinine when she was admitted in 2016?", "b-lab1", ""),
    ("Is the creatinine of the second admission still elevated?", "letter17 c-lab1", ""),
    ("Was the creatinine higher in the second admission?", "a-lab1 b-lab1 c-lab1", ""),
    ("Did the fever of the first admission come back later?", "b-nurse c-nurse", ""),
    ("What was given in the second admission and at the clinic?", "b-nurse letter17", ""),
    ("Which drugs of the first admission were continued?", "a-dc letter15", ""),
    ("What was the creatinine in 2014 and what is it now?", "a-lab1 letter19", ""),
    ("What was the creatinine in 2014 and the year after?", "a-lab1 lab15", ""),
    ("What was the creatinine in the admissions other than the second admission?", "a-lab1 c-lab1", ""),
    ("Which imaging was done except in 2014?", "ct17 c-echo", ""),
    ("Was aspirin not started until 2016?", "b-dc letter17", ""),
    ("What happened around 2015?", "letter15 a-dc", ""),
    ("Did she have more pain in the last admission than before?", "a-nurse b-nurse c-nurse", ""),
    ("What did she weigh in the spring of the first admission's year?", "a-hp letter15", ""),
    ("Was the mass of the first admission seen again in '17?", "a-ct ct17", ""),
    ("What was found in the first admission in 2016?", "b-hp b-dc", ""),
    ("What was found in the last admission before 2017?", "b-hp b-dc", ""),
    ("Was the hip replaced before or after the second admission?", "b-op", ""),
    ("How did she do on day 3 and at follow-up of the second stay?", "b-nurse letter17", ""),
    ("Was the third ECG of the second admission normal, and the previous one?", "b-hp a-hp", ""),
    ("Which antibiotic was given in the second admission, then at home?", "b-nurse letter17", ""),
    ("Did the creatinine of 2014-03-10 fall by the next visit?", "a-lab2 letter15", ""),
    ("Was the dose of the second discharge the same as today?", "b-dc letter19", ""),
    ("What was the weight at discharge and three months later?", "c-dc letter19", ""),
    ("Compare the last creatinine with that of 2014.", "a-lab2 c-lab2", ""),
    ("Was her blood pressure lower on 3/5 than on 2014-03-03?", "a-lab1 a-ct", ""),
    ("What was stopped during the second stay or since?", "b-dc letter17 c-hp", "a-nurse"),
    ("Which of the problems of the second admission persisted in 2018?", "b-dc c-hp c-dc", ""),
    ("Did she see cardiology within a year of the first discharge?", "letter15", ""),
    ("Was there any fracture in her twenties or in 2016?", "c-hp b-dc", ""),
    ("In 2010-12, was there any imaging?", "a-ct", ""),
    ("What was the creatinine on 04/03/2014?", "a-lab1 a-hp", ""),
    ("How many times was she admitted between 2014 and 2018?", "a-hp b-hp c-hp", ""),
    ("What happened in May and in June 2016?", "b-ed b-hp", ""),
    ("Summarize the second admission and every radiology report.", "b-dc a-ct ct17", ""),
    # A note on the border of a range need not be the first or last that is meant.
    ("What does the last discharge summary before 2018 say?", "b-dc", "a-dc b-nurse"),
    ("What does the first discharge summary after 2016 say?", "c-dc", "a-dc"),
    ("What did the last admission note before November 2018 say?", "b-hp", "a-hp"),
    ("What did the last nursing note before the second admission say?", "a-nurse", "c-nurse"),
    ("What did the first nursing note after the first admission say?", "b-nurse", "c-nurse"),
    ("What did the last radiology report before 2017 show?", "a-ct", "c-echo"),
    ("What did the first radiology report after March 2014 show?", "ct17", "b-nurse"),
    # The time is of a thing, and what became of it is asked.
    ("What did the scan ordered in the first admission show?", "a-ct ct17", ""),
    ("What was the result of the cultures pending at the first discharge?", "letter15 lab15", ""),
    ("How did the nodule seen in March 2014 develop?", "ct17", ""),
    ("When did the stitches of the second admission come out?", "letter17", ""),
    ("Who took out the stitches from the second admission?", "letter17", ""),
    ("Does she tolerate the drug started in the second admission?", "letter17", ""),
    ("Did she stop the drug started in the first admission?", "letter15", ""),
    ("Did the nodule from 2014 turn out benign?", "ct17", ""),
    ("Has the patient had the colonoscopy recommended in the second discharge summary?", "letter17", ""),
    ("What was found in 2014, 16 and 18?", "a-ct c-echo", ""),
]


@pytest.mark.parametrize(("question", "evidence", "others"), CASES)
def test_clinician_question_keeps_notes_with_answer(question: str, evidence: str, others: str) -> None:
    found = asked(question)
    kept = ALL if found.documents is None else found.documents
    assert set(evidence.split()) <= ALL
    assert set(evidence.split()) <= kept, found
    assert "undated" in kept or re.search(r"report|diagnoses|(?:first|last) \w+ (?:note|summary)", question)
    assert not set(others.split()) & kept, found


def test_question_not_understood_names_word() -> None:
    found = asked("What did the fever of the first stay later turn into?")
    assert found.documents is None
    assert found.unresolved == ("later: it may speak of another time",)


QUESTIONS, RECORDS = 10_000, 250


@pytest.mark.long
def test_generated_questions_keep_evidence() -> None:
    draw = Random(12)
    narrowed, all_of = Counter[str](), Counter[str]()
    for _ in range(RECORDS):
        record = record_of(draw)
        notes = {note.document_id for note in record.notes}
        for number in range(QUESTIONS // RECORDS):
            maker = MAKERS[number % len(MAKERS)]
            question, evidence = question_of(record, draw, maker)
            found = resolve(question, record.notes)
            left_out = frozenset() if found.documents is None else notes - found.documents
            assert not evidence & left_out, (question, evidence & left_out, found, record)
            all_of[maker.__name__] += 1
            narrowed[maker.__name__] += bool(left_out)
    # What is understood is narrowed all the same; a filter that leaves nothing out would prove nothing.
    for maker in UNDERSTOOD:
        assert narrowed[maker.__name__] > all_of[maker.__name__] / 2, maker.__name__
    assert len(FORMS) > 10
