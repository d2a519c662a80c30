"""Evidence without a chat model: the sentences of the library that bear on a question, best first."""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.answering.citations import cite
from epicrisis.answering.document_answers import NOTHING_RETRIEVED, chose_unanswerable
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import NOT_IN_LIBRARY, Answer, Claim, Failure, Notice, Quotation, SentencesSelected
from epicrisis.core.prompts import check_scope
from epicrisis.core.types import EvidenceSpan, Passage, Question, Sentence, SentenceRanking
from epicrisis.reading.directions import EffectReading, find_effect, match_options

NAME = "evidence"
CHOOSING = 0.9
"""The least probability of a direction that chooses an option."""


async def evidence(question: Question, context: Context) -> Answer:
    """Return the best sentences as claims, each with its source. No chat model is called.

    Among the options `increased`, `decreased` and `no difference`, in other words too, the direction of the sentences
    chooses, if one is sure and none contradicts it (docs/design/conflicts.md). Other questions with options are
    `abstained`, because nothing chooses. Raises ScopeViolation for a passage outside the scope.
    """
    ranking = await context.select_sentences(question, context.options.sentences, None)
    # No prompt is rendered, which would check the scope again.
    check_scope([sentence.passage for sentence in ranking.sentences], context.scope)
    for note in ranking.notes:
        context.emit(Notice("search", note))
    context.emit(SentencesSelected(list_spans(ranking), ranking.tops))
    if not ranking.hits:
        return Answer(question=question, strategy=NAME, state="abstained", failure=NOTHING_RETRIEVED)
    if ranking.absence and not question.options:
        return Answer(
            question=question, strategy=NAME, state="abstained", failure=Failure(NOT_IN_LIBRARY, ranking.absence)
        )
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
    choice, probability = choose_direction(question, ranking.sentences)
    return Answer(
        question=question,
        strategy=NAME,
        state="abstained" if question.options and choice is None else "answered",
        text=text,
        choice=choice,
        citations=citations,
        distribution={} if choice is None else {choice: probability},
        decided_by="" if choice is None else "direction",
        claims=tuple(claims),
    )


def choose_direction(question: Question, sentences: Sequence[Sentence]) -> tuple[str | None, float]:
    """Return the letter of the option with the direction of the sentences, and its probability.

    The first document chooses by its first sentence. None if its direction is not sure, if another document says
    another one, if no option names it, and for notes of patients.
    """
    letters = match_options(question.options)
    effects: list[EffectReading] = []
    seen: set[str] = set()
    for sentence in sentences if letters else ():
        passage = sentence.passage
        if passage.document_id in seen or passage.patient is not None or passage.is_retracted:
            continue
        seen.add(passage.document_id)
        effect = find_effect(question.text, sentence.text, passage.title)
        if effect is not None:
            effects.append(effect)
        elif len(seen) == 1:
            break
    if len({effect.direction for effect in effects}) != 1 or effects[0].probability < CHOOSING:
        return None, 0.0
    return letters.get(effects[0].direction), effects[0].probability


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


STRATEGY = Strategy(
    name=NAME,
    run=evidence,
    label="Sentences only, no chat model",
    help="The sentences of the library that bear on the question, best first, without a chat model.",
    needs_model=False,
    needs_sentences=True,
)
