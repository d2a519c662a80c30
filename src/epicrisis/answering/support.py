"""Check the claims of an answer against the sentences they cite, and mark or remove unsupported ones.

    answer = await check_answer(answer, "rules", "mark", None, emit)

A claim copied from its sentences is supported. Otherwise the rules can only find a number or a direction that the
sentences do not say; a `Verifier` decides the rest. What each is worth: docs/design/support.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from epicrisis.answering.document_answers import chose_unanswerable
from epicrisis.answering.support_rules import RuleFinding, apply_rules, word_overlap
from epicrisis.answers import Answer, Citation, Claim, Event, Notice, SupportState, WithheldAnswer
from epicrisis.computed_values import COMPUTATION
from epicrisis.printable import count_noun
from epicrisis.protocols import SupportScore, Verifier
from epicrisis.telemetry import span
from epicrisis.types import SupportCheck, UnsupportedPolicy

RULES, VERBATIM = "rules", "verbatim"
"""Values of `Claim.checked_by` without a verifier."""
UNSUPPORTED = frozenset({"not-addressed", "contradicted"})
SAME_SUBJECT = 0.4
"""Share of a claim's words in its sentences from which another number or direction there contradicts the claim. With
fewer words in common they may speak of something else, and do not address it."""
MIN_VERBATIM_WORDS = 3


@dataclass(frozen=True, slots=True)
class ClaimEvidence:
    """What the citations of a claim say."""

    sentences: str
    """Quotations that are verbatim in their documents, one a line. Others are no evidence."""
    context: str
    """The titles of the documents and the question, one a line."""


async def check_answer(
    answer: Answer,
    check: SupportCheck,
    unsupported: UnsupportedPolicy,
    verifier: Verifier | None,
    emit: Callable[[Event], None],
) -> Answer:
    """Return the answer with its claims checked.

    `verifier` decides where the check is `nli` or `model`. An answer none of whose claims is then supported becomes an
    abstention, and holds the model's answer under `withheld`. So does an answer of which no claim remains. Claims that
    could not be checked are kept. An answer like "the record does not say" is not checked, as no words can show it.
    """
    if check == "off" or answer.state != "answered" or not answer.claims or chose_unanswerable(answer):
        return answer
    with span("verify", {"epicrisis.claims": len(answer.claims)}):
        return await _check_claims(answer, unsupported, verifier, emit)


async def _check_claims(
    answer: Answer, unsupported: UnsupportedPolicy, verifier: Verifier | None, emit: Callable[[Event], None]
) -> Answer:
    citations: dict[int, Citation] = {citation.number: citation for citation in answer.citations}
    computed = answer.computed.describe() if answer.computed is not None else ()
    context = "\n".join((answer.question.text, *computed))
    evidence = [gather_evidence(claim, citations, context) for claim in answer.claims]
    claims = [check_by_rules(claim, source) for claim, source in zip(answer.claims, evidence, strict=True)]
    if verifier is not None:
        claims = await _verify(claims, evidence, verifier)
        failures = [claim.reason for claim in claims if claim.support == "not-checked"]
        if failures:
            message = f"{len(failures)} of {count_noun(len(claims), 'claim')} could not be checked: {failures[0]}"
            emit(Notice("support", message))
    answer = replace(answer, claims=tuple(claims))
    doubtful = [claim for claim in claims if claim.support in UNSUPPORTED]
    if len(doubtful) == len(claims) and (verifier is not None or unsupported == "remove"):
        return _withhold_unsupported(answer)
    if doubtful and unsupported == "remove":
        return _remove(answer, doubtful, emit)
    return answer


def gather_evidence(claim: Claim, citations: Mapping[int, Citation], question: str) -> ClaimEvidence:
    """Return the verified quotations of a claim. What was computed may supply its numbers too, as the question."""
    sentences: list[str] = []
    context = [question]
    for number in claim.citations:
        citation = citations.get(number)
        if citation is not None and citation.verified:
            sentences.append(citation.quotation)
            context += [citation.title, citation.date or ""]
    return ClaimEvidence("\n".join(sentences), "\n".join(context))


def check_by_rules(claim: Claim, evidence: ClaimEvidence) -> Claim:
    """Return the claim with the state that can be told without a model: `not-checked` if the rules find nothing.

    A claim that has a state already, such as a quoted sentence, is unchanged.
    """
    if claim.support != "not-checked":
        return claim
    if not evidence.sentences:
        return replace(claim, reason="it cites no sentence that stands in a document")
    if _is_copied(claim.text, evidence.sentences):
        return replace(claim, support="supported", checked_by=VERBATIM)
    findings = apply_rules(claim.text, evidence.sentences, evidence.context)
    if not findings:
        return claim
    is_opposed = any(map(attrgetter("opposed"), findings))
    same_subject = word_overlap(claim.text, evidence.sentences) >= SAME_SUBJECT
    state: SupportState = "contradicted" if is_opposed and same_subject else "not-addressed"
    return replace(claim, support=state, reason=_join_reasons(findings), checked_by=RULES)


async def _verify(claims: Sequence[Claim], evidence: Sequence[ClaimEvidence], verifier: Verifier) -> list[Claim]:
    """Return the claims as the verifier decides.

    Claims that are copied, lack a sentence or contradict a computed answer need no model.
    """
    verified: list[Claim] = []
    pairs: list[tuple[str, str]] = []
    for claim, source in zip(claims, evidence, strict=True):
        if source.sentences and claim.checked_by not in (VERBATIM, COMPUTATION):
            pairs.append((source.sentences, claim.text))
    scores = iter(await verifier.verify(pairs))
    for claim, source in zip(claims, evidence, strict=True):
        if claim.checked_by in (VERBATIM, COMPUTATION):
            verified.append(claim)
        elif not source.sentences:
            verified.append(replace(claim, support="not-addressed", checked_by=RULES))
        else:
            verified.append(decide(claim, next(scores), verifier.name))
    return verified


def decide(claim: Claim, score: SupportScore, name: str) -> Claim:
    """Return the claim, checked by the rules, with the most probable state of the verifier's score.

    A supported claim with a finding of the rules is `partly-supported`. If the verifier could not decide, the finding
    of the rules remains, or the claim is `not-checked`.
    """
    if score.failure:
        return claim if claim.support in UNSUPPORTED else replace(claim, reason=score.failure)
    rest = 1 - score.supported - score.contradicted
    finding = claim.reason if claim.support in UNSUPPORTED else ""
    if score.supported >= max(score.contradicted, rest):
        state: SupportState = "partly-supported" if finding else "supported"
        return replace(claim, support=state, reason=finding, checked_by=name)
    if score.contradicted >= rest:
        reason = finding or f"its sentences contradict it (probability {score.contradicted:.0%})"
        return replace(claim, support="contradicted", reason=reason, checked_by=name)
    reason = finding or f"its sentences do not say so (probability {score.supported:.0%})"
    return replace(claim, support="not-addressed", reason=reason, checked_by=name)


def _is_copied(claim: str, sentences: str) -> bool:
    """Return whether the sentences contain the complete words of the claim, apart from case and the last full stop."""
    words = " ".join(claim.casefold().split()).rstrip(".")
    text = " ".join(sentences.casefold().split())
    if len(words.split()) < MIN_VERBATIM_WORDS:
        return False
    start = text.find(words)
    while start >= 0:
        before, after = text[:start][-1:], text[start + len(words) :][:2]
        if not before.isalnum() and not after[:1].isalnum() and not (after[:1] in (".", ",") and after[1:].isdigit()):
            return True
        start = text.find(words, start + 1)
    return False


def _join_reasons(findings: Sequence[RuleFinding]) -> str:
    return "; ".join(map(attrgetter("reason"), findings))


def _withhold_unsupported(answer: Answer) -> Answer:
    """Return the answer as an abstention, which keeps the claims with the reasons."""
    n = len(answer.claims)
    reasons = "; ".join(dict.fromkeys(map(attrgetter("reason"), answer.claims)))
    head = "its only claim is not supported" if n == 1 else f"none of its {n} claims is supported"
    withheld = WithheldAnswer(answer.text, f"{head}: {reasons}", answer.choice, answer.citations)
    return replace(answer, state="abstained", text="", choice=None, citations=(), withheld=withheld)


def _remove(answer: Answer, doubtful: Sequence[Claim], emit: Callable[[Event], None]) -> Answer:
    """Return the answer without these claims and the citations that only they have. Numbers do not change."""
    for claim in doubtful:
        emit(Notice("support", f"removed “{claim.text}”: {claim.reason}"))
    claims = [claim for claim in answer.claims if claim not in doubtful]
    cited: set[int] = set()
    texts: list[str] = []
    for claim in claims:
        cited.update(claim.citations)
        markers = "".join(map("[{}]".format, claim.citations))
        texts.append(f"{claim.text} {markers}" if markers else claim.text)
    citations = [citation for citation in answer.citations if citation.number in cited]
    return replace(answer, text=" ".join(texts), claims=tuple(claims), citations=tuple(citations))
