"""Select the evidence for a question: passages or whole notes of the right time, as many as fit, in the right order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from epicrisis.core.answers import Answer, Citation, Event, Notice
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.partitioning import mark_largest_gap
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import format_passage
from epicrisis.core.protocols import Message
from epicrisis.core.types import Hit, Passage, Preflight, Question, Ranking, Scope, SentenceRanking
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.spellings import list_spellings
from epicrisis.reading.subject_words import list_forms, list_missed_words, list_subject_words, names_subject
from epicrisis.retrieval.query_expansion import find_other_names, is_abbreviation, list_drug_words, reword
from epicrisis.retrieval.record_context import fit_budget, order_by_time
from epicrisis.retrieval.retriever import Retriever
from epicrisis.retrieval.sentence_ranking import Listing, SentenceRanker
from epicrisis.retrieval.study_preference import POOL_TIMES, prefer_sentences, prefer_studies
from epicrisis.settings.settings import Settings

if TYPE_CHECKING:
    from epicrisis.answering.strategy_context import Context

SHOWN_SENTENCES = 8
"""The best sentences whose documents must name a drug of the question."""
SENTENCE_PASSAGES = 16
"""Passages whose sentences are ranked: with the search, 0.35 s on two cores (benchmarks/evidence_speed.py)."""
RETRY_MESSAGE = "the remaining notes do not answer the question: asking again with the whole record"
BY_WORDS = SentenceRanker(None, find_sentences, analyze_words)
"""Ranks sentences without a library, whose encoder is unknown."""
EMPTY_MESSAGE = "nothing is found in the remaining notes: searching the whole record"


@dataclass(frozen=True, slots=True)
class TimeRestriction:
    """The notes of a record excluded by the time expressions of a question."""

    hidden: frozenset[str] = frozenset()
    """Ids of notes about other times."""
    note_count: int = 0
    undated: int = 0
    """How many hidden notes have no time. They are excluded by their stay or type."""
    explanations: tuple[str, ...] = ()
    """What the time expressions mean in this record, one sentence each."""
    unresolved: tuple[str, ...] = ()
    """Time expressions without a clear meaning. They exclude no note."""

    @property
    def messages(self) -> tuple[str, ...]:
        """The explanations, with the number of excluded notes."""
        if not self.hidden:
            return self.explanations
        n = len(self.hidden)
        undated = f" ({self.undated} without a time, by their stay or type)" if self.undated else ""
        summary = (
            f"{n} of {self.note_count} notes {'is' if n == 1 else 'are'} left out: by their times and types they seem "
            f"to be about another time{undated}"
        )
        return (*self.explanations, summary)

    @property
    def unresolved_messages(self) -> tuple[str, ...]:
        """One message per unresolved time expression."""
        return tuple(f"{reason}: no note is left out" for reason in self.unresolved)

    def without_hidden(self) -> TimeRestriction:
        """Return this restriction with no excluded note."""
        return replace(self, hidden=frozenset(), undated=0)


NO_RESTRICTION = TimeRestriction()


def resolve_time_restriction(text: str, read_record: Callable[[], Sequence[Passage]]) -> TimeRestriction:
    """Return the restriction by the time expressions of a question about a record.

    `read_record` is not called if the question has no time expression.
    """
    # Their patterns take a tenth of a second to compile, and only questions about a patient need them.
    from epicrisis.retrieval.copied_text import remove_copied_text
    from epicrisis.retrieval.event_mentions import find_event_mentions, find_notes_with_date
    from epicrisis.retrieval.hospital_stays import NoteTime
    from epicrisis.retrieval.time_expressions import find_time_expressions
    from epicrisis.retrieval.timeline import resolve

    if not find_time_expressions(text):
        return NO_RESTRICTION
    record = read_record()
    resolution = resolve(
        text,
        NoteTime.from_passages(record),
        lambda event: find_event_mentions(event, remove_copied_text(record)),
        lambda time, years: find_notes_with_date(time, record, years),
    )
    dates = {note.document_id: note.date for note in record}
    hidden = frozenset() if resolution.documents is None else frozenset(dates.keys() - resolution.documents)
    undated = sum(dates[document] is None for document in hidden)
    return TimeRestriction(hidden, len(dates), undated, resolution.explanations, resolution.unresolved)


def date_copied_citations(answer: Answer, record: Sequence[Passage]) -> Answer:
    """Return the answer with the date of the first note in the reference of each quotation copied from that note."""
    from epicrisis.retrieval.copied_text import find_copied_text

    copies = find_copied_text(record)
    citations: list[Citation] = []
    for citation in answer.citations:
        for copied in copies.get(citation.document_id, ()):
            if citation.verified and copied.start <= citation.start and citation.end <= copied.end:
                reference = replace(citation.reference, first_written=copied.first_date)
                citation = replace(citation, reference=reference)
        citations.append(citation)
    return replace(answer, citations=tuple(citations))


def describe_missing(words: Sequence[str], documents: int) -> str:
    """Return why a question is not answered whose subject is in none of the documents."""
    names = " or ".join(f"“{word}”" for word in words)
    return f"nothing on {names} in {count_noun(documents, 'document')}"


def describe_unnamed(drugs: Sequence[str]) -> str:
    """Return why a question is not answered of whose drugs the best sentences' documents name none, or nothing."""
    if not drugs:
        return ""
    names = " or ".join(f"“{drug}”" for drug in drugs)
    return f"no document found on the rest of the question names {names}"


def describe_absence(documents: int) -> str:
    """Return why a question is not answered that none of the documents seems to answer."""
    return f"nothing that answers it in {count_noun(documents, 'document')}: ask in their words, or add documents on it"


def find_evidence(settings: Settings, retriever: Retriever, text: str, scope: Scope) -> Ranking:
    """Return the best `k` documents, passages or whole notes, best first. Literature alone has no notes."""
    search = retriever.notes if settings.unit == "note" and scope.patient is not None else retriever.search
    count = settings.count_unit(scope.patient)
    if not settings.prefer:
        ranking = search(text, settings.k, settings.by, scope, count)
    else:
        pool = search(text, settings.k * POOL_TIMES, settings.by, scope, count)
        ranking = prefer_studies(pool, settings.prefer, settings.prefer_mode, settings.k, count)
    # Before the order of time, which replaces the scores.
    return mark_largest_gap(ranking, count) if settings.adaptive_k else ranking


def rank_sentences(
    settings: Settings,
    ranker: SentenceRanker,
    text: str,
    ranking: Ranking,
    k: int,
    passages: Sequence[Passage] | None = None,
    listing: Listing | None = None,
) -> SentenceRanking:
    """Return the best `k` sentences of the passages of a ranking in any order, or of these passages."""
    passages = ranking.passages if passages is None else passages
    if not settings.prefer:
        sentences = ranker.rank(text, passages, k, ranking.ranks, listing)
    else:
        # The preferred may be far below the best.
        listing = None if listing is None else replace(listing, least=0.0, gap=math.inf, further_gap=math.inf)
        pool = ranker.rank(text, passages, k * POOL_TIMES, ranking.ranks, listing)
        sentences = prefer_sentences(pool, settings.prefer, settings.prefer_mode, k)
    return replace(sentences, tops=ranking.tops)


def checks_absence(settings: Settings, text: str, scope: Scope) -> bool:
    """Return whether to find out that no document answers: for a question with a subject that is about no patient."""
    return settings.not_in_library == "abstain" and scope.patient is None and names_subject(text)


def list_evidence(
    settings: Settings, retriever: Retriever, text: str, ranking: Ranking, k: int, scope: Scope
) -> SentenceRanking:
    """Return the best `k` sentences of the whole documents that a ranking has first, and of its passages.

    `Listing` says which are worth a reader's time, and `absence` why no document answers, as in `find_absence`.
    """
    passages = retriever.read_whole(ranking.passages, scope)
    best = _rank_best(settings, retriever, text, ranking, max(k, SHOWN_SENTENCES), passages)
    sentences, absence = replace(best, hits=best.hits[:k]), Absence()
    if checks_absence(settings, text, scope):
        absence = _judge_absence(retriever, text, ranking, best.relevance, scope)
        if not absence.reason:
            absence = replace(absence, reason=describe_unnamed(_find_unnamed(retriever, text, best, passages)))
    if not absence.reason and scope.patient is None and not settings.prefer:
        named = _keep_named(text, passages, expands=retriever.expands)
        if len(named) < len(passages):
            sentences = _rank_best(settings, retriever, text, ranking, k, named)
    return replace(sentences, absence=absence.reason, notes=(*sentences.notes, *absence.notes))


def find_absence(settings: Settings, retriever: Retriever, text: str, scope: Scope) -> Absence:
    """Return why no document answers a question, or nothing.

    The best document hardly answers, or all lack a drug of the question, or the documents of the best sentences do.
    """
    from epicrisis.reading.support import find_drugs

    ranking = retriever.rank(text, SENTENCE_PASSAGES, settings.by, scope)
    passages = retriever.read_whole(ranking.passages, scope)
    if not find_drugs(text):
        relevance = retriever.sentence_ranker.judge(reword_question(retriever, text, passages), passages)
        return _judge_absence(retriever, text, ranking, relevance, scope)
    best = _rank_best(settings, retriever, text, ranking, SHOWN_SENTENCES, passages)
    absence = _judge_absence(retriever, text, ranking, best.relevance, scope)
    if absence.reason:
        return absence
    return replace(absence, reason=describe_unnamed(_find_unnamed(retriever, text, best, passages)))


def _judge_absence(retriever: Retriever, text: str, ranking: Ranking, relevance: float | None, scope: Scope) -> Absence:
    """Return why the documents of a ranking, the best with this relevance, do not answer, and what none of them has."""
    from epicrisis.reading.relevance import SIMILARITY_ENCODER, seems_answered
    from epicrisis.reading.support import find_drugs

    documents = count_documents(retriever)
    missing = _find_missing(retriever, text, list_subject_words(text, analyze_words), scope)
    common = _find_missing(retriever, text, list_missed_words(text, analyze_words, documents), scope)
    names = find_other_names(text) if missing else ()
    drugs = {*list_drug_words(text), *(word for one in names if one.is_drug for word in one.words)}
    missing_drugs = [word for word in missing if word in drugs or word in find_drugs(text)]
    missing_drugs += [word for word in common if word in drugs]
    if missing_drugs:
        return Absence(describe_missing(missing_drugs, documents))
    encoder, tops = str(ranking.parameters.get("encoder")), ranking.tops
    similarity = tops.similarity if tops is not None and encoder.startswith(SIMILARITY_ENCODER) else None
    # Documents often write an abbreviation out.
    lacks_word = any(not is_abbreviation(word) for word in missing)
    is_answered = relevance is None or seems_answered(relevance, similarity, lacks_word=lacks_word)
    if not is_answered and missing:
        return Absence(describe_missing((*missing, *common), documents))
    missing += common
    notes = (describe_missing(missing, documents),) if missing else ()
    return Absence("" if is_answered else describe_absence(documents), notes)


def count_documents(retriever: Retriever) -> int:
    """Return the number of documents that are searched."""
    return sum(store.count()[0] for store in retriever.list_stores())


def reword_question(retriever: Retriever, text: str, passages: Sequence[Passage]) -> str:
    """Return a question in the passages' words, if the settings say so."""
    return reword(text, [f"{each.title}\n{each.text}" for each in passages]) if retriever.expands else text


def _rank_best(
    settings: Settings, retriever: Retriever, text: str, ranking: Ranking, k: int, passages: Sequence[Passage]
) -> SentenceRanking:
    question = reword_question(retriever, text, passages)
    listing = Listing(nearest=ranking.tops.dense[0] if ranking.tops and ranking.tops.dense else "")
    return rank_sentences(settings, retriever.sentence_ranker, question, ranking, k, passages, listing)


def _find_unnamed(
    retriever: Retriever, text: str, best: SentenceRanking, passages: Sequence[Passage]
) -> tuple[str, ...]:
    """Return the drugs of a question if the documents of the best sentences name none of them."""
    shown = {sentence.passage.document_id for sentence in best.sentences}
    read = "\n".join(f"{each.title}\n{each.text}" for each in passages if each.document_id in shown)
    return find_unnamed_drugs(text, read, expands=retriever.expands) if shown else ()


def find_unnamed_drugs(question: str, read: str, *, expands: bool) -> tuple[str, ...]:
    """Return the drugs of a question if a text names none of them, by none of their spellings and other names."""
    # The rules of support come with numpy, which some commands do without.
    from epicrisis.reading.support import find_drugs

    drugs = find_drugs(question)
    return () if _names_any(drugs, question, read, expands=expands) else tuple(drugs)


def _keep_named(question: str, passages: Sequence[Passage], *, expands: bool) -> Sequence[Passage]:
    """Return the passages of documents that name a drug of the question, or all if none does."""
    from epicrisis.reading.support import find_drugs

    # Drugs with a common name mean other things in most questions: "lead".
    subject = list_subject_words(question, analyze_words)
    drugs = [*find_drugs(question), *(word for word in list_drug_words(question) if word in subject)]
    documents: dict[str, list[str]] = {}
    for passage in passages:
        documents.setdefault(passage.document_id, []).append(f"{passage.title}\n{passage.text}")
    named: set[str] = set()
    for document_id, texts in documents.items():
        if _names_any(drugs, question, "\n".join(texts), expands=expands):
            named.add(document_id)
    return [passage for passage in passages if passage.document_id in named] or passages


def _names_any(drugs: Sequence[str], question: str, read: str, *, expands: bool) -> bool:
    """Return whether a text names one of the drugs of a question, by any of its spellings and other names."""
    from epicrisis.reading.support import has_drug

    names = find_other_names(question) if expands else ()
    for drug in drugs:
        others = [one for each in names if each.name.casefold().startswith(drug.casefold()) for one in each.others]
        if any(has_drug(name, read) for name in (*list_spellings(drug), *others)):
            return True
    return False


def _find_missing(retriever: Retriever, text: str, words: Sequence[str], scope: Scope) -> tuple[str, ...]:
    """Return those of a question's words that no document has, in no form and under no other name."""
    stores = retriever.list_stores()
    names = find_other_names(text) if retriever.expands else ()
    missing: list[str] = []
    for word in words:
        others = [other for one in names if word in one.words for other in one.others]
        query = " ".join((*list_forms(word), *others))
        if not any(store.search_words(query, 1, scope) for store in stores):
            missing.append(word)
    return tuple(missing)


@dataclass(frozen=True, slots=True)
class Absence:
    """Why no document of the library answers a question. Without a reason, some may."""

    reason: str = ""
    notes: tuple[str, ...] = ()
    """Words of the question that no document has, although some may answer."""


@dataclass(frozen=True, slots=True)
class EvidenceSearch:
    """The searches of one question in a library, as the settings say. Arguments and results can be pickled."""

    settings: Settings
    retriever: Retriever | None
    """None without a library: texts are then compared by words."""

    def find(self, text: str, scope: Scope) -> Ranking:
        """Return the evidence for the question, as `find_evidence` does."""
        return find_evidence(self.settings, self._require_retriever(), text, scope)

    def rank_passages(self, text: str, scope: Scope) -> Ranking:
        """Return the passages whose sentences are ranked."""
        return self._require_retriever().rank(text, SENTENCE_PASSAGES, self.settings.by, scope)

    def rank_sentences(self, text: str, ranking: Ranking, k: int) -> SentenceRanking:
        """Return the best `k` sentences of the passages of a ranking in any order."""
        return rank_sentences(self.settings, self._sentence_ranker, text, ranking, k)

    def read_whole(self, ranking: Ranking, scope: Scope) -> Ranking:
        """Return the ranking with the other passages of its first documents behind it (`Retriever.read_whole`)."""
        ranks = ranking.ranks
        passages = self._require_retriever().read_whole(ranking.passages, scope)
        others = (passage for passage in passages if passage.id not in ranks)
        hits = (Hit(passage, 0.0, rank) for rank, passage in enumerate(others, len(ranking.hits)))
        return replace(ranking, hits=(*ranking.hits, *hits))

    def read_beginnings(self, document_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Return the first passage of each of these documents that is there."""
        return self._require_retriever().read_beginnings(document_ids, scope)

    def list_evidence(self, text: str, ranking: Ranking, k: int, scope: Scope) -> SentenceRanking:
        """Return the best `k` sentences of a library for a reader, as `list_evidence` does."""
        return list_evidence(self.settings, self._require_retriever(), text, ranking, k, scope)

    def find_absence(self, text: str, scope: Scope) -> Absence:
        """Return why no document answers a question."""
        return find_absence(self.settings, self._require_retriever(), text, scope)

    def compare_texts(self, queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each query its similarity to each text, by the encoder or by words."""
        return self._sentence_ranker.compare_texts(queries, texts)

    def read_record(self, scope: Scope) -> Ranking:
        """Return every note of the patient's record in the scope."""
        return self._require_retriever().record(scope)

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        """Return the passages of the patient's record in the scope."""
        return self._require_retriever().store.fetch_record(scope)

    def resolve_time(self, text: str, scope: Scope) -> TimeRestriction:
        """Return the restriction of the patient's notes by the time expressions of the question."""
        retriever = self._require_retriever()
        return resolve_time_restriction(text, lambda: retriever.record(scope).passages)

    def date_citations(self, answer: Answer, scope: Scope) -> Answer:
        """Return the answer with the date of the first note for quotations that a note of the record copied."""
        return date_copied_citations(answer, self._require_retriever().record(scope).passages)

    def check_preflight(self, text: str, scope: Scope) -> Preflight:
        """Return whether rankings of the question agree."""
        check = self.settings.preflight
        return self._require_retriever().preflight(
            text,
            scope,
            rule=check.rule,
            signal=check.signal,
            n=check.n,
            threshold=check.threshold,
            depth=check.depth,
            count=self.settings.count_unit(scope.patient),
        )

    @property
    def _sentence_ranker(self) -> SentenceRanker:
        return BY_WORDS if self.retriever is None else self.retriever.sentence_ranker

    def _require_retriever(self) -> Retriever:
        if self.retriever is None:
            raise EpicrisisError(f"the strategy {self.settings.strategy} reads a library: name one")
        return self.retriever


class RemoteSearch(Protocol):
    """Runs the methods of an EvidenceSearch in other processes, which have opened the same library."""

    @property
    def places(self) -> int:
        """The number of questions that search at once."""

    async def run(self, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return what the method returns. Raises its UserError, and ClusterError."""


def order_evidence(settings: Settings, patient: str | None, ranking: Ranking) -> Ranking:
    """Return the ranking in reading order: chronological, or unchanged."""
    return order_by_time(ranking) if is_chronological(settings, patient) else ranking


def is_chronological(settings: Settings, patient: str | None) -> bool:
    """Return whether evidence is read in chronological order."""
    return settings.order == "time" or (settings.order is None and patient is not None)


async def fit_notes(question: Question, context: Context, ranking: Ranking, tokens: int | None) -> Ranking:
    """Return the first notes of the ranking that fit into `tokens`, or into the writer's window if it is None.

    Notes are not cut, and a remark names the excluded ones. The best note is kept however long it is.
    """
    from epicrisis.answering.document_answers import build_documents_request

    if tokens is None:
        notes = ranking.passages
        while notes:
            request = await build_documents_request(question, context, notes)
            if await request.fits(context, "writer"):
                break
            notes = notes[:-1]
        budget = "what the model's window leaves"
    else:
        model = context.models["writer"]
        counts: dict[str, int] = {}
        for passage in ranking.passages:
            counts[passage.id] = await model.count_tokens(
                (Message("user", format_passage(passage, with_study=context.options.describe_sources)),)
            )
        notes, _ = fit_budget(ranking.passages, tokens, lambda passage: counts[passage.id])
        budget = f"the budget of {tokens:,} tokens"
    n = max(1, len(notes))
    left_out = [passage.document_id for passage in ranking.passages[n:]]
    if not left_out:
        return ranking
    remark = (
        f"{len(left_out)} of {count_noun(len(ranking.hits), 'note')} {agree(len(left_out), 'does', 'do')} not fit "
        f"{budget} whole, and {agree(len(left_out), 'is', 'are')} left out: "
        f"{', '.join(left_out)}"
    )
    parameters = {**ranking.parameters, "left_out": left_out}
    return replace(ranking, hits=ranking.hits[:n], parameters=parameters, notes=(*ranking.notes, remark))


def emit_notes(ranking: Ranking, emit: Callable[[Event], None]) -> Ranking:
    """Emit the remarks of the search, and return the ranking."""
    for note in ranking.notes:
        emit(Notice("search", note))
    return ranking
