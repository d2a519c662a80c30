"""Long patient records: what stands in the prompt, and what retrieval brings (EHR study, sections 4.2, 4.3 and 5).

Full context in four settings, from no note to all; retrieval of chunks and of whole parent notes, put by time;
BriefContext over the same chunks and over the record. Every arm of a question reads the same record, and its length by
the answering model's own tokenizer stands in the condition. Knows no library and no metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records.lengths import find_length_bin
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.overrides import RunOverrides
from epicrisis.retrieval.ordering import rank_in_order
from epicrisis.retrieval.record_context import TIME_ORDER_STATEMENT, fit_budget, order_by_time, rank_notes
from epicrisis.retrieval.timeline import Resolution
from epicrisis.types import ExtractionTarget, Passage, Question, Ranking, StrategyName

CONTEXT, RETRIEVAL, EXTRACTIVE, METRICS = "ehr-context", "ehr-retrieval", "ehr-extractive", "ehr-metrics"
NONE, UNRELATED, RELATED, ALL = "exclude-all", "exclude-related", "include-related", "include-all"
SETTINGS = (NONE, UNRELATED, RELATED, ALL)
FULL, BRIEF, BRIEF_RECORD = "full-context", "brief-context", "brief-context-record"
CHUNKS, NOTES = (5, 10, 15), (3, 5, 7)
"""The study's sizes: chunks, and whole parent notes."""
MOST = max(CHUNKS)
"""Chunks that BriefContext reads."""
RETRIEVAL_ARMS = (FULL, *(f"rag-{k}" for k in CHUNKS), *(f"rag-notes-{n}" for n in NOTES), BRIEF, BRIEF_RECORD)
EXTRACTIVE_ARMS = (NONE, FULL, *(f"rag-{k}" for k in CHUNKS), BRIEF)
BY = ("hybrid", "bm25", "dense", "splade")
TIMELINE, RANKED = "timeline", "rank"
_RAG = re.compile(r"rag-(?P<notes>notes-)?(?P<n>[1-9]\d{0,2})(?P<more>(?:\+[a-z0-9]+)*)")


@dataclass(frozen=True, slots=True)
class Chart:
    """A question and the whole record that it is asked of."""

    question: Question
    notes: tuple[Passage, ...]
    """Whole, oldest first."""
    related: frozenset[str]
    """Ids of the notes that the set marks as holding the answer."""
    tokens: Mapping[str, int]
    """By note, of the answering model's tokenizer."""

    @property
    def length(self) -> int:
        """Tokens of all notes: of Include All."""
        return sum(self.tokens[note.document_id] for note in self.notes)

    def ranking(self, kept: Callable[[str], bool], name: str) -> Ranking:
        """The notes whose id is kept, oldest first."""
        notes = [note for note in self.notes if kept(note.document_id)]
        return rank_in_order(notes, name, {"order": "time", "unit": "note", "notes": len(notes)})


@dataclass(frozen=True, slots=True)
class Search:
    """What finds chunks in a record."""

    chunks: Callable[[Question, int, str, frozenset[str]], Ranking]
    """So many for the question, best first, by one of BY, the notes of these ids left out."""
    resolved: Callable[[Chart], Resolution]
    """Which notes the question's words of time mean."""
    note_tokens: int | None = None
    """What whole notes may take together; `None`: all that are wanted."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How all of it is asked."""

    search: Search
    extract: ExtractionTarget = "span"
    repeats: int = 1
    seed: int = 0
    partition: int | None = None


def cases(charts: Sequence[Chart], asking: Asking, arms: Sequence[str], more: Condition | None = None) -> list[Case]:
    """Each question under each arm that has anything to read. Conditions: `arm`, `form`, `category`, `tokens` and `bin`
    of the record, `repeat`, and what there is `more`.

    A setting that would be the same prompt as another (no other note in the record, none marked) is left out. Raises
    InputError for an arm that is not known, or where there is nothing to ask.
    """
    check(arms)
    if not charts:
        raise InputError("there is no question to ask: draw at least one, or name another population")
    made = [
        Case(chart.question, {**(more or {}), **_told(chart), "arm": arm, "repeat": repeat}, treatment)
        for chart in charts
        for arm in arms
        for repeat, treatment in enumerate(_treatments(chart, arm, asking))
    ]
    if not made:
        raise InputError("no record has notes for these settings: name others with --arm")
    return made


def check(arms: Sequence[str]) -> None:
    """Raises InputError for an arm that is not known."""
    known = {*SETTINGS, FULL, BRIEF, BRIEF_RECORD}
    for arm in arms:
        found = _RAG.fullmatch(arm)
        more = _modifiers(found["more"]) if found else []
        wrong = [each for each in more if each not in (*BY, TIMELINE, RANKED)]
        if (arm not in known and found is None) or wrong or sum(each in BY for each in more) > 1:
            raise InputError(
                f"no arm is called {arm}: known are {', '.join(sorted(known))}, rag-N and rag-notes-N, each with one "
                f"of +{', +'.join(BY[1:])}, with +{TIMELINE} and with +{RANKED} behind it"
            )


def needs_sparse(arms: Sequence[str]) -> bool:
    """Whether one of the arms is searched with a sparse encoder."""
    return any(f"+{BY[-1]}" in arm for arm in arms)


def _modifiers(text: str) -> list[str]:
    return [each for each in text.split("+") if each]


def _told(chart: Chart) -> dict[str, str | int]:
    question, length = chart.question, chart.length
    return {"form": question.form, "category": question.category, "bin": find_length_bin(length), "tokens": length}


def _treatments(chart: Chart, arm: str, asking: Asking) -> Iterator[RunOverrides]:
    """One a repeat; none where the arm has nothing of its own to read."""
    if (treatment := _treatment(chart, arm, asking)) is not None:
        for repeat in range(asking.repeats):
            yield replace(treatment, seed=asking.seed + repeat)


def _treatment(chart: Chart, arm: str, asking: Asking) -> RunOverrides | None:
    common = RunOverrides(
        extract=asking.extract,
        preflight=False,
        partition=asking.partition,
        count="passages",
        about=(TIME_ORDER_STATEMENT,),
    )
    if arm == NONE:
        return replace(common, strategy="closed-book", about=())
    if arm in (*SETTINGS, FULL, BRIEF_RECORD):
        ranking = _setting(chart, arm)
        strategy: StrategyName = "brief-context" if arm == BRIEF_RECORD else "full-context"
        return None if ranking is None else replace(common, strategy=strategy, ranking=ranking)
    if arm == BRIEF:
        chunks = order_by_time(asking.search.chunks(chart.question, MOST, BY[0], frozenset()))
        return replace(common, strategy="brief-context", ranking=chunks)
    return _retrieved(chart, arm, asking.search, replace(common, strategy="rag"))


def _setting(chart: Chart, arm: str) -> Ranking | None:
    """`None` where nothing is marked, or where the notes that are marked are all there are."""
    related = chart.related & chart.tokens.keys()
    if arm not in (UNRELATED, RELATED):
        return chart.ranking(lambda _: True, "record")
    if not related or len(related) == len(chart.notes):
        return None
    return chart.ranking(lambda note: (note in related) == (arm == RELATED), arm)


def _retrieved(chart: Chart, arm: str, search: Search, treatment: RunOverrides) -> RunOverrides:
    found = _RAG.fullmatch(arm)
    assert found is not None
    n, more = int(found["n"]), _modifiers(found["more"])
    by = next((each for each in more if each in BY), BY[0])
    hidden: frozenset[str] = frozenset()
    of_notes = found["notes"] is not None
    if TIMELINE in more:
        resolution = search.resolved(chart)
        if resolution.documents is not None:
            hidden = frozenset(chart.tokens) - resolution.documents
        treatment = replace(treatment, about=(TIME_ORDER_STATEMENT, *resolution.explanations))
    retrieve = _parents if of_notes else _chunks
    ranking = retrieve(chart, n, by, hidden, search)
    if hidden:
        # As the product does: what the notes of that time do not answer is asked of the whole record.
        whole = retrieve(chart, n, by, frozenset(), search)
        treatment = replace(treatment, whole=whole if RANKED in more else order_by_time(whole))
    if RANKED in more:
        about = tuple(line for line in treatment.about or () if line != TIME_ORDER_STATEMENT)
        return replace(treatment, ranking=ranking, about=about)
    return replace(treatment, ranking=order_by_time(ranking))


def _chunks(chart: Chart, n: int, by: str, hidden: frozenset[str], search: Search) -> Ranking:
    return search.chunks(chart.question, n, by, hidden)


def _parents(chart: Chart, n: int, by: str, hidden: frozenset[str], search: Search) -> Ranking:
    """The `n` whole notes of the best chunks, as far as the budget goes; what it leaves out is said."""
    whole = {note.document_id: note for note in chart.notes}
    ranking = rank_notes(lambda k: search.chunks(chart.question, k, by, hidden), whole, n)
    if search.note_tokens is None:
        return ranking
    kept, left = fit_budget(ranking.passages, search.note_tokens, lambda note: chart.tokens[note.document_id])
    note = f"{len(left)} of {len(ranking.hits)} notes are over the budget of {search.note_tokens:,} tokens: left out"
    notes = (*ranking.notes, note) if left else ranking.notes
    return replace(ranking, hits=ranking.hits[: len(kept)], notes=notes)
