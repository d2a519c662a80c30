"""Evidence without a chat model: the sentences of the library that bear on a question, best first."""

from __future__ import annotations

from epicrisis.answering.citations import cite
from epicrisis.answering.document_answers import NOTHING_RETRIEVED, chose_unanswerable
from epicrisis.answering.strategy_context import Context
from epicrisis.answers import Answer, Claim, Notice, Quotation, SentencesSelected
from epicrisis.prompts import check_scope
from epicrisis.types import EvidenceSpan, Passage, Question, SentenceRanking

NAME = "evidence"


async def evidence(question: Question, context: Context) -> Answer:
    """Return the best sentences as claims, each with its source. No chat model is called.

    The state is `answered` for a question without options, and `abstained` for one with options, because nothing
    chooses among them. Raises ScopeViolation for a passage outside the scope.
    """
    ranking = await context.select_sentences(question, context.sentences, None)
    # No prompt is rendered, which would check the scope again.
    check_scope([sentence.passage for sentence in ranking.sentences], context.scope)
    for note in ranking.notes:
        context.emit(Notice("search", note))
    context.emit(SentencesSelected(list_spans(ranking), ranking.tops))
    if not ranking.hits:
        return Answer(question, NAME, "abstained", failure=NOTHING_RETRIEVED)
    quotations: list[Quotation] = []
    passages: list[Passage] = []
    for sentence in ranking.sentences:
        quotations.append(Quotation(sentence.passage.id, sentence.text, sentence.start, sentence.end))
        passages.append(sentence.passage)
    _, citations = cite("", quotations, passages)
    claims: list[Claim] = []
    for citation in citations:
        claims.append(Claim(citation.quotation, (citation.number,), "supported", checked_by="verbatim"))
    text = "\n".join(f"{claim.text} [{claim.citations[0]}]" for claim in claims)
    return Answer(
        question,
        NAME,
        "abstained" if question.options else "answered",
        text=text,
        citations=citations,
        claims=tuple(claims),
    )


def has_result(answer: Answer) -> bool:
    """Return whether the notes in the prompt answer the question. If so, the whole record is not read.

    For the strategy `evidence` any sentence is a result, also if nothing chooses among the options of the question.
    """
    if answer.strategy == NAME:
        return bool(answer.claims)
    return answer.model_state != "abstained" and not chose_unanswerable(answer)


def list_spans(ranking: SentenceRanking) -> tuple[EvidenceSpan, ...]:
    """Return the places of the sentences, for the trace."""
    spans: list[EvidenceSpan] = []
    for sentence in ranking.sentences:
        spans.append(EvidenceSpan(sentence.passage.document_id, sentence.start, sentence.end))
    return tuple(spans)
