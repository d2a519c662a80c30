"""Test that claims are checked against their sentences, and what becomes of unsupported ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.support import check_answer, decide
from epicrisis.answers import Answer, Citation, Claim, Event, Notice, SupportState
from epicrisis.protocols import SupportScore, Verifier
from epicrisis.testing.scorers import TermOverlapVerifier
from epicrisis.types import AnswerState, Question, SupportCheck, UnsupportedPolicy
from tests.support.strategies import OPEN_QUESTION

SENTENCE = "Aspirin lowered the risk of stroke by 9 % in 412 adults."
CITATION = Citation(1, "d#0", "d", "Aspirin trial", "source", "2015", 0, len(SENTENCE), SENTENCE, verified=True)


def answer_of(*texts: str, citations: Sequence[Citation] = (CITATION,), question: Question = OPEN_QUESTION) -> Answer:
    numbers = tuple(citation.number for citation in citations)
    claims = [Claim(text, numbers) for text in texts]
    text = " ".join(f"{text} [1]" for text in texts)
    return Answer(question, "rag", "answered", text, citations=tuple(citations), claims=tuple(claims))


def check(
    answer: Answer,
    mode: SupportCheck = "rules",
    unsupported: UnsupportedPolicy = "mark",
    verifier: Verifier | None = None,
    events: list[Event] | None = None,
) -> Answer:
    emit = (events if events is not None else []).append
    return asyncio.run(check_answer(answer, mode, unsupported, verifier, emit))


class FixedVerifier:
    """Gives each pair the next of these scores, and collects the pairs."""

    name = "fixed"

    def __init__(self, *scores: SupportScore) -> None:
        self._scores = list(scores)
        self.pairs: list[tuple[str, str]] = []

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        self.pairs += pairs
        return [self._scores.pop(0) for _ in pairs]


SUPPORTS, SILENT, OPPOSES = SupportScore(0.8, 0.1), SupportScore(0.2, 0.1), SupportScore(0.1, 0.8)
FAILED = SupportScore(failure="the endpoint did not answer")


@pytest.mark.parametrize(
    ("text", "support", "reason", "checked_by"),
    [
        (SENTENCE, "supported", "", "verbatim"),
        ("aspirin lowered the risk of stroke", "supported", "", "verbatim"),
        ("Aspirin lowered the risk of stroke by 9 %.", "supported", "", "verbatim"),
        (
            "Aspirin lowered the risk of stroke by 12 %.",
            "contradicted",
            "its sentences do not say 12 %, but 9 %",
            "rules",
        ),
        ("The mortality of sepsis was 12 %.", "not-addressed", "its sentences do not say 12 %, but 9 %", "rules"),
        ("Aspirin was given for 3 years.", "not-addressed", "its sentences do not say 3 years", "rules"),
        (
            "Aspirin increased the risk of stroke.",
            "contradicted",
            "it speaks of increase, its sentences of decrease",
            "rules",
        ),
        ("Aspirin is cheap.", "not-checked", "", ""),
        ("Stroke", "not-checked", "", ""),
    ],
)
def test_rules_mark_claims_that_their_sentences_do_not_say(
    text: str, support: SupportState, reason: str, checked_by: str
) -> None:
    answer = check(answer_of(text))
    (claim,) = answer.claims
    assert (claim.support, claim.reason, claim.checked_by) == (support, reason, checked_by)
    assert (answer.state, answer.text) == ("answered", f"{text} [1]")


def test_number_within_a_longer_number_is_not_verbatim() -> None:
    (claim,) = check(answer_of("risk of stroke by 9 % in 4")).claims
    assert claim.checked_by != "verbatim"


def test_number_of_question_or_title_is_no_contradiction() -> None:
    question = Question("Does 100 mg of aspirin prevent stroke?")
    citation = replace(CITATION, title="Aspirin over 3 years")
    answer = answer_of("Taking 100 mg for 3 years lowered it.", question=question, citations=[citation])
    assert check(answer).claims[0].support == "not-checked"
    assert check(answer_of("Taking 100 mg for 3 years lowered it.")).claims[0].support == "not-addressed"


def test_quotation_that_is_in_no_document_is_no_evidence() -> None:
    answer = answer_of(SENTENCE, citations=[replace(CITATION, verified=False)])
    (claim,) = check(answer).claims
    assert (claim.support, claim.reason) == ("not-checked", "it cites no sentence that stands in a document")
    verifier = FixedVerifier(SUPPORTS)
    withheld = check(answer, "nli", verifier=verifier)
    assert (withheld.state, withheld.claims[0].support, verifier.pairs) == ("abstained", "not-addressed", [])


def test_check_off_changes_nothing() -> None:
    answer = answer_of("Aspirin lowered it by 12 %.")
    assert check(answer, "off") is answer


@pytest.mark.parametrize("state", ["abstained", "unparsed", "failed", "over-window"])
def test_question_without_answer_is_not_checked(state: AnswerState) -> None:
    answer = replace(answer_of("Aspirin lowered it by 12 %."), state=state)
    assert check(answer) is answer


def test_unanswerable_option_is_not_checked() -> None:
    question = Question("Dose?", {"A": "5 mg", "B": "The record does not say"}, "choice")
    answer = replace(answer_of("The dose of 7 mg is missing.", question=question), choice="B")
    assert check(answer, "nli", "remove", FixedVerifier()) is answer
    assert check(replace(answer, choice="A")).claims[0].support == "not-addressed"


def test_claim_with_state_keeps_it() -> None:
    claim = Claim("Aspirin lowered it by 12 %.", (1,), "supported", checked_by="verbatim")
    answer = replace(answer_of(), claims=(claim,))
    verifier = FixedVerifier()
    assert check(answer, "nli", "remove", verifier).claims == (claim,)


def test_remove_leaves_out_claims_their_citations_and_text() -> None:
    other = replace(CITATION, number=2, quotation="Bleeding was rare.")
    answer = replace(
        answer_of(citations=[CITATION, other]),
        claims=(Claim("Aspirin lowered the risk of stroke by 12 %.", (1,)), Claim("Bleeding was rare.", (2,))),
    )
    events: list[Event] = []
    kept = check(answer, unsupported="remove", events=events)
    assert (kept.state, kept.text) == ("answered", "Bleeding was rare. [2]")
    assert [claim.text for claim in kept.claims] == ["Bleeding was rare."]
    assert kept.citations == (other,)
    message = "removed “Aspirin lowered the risk of stroke by 12 %.”: its sentences do not say 12 %, but 9 %"
    assert events == [Notice("support", message)]


def test_remove_of_all_claims_abstains() -> None:
    answer = check(answer_of("Aspirin lowered the risk of stroke by 12 %."), unsupported="remove")
    assert (answer.state, answer.text, answer.citations) == ("abstained", "", ())
    assert answer.withheld is not None
    assert answer.withheld.text == "Aspirin lowered the risk of stroke by 12 %. [1]"
    assert answer.withheld.reason == "its only claim is not supported: its sentences do not say 12 %, but 9 %"
    assert answer.withheld.citations == (CITATION,)


@pytest.mark.parametrize(
    ("score", "support", "reason"),
    [
        (SUPPORTS, "supported", ""),
        (SILENT, "not-addressed", "its sentences do not say so (probability 20%)"),
        (OPPOSES, "contradicted", "its sentences contradict it (probability 80%)"),
        (FAILED, "not-checked", "the endpoint did not answer"),
    ],
)
def test_verifier_decides_what_rules_leave_open(score: SupportScore, support: SupportState, reason: str) -> None:
    claim = decide(Claim("Aspirin is cheap.", (1,)), score, "fixed")
    assert (claim.support, claim.reason) == (support, reason)
    assert claim.checked_by == ("" if score.failure else "fixed")


def test_verifier_and_finding_of_rules_make_partly_supported() -> None:
    verifier = FixedVerifier(SUPPORTS)
    answer = check(answer_of("Aspirin lowered the risk of stroke by 12 %."), "nli", verifier=verifier)
    (claim,) = answer.claims
    assert (answer.state, claim.support, claim.checked_by) == ("answered", "partly-supported", "fixed")
    assert claim.reason == "its sentences do not say 12 %, but 9 %"
    assert verifier.pairs == [(SENTENCE, "Aspirin lowered the risk of stroke by 12 %.")]


def test_verifier_gets_no_copied_claims_and_scores_stay_in_order() -> None:
    verifier = FixedVerifier(OPPOSES, SUPPORTS)
    answer = check(answer_of("Aspirin is dear.", SENTENCE, "Aspirin is cheap."), "nli", verifier=verifier)
    assert [claim.support for claim in answer.claims] == ["contradicted", "supported", "supported"]
    assert [claim for _, claim in verifier.pairs] == ["Aspirin is dear.", "Aspirin is cheap."]


@pytest.mark.parametrize("unsupported", ["mark", "remove"])
def test_answer_without_supported_claim_abstains(unsupported: UnsupportedPolicy) -> None:
    verifier = FixedVerifier(SILENT, OPPOSES)
    answer = check(answer_of("Aspirin is dear.", "Aspirin is cheap."), "model", unsupported, verifier)
    assert (answer.state, answer.text, answer.choice) == ("abstained", "", None)
    assert answer.withheld is not None
    assert answer.withheld.reason.startswith("none of its 2 claims is supported: its sentences do not say so")
    assert [claim.support for claim in answer.claims] == ["not-addressed", "contradicted"]


@pytest.mark.parametrize("unsupported", ["mark", "remove"])
def test_failed_check_keeps_the_claim_and_says_so(unsupported: UnsupportedPolicy) -> None:
    events: list[Event] = []
    verifier = FixedVerifier(FAILED, SILENT)
    answer = check(answer_of("Aspirin is dear.", "Aspirin is cheap."), "nli", unsupported, verifier, events)
    assert answer.state == "answered"
    assert answer.claims[0].support == "not-checked"
    assert len(answer.claims) == (2 if unsupported == "mark" else 1)
    assert events[0] == Notice("support", "1 of 2 claims could not be checked: the endpoint did not answer")


def test_check_with_word_overlap_verifier_separates_claims() -> None:
    texts = ("The risk of stroke lowered in adults.", "Zebras graze at dawn.")
    answer = check(answer_of(*texts), "nli", verifier=TermOverlapVerifier())
    assert [claim.support for claim in answer.claims] == ["supported", "not-addressed"]


@pytest.mark.slow
@given(st.text(min_size=1, max_size=200))
def test_claim_equal_to_its_sentence_is_never_doubted(text: str) -> None:
    citation = replace(CITATION, quotation=text)
    (claim,) = check(answer_of(text, citations=[citation])).claims
    assert claim.support in ("supported", "not-checked")


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(2, 9))
def test_claim_with_another_number_is_always_contradicted(number: int, factor: int) -> None:
    sentence = f"Aspirin lowered the risk of stroke by {number} % in adults."
    citation = replace(CITATION, quotation=sentence)
    other = f"Aspirin lowered the risk of stroke by {number * factor} % in adults."
    assert check(answer_of(sentence, citations=[citation])).claims[0].support == "supported"
    assert check(answer_of(other, citations=[citation])).claims[0].support == "contradicted"
