"""The cases of the EHR study: what each arm reads of a record, in which order, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from epicrisis.errors import InputError
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.record_arms import Chart, RecordSearch, RecordStudy, build_record_cases
from epicrisis.evaluation.runs.case import Case
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.record_context import TIME_ORDER_STATEMENT
from epicrisis.retrieval.timeline import Resolution, resolve
from epicrisis.types import Hit, Passage, Question, Ranking

QUESTION = Question(
    "What were the final diagnoses?",
    form="open",
    id="q",
    gold="Gout.",
    gold_documents=("n2",),
    patient="p",
    category="temporal",
)


def note(number: int, text: str = "") -> Passage:
    text = text or f"Note {number}. " + "It says little. " * 20
    return Passage(
        f"n{number}#whole",
        f"n{number}",
        0,
        0,
        len(text),
        text,
        "Discharge summary",
        "notes",
        f"2150-0{number + 1}-01",
        "p",
        {"note_type": "Discharge summary", "encounter": f"h{number}"},
    )


NOTES = tuple(note(i) for i in range(4))
CHART = Chart(QUESTION, NOTES, frozenset({"n2"}), {f"n{i}": 3_000 for i in range(4)})


def piece(of: Passage, ordinal: int) -> Passage:
    start = 16 * ordinal
    return Passage(
        f"{of.document_id}#{ordinal}",
        of.document_id,
        ordinal,
        start,
        start + 16,
        of.text[start : start + 16],
        of.title,
        of.source,
        of.date,
        of.patient,
        of.metadata,
    )


class Finder:
    """Chunks in a fixed order, the newest note first; remembers what it was asked."""

    def __init__(self, notes: Sequence[Passage] = NOTES, each: int = 6) -> None:
        self.found = [piece(one, i) for i in range(each) for one in reversed(notes)]
        self.asked: list[tuple[int, str, frozenset[str]]] = []

    def chunks(self, _: Question, k: int, by: str, hidden: frozenset[str]) -> Ranking:
        self.asked.append((k, by, hidden))
        observed = [item for item in self.found if item.document_id not in hidden][:k]
        return Ranking(tuple(Hit(item, 1.0 - rank / 99, rank) for rank, item in enumerate(observed)), by, {"k": k})


def resolved(chart: Chart) -> Resolution:
    return resolve(chart.question.text, NoteTime.from_passages(chart.notes))


def asking(finder: Finder, note_tokens: int | None = None, repeats: int = 1, seed: int = 0) -> RecordStudy:
    return RecordStudy(RecordSearch(finder.chunks, resolved, note_tokens), repeats=repeats, seed=seed)


def one(arm: str, chart: Chart = CHART, finder: Finder | None = None, note_tokens: int | None = None) -> Case:
    (case,) = build_record_cases([chart], asking(finder or Finder(), note_tokens), [arm])
    return case


def documents(case: Case) -> list[str]:
    assert case.treatment.ranking is not None
    return [passage.document_id for passage in case.treatment.ranking.passages]


def test_record_settings_read_no_unrelated_related_and_all_notes() -> None:
    result = {
        str(case.condition["arm"]): case for case in build_record_cases([CHART], asking(Finder()), record_arms.SETTINGS)
    }
    assert result["exclude-all"].treatment.strategy == "closed-book"
    assert result["exclude-all"].treatment.ranking is None
    assert documents(result["exclude-related"]) == ["n0", "n1", "n3"]
    assert documents(result["include-related"]) == ["n2"]
    assert documents(result["include-all"]) == ["n0", "n1", "n2", "n3"]
    assert {result[arm].treatment.strategy for arm in record_arms.SETTINGS[1:]} == {"full-context"}


def test_record_condition_has_form_category_and_length() -> None:
    condition = {"arm": "include-related", "form": "open", "category": "temporal", "bin": "8-16K", "tokens": 12_000}
    assert one("include-related").condition == {**condition, "repeat": 0}


def test_record_setting_equal_to_another_is_left_out() -> None:
    """One note that is the related one: without it nothing is left, with it alone all is there."""
    alone = Chart(QUESTION, NOTES[2:3], frozenset({"n2"}), {"n2": 500})
    assert [case.condition["arm"] for case in build_record_cases([alone], asking(Finder()), record_arms.SETTINGS)] == [
        "exclude-all",
        "include-all",
    ]
    unmarked = Chart(QUESTION, NOTES, frozenset(), CHART.tokens)
    with pytest.raises(InputError, match="no record has notes for these settings"):
        build_record_cases([unmarked], asking(Finder()), ["include-related"])


def test_record_chunks_are_ordered_by_time() -> None:
    finder = Finder()
    assert documents(one("rag-5", finder=finder)) == ["n0", "n1", "n2", "n3", "n3"]
    assert finder.asked == [(5, "hybrid", frozenset())]
    ranked = one("rag-5+rank")
    assert documents(ranked) == ["n3", "n2", "n1", "n0", "n3"]
    assert (one("rag-5").treatment.about, ranked.treatment.about) == ((TIME_ORDER_STATEMENT,), ())


def test_record_parent_notes_are_complete_and_limited_by_count() -> None:
    case = one("rag-notes-3")
    assert documents(case) == ["n1", "n2", "n3"]
    assert case.treatment.ranking is not None
    assert [passage.text for passage in case.treatment.ranking.passages] == [item.text for item in NOTES[1:]]


def test_record_parent_notes_search_deepens_until_enough() -> None:
    """Forty chunks of one note stand before the others."""
    long = note(3, "word " * 400)
    finder = Finder(NOTES[:3])
    finder.found = [piece(long, i) for i in range(40)] + finder.found
    chart = Chart(QUESTION, (*NOTES[:3], long), frozenset(), CHART.tokens)
    assert documents(one("rag-notes-3", chart, finder)) == ["n1", "n2", "n3"]
    assert [k for k, _, _ in finder.asked] == [15, 30, 60]


def test_record_note_budget_leaves_out_whole_notes_with_notice() -> None:
    case = one("rag-notes-3", note_tokens=7_000)
    assert documents(case) == ["n2", "n3"]
    assert case.treatment.ranking is not None
    assert "1 of 3 notes are over the budget of 7,000 tokens: left out" in case.treatment.ranking.notes


def test_record_arm_modifiers_set_search_mode_and_timeline() -> None:
    finder = Finder()
    case = one("rag-5+bm25+timeline", finder=finder)
    assert finder.asked == [(5, "bm25", frozenset({"n0", "n1", "n2"})), (5, "bm25", frozenset())]
    assert set(documents(case)) == {"n3"}
    assert case.treatment.whole is not None, "what these do not answer is asked of the whole record"
    assert {passage.document_id for passage in case.treatment.whole.passages} == {"n0", "n1", "n2", "n3"}
    assert case.treatment.about is not None
    assert any("2150-04-01" in line for line in case.treatment.about)


def test_record_brief_context_reads_chunks_or_whole_record() -> None:
    chunks, record = one("brief-context"), one("brief-context-record")
    assert chunks.treatment.strategy == record.treatment.strategy == "brief-context"
    assert chunks.treatment.preflight is False
    assert len(documents(chunks)) == 15
    assert documents(record) == ["n0", "n1", "n2", "n3"]


def test_record_repeats_have_own_seeds() -> None:
    cases = build_record_cases([CHART], asking(Finder(), repeats=2, seed=7), ["include-all"])
    assert [(case.condition["repeat"], case.treatment.seed) for case in cases] == [(0, 7), (1, 8)]


@pytest.mark.parametrize("arm", ["rag", "rag-0", "rag-5+sparse", "rag-notes", "include", "rag-5+", "rag-1000"])
def test_record_arm_with_unknown_name_lists_known_arms(arm: str) -> None:
    with pytest.raises(InputError, match=r"no arm is called .*known are .*rag-notes-N"):
        one(arm)
