"""The arms of the experiments on patients' records: the notes of a prompt, and retrieval from a record (EHR study,
sections 4.2, 4.3 and 5).

Full context in four settings, from no note to all; retrieval of chunks and of whole parent notes, ordered by time;
BriefContext over the same chunks and over the record. Every arm of a question reads the same record, and its length by
the answering model's tokenizer is one of the conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.paper_prompts import PaperPrompts
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import ExtractionTarget, Passage, Question, Ranking
from epicrisis.evaluation.datasets.patient_records.populations import find_length_bin
from epicrisis.evaluation.experiments.arms import repeat_case
from epicrisis.evaluation.grading.computed_answers import WITH_FACTS
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.record_context import fit_budget, order_by_time, rank_notes
from epicrisis.retrieval.timeline import Resolution

NONE, UNRELATED, RELATED, ALL = "exclude-all", "exclude-related", "include-related", "include-all"
SETTINGS = (NONE, UNRELATED, RELATED, ALL)
"""The study's settings. Related notes are those of the types that the question's set is about (4.2, C.2)."""
WITHOUT_GOLD, GOLD = "exclude-gold-note", "include-gold-note"
"""Another reading: related are the notes that hold the answer, so other notes of their type are not."""
FULL, BRIEF, BRIEF_RECORD = "full-context", "brief-context", "brief-context-record"
CHUNKS, NOTES = (5, 10, 15), (3, 5, 7)
"""The study's sizes: chunks, and whole parent notes."""
MOST = max(CHUNKS)
"""Chunks that BriefContext reads."""
_RAG_CHUNKS = tuple(f"rag-{chunk}" for chunk in CHUNKS)
RETRIEVAL_ARMS = (FULL, *_RAG_CHUNKS, *(f"rag-notes-{note}" for note in NOTES), BRIEF, BRIEF_RECORD)
EXTRACTIVE_ARMS = (NONE, FULL, *_RAG_CHUNKS, BRIEF)
BY = ("hybrid", "bm25", "dense", "splade")
TIMELINE, RANKED = "timeline", "rank"
_RAG = re.compile(r"rag-(?P<notes>notes-)?(?P<n>[1-9]\d{0,2})(?P<modifiers>(?:\+[a-z0-9]+)*)")


@dataclass(frozen=True, slots=True)
class Chart:
    """A question with the whole record of its patient."""

    question: Question
    notes: tuple[Passage, ...]
    """Whole notes, oldest first."""
    note_types: frozenset[str]
    """Types of the notes that the set is about, in lower case; empty: those of the gold notes."""
    tokens: Mapping[str, int]
    """Tokens of each note, by the answering model's tokenizer."""
    facts: frozenset[str] = frozenset()
    """Ids of the documents of structured entries, which only arms with WITH_FACTS read."""

    @property
    def length(self) -> int:
        """Tokens of all notes: of Include All, without structured entries."""
        notes = {note.document_id for note in self.notes} - self.facts
        return sum(self.tokens[note] for note in notes)

    @property
    def gold(self) -> frozenset[str]:
        """Ids of the notes that hold the answer."""
        return frozenset(self.question.gold_documents) & self.tokens.keys()

    @property
    def related(self) -> frozenset[str]:
        """Ids of the gold notes, and of all notes of the types that the set is about."""
        note_types = self.note_types or {_read_type(note) for note in self.notes if note.document_id in self.gold}
        related = {note.document_id for note in self.notes if _read_type(note) in note_types - {""}}
        return self.gold | related

    def without_facts(self) -> Chart:
        """Return the chart without the documents of structured entries."""
        notes = tuple(note for note in self.notes if note.document_id not in self.facts)
        tokens = {name: count for name, count in self.tokens.items() if name not in self.facts}
        return replace(self, notes=notes, tokens=tokens)

    def ranking(self, keep: Callable[[str], bool], name: str) -> Ranking:
        """Return the notes whose id is to be kept, oldest first."""
        notes = [note for note in self.notes if keep(note.document_id)]
        return rank_in_order(notes, name, {"order": "time", "unit": "note", "notes": len(notes)})


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """The search for chunks in a record."""

    chunks: Callable[[Question, int, str, frozenset[str]], Ranking]
    """Return that many chunks for the question, best first, by one of BY, without the notes of these ids."""
    resolve_time: Callable[[Chart], Resolution]
    """Return the notes that the question's time expressions select."""
    note_tokens: int | None = None
    """Token budget of whole notes; None: no limit."""


@dataclass(frozen=True, slots=True)
class RecordStudy:
    """The settings that all cases of a run share."""

    search: RecordSearch
    extract: ExtractionTarget = "span"
    repeats: int = 1
    seed: int = 0
    partition: int | None = None
    prompts: PaperPrompts | None = None
    """The prompts of arms that read in one prompt or not at all; None: ours."""


def _read_type(note: Passage) -> str:
    return str(note.metadata.get("note_type", "")).casefold()


def build_record_cases(
    charts: Sequence[Chart], study: RecordStudy, arms: Sequence[str], extra: Condition | None = None
) -> list[Case]:
    """Build each question under each arm that has notes to read.

    Conditions: `arm`, `form`, `category`, `tokens` and `bin` of the record, `repeat`, and those of `extra`. A setting
    with the same prompt as another (no other note in the record, none marked) is left out. Raises InputError for an
    unknown arm, or without anything to ask.
    """
    check_arms(arms)
    if not charts:
        raise InputError("there is no question to ask: draw at least one, or choose another population")
    cases: list[Case] = []
    for chart in charts:
        question, length = chart.question, chart.length
        record: Condition = {
            "form": question.form,
            "category": question.category,
            "bin": find_length_bin(length),
            "tokens": length,
        }
        for arm in arms:
            overrides = _arm_overrides(chart, arm, study)
            if overrides is not None:
                condition = {**(extra or {}), **record, "arm": arm}
                cases += repeat_case(question, condition, overrides, study.seed, study.repeats)
    if not cases:
        raise InputError("no record has notes for these settings: name others with --arm")
    return cases


def check_arms(arms: Iterable[str]) -> None:
    """Raise InputError for an unknown arm."""
    names = {*SETTINGS, WITHOUT_GOLD, GOLD, FULL, BRIEF, BRIEF_RECORD}
    for arm in map(_remove_facts, arms):
        match = _RAG.fullmatch(arm)
        modifiers = _split_modifiers(match["modifiers"]) if match else []
        searches = [modifier for modifier in modifiers if modifier in BY]
        unknown = set(modifiers) - {*BY, TIMELINE, RANKED}
        if (arm not in names and match is None) or unknown or len(searches) > 1:
            raise InputError(
                f"no arm is called {arm}: known are {', '.join(sorted(names))}, rag-N and rag-notes-N, each with one "
                f"of +{', +'.join(BY[1:])}, with +{TIMELINE} and with +{RANKED} behind it; each but {NONE} with "
                f"{WITH_FACTS} at the end"
            )


def _remove_facts(arm: str) -> str:
    """Return the arm without WITH_FACTS. An arm that reads nothing keeps it, and is unknown."""
    base = arm.removesuffix(WITH_FACTS)
    return arm if base == NONE else base


def _split_modifiers(text: str) -> list[str]:
    return list(filter(None, text.split("+")))


def _arm_overrides(chart: Chart, arm: str, study: RecordStudy) -> RunOverrides | None:
    """Return the overrides of an arm, or None where it would repeat the prompt of another."""
    has_facts, arm = arm.endswith(WITH_FACTS), _remove_facts(arm)
    hidden = frozenset[str]() if has_facts else chart.facts
    if not has_facts:
        chart = chart.without_facts()
    common = RunOverrides(
        options={"extract": study.extract, "partition": study.partition, "count": "passages", "facts": has_facts},
        preflight=False,
        about=(TIME_ORDER_STATEMENT,),
        paper_prompts=study.prompts,
    )
    if arm == NONE:
        return replace(common.change(strategy="closed-book"), about=())
    if arm in (*SETTINGS, WITHOUT_GOLD, GOLD, FULL, BRIEF_RECORD):
        ranking = chart.ranking(lambda _: True, "record")
        if arm in (UNRELATED, RELATED, WITHOUT_GOLD, GOLD):
            selection = chart.related if arm in (UNRELATED, RELATED) else chart.gold
            if not selection or len(selection) == len(chart.notes):
                return None
            ranking = chart.ranking(lambda note: (note in selection) == (arm in (RELATED, GOLD)), arm)
        strategy: str = "brief-context" if arm == BRIEF_RECORD else "full-context"
        return replace(common.change(strategy=strategy), ranking=ranking)
    if arm == BRIEF:
        chunks = order_by_time(study.search.chunks(chart.question, MOST, BY[0], hidden))
        return replace(common.change(strategy="brief-context"), ranking=chunks)
    return _retrieval_overrides(chart, arm, study.search, common.change(strategy="rag"), hidden)


def _retrieval_overrides(
    chart: Chart, arm: str, search: RecordSearch, overrides: RunOverrides, never: frozenset[str]
) -> RunOverrides:
    """Return the overrides with what a `rag-` arm retrieves. Documents of `never` are not searched."""
    match = _RAG.fullmatch(arm)
    assert match is not None
    n, modifiers = int(match["n"]), _split_modifiers(match["modifiers"])
    by = next((modifier for modifier in modifiers if modifier in BY), BY[0])
    hidden: frozenset[str] = frozenset()
    if TIMELINE in modifiers:
        resolution = search.resolve_time(chart)
        if resolution.documents is not None:
            hidden = frozenset(chart.tokens) - resolution.documents
        overrides = replace(overrides, about=(TIME_ORDER_STATEMENT, *resolution.explanations))

    def retrieve(hidden: frozenset[str]) -> Ranking:
        if match["notes"] is None:
            ranking = search.chunks(chart.question, n, by, hidden)
        else:
            ranking = _retrieve_notes(chart, n, by, hidden, search)
        return ranking if RANKED in modifiers else order_by_time(ranking)

    overrides = replace(overrides, ranking=retrieve(hidden | never))
    if hidden:
        # As in the product: if the notes of that time do not answer the question, the whole record is searched.
        overrides = replace(overrides, whole=retrieve(never))
    if RANKED in modifiers:
        overrides = replace(
            overrides, about=tuple(item for item in overrides.about or () if item != TIME_ORDER_STATEMENT)
        )
    return overrides


def _retrieve_notes(chart: Chart, n: int, by: str, hidden: frozenset[str], search: RecordSearch) -> Ranking:
    """Return the `n` whole notes of the best chunks within the token budget, with a notice on the notes left out."""
    notes = {note.document_id: note for note in chart.notes}
    ranking = rank_notes(lambda k: search.chunks(chart.question, k, by, hidden), notes, n)
    if search.note_tokens is None:
        return ranking
    fitting, over = fit_budget(ranking.passages, search.note_tokens, lambda note: chart.tokens[note.document_id])
    notices = ranking.notes
    if over:
        count = f"{len(over)} of {count_noun(len(ranking.hits), 'note')} {agree(len(over), 'is', 'are')}"
        notices = (*notices, f"{count} over the budget of {search.note_tokens:,} tokens: left out")
    return replace(ranking, hits=ranking.hits[: len(fitting)], notes=notices)
