"""Test the cases of the EHR study: the notes that each arm reads, their order, and the prompt's statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import Hit, Passage, Question, Ranking
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.record_arms import Chart, RecordSearch, RecordStudy, build_record_cases
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.timeline import Resolution, resolve

QUESTION = Question(
    "What were the final diagnoses?",
    form="open",
    id="q",
    gold="Gout.",
    gold_documents=("n2",),
    patient="p",
    category="temporal",
)


def make_note(number: int, text: str = "", kind: str = "Discharge summary") -> Passage:
    text = text or f"Note {number}. " + "It says little. " * 20
    return Passage(
        id=f"n{number}#whole",
        document_id=f"n{number}",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title=kind,
        source="notes",
        date=f"2150-0{number + 1}-01",
        patient="p",
        metadata={"note_type": kind, "encounter": f"h{number}"},
    )


NOTES = (make_note(0, kind="Nursing"), make_note(1, kind="Radiology report"), make_note(2), make_note(3))
CHART = Chart(QUESTION, NOTES, frozenset({"discharge summary"}), {f"n{i}": 3_000 for i in range(4)})


def make_chunk(of: Passage, ordinal: int) -> Passage:
    start = 16 * ordinal
    return Passage(
        id=f"{of.document_id}#{ordinal}",
        document_id=of.document_id,
        ordinal=ordinal,
        start=start,
        end=start + 16,
        text=of.text[start : start + 16],
        title=of.title,
        source=of.source,
        date=of.date,
        patient=of.patient,
        metadata=of.metadata,
    )


class Finder:
    """Return chunks in a fixed order, the newest note first, and record each search."""

    def __init__(self, notes: Sequence[Passage] = NOTES, each: int = 6) -> None:
        self.found = [make_chunk(one, i) for i in range(each) for one in reversed(notes)]
        self.asked: list[tuple[int, str, frozenset[str]]] = []

    def chunks(self, _: Question, k: int, by: str, hidden: frozenset[str]) -> Ranking:
        self.asked.append((k, by, hidden))
        observed = [item for item in self.found if item.document_id not in hidden][:k]
        return Ranking(tuple(Hit(item, 1.0 - rank / 99, rank) for rank, item in enumerate(observed)), by, {"k": k})


def make_timeline(chart: Chart) -> Resolution:
    return resolve(chart.question.text, NoteTime.from_passages(chart.notes))


def make_study(finder: Finder, note_tokens: int | None = None, repeats: int = 1, seed: int = 0) -> RecordStudy:
    return RecordStudy(RecordSearch(finder.chunks, make_timeline, note_tokens), repeats=repeats, seed=seed)


def build_case(arm: str, chart: Chart = CHART, finder: Finder | None = None, note_tokens: int | None = None) -> Case:
    (case,) = build_record_cases([chart], make_study(finder or Finder(), note_tokens), [arm])
    return case


def list_documents(case: Case) -> list[str]:
    assert case.treatment.ranking is not None
    return [passage.document_id for passage in case.treatment.ranking.passages]


def test_record_settings_read_no_unrelated_related_and_all_notes() -> None:
    result = {
        str(case.condition["arm"]): case
        for case in build_record_cases([CHART], make_study(Finder()), record_arms.SETTINGS)
    }
    assert result["exclude-all"].treatment.strategy == "closed-book"
    assert result["exclude-all"].treatment.ranking is None
    assert list_documents(result["exclude-related"]) == ["n0", "n1"]
    assert list_documents(result["include-related"]) == ["n2", "n3"]
    assert list_documents(result["include-all"]) == ["n0", "n1", "n2", "n3"]
    assert {result[arm].treatment.strategy for arm in record_arms.SETTINGS[1:]} == {"full-context"}


def test_record_gold_note_arms_separate_the_note_with_the_answer() -> None:
    assert list_documents(build_case("exclude-gold-note")) == ["n0", "n1", "n3"]
    assert list_documents(build_case("include-gold-note")) == ["n2"]


def test_record_related_notes_of_a_set_without_types_are_of_the_gold_notes_type() -> None:
    chart = replace(CHART, note_types=frozenset())
    assert list_documents(build_case("include-related", chart)) == ["n2", "n3"]
    untyped = replace(chart, notes=tuple(replace(note, metadata={}) for note in NOTES))
    assert list_documents(build_case("include-related", untyped)) == ["n2"]


def test_record_related_notes_include_the_gold_note_of_another_type() -> None:
    chart = replace(CHART, note_types=frozenset({"radiology report"}))
    assert list_documents(build_case("include-related", chart)) == ["n1", "n2"]


def test_record_condition_has_form_category_and_length() -> None:
    condition = {"arm": "include-related", "form": "open", "category": "temporal", "bin": "8-16K", "tokens": 12_000}
    assert build_case("include-related").condition == {**condition, "repeat": 0}


def test_record_setting_equal_to_another_is_left_out() -> None:
    """One note that is the related one: without it nothing is left, with it alone all is there."""
    alone = replace(CHART, notes=NOTES[2:3], tokens={"n2": 500})
    assert [
        case.condition["arm"] for case in build_record_cases([alone], make_study(Finder()), record_arms.SETTINGS)
    ] == [
        "exclude-all",
        "include-all",
    ]
    unmarked = replace(CHART, question=replace(QUESTION, gold_documents=()), note_types=frozenset())
    with pytest.raises(InputError, match="no record has notes for these settings"):
        build_record_cases([unmarked], make_study(Finder()), ["include-related"])


def test_record_chunks_are_ordered_by_time() -> None:
    finder = Finder()
    assert list_documents(build_case("rag-5", finder=finder)) == ["n0", "n1", "n2", "n3", "n3"]
    assert finder.asked == [(5, "hybrid", frozenset())]
    ranked = build_case("rag-5+rank")
    assert list_documents(ranked) == ["n3", "n2", "n1", "n0", "n3"]
    assert (build_case("rag-5").treatment.about, ranked.treatment.about) == ((TIME_ORDER_STATEMENT,), ())


def test_record_parent_notes_are_complete_and_limited_by_count() -> None:
    case = build_case("rag-notes-3")
    assert list_documents(case) == ["n1", "n2", "n3"]
    assert case.treatment.ranking is not None
    assert [passage.text for passage in case.treatment.ranking.passages] == [item.text for item in NOTES[1:]]


def test_record_parent_notes_search_deepens_until_enough() -> None:
    """Forty chunks of one note stand before the others."""
    long = make_note(3, "word " * 400)
    finder = Finder(NOTES[:3])
    finder.found = [make_chunk(long, i) for i in range(40)] + finder.found
    chart = Chart(QUESTION, (*NOTES[:3], long), frozenset(), CHART.tokens)
    assert list_documents(build_case("rag-notes-3", chart, finder)) == ["n1", "n2", "n3"]
    assert [k for k, _, _ in finder.asked] == [15, 30, 60]


def test_record_note_budget_leaves_out_whole_notes_with_notice() -> None:
    case = build_case("rag-notes-3", note_tokens=7_000)
    assert list_documents(case) == ["n2", "n3"]
    assert case.treatment.ranking is not None
    assert "1 of 3 notes is over the budget of 7,000 tokens: left out" in case.treatment.ranking.notes


def test_record_arm_modifiers_set_search_mode_and_timeline() -> None:
    finder = Finder()
    case = build_case("rag-5+bm25+timeline", finder=finder)
    assert finder.asked == [(5, "bm25", frozenset({"n0", "n1", "n2"})), (5, "bm25", frozenset())]
    assert set(list_documents(case)) == {"n3"}
    assert case.treatment.whole is not None, "what these do not answer is asked of the whole record"
    assert {passage.document_id for passage in case.treatment.whole.passages} == {"n0", "n1", "n2", "n3"}
    assert case.treatment.about is not None
    assert any("2150-04-01" in line for line in case.treatment.about)


def test_record_arms_read_structured_entries_only_with_facts() -> None:
    chart = replace(CHART, facts=frozenset({"n3"}))
    assert chart.length == 9_000
    assert list_documents(build_case("full-context", chart)) == ["n0", "n1", "n2"]
    assert list_documents(build_case("full-context+facts", chart)) == ["n0", "n1", "n2", "n3"]
    assert build_case("full-context", chart).treatment.options["facts"] is False
    assert build_case("full-context+facts", chart).treatment.options["facts"] is True
    for arm, hidden in (
        ("rag-5", frozenset({"n3"})),
        ("rag-5+bm25+facts", frozenset[str]()),
        ("brief-context", {"n3"}),
    ):
        finder = Finder()
        build_case(arm, chart, finder)
        assert [asked[2] for asked in finder.asked] == [hidden]


def test_closed_book_arm_with_facts_is_unknown() -> None:
    with pytest.raises(InputError, match=r"no arm is called exclude-all\+facts"):
        record_arms.check_arms(["exclude-all+facts"])


def test_record_brief_context_reads_chunks_or_whole_record() -> None:
    chunks, record = build_case("brief-context"), build_case("brief-context-record")
    assert chunks.treatment.strategy == record.treatment.strategy == "brief-context"
    assert chunks.treatment.preflight is False
    assert len(list_documents(chunks)) == 15
    assert list_documents(record) == ["n0", "n1", "n2", "n3"]


def test_record_repeats_have_own_seeds() -> None:
    cases = build_record_cases([CHART], make_study(Finder(), repeats=2, seed=7), ["include-all"])
    assert [(case.condition["repeat"], case.treatment.options["seed"]) for case in cases] == [(0, 7), (1, 8)]


@pytest.mark.parametrize("arm", ["rag", "rag-0", "rag-5+sparse", "rag-notes", "include", "rag-5+", "rag-1000"])
def test_record_arm_with_unknown_name_lists_known_arms(arm: str) -> None:
    with pytest.raises(InputError, match=r"no arm is called .*known are .*rag-notes-N"):
        build_case(arm)
