"""Test question sets about patient records in their published formats. All patients are invented."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, EvidenceSpan, Question
from epicrisis.evaluation.datasets.patient_records.populations import (
    BINS,
    count_questions_and_patients,
    find_length_bin,
    select_by_length,
)
from epicrisis.evaluation.datasets.patient_records.recordset import NAMES, load_records
from epicrisis.evaluation.datasets.patient_records.source import RecordSet

IV = ("note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text")
III = (
    "ROW_ID",
    "SUBJECT_ID",
    "HADM_ID",
    "CHARTDATE",
    "CHARTTIME",
    "STORETIME",
    "CATEGORY",
    "DESCRIPTION",
    "CGID",
    "ISERROR",
    "TEXT",
)
LINE: dict[str, Any] = {
    "patient_id": 10,
    "num_notes": 2,
    "question": "Which drug was begun?",
    "answer": "B",
    "choice_A": "aspirin",
    "choice_B": "heparin",
    "choice_C": "warfarin",
    "choice_D": "none",
    "choice_E": "insulin",
}
FINDINGS = "FINDINGS: The heart is of normal size. There is a small left pleural effusion, new since the last study."
IMPRESSION = "IMPRESSION:\nSmall left effusion."


def note_iv(note_id: str, patient: str, time: str, text: str, kind: str = "DS") -> tuple[str, ...]:
    return (note_id, patient, "77", kind, "1", time, time, text)


def note_iii(row: str, patient: str, text: str, kind: str = "Radiology", error: str = "") -> tuple[str, ...]:
    return (row, patient, "", "2150-03-04", "", "", kind, "CHEST (PA & LAT)", "", error, text)


def write_table(path: Path, head: tuple[str, ...], *rows: tuple[str, ...]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows([head, *rows])
    written = text.getvalue().encode()
    path.write_bytes(gzip.compress(written) if path.suffix == ".gz" else written)
    return path


def write_file(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def documents(records: RecordSet) -> dict[str, Document]:
    return {item.id: item for item in records.notes() if isinstance(item, Document)}


def evidence_texts(records: RecordSet) -> dict[str, str]:
    """Return the text of the notes at each question's evidence."""
    texts = documents(records)
    return {q.id: texts[p.document_id].text[p.start : p.end] for q in records.questions for p in q.evidence}


def make_article(title: str, *paragraphs: dict[str, Any]) -> dict[str, Any]:
    return {"data": [{"title": title, "paragraphs": list(paragraphs)}]}


def make_question(key: str, text: str, *answers: tuple[str, int], **fields: Any) -> dict[str, Any]:
    spans = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": text, "answers": spans, **fields}


# -- EHRNoteQA --------------------------------------------------------------------------------------------------------


def write_ehrnoteqa(folder: Path, *lines: dict[str, Any]) -> Path:
    write_file(folder / "EHRNoteQA.jsonl", "\n".join(json.dumps(line) for line in lines or (LINE,)))
    write_table(
        folder / "discharge.csv.gz",
        IV,
        note_iv("10-DS-3", "10", "2151-01-01 00:00:00", "third"),
        note_iv("10-DS-2", "10", "2150-06-01 10:30:00", "second: heparin"),
        note_iv("10-DS-1", "10", "2150-01-01 00:00:00", "first"),
        note_iv("99-DS-1", "99", "2150-01-01 00:00:00", "another's"),
    )
    write_table(folder / "radiology.csv", IV, note_iv("10-RR-1", "10", "2150-05-01 08:00:00", "clear lungs", "RR"))
    return folder


@pytest.mark.parametrize("key", ["topic", "category"])
def test_ehrnoteqa_topic_of_the_file_is_the_category(tmp_path: Path, key: str) -> None:
    (question,) = load_records(write_ehrnoteqa(tmp_path, {**LINE, key: "Treatment"})).questions
    assert question.category == "Treatment"


def test_ehrnoteqa_uses_first_summaries_and_leaves_out_other_patients(tmp_path: Path) -> None:
    records = load_records(write_ehrnoteqa(tmp_path))
    assert records.questions == (
        Question(
            text="Which drug was begun?",
            options={"A": "aspirin", "B": "heparin", "C": "warfarin", "D": "none", "E": "insulin"},
            form="choice",
            id="10",
            gold="B",
            gold_documents=("note:10-DS-1", "note:10-DS-2"),
            patient="10",
        ),
    )
    assert records.note_types == {"discharge summary"}
    assert (records.name, records.notices) == ("ehrnoteqa", ())
    result = documents(records)
    assert set(result) == {"note:10-DS-1", "note:10-DS-2", "note:10-DS-3", "note:10-RR-1"}
    assert result["note:10-DS-2"] == Document(
        id="note:10-DS-2",
        text="second: heparin",
        title="Discharge summary, 2150-06-01",
        source="notes",
        date="2150-06-01T10:30",
        patient="10",
        metadata={"note_type": "discharge summary", "encounter": "77"},
    )
    assert set(documents(records)) == set(result), "the notes are read anew at each call"


def test_ehrnoteqa_open_has_no_options(tmp_path: Path) -> None:
    records = load_records(write_ehrnoteqa(tmp_path), "ehrnoteqa-open")
    (question,) = records.questions
    assert (question.options, question.form, question.gold) == ({}, "open", "heparin")


def test_ehrnoteqa_with_missing_summaries_reports_patients(tmp_path: Path) -> None:
    records = load_records(write_ehrnoteqa(tmp_path, {**LINE, "num_notes": 3, "patient_id": 99}, LINE))
    assert records.notices == ("1 of 2 patients has fewer discharge summaries here than there should be",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LINE, "answer": "F"}, "line 1: not a question of EHRNoteQA: wrong at answer"),
        ({**LINE, "choice_E": None}, "wrong at choice_E"),
        ({"patient_id": 10}, "wrong at num_notes"),
    ],
)
def test_ehrnoteqa_with_invalid_line_raises_input_error(tmp_path: Path, line: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_records(write_ehrnoteqa(tmp_path, line))


def test_ehrnoteqa_without_notes_names_required_file(tmp_path: Path) -> None:
    write_file(tmp_path / "EHRNoteQA.jsonl", json.dumps(LINE))
    with pytest.raises(InputError, match=r"put MIMIC-IV-Note's discharge\.csv\.gz"):
        load_records(tmp_path)


# -- EHR-DS-QA --------------------------------------------------------------------------------------------------------

NOTE: dict[str, Any] = {
    "original_id": 1,
    "note": "Discharged on aspirin.",
    "extended_context": False,
    "note_id": "20-DS-1",
    "subject_id": 20,
    "hadm_id": 5,
    "note_type": "DS",
    "human_verified": True,
    "qa_pairs": [
        {"question": "Which drug?", "answer": "aspirin", "correct": True},
        {"question": "Which dose?", "answer": "5 g", "correct": False},
    ],
}
UNSEEN = {**NOTE, "note_id": "30-DS-1", "human_verified": False, "qa_pairs": [{"question": "?", "answer": "x"}]}


@pytest.mark.parametrize("form", ["json", "csv"])
def test_ehr_ds_qa_keeps_pairs_marked_correct(tmp_path: Path, form: str) -> None:
    if form == "json":
        write_file(tmp_path / "discharge_notes_qa.json", [UNSEEN, NOTE])
    else:
        rows = [tuple(str(note[key]) for key in NOTE) for note in (UNSEEN, NOTE)]
        write_table(tmp_path / "discharge_notes_qa.csv", tuple(NOTE), *rows)
    records = load_records(tmp_path)
    assert records.questions == (
        Question(text="Which drug?", id="20-DS-1:1", gold="aspirin", gold_documents=("note:20-DS-1",), patient="20"),
    )
    assert records.notices[0] == "1 of 2 reviewed pairs is marked correct; the rest is left out"
    assert "the notes asked about are the record" in records.notices[1]
    (only,) = documents(records).values()
    assert (only.text, only.patient, only.metadata["encounter"]) == ("Discharged on aspirin.", "20", "5")


def test_ehr_ds_qa_with_mimic_notes_has_whole_record(tmp_path: Path) -> None:
    write_file(tmp_path / "discharge_notes_qa.json", [NOTE])
    rows = [
        note_iv("20-DS-1", "20", "2150-01-01", "Discharged on aspirin."),
        note_iv("20-DS-2", "20", "2151-01-01", "later"),
    ]
    write_table(tmp_path / "discharge.csv", IV, *rows)
    records = load_records(tmp_path, "ehr-ds-qa", "table-1")
    assert set(documents(records)) == {"note:20-DS-1", "note:20-DS-2"}
    assert records.note_types == {"discharge summary"}
    assert len(records.notices) == 1


def test_ehr_ds_qa_with_damaged_file_raises_input_error(tmp_path: Path) -> None:
    path = write_file(tmp_path / "discharge_notes_qa.json", [{**NOTE, "qa_pairs": "none"}])
    with pytest.raises(InputError, match=r"note 1: wrong at qa_pairs; fetch it again"):
        load_records(path)
    write_file(path, {"notes": []})
    with pytest.raises(InputError, match="it is not a list of notes"):
        load_records(path)
    write_file(path, [NOTE, NOTE])
    with pytest.raises(InputError, match="note 2: its note_id occurs twice"):
        load_records(path)


# -- RadQA ------------------------------------------------------------------------------------------------------------


def make_radqa(title: str = "541", patient: str = "") -> dict[str, Any]:
    return make_article(
        title + patient,
        {
            "document_id": f"{title}_I",
            "context": IMPRESSION,
            "qas": [
                make_question(f"{title}_I_1", "Is there an effusion?", ("Small left effusion", 12), is_impossible=False)
            ],
        },
        {
            "document_id": f"{title}_O",
            "context": FINDINGS,
            "qas": [
                make_question(
                    f"{title}_O_1", "Is there an effusion?", ("small left pleural effusion", 50), ("effusion", 69)
                ),
                make_question(f"{title}_O_2", "Is there a fracture?", is_impossible=True),
            ],
        },
    )


def test_radqa_keeps_unanswerable_questions_with_notice(tmp_path: Path) -> None:
    write_file(tmp_path / "train.json", make_radqa())
    write_file(tmp_path / "dev.json", make_radqa("542"))
    records = load_records(tmp_path)
    assert [(q.id, q.gold, q.other_answers, q.category) for q in records.questions[:3]] == [
        ("541_O_1", "small left pleural effusion", ("effusion",), ""),
        ("541_O_2", "", (), "absence"),
        ("541_I_1", "Small left effusion", (), ""),
    ]
    assert {q.form for q in records.questions} == {"extractive"}
    assert evidence_texts(records)["541_O_1"] == "small left pleural effusion"
    assert evidence_texts(records)["541_I_1"] == "Small left effusion"
    alone = documents(records)["note:radqa:541"]
    assert [alone.text[start:end] for start, end, _ in alone.metadata["sections"]] == [FINDINGS, IMPRESSION]
    assert "each report alone is its record" in records.notices[-1]
    assert [q.id for q in load_records(tmp_path, population="answerable").questions] == [
        "541_O_1",
        "541_I_1",
        "542_O_1",
        "542_I_1",
    ]
    assert [q.id for q in load_records(tmp_path, population="table-1").questions] == ["541_O_1", "541_I_1"]


def test_radqa_question_answered_by_other_section_is_not_unanswerable(tmp_path: Path) -> None:
    value = make_radqa()
    impression, findings = value["data"][0]["paragraphs"]
    findings["qas"][0] = make_question("541_O_1", impression["qas"][0]["question"], is_impossible=True)
    write_file(tmp_path / "train.json", value)
    records = load_records(tmp_path)
    assert [(q.id, q.gold) for q in records.questions] == [("541_O_2", ""), ("541_I_1", "Small left effusion")]
    assert sum(notice.startswith("1 question that one part of a report does not answer") for notice in records.notices)


def test_radqa_links_report_to_patient_notes(tmp_path: Path) -> None:
    write_file(tmp_path / "train.json", make_radqa())
    broken = FINDINGS.replace(" is ", "  is\n ")
    report = f"[**2150-3-4**] 8:02 AM\n CHEST\n========\n {broken}\n\n {IMPRESSION}"
    write_table(
        tmp_path / "NOTEEVENTS.csv",
        III,
        note_iii("1", "7", report),
        note_iii("2", "7", "Later note.", "Nursing"),
        note_iii("3", "7", "wrong", error="1"),
        note_iii("4", "8", "FINDINGS: The heart is of normal size. There is nothing else."),
    )
    records = load_records(tmp_path)
    assert {(q.patient, q.gold_documents) for q in records.questions} == {("7", ("note:1",))}
    assert set(documents(records)) == {"note:1", "note:2"}
    assert evidence_texts(records)["541_O_1"] == "small left pleural effusion"
    assert records.notices == ()


def test_radqa_leaves_out_unlinked_and_ambiguous_reports_with_notice(tmp_path: Path) -> None:
    both = (
        make_radqa()["data"]
        + make_article("9", {"context": "Nobody wrote this report of nine words down.", "qas": []})["data"]
    )
    write_file(tmp_path / "train.json", {"data": both})
    report = f"{FINDINGS}\n{IMPRESSION}"
    write_table(tmp_path / "NOTEEVENTS.csv", III, note_iii("1", "7", report), note_iii("2", "8", report))
    with pytest.raises(InputError, match="no question of radqa is in the population all"):
        load_records(tmp_path)
    write_table(tmp_path / "NOTEEVENTS.csv", III, note_iii("1", "7", report), note_iii("2", "7", report))
    records = load_records(tmp_path)
    assert len(records.questions) == 3
    assert records.notices == ("1 of 2 reports is left out: no note is found that is the report",)


# -- CliniQG4QA -------------------------------------------------------------------------------------------------------


def test_cliniqg4qa_loads_with_and_without_notes(tmp_path: Path) -> None:
    text = "Admitted with chest pain. Treated with heparin for five days, then warfarin at discharge."
    paragraph = {
        "context": text.lower(),
        "qas": [
            make_question(
                "1001", "how was he treated?", ("heparin for five days", 39), ("warfarin", 67), ("heparin", 39)
            )
        ],
    }
    write_file(tmp_path / "test.final.json", make_article("Admission Date", paragraph))
    alone = load_records(tmp_path)
    (question,) = alone.questions
    assert (question.gold, question.other_answers) == ("heparin for five days", ("warfarin", "heparin"))
    assert (question.patient, evidence_texts(alone)) == ("cliniqg4qa:1", {"1001": "heparin for five days"})
    write_table(
        tmp_path / "NOTEEVENTS.csv.gz", III, note_iii("5", "3", text.replace(". ", ".\n\n"), "Discharge summary")
    )
    linked = load_records(tmp_path, "cliniqg4qa", "table-1")
    (question,) = linked.questions
    assert (question.patient, question.gold_documents) == ("3", ("note:5",))
    assert evidence_texts(linked) == {"1001": "heparin for five days"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "it is not JSON in UTF-8"),
        ({"version": 1}, "not CliniQG4QA's test set: wrong at data"),
        (
            make_article("t", {"context": "x", "qas": [{"id": 1, "answers": []}]}),
            r"wrong at data\.0\.paragraphs\.0\.qas\.0",
        ),
    ],
)
def test_squad_file_with_invalid_form_raises_input_error(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_records(write_file(tmp_path / "test.final.json", content))


# -- COVID-QA ---------------------------------------------------------------------------------------------------------


def test_covid_qa_answer_is_read_at_nearest_offset(tmp_path: Path) -> None:
    context = "It began in May. It ended in June, and in June it was over."
    write_file(
        tmp_path / "covidQA.json",
        {
            "data": [
                {
                    "paragraphs": [
                        {
                            "context": context,
                            "document_id": 12,
                            "qas": [
                                make_question("1", "When did it end?", ("in June", 26)),
                                make_question("2", "When over?", (" in June ", 37)),
                                make_question("3", "When?", (" in May", 8)),
                                make_question("4", "Who?", ("nobody", 3)),
                                make_question("5", "When, again?", (" in June", 39)),
                            ],
                        }
                    ]
                }
            ],
        },
    )
    records = load_records(tmp_path)
    places = {q.id: (q.gold, q.evidence) for q in records.questions}
    note = "note:covid_qa:12"
    assert places == {
        "1": ("in June", (EvidenceSpan(note, 26, 33),)),
        "2": ("in June", (EvidenceSpan(note, 39, 46),)),
        "3": ("in May", (EvidenceSpan(note, 9, 15),)),
        "4": ("nobody", ()),
        "5": ("in June", (EvidenceSpan(note, 39, 46),)),
    }
    assert records.notices == (
        "1 of 5 answers is not at the stated offset: the nearest place was used",
        "1 of 5 answers is not in the text: the place is unknown",
    )


@pytest.mark.data
def test_covid_qa_on_real_file_has_expected_counts(data_folder: Path) -> None:
    records = load_records(data_folder / "covid_qa")
    assert count_questions_and_patients(records.questions) == (1380, 98)
    assert records.notices == ("38 of 1,380 answers are not at the stated offset: the nearest place was used",)
    result = evidence_texts(records)
    assert all(result.values())
    assert {q.id: q.gold for q in records.questions} == result
    assert len(documents(records)) == 98
    assert records.licence == "Apache-2.0"
    with pytest.raises(InputError, match="table-1 of the EHR study is not about covid-qa"):
        load_records(data_folder / "covid_qa", population="table-1")


# -- generated --------------------------------------------------------------------------------------------------------


def write_generated(folder: Path, **change: Any) -> Path:
    head = ("subject_id", "hadm_id", "note_id", "charttime", "note_type", "text", "admittime", "dischtime")
    row = ("p1", "s1", "n1", "2150-03-04T10:30", "Progress note", "Given 5 mg.", "2150-03-01", "2150-03-09T12:00")
    (folder / "record").mkdir(exist_ok=True)
    write_table(folder / "record" / "notes.csv", head, row, ("p2", "", "n2", "", "Letter", "Not asked about.", "", ""))
    place = {"document_id": "note:n1", "start": 6, "end": 10}
    line = {
        "id": "q1",
        "text": "How much?",
        "form": "extractive",
        "gold": "5 mg",
        "patient": "p1",
        "evidence": [place],
        "gold_documents": ["note:n1"],
        "category": "specific-fact",
    }
    write_file(folder / "questions.jsonl", json.dumps({**line, **change}))
    return folder


def test_generated_folder_loads_question_and_note(tmp_path: Path) -> None:
    records = load_records(write_generated(tmp_path))
    (question,) = records.questions
    assert (question.form, question.category, evidence_texts(records)) == (
        "extractive",
        "specific-fact",
        {"q1": "5 mg"},
    )
    assert documents(records)["note:n1"].metadata == {
        "note_type": "Progress note",
        "encounter": "s1",
        "admitted": "2150-03-01",
        "discharged": "2150-03-09T12:00",
    }
    assert set(documents(records)) == {"note:n1"}
    assert records.note_types == frozenset()


def test_generated_folder_with_missing_parts_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="question 'q1' names no patient"):
        load_records(write_generated(tmp_path, patient=None))
    with pytest.raises(InputError, match=r"line 1: text: empty"):
        load_records(write_generated(tmp_path, text=" "))
    (write_generated(tmp_path) / "record" / "notes.csv").unlink()
    with pytest.raises(InputError, match=r"no record/notes\.csv in its folder"):
        load_records(tmp_path)


# -- populations and lengths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("population", ["table-3", "8k-and-longer"])
def test_select_by_length_applies_population_limits(tmp_path: Path, population: str) -> None:
    """A record of just 8K tokens is long enough, one of 7,999 is not, and one without notes is not either."""
    records = load_records(write_ehrnoteqa(tmp_path), population=population)
    assert len(records.questions) == 1
    assert select_by_length(records.questions, population, {"10": 8000}) == records.questions
    assert select_by_length(records.questions, population, {"10": 7999}) == ()
    assert select_by_length(records.questions, population, {}) == ()
    assert select_by_length(records.questions, "4k-and-longer", {"10": 4000}) == records.questions
    assert select_by_length(records.questions, "all", {}) == records.questions


def test_load_records_with_unsupported_population_names_options(tmp_path: Path) -> None:
    """Table 3 is about EHRNoteQA and EHR-DS-QA, Table 4 about RadQA and CliniQG4QA; none about what is generated."""
    for name in "abc":
        (tmp_path / name).mkdir()
    write_ehrnoteqa(tmp_path / "a")
    write_file(tmp_path / "b" / "train.json", make_radqa())
    write_generated(tmp_path / "c")
    for folder, name, population in (
        ("a", "ehrnoteqa", "table-4"),
        ("b", "radqa", "table-3"),
        ("c", "generated", "table-3"),
        ("c", "generated", "table-2"),
    ):
        message = (
            f"^{population} of the EHR study is not about {name}: .* all, answerable, 8k-and-longer, 4k-and-longer$"
        )
        with pytest.raises(InputError, match=message):
            load_records(tmp_path / folder, population=population)
    assert load_records(tmp_path / "b", population="table-4").questions
    assert load_records(tmp_path / "c", population="4k-and-longer").questions
    with pytest.raises(InputError, match="no population is called 'table-9': known are all, answerable, 8k-and"):
        load_records(tmp_path / "a", population="table-9")


def test_find_length_bin_at_the_limits() -> None:
    tokens = (0, 7999, 8000, 15999, 16000, 31999, 32000, 128000, 128001)
    assert [find_length_bin(token) for token in tokens] == [BINS[at] for at in (0, 0, 1, 1, 2, 2, 3, 3, 4)]


# -- the door ---------------------------------------------------------------------------------------------------------


def test_load_records_identifies_set_by_name_or_files(tmp_path: Path) -> None:
    other = write_file(tmp_path / "mine.json", make_radqa())
    assert load_records(other, "radqa").name == "radqa"
    with pytest.raises(InputError, match=r"mine\.json: no set of records \(generated, generated-facts, .*as published"):
        load_records(other)
    with pytest.raises(InputError, match="no file of covid-qa in it"):
        load_records(tmp_path, "covid-qa")
    with pytest.raises(InputError, match="no set of records is called 'emrqa': known are generated"):
        load_records(other, "emrqa")
    with pytest.raises(InputError, match="no such file or folder"):
        load_records(tmp_path / "none")
    assert set(NAMES) >= {"ehrnoteqa", "ehr-ds-qa", "radqa", "cliniqg4qa", "covid-qa", "generated"}


def test_load_records_with_repeated_ids_raises_input_error(tmp_path: Path) -> None:
    twice = make_radqa()["data"] * 2
    with pytest.raises(InputError, match="3 question ids occur twice"):
        load_records(write_file(tmp_path / "train.json", {"data": twice}))
