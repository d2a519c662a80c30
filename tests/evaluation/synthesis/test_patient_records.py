"""Test generated records: deterministic, with questions whose evidence is where they state it."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.document_answers import SpanFormat
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import fence, render
from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.core.types import Document, Passage, Question
from epicrisis.corpus.base.note_cleaning import clean_text
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_tables import NoteColumns
from epicrisis.evaluation.synthesis.patient_records.facts import extract_spans, mark_fact, ordinal
from epicrisis.evaluation.synthesis.patient_records.fictional_record import estimate_tokens, make_record
from epicrisis.evaluation.synthesis.patient_records.note_writing import FICTIONAL, KINDS
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.record_folder import (
    COLUMNS,
    NOTES,
    QUESTIONS,
    README,
    write_records,
)
from epicrisis.evaluation.synthesis.patient_records.record_questions import CATEGORIES, FORMS, UNSAID
from epicrisis.evaluation.synthesis.patient_records.vocabulary import (
    acute_conditions,
    chronic_conditions,
    drugs,
    labs,
)
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.system.local_only import HAS_OWNERS
from epicrisis.testing.chat import ScriptedModel
from tests.support.position_biased_reader import find_key_passages, position_biased_reader

LENGTHS = (4000, 8000, 16000, 32000)
EACH = 42


@dataclass(frozen=True)
class GeneratedFolder:
    """Hold a written folder: rows of notes, their texts by document id, lines of questions."""

    folder: Path
    rows: list[dict[str, str]]
    texts: dict[str, str]
    lines: list[dict[str, Any]]

    def of(self, patient: str) -> dict[str, str]:
        """Return the patient's notes in order."""
        return {f"note:{row['note_id']}": row["text"] for row in self.rows if row["subject_id"] == patient}


def read_folder(folder: Path) -> GeneratedFolder:
    csv.field_size_limit(10**8)
    with (folder / NOTES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (folder / QUESTIONS).read_text(encoding="utf-8").splitlines()]
    return GeneratedFolder(folder, rows, {f"note:{row['note_id']}": row["text"] for row in rows}, lines)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> GeneratedFolder:
    folder = tmp_path_factory.mktemp("records") / "made"
    write_records(folder, 8, LENGTHS, questions_each=EACH)
    return read_folder(folder)


def get_answer(line: dict[str, Any]) -> str:
    return str(line["options"][line["gold"]] if "options" in line else line["gold"])


def list_evidence_texts(generated: GeneratedFolder, line: dict[str, Any]) -> list[str]:
    return [generated.texts[item["document_id"]][item["start"] : item["end"]] for item in line["evidence"]]


@pytest.mark.skipif(not HAS_OWNERS, reason="Windows has no modes of files")
def test_records_in_existing_folder_are_private_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    before = os.umask(0)
    try:
        write_records(tmp_path, 1, [4000], structured=("fhir", "omop", "ccda"))
    finally:
        os.umask(before)
    paths = [tmp_path, *tmp_path.rglob("*")]
    assert len(paths) > 10
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


@pytest.mark.slow
def test_write_records_is_deterministic_across_processes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from epicrisis.evaluation.synthesis.patient_records.record_folder import write_records;"
        "write_records(Path(sys.argv[1]), 2, [4000, 9000], seed=3)"
    )
    digests = []
    for hash_seed in ("0", "1"):
        folder = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=environment)
        digests.append(
            [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (NOTES, QUESTIONS, README)]
        )
    assert digests[0] == digests[1]
    write_records(tmp_path / "other", 2, [4000, 9000], seed=4)
    assert (tmp_path / "other" / NOTES).read_bytes() != (tmp_path / "0" / NOTES).read_bytes()


def test_draws_are_pinned() -> None:
    draws = Draws("a", 1)
    assert [draws.integer(1, 100) for _ in range(3)] == [97, 93, 1]
    assert sorted(Draws("b").sample(range(9), 9)) == list(range(9))
    filled = Draws("c").fill("{He} took {2..2} or {0.5..0.5} of {x|x}", He="She")
    assert filled == "She took 2 or 0.5 of x"


@pytest.mark.slow
def test_record_is_independent_of_number_of_records(generated: GeneratedFolder, tmp_path: Path) -> None:
    write_records(tmp_path / "one", 1, LENGTHS, questions_each=EACH)
    first = read_folder(tmp_path / "one")
    assert first.texts == generated.of("fict0-001")


@pytest.mark.slow
def test_notes_state_fictional_origin_and_required_columns(generated: GeneratedFolder) -> None:
    assert tuple(generated.rows[0]) == COLUMNS
    assert len(generated.texts) == len(generated.rows), "note ids are unique"
    for row in generated.rows:
        assert row["text"].splitlines()[0].startswith(FICTIONAL)
        assert row["note_id"] in row["text"].splitlines()[0]
        assert not re.search(r"[{}|]|\[\[", row["text"]), "an unfilled slot"
        assert not re.search("[\ue000-\uf8ff]", row["text"]), "a mark was left"
    assert {row["note_type"] for row in generated.rows} == set(KINDS.values())
    assert "invented" in (generated.folder / README).read_text()


@pytest.mark.slow
def test_notes_are_in_order_of_time_within_stays(generated: GeneratedFolder) -> None:
    ends: dict[str, str] = {}
    for patient in {row["subject_id"] for row in generated.rows}:
        rows = [row for row in generated.rows if row["subject_id"] == patient]
        assert [row["charttime"] for row in rows] == sorted(row["charttime"] for row in rows)
        stays = {row["hadm_id"]: (row["admittime"], row["dischtime"]) for row in rows if row["hadm_id"]}
        for row in rows:
            if row["hadm_id"]:
                assert row["admittime"] <= row["charttime"] <= row["dischtime"]
                assert stays[row["hadm_id"]] == (row["admittime"], row["dischtime"])
            else:
                assert row["note_type"] == "Outpatient letter"
                assert not any(first <= row["charttime"] <= last for first, last in stays.values())
        times = [time for stay in sorted(stays.values()) for time in stay]
        assert times == sorted(times), "stays do not overlap"
        ends[patient] = times[-1]
    assert len(ends) == 8


def test_discharge_summaries_have_sections(generated: GeneratedFolder) -> None:
    summaries = [row["text"] for row in generated.rows if row["note_type"] == "Discharge summary"]
    assert len(summaries) == 2 * (1 + 2 + 3 + 4)
    for name in (
        "Admission Date:",
        "Chief Complaint:",
        "History of Present Illness:",
        "Past Medical History:",
        "Hospital Course:",
        "Medications on Admission:",
        "Discharge Medications:",
        "Discharge Diagnosis:",
        "Discharge Condition:",
        "Discharge Instructions:",
        "Followup Instructions:",
    ):
        assert all(f"\n{name}" in text for text in summaries), name


def test_clean_text_leaves_notes_unchanged(generated: GeneratedFolder) -> None:
    assert all(clean_text(text) == text for text in generated.texts.values())


def test_long_lines_of_notes_are_rarely_repeated(generated: GeneratedFolder) -> None:
    for patient in ("fict0-004", "fict0-008"):
        lines = [line for text in generated.of(patient).values() for line in text.splitlines() if len(line) > 120]
        repeated = sum(count - 1 for count in Counter(lines).values())
        assert repeated <= 0.02 * len(lines)


@pytest.mark.slow
def test_notes_reader_returns_same_texts(generated: GeneratedFolder) -> None:
    columns = NoteColumns(
        patient="subject_id", time=("charttime",), type="note_type", text="text", encounter="hadm_id", note_id="note_id"
    )
    items = list(read_sources([generated.folder / NOTES], format="notes", columns=columns))
    documents = [item for item in items if isinstance(item, Document)]
    assert {document.id: document.text for document in documents} == generated.texts
    assert {document.patient for document in documents} == {row["subject_id"] for row in generated.rows}


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [4000, 8000, 16000, 50000])
def test_make_record_has_requested_length(tokens: int) -> None:
    record = make_record("p", tokens, None, 5)
    assert record.tokens == sum(estimate_tokens(note.text) for note in record.notes)
    assert 0.9 * tokens <= record.tokens <= 1.05 * tokens


def test_make_record_has_requested_stays() -> None:
    assert len(make_record("p", 30_000, 2, 0).patient.stays) == 2
    with pytest.raises(InputError, match="fewer --stays"):
        make_record("p", 6000, 6, 0)
    with pytest.raises(InputError, match="at least 4000"):
        make_record("p", 100, None, 0)
    with pytest.raises(InputError, match="ask for more"):
        make_record("p", 2_000_000, 1, 0)


def test_estimate_tokens_counts_words_digits_and_signs() -> None:
    assert estimate_tokens("Creatinine 1.8 mg/dL\n") == 2 + 3 + 3 + 1
    assert estimate_tokens("") == 0


@pytest.mark.slow
@pytest.mark.models
def test_estimate_tokens_is_near_count_of_chat_model(model_home: Path, generated: GeneratedFolder) -> None:
    weights = model_home / "models" / "smollm2-135m" / "model.gguf"
    model = EmbeddedModel(weights, "counting", context_tokens=512, prefix_cache=False)
    text = "\n".join(generated.of("fict0-003").values())

    async def counted() -> int:
        try:
            return await model.count_tokens((Message("user", text),))
        finally:
            await model.aclose()

    assert asyncio.run(counted()) == pytest.approx(16_000, rel=0.1)


def test_questions_cover_all_categories_and_forms(generated: GeneratedFolder) -> None:
    pairs = Counter((line["category"], line["form"]) for line in generated.lines)
    assert set(pairs) == {(category, form) for category in CATEGORIES for form in FORMS}
    assert {"number", "negation", "trend"} <= {line["about"] for line in generated.lines}
    assert {line["patient"] for line in generated.lines} == {row["subject_id"] for row in generated.rows}
    for patient, n in Counter(line["patient"] for line in generated.lines).items():
        assert n == EACH, patient
    assert len({line["id"] for line in generated.lines}) == len(generated.lines)


def test_evidence_spans_contain_answers(generated: GeneratedFolder) -> None:
    for line in generated.lines:
        places = [(item["document_id"], item["start"]) for item in line["evidence"]]
        assert len(places) == len(set(places))
        assert set(line["gold_documents"]) == {name for name, _ in places}
        assert set(line["gold_documents"]) <= generated.of(line["patient"]).keys()
        texts = list_evidence_texts(generated, line)
        if line["form"] == "extractive" and line["category"] != "holistic":
            assert all(text == line["gold"] for text in texts), line["id"]
        elif line["form"] == "extractive":
            assert line["gold"] in texts
        elif line["category"] in ("specific-fact", "temporal", "cause-effect", "discharge-planning"):
            answer = get_answer(line)
            assert all(answer in text for text in texts), line["id"]
        assert (texts == []) == (line["category"] == "absence")


def test_evidence_spans_of_one_fact_agree(generated: GeneratedFolder) -> None:
    for line in generated.lines:
        facts = {item["fact"] for item in line["evidence"]}
        assert "" not in facts
        assert len(facts) <= 1 or line["category"] == "holistic", line["id"]
    assert any(len(line["evidence"]) > 1 for line in generated.lines if line["category"] == "terminology")


def test_laboratory_reports_omit_values_of_procedures(generated: GeneratedFolder) -> None:
    labs = [row["text"] for row in generated.rows if row["note_type"].lower().startswith("lab")]
    assert labs
    assert not any("fibrinogen" in text.lower() for text in labs)


def test_specific_fact_answers_occur_only_in_evidence(generated: GeneratedFolder) -> None:
    observed = 0
    for line in generated.lines:
        if line["category"] != "specific-fact":
            continue
        answer = re.compile(rf"(?<!\w){re.escape(get_answer(line))}(?!\w)", re.IGNORECASE)
        for name, text in generated.of(line["patient"]).items():
            for result in answer.finditer(text):
                observed += 1
                places = [p for p in line["evidence"] if p["document_id"] == name]
                assert any(place["start"] <= result.start() < place["end"] for place in places), line["id"]
    assert observed >= 8 * 6


def test_absence_questions_are_unanswerable_from_record(generated: GeneratedFolder) -> None:
    for line in generated.lines:
        if line["category"] != "absence":
            assert line["gold"]
            continue
        assert (get_answer(line) == UNSAID) if "options" in line else (line["gold"] == "")
        assert line["depth"] is None
        telling = re.search(r"ceruloplasmin|pacemaker|Gleason|lithium|intraocular", line["text"])
        assert telling is None or not any(telling[0] in text for text in generated.of(line["patient"]).values())


def test_choice_questions_have_four_or_five_options_and_one_right(generated: GeneratedFolder) -> None:
    letters: Counter[str] = Counter()
    unsaid: Counter[bool] = Counter()
    for line in generated.lines:
        if line["form"] != "choice":
            assert "options" not in line
            continue
        options = list(line["options"].values())
        assert len(options) in (4, 5)
        assert len({option.casefold() for option in options}) == len(options), line["id"]
        letters[line["gold"]] += 1
        if UNSAID in options:
            unsaid[get_answer(line) == UNSAID] += 1
    n = sum(letters.values())
    assert all(abs(letters[letter] - n / 5) <= 0.08 * n for letter in "ABCDE"), letters
    assert unsaid[False] > unsaid[True] > 0, "offered where it is wrong too"


def test_laboratory_answers_have_units(generated: GeneratedFolder) -> None:
    values = [
        line for line in generated.lines if line["text"].startswith("What was the") and "laboratory" in line["text"]
    ]
    assert values
    for line in values:
        assert re.fullmatch(r"\d+(\.\d+)? \S.*", get_answer(line)), get_answer(line)


def test_medication_doses_change_over_stays() -> None:
    """The dose that a drug is left on changes over the stays, and so does what is right."""
    record = make_record("p", 32_000, None, 1)
    doses: dict[str, set[str]] = defaultdict(set)
    for stay in record.patient.stays:
        for change in stay.changes:
            assert (stay.home[change.drug.name], stay.regimen[change.drug.name]) == (change.before, change.after)
            doses[change.drug.name] |= {change.before, change.after}
    assert doses
    assert all(len(dose) >= 2 for dose in doses.values())
    for earlier, later in zip(record.patient.stays, record.patient.stays[1:], strict=False):
        assert dict(earlier.regimen) == dict(later.home)


def test_negation_questions_are_denied_in_their_stay(generated: GeneratedFolder) -> None:
    denied = [line for line in generated.lines if line["about"] == "negation" and line["form"] != "choice"]
    assert denied
    for line in denied:
        finding = line["gold"].removeprefix("No evidence of ")
        assert finding in line["text"]
        assert all(text.startswith("No evidence of") for text in list_evidence_texts(generated, line))
    ruled_out = [line for line in generated.lines if line["text"].startswith("Which of these did the")]
    assert all(f"No evidence of {get_answer(line)}" in list_evidence_texts(generated, line)[0] for line in ruled_out)


def test_depth_is_relative_position_of_evidence(generated: GeneratedFolder) -> None:
    depths = []
    for line in generated.lines:
        if len(line["evidence"]) == 1:
            (place,) = line["evidence"]
            notes = generated.of(line["patient"])
            before = sum(len(text) for text in list(notes.values())[: list(notes).index(place["document_id"])])
            middle = before + (place["start"] + place["end"]) / 2
            assert line["depth"] == pytest.approx(middle / sum(map(len, notes.values())), abs=1e-4)
            depths.append(line["depth"])
    assert min(depths) < 0.2
    assert max(depths) > 0.8


def test_written_questions_are_read_back_with_key_passages(generated: GeneratedFolder) -> None:
    questions = [
        question for question in read_questions(generated.folder / QUESTIONS) if isinstance(question, Question)
    ]
    assert len(questions) == len(generated.lines)
    assert [(q.id, q.form, q.category, q.gold, len(q.evidence)) for q in questions] == [
        (line["id"], line["form"], line["category"], line["gold"], len(line["evidence"])) for line in generated.lines
    ]
    keys = find_key_passages(questions, generated.texts)
    assert len(keys) == len({q.text for q in questions if q.evidence})
    passages = [passage for several in keys.values() for key in several for passage in key.passages]
    assert all(any(passage in text for text in generated.texts.values()) for passage in passages)
    for question in questions:
        if question.category in ("specific-fact", "temporal") and question.form == "extractive":
            own = generated.of(question.patient or "")
            mine = [key for key in keys[question.text] if key.answer == question.gold]
            holding = {name for name, text in own.items() if any(key.passage in text for key in mine)}
            assert holding == set(question.gold_documents), "the key passage stands where the evidence is"


def ask_reader(model: ScriptedModel, question: Question, notes: Iterable[str]) -> dict[str, Any]:
    """Return the reader's reply to the question over these notes, each one document."""
    texts = list(notes)
    span = question.form == "extractive"
    passages = [
        Passage(id=f"n#{i}", document_id="n", ordinal=i, start=0, end=len(text), text=text)
        for i, text in enumerate(texts)
    ]
    form = SpanFormat(passages) if span else AnswerFormat(question.options, documents=len(texts))
    sample = render(
        "epicrisis.answering.prompts",
        "extract" if span else "rag",
        question=question.text,
        options=question.options,
        documents=fence(texts),
        about=(),
    )
    request = ChatRequest(sample.messages, max_tokens=99, seed=0, schema=form.schema())
    result = json.loads(asyncio.run(model.complete(request)).text)["result"]
    assert isinstance(result, dict)
    return result


@pytest.mark.slow
def test_reader_answers_from_record_only_with_evidence(generated: GeneratedFolder) -> None:
    """Keys of all patients at once: which one is asked of is told by what is in the prompt."""
    questions = [
        question for question in read_questions(generated.folder / QUESTIONS) if isinstance(question, Question)
    ]
    model = position_biased_reader(find_key_passages(questions, generated.texts), lambda place, documents: 1.0)
    for question in questions:
        if question.patient not in ("fict0-001", "fict0-002", "fict0-006"):
            continue
        notes = generated.of(question.patient)
        result = ask_reader(model, question, notes.values())
        if not question.evidence:
            assert result == {"found": False}
        elif question.options:
            assert result["choice"] == question.gold
        else:
            assert result["span" if question.form == "extractive" else "answer"] == question.gold, question.id
        rest = [text for name, text in notes.items() if name not in question.gold_documents]
        assert ask_reader(model, question, rest or ["Nothing."]) == {"found": False}, question.id


def test_extract_spans_returns_text_and_marks() -> None:
    text, marks = extract_spans(
        f"Note.\n{mark_fact('a', 'It was 5 mg.', '5 mg')} Then {mark_fact('b', 'none', 'none')}."
    )
    assert text == "Note.\nIt was 5 mg. Then none."
    assert [(m.key, text[m.start : m.end], text[m.answer_start : m.answer_end]) for m in marks] == [
        ("a", "It was 5 mg.", "5 mg"),
        ("b", "none", "none"),
    ]
    with pytest.raises(ValueError, match="substring"):
        mark_fact("a", "It was 5 mg.", "6 mg")


def test_vocabulary_is_large_and_consistent() -> None:
    assert len(acute_conditions()) + len(chronic_conditions()) >= 40
    for acute_condition in acute_conditions():
        assert set(acute_condition.labs) <= labs().keys()
        assert set(acute_condition.drugs) <= drugs().keys()
        assert all(
            "[[" in template for template in (acute_condition.finding, acute_condition.detail, acute_condition.advice)
        )
    assert {chronic_condition.drug for chronic_condition in chronic_conditions()} <= drugs().keys()
    short = {
        *(acute_condition.abbreviation for acute_condition in acute_conditions()),
        *(chronic_condition.abbreviation for chronic_condition in chronic_conditions()),
    }
    assert len(short) == len(acute_conditions()) + len(chronic_conditions())


def test_ordinal_returns_words() -> None:
    assert [ordinal(n) for n in (1, 10, 11, 21, 22, 23, 112)] == [
        "first",
        "tenth",
        "11th",
        "21st",
        "22nd",
        "23rd",
        "112th",
    ]


def test_write_records_into_used_folder_raises_input_error(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="new or empty folder"):
        write_records(tmp_path, 1, [4000])
