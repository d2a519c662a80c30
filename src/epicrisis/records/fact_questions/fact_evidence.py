"""Use a computed answer in a question: as evidence for the chat model, as the first claim, and with its citations.

answer = facts.cite(await strategy(question, facts.add_to_context(context)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from epicrisis.answering.citations import cite
from epicrisis.answering.strategies.evidence import NAME as EVIDENCE
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import (
    Answer,
    Citation,
    Claim,
    Conflict,
    ConflictSide,
    ConflictSource,
    ModelOutcome,
    Quotation,
)
from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.computed_values import COMPUTATION, NO_ENTRY, ComputedAnswer
from epicrisis.core.types import Passage, Question, Ranking, Sentence, SentenceHit, SentenceRanking
from epicrisis.records.fact_questions.contradictions import mark_contradictions
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.record_context import sort_by_time

if TYPE_CHECKING:
    from epicrisis.records.fact_questions.computation import Computation
    from epicrisis.records.fact_questions.fact_conflicts import FactConflict
    from epicrisis.records.fact_questions.record import PatientFacts

MAX_LINES = 12
"""Lines of facts that enter a prompt: the last ones. The statement is computed from all."""
_FACT_LINES = "#facts-"


@dataclass(frozen=True, slots=True)
class FactAnswer:
    """The answer of the structured facts to one question. Empty for a question about anything else."""

    computation: Computation | None = None
    record: PatientFacts | None = None
    conflicts: tuple[FactConflict, ...] = ()

    @property
    def computed(self) -> ComputedAnswer | None:
        """The computed answer without citations."""
        return None if self.computation is None else self.computation.answer

    def add_to_context(self, context: Context) -> Context:
        """Return the context whose prompts have the computed statement, and its lines before other evidence."""
        if self.computation is None or self.record is None or self.computation.answer.state != "answered":
            return context
        passages = self._list_line_passages()
        statement = f"Computed by a program from structured entries of the record: {self.computation.answer.statement}"

        async def retrieve(question: Question) -> Ranking:
            return _put_before(passages, await context.retrieve(question))

        async def select_sentences(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
            selection = await context.select_sentences(question, k, ranking)
            return selection if ranking is None else _add_lines(passages, selection, ranking)

        return replace(
            context,
            retrieve=retrieve,
            select_sentences=select_sentences,
            about=(*context.about, statement),
            record_about=(*context.record_about, statement),
        )

    def _list_line_passages(self) -> list[Passage]:
        """Return one passage for the line of each of the last rows."""
        assert self.computation is not None
        assert self.record is not None
        passages: dict[str, Passage] = {}
        for facts in self.computation.facts[-MAX_LINES:]:
            for fact in facts:
                passage, line = self.record.passage_of(fact), self.record.line_of(fact)
                metadata = {key: value for key, value in passage.metadata.items() if key != FACTS}
                id_ = f"{fact.document_id}{_FACT_LINES}{fact.start}"
                end = fact.start + len(line)
                passages[id_] = replace(passage, id=id_, start=fact.start, end=end, text=line, metadata=metadata)
        return list(passages.values())

    def add_statement(self, answer: Answer) -> Answer:
        """Return the answer with the computed answer, so that checks know its numbers.

        Claims that contradict it are marked.
        """
        if self.computation is None:
            return answer
        computed = self.computation.answer
        claims = mark_contradictions(answer.claims, computed, answer.question.text)
        return replace(answer, computed=computed, claims=claims)

    def cite(self, answer: Answer) -> Answer:
        """Return the answer with the computed sentence first, citations of its rows, and disagreements with notes."""
        if self.computation is None or self.record is None:
            return answer
        numbering = _Numbering(answer, self.record)
        rows = []
        for row, facts in zip(self.computation.answer.rows, self.computation.facts, strict=True):
            rows.append(replace(row, citations=tuple(numbering.number_fact(fact) for fact in facts)))
        conflicts = [_build_conflict(conflict, numbering) for conflict in self.conflicts]
        computed = replace(self.computation.answer, rows=tuple(rows))
        citations = (*answer.citations, *numbering.added)
        answer = replace(answer, computed=computed, citations=citations, conflicts=(*answer.conflicts, *conflicts))
        return _put_first(answer, computed) if computed.state == "answered" else answer


NO_FACTS = FactAnswer()


class _Numbering:
    """Gives facts and sentences the numbers of citations, those of the answer first."""

    def __init__(self, answer: Answer, record: PatientFacts) -> None:
        citations = [*answer.citations, *(answer.withheld.citations if answer.withheld else ())]
        self._next = max((citation.number for citation in citations), default=0) + 1
        self._places = {
            (citation.document_id, citation.start, citation.end): citation.number for citation in answer.citations
        }
        self._record = record
        self.added: list[Citation] = []

    def number_fact(self, fact: ClinicalFact) -> int:
        """Return the number of the citation of a fact's line."""
        return self.number_words(self._record.passage_of(fact), fact.start, self._record.line_of(fact))

    def number_words(self, passage: Passage, start: int, words: str) -> int:
        """Return the number of the citation of words at an offset of a document."""
        place = passage.document_id, start, start + len(words)
        if place not in self._places:
            quotation = Quotation(passage.id, words, start, start + len(words))
            _, citations = cite("", [quotation], [passage])
            self.added.append(replace(citations[0], number=self._next))
            self._places[place] = self._next
            self._next += 1
        return self._places[place]


def _put_before(passages: Sequence[Passage], ranking: Ranking) -> Ranking:
    """Return the ranking with the lines of facts before its hits, or in order of time among them."""
    ids = {passage.id for passage in passages}
    others = [passage for passage in ranking.passages if passage.id not in ids]
    ordered: Sequence[Passage] = (*passages, *others)
    parameters = dict(ranking.parameters)
    if parameters.get("order") == "time":
        notes = [passage for passage in ordered if passage.patient is not None]
        ordered = (*sort_by_time(notes), *(passage for passage in ordered if passage.patient is None))
        ranked = list(parameters.get("ranked", ()))
        parameters["ranked"] = [*(passage.id for passage in passages), *ranked]
    parameters["facts"] = len(passages)
    reranked = rank_in_order(tuple(ordered), ranking.retriever, parameters)
    return replace(reranked, notes=ranking.notes, tops=ranking.tops)


def _add_lines(lines: Sequence[Passage], selection: SentenceRanking, ranking: Ranking) -> SentenceRanking:
    """Return the selection with the lines of facts that the ranking has before other sentences."""
    ids = {passage.id for passage in ranking.passages}
    sentences = [Sentence(line, line.start, line.end) for line in lines if line.id in ids]
    places = {(sentence.passage.document_id, sentence.start) for sentence in sentences}
    hits = [hit for hit in selection.hits if (hit.sentence.passage.document_id, hit.sentence.start) not in places]
    score = selection.hits[0].score if selection.hits else 0.0
    first = [SentenceHit(sentence, score, rank) for rank, sentence in enumerate(sentences)]
    others = [replace(hit, rank=rank) for rank, hit in enumerate(hits, len(first))]
    return replace(selection, hits=(*first, *others))


def _put_first(answer: Answer, computed: ComputedAnswer) -> Answer:
    """Return the answer with the computed sentence as its first claim.

    If the chat model gave no answer, the computed one stands alone, with the model's outcome beside it. A failure
    remains a failure, and without a chosen option a question with options remains an abstention. "No entry" shows
    nothing, so it takes no place before or of the words of a model.
    """
    if answer.strategy != EVIDENCE:
        if answer.state not in ("answered", "abstained") or computed.result == NO_ENTRY:
            return answer
        if answer.state == "abstained":
            if answer.question.options:
                return answer
            outcome = ModelOutcome(answer.state, answer.text, answer.failure)
            answer = replace(answer, model_outcome=outcome, text="", claims=())
    statement = _simplify(computed.statement)
    copies = [claim for claim in answer.claims if _simplify(claim.text) == statement]
    numbers = [number for row in computed.rows for number in row.citations]
    for claim in copies:
        numbers += claim.citations
    first = Claim(computed.statement, tuple(dict.fromkeys(numbers)), "supported", checked_by=COMPUTATION)
    others = [claim for claim in answer.claims if claim not in copies]
    text = " ".join(map(_cite_claim, others)) if copies else answer.text
    return replace(
        answer,
        state="abstained" if answer.question.options and answer.choice is None else "answered",
        text="\n".join(filter(None, (computed.statement, text))),
        claims=(first, *others),
        failure=None,
    )


def _cite_claim(claim: Claim) -> str:
    """Return a claim with its markers, as in the text of an answer."""
    return " ".join((claim.text, *(f"[{citation}]" for citation in claim.citations)))


def _simplify(text: str) -> str:
    """Return the words of a sentence without case, blanks and its full stop, to find copies."""
    return " ".join(text.casefold().split()).rstrip(".")


def _build_conflict(conflict: FactConflict, numbering: _Numbering) -> Conflict:
    """Return the disagreement of a note and structured entries with both sides cited."""
    sentence = conflict.sentence
    passage = sentence.passage
    number = numbering.number_words(passage, sentence.start, sentence.text)
    note = ConflictSource(document_id=passage.document_id, title=passage.title, is_note=True)
    sources = {
        fact.document_id: ConflictSource(document_id=fact.document_id, title=fact.name, is_note=True)
        for fact in conflict.facts
    }
    cited = tuple(dict.fromkeys(numbering.number_fact(fact) for fact in conflict.facts))
    entries = "1 structured entry" if len(conflict.facts) == 1 else f"{len(conflict.facts)} structured entries"
    return Conflict(
        "facts",
        (
            ConflictSide(
                label=conflict.fact_label,
                summary=entries,
                count=len(conflict.facts),
                citations=cited,
                sources=tuple(sources.values()),
            ),
            ConflictSide(
                label=conflict.note_label, summary="1 note of the record", count=1, citations=(number,), sources=(note,)
            ),
        ),
        "nothing; the computed answer uses structured entries alone",
    )
