"""Test that claims are checked against their sentences, and what becomes of unsupported ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.claim_support import GivenDocuments, check_answer, decide
from epicrisis.core.answers import Answer, Citation, Claim, Event, Notice
from epicrisis.core.protocols import SupportScore, Verifier
from epicrisis.core.types import AnswerState, Passage, Question, Sentence, SupportCheck, SupportState, UnsupportedPolicy
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from tests.support.scorers import TermOverlapVerifier
from tests.support.strategies import OPEN_QUESTION

SENTENCE = "Aspirin lowered the risk of stroke by 9 % in 412 adults."
CITATION = Citation(
    number=1,
    passage_id="d#0",
    document_id="d",
    title="Aspirin trial",
    source="source",
    date="2015",
    start=0,
    end=len(SENTENCE),
    quotation=SENTENCE,
    verified=True,
)


def answer_of(*texts: str, citations: Sequence[Citation] = (CITATION,), question: Question = OPEN_QUESTION) -> Answer:
    numbers = tuple(citation.number for citation in citations)
    claims = [Claim(text, numbers) for text in texts]
    text = " ".join(f"{text} [1]" for text in texts)
    return Answer(
        question=question, strategy="rag", state="answered", text=text, citations=tuple(citations), claims=tuple(claims)
    )


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
            "not-checked",
            "its sentences do not say 12 %",
            "rules",
        ),
        ("The mortality of sepsis was 12 %.", "not-checked", "its sentences do not say 12 %", "rules"),
        ("Aspirin was given for 3 years.", "not-checked", "its sentences do not say 3 years", "rules"),
        (
            "Aspirin increased the risk of stroke.",
            "contradicted",
            "it says the opposite of its sentence",
            "rules",
        ),
        ("Warfarin is cheap.", "not-checked", "its source does not name Warfarin", "rules"),
        ("Aspirin is cheap.", "not-checked", "", ""),
        ("Aspirin is cheap (finding 1, document 2).", "not-checked", "", ""),
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
    assert check(answer_of("Taking 100 mg for 3 years lowered it.")).claims[0].is_doubtful


def test_quotation_that_is_in_no_document_is_no_evidence() -> None:
    answer = answer_of(SENTENCE, citations=[replace(CITATION, verified=False)])
    (claim,) = check(answer).claims
    assert (claim.support, claim.reason) == ("not-checked", "it cites no sentence that stands in a document")
    verifier = FixedVerifier(SUPPORTS)
    withheld = check(answer, "nli", "withhold", verifier)
    assert (withheld.state, withheld.claims[0].support, verifier.pairs) == ("abstained", "not-checked", [])


def test_check_off_changes_nothing() -> None:
    answer = answer_of("Aspirin lowered it by 12 %.")
    assert check(answer, "off") is answer


@pytest.mark.parametrize("state", ["abstained", "unparsed", "failed", "over-window"])
def test_question_without_answer_is_not_checked(state: AnswerState) -> None:
    answer = replace(answer_of("Aspirin lowered it by 12 %."), state=state)
    assert check(answer) is answer


def test_unanswerable_option_is_not_checked() -> None:
    question = Question("Dose?", options={"A": "5 mg", "B": "The record does not say"}, form="choice")
    answer = replace(answer_of("The dose of 7 mg is missing.", question=question), choice="B")
    assert check(answer, "nli", "withhold", FixedVerifier()) is answer
    assert check(replace(answer, choice="A")).claims[0].is_doubtful


def test_claim_with_state_keeps_it() -> None:
    claim = Claim("Aspirin lowered it by 12 %.", (1,), "supported", checked_by="verbatim")
    answer = replace(answer_of(), claims=(claim,))
    verifier = FixedVerifier()
    assert check(answer, "nli", "withhold", verifier).claims == (claim,)


def test_withhold_leaves_out_claims_their_citations_and_text() -> None:
    other = replace(CITATION, number=2, quotation="Bleeding was rare.")
    answer = replace(
        answer_of(citations=[CITATION, other]),
        claims=(Claim("Aspirin lowered the risk of stroke by 12 %.", (1,)), Claim("Bleeding was rare.", (2,))),
    )
    kept = check(answer, unsupported="withhold")
    assert (kept.state, kept.text) == ("answered", "Bleeding was rare. [1]")
    assert [claim.text for claim in kept.claims] == ["Bleeding was rare."]
    assert kept.citations == (replace(other, number=1),), "numbers have no gap"
    assert kept.claims[0].citations == (1,)
    assert [(claim.text, claim.reason, claim.citations) for claim in kept.withheld_claims] == [
        ("Aspirin lowered the risk of stroke by 12 %.", "its sentences do not say 12 %", ())
    ]


def test_withhold_keeps_the_choice_of_a_question_with_options() -> None:
    question = Question("Dose?", options={"A": "5 mg", "B": "9 mg"}, form="choice")
    answer = check(replace(answer_of("It is 7 mg.", question=question), choice="A"), unsupported="withhold")
    assert (answer.state, answer.choice, answer.text, answer.citations) == ("answered", "A", "", ())
    assert [claim.text for claim in answer.withheld_claims] == ["It is 7 mg."]


TRIAL = "Pain was significantly lower with aspirin than with placebo (p < 0.001)."
SIDES = "Aspirin is better than placebo for pain.", "Placebo is better than aspirin for pain."


def test_reversed_comparison_on_one_sentence_is_withheld() -> None:
    answer = check(answer_of(*SIDES, citations=[replace(CITATION, quotation=TRIAL)]), unsupported="withhold")
    assert [claim.text for claim in answer.claims] == [SIDES[0]]
    (withheld,) = answer.withheld_claims
    assert (withheld.text, withheld.support) == (SIDES[1], "contradicted")


def test_opposite_claims_on_a_sentence_that_cannot_be_read_are_both_withheld() -> None:
    citation = replace(CITATION, quotation="The pain of the adults is shown in the table for aspirin.")
    texts = "Aspirin reduces pain.", "Aspirin does not reduce pain."
    answer = check(answer_of(*texts, "Adults have pain.", citations=[citation]), unsupported="withhold")
    assert [claim.text for claim in answer.claims] == ["Adults have pain."]
    assert [claim.reason for claim in answer.withheld_claims] == [
        f"another claim says the opposite of one sentence: “{text}”" for text in texts[::-1]
    ]


def documents_of(*sentences: str) -> GivenDocuments:
    text = " ".join(sentences)
    passage = Passage(id="t#0", document_id="t", ordinal=0, start=0, end=len(text), text=text, title="Aspirin trial")
    spans = [(text.index(sentence), text.index(sentence) + len(sentence)) for sentence in sentences]

    async def rank(_: str, k: int) -> list[Sentence]:
        return [Sentence(passage, start, end) for start, end in spans][:k]

    return GivenDocuments((passage,), (passage,), rank, analyze_words, find_sentences)


AIM = "We aimed to compare the effect of aspirin with that of placebo on pain."
FUNDING = "This trial was funded by the National Institute of Pain."


def choose(claim: str, quotation: str, *sentences: str) -> Answer:
    citation = replace(CITATION, document_id="t", passage_id="t#0", quotation=quotation)
    answer = answer_of(claim, citations=[citation])
    return asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents_of(*sentences)))


def test_withheld_answer_names_its_sources_by_their_numbers() -> None:
    gap = replace(CITATION, number=3)
    answer = replace(
        answer_of(citations=[replace(CITATION, number=1, quotation="Bleeding was rare.", verified=False), gap]),
        text="It is 12 %. [3]",
        claims=(Claim("It is 12 %.", (3,)),),
    )
    withheld = check(answer, unsupported="withhold").withheld
    assert withheld is not None
    numbers = [citation.number for citation in withheld.citations]
    assert numbers == list(range(1, len(numbers) + 1))
    assert f"[{numbers[-1]}]" in withheld.text


def test_chosen_sentence_is_one_that_supports_the_claim() -> None:
    other = "Aspirin and placebo were followed by similar pain relief and sleep in the second week (p = 0.5)."
    answer = choose("Aspirin reduces pain.", AIM, other, TRIAL)
    assert [claim.support for claim in answer.claims] == ["supported"]
    assert [citation.quotation for citation in answer.citations] == [TRIAL]


@pytest.mark.parametrize("named", [AIM, FUNDING])
def test_cited_aim_is_replaced_by_the_best_result_on_the_subject(named: str) -> None:
    answer = choose("Aspirin reduces pain.", named, AIM, FUNDING, "Fever was higher in winter.", TRIAL)
    (claim,), (citation,) = answer.claims, answer.citations
    assert (citation.quotation, citation.number, citation.chosen_by_program) == (TRIAL, 1, True)
    assert (claim.support, claim.citations, answer.text) == ("supported", (1,), "Aspirin reduces pain. [1]")


def test_cited_result_that_cannot_be_checked_is_kept() -> None:
    answer = choose(
        "Aspirin helps adults sleep after surgery.", "Aspirin improved sleep in adults after surgery.", TRIAL
    )
    assert [(citation.number, citation.chosen_by_program) for citation in answer.citations] == [(1, False)]


def test_sentence_that_supports_a_claim_in_other_words_stays() -> None:
    answer = choose("In all of these many volunteers of this report aspirin reduces pain.", TRIAL, AIM)
    assert [citation.quotation for citation in answer.citations] == [TRIAL]


def test_sentences_that_support_a_claim_together_stay() -> None:
    texts = "Pain was significantly lower with aspirin than with placebo (30 % and 52 %).", "After a year it was 12 %."
    citations = [
        replace(CITATION, number=number, document_id="t", passage_id="t#0", quotation=text, start=90 * number)
        for number, text in enumerate(texts, 1)
    ]
    answer = answer_of("Aspirin reduces pain, from 52 % to 30 % and to 12 % after a year.", citations=citations)
    answer = replace(answer, claims=tuple(replace(claim, citations=(1, 2)) for claim in answer.claims))
    checked = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents_of(*texts)))
    assert [(claim.support, claim.citations) for claim in checked.claims] == [("supported", (1, 2))]


def test_claim_about_a_method_cites_the_method() -> None:
    method = "Participants were randomised to aspirin or placebo by a computer in 12 hospitals."
    answer = choose("The participants were randomised by a computer to placebo or aspirin.", method, method)
    assert [citation.quotation for citation in answer.citations] == [method]


def test_only_the_supporting_one_of_two_cited_sentences_stays() -> None:
    texts = TRIAL, "Fever was higher in winter than in summer."
    citations = [
        replace(CITATION, number=number, document_id="t", passage_id="t#0", quotation=text, start=90 * number)
        for number, text in enumerate(texts, 1)
    ]
    answer = answer_of("In all of these many volunteers of this report aspirin reduces pain.", citations=citations)
    answer = replace(answer, claims=tuple(replace(claim, citations=(1, 2)) for claim in answer.claims))
    checked = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents_of(*texts)))
    assert [(claim.support, claim.citations) for claim in checked.claims] == [("supported", (1,))]


def test_copied_claim_cites_the_sentence_that_it_copies_alone() -> None:
    texts = "The limb salvage rate was 68.6% at 3 years.", "The patency was 60.3% at 3 years."
    citations = [
        replace(CITATION, number=number, document_id="t", passage_id="t#0", quotation=text, start=90 * number)
        for number, text in enumerate(texts, 1)
    ]
    answer = answer_of(texts[0], citations=citations)
    answer = replace(answer, claims=tuple(replace(claim, citations=(1, 2)) for claim in answer.claims))
    checked = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents_of(*texts)))
    assert [(claim.checked_by, claim.citations) for claim in checked.claims] == [("verbatim", (1,))]


@pytest.mark.parametrize(
    ("claim", "count"), [("It does.", 1), ("It is so.", 1), ("Yes.", 0), ("B", 0), ("A. yes", 0), ("(c) no", 0)]
)
def test_claim_without_words_cites_a_result_in_the_words_of_the_question(claim: str, count: int) -> None:
    """The words of a question say neither yes nor no, so a bare option cites nothing."""
    result = "Aspirin significantly prevented stroke compared with placebo (p = 0.01)."
    words = result, "Fever was higher in winter.", AIM
    assert [len(choose(claim, text, TRIAL).citations) for text in words] == [count, 0, 0]


def test_claim_cites_a_result_with_its_direction_and_half_of_its_outcome() -> None:
    result = (
        "Pre-eclampsia was seen in 1.6 % of the aspirin group and 4.3 % of the placebo group, an odds ratio of 0.38."
    )
    for claim, count in (
        ("Aspirin lowered the risk of preterm pre-eclampsia.", 1),
        ("Aspirin lowered preterm death.", 0),
    ):
        answer = choose(claim, result, AIM, result)
        assert [(len(answer.citations), one.support) for one in answer.claims] == [(count, "not-checked")]


def test_nearest_results_are_shown_where_no_claim_cites_one() -> None:
    result = "Stroke was rarer with aspirin than with placebo (p = 0.01)."
    documents = documents_of(AIM, result)
    nearest: list[list[str]] = []
    for claim in ("Yes.", "Stroke was rarer with aspirin than with placebo."):
        answer = answer_of(claim, citations=[])
        answer = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents))
        nearest.append([citation.quotation for citation in answer.nearest])
        assert [citation.quotation for citation in answer.shown_citations] == [result]
    assert nearest == [[result], []]


def test_nearest_results_begin_with_that_of_the_claim_and_hold_no_method() -> None:
    of_question = "Stroke was rarer with aspirin than with placebo (p = 0.01)."
    of_claim = "Hip fractures were fewer with oestrogen, hazard ratio 0.61."
    documents = documents_of(
        AIM, "Stroke patients aged 50 to 70 years from 20 centres, with placebo for a year.", of_question, of_claim
    )
    ranker = SentenceRanker(None, find_sentences, analyze_words)

    async def rank(text: str, k: int) -> Sequence[Sentence]:
        return ranker.rank(text, documents.passages, k).sentences

    documents = replace(documents, rank=rank)
    answer = replace(answer_of("Hip fractures become less frequent.", citations=[]), question=Question("Stroke?"))
    answer = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents))
    assert [(one.number, one.quotation) for one in answer.nearest] == [(1, of_claim), (2, of_question)]


def test_nearest_results_are_three_with_one_of_each_claim() -> None:
    of_claims = "Hip fractures were fewer with oestrogen.", "Hip fractures were fewer in all groups."
    strokes = [f"Stroke was rarer with {drug} than with placebo." for drug in ("aspirin", "clopidogrel", "warfarin")]
    documents = documents_of(AIM, FUNDING, *of_claims, *strokes)

    async def rank(text: str, k: int) -> Sequence[Sentence]:
        sentences = await documents.rank(text, 9)
        return sentences[2:4] if text.startswith("Hip") else sentences[4:]

    answer = replace(answer_of("Hip fractures become less frequent.", citations=[]), question=Question("Stroke?"))
    answer = asyncio.run(check_answer(answer, "rules", "withhold", None, print, replace(documents, rank=rank)))
    assert [one.quotation for one in answer.nearest] == [of_claims[0], *strokes[:2]]


def test_nearest_results_are_of_documents_that_name_the_asked_drug() -> None:
    results = [f"Stroke was rarer with {drug} than with placebo." for drug in ("aspirin", "warfarin")]
    passages = [
        Passage(id=f"{text}#0", document_id=text, ordinal=0, start=0, end=len(text), text=text) for text in results
    ]

    async def rank(_: str, k: int) -> list[Sentence]:
        return [Sentence(passage, 0, passage.end) for passage in passages][:k]

    documents = GivenDocuments(passages, passages, rank, analyze_words, find_sentences)
    for drug, expected in (("warfarin", results[1:]), ("insulin", results)):
        answer = replace(answer_of("Yes.", citations=[]), question=Question(f"Does {drug} make stroke rarer?"))
        answer = asyncio.run(check_answer(answer, "rules", "withhold", None, print, documents))
        assert [one.quotation for one in answer.nearest] == expected


def test_method_is_refused_by_its_form_and_place_in_an_abstract() -> None:
    """Most words of the claim are there, and no rule of words calls the sentence a method."""
    method = "A total of 612 adults randomized to receive aspirin plus or minus placebo, contingent upon sleep."
    abstract = "Pain is common in adults.", method, TRIAL, "Aspirin may help."
    answer = choose("Aspirin is placebo plus sleep in adults.", method, *abstract)
    assert answer.citations == ()
    result = "Aspirin was significantly better than placebo plus sleep in adults (p = 0.01)."
    answer = choose("Aspirin is placebo plus sleep in adults.", result, *abstract[:2], result, *abstract[2:])
    assert [citation.quotation for citation in answer.citations] == [result]


def test_cited_result_on_something_else_is_refused() -> None:
    answer = choose("Aspirin helps adults sleep.", "Fever was higher in adults in winter.", TRIAL)
    assert answer.citations == ()
    assert answer.claims[0].reason == "no sentence was found that shows it"


def test_chosen_sentence_that_says_the_opposite_withholds_the_claim() -> None:
    answer = choose("Aspirin increases pain.", AIM, TRIAL)
    assert answer.withheld is not None
    assert (answer.state, answer.claims[0].support) == ("abstained", "contradicted")


def test_claim_without_a_result_on_its_subject_cites_nothing_and_is_marked() -> None:
    answer = choose("Aspirin reduces pain.", AIM, AIM, "Fever was higher in winter.")
    (claim,) = answer.claims
    assert (answer.state, answer.text, answer.citations) == ("answered", "Aspirin reduces pain.", ())
    assert (claim.support, claim.reason) == ("not-checked", "no sentence was found that shows it")


def test_claim_on_a_drug_that_no_document_names_is_withheld() -> None:
    answer = choose("Gleevec caused pain.", TRIAL, TRIAL)
    assert answer.withheld is not None
    assert answer.withheld.reason == "its only claim is not supported: its source does not name Gleevec"


def test_claim_with_a_number_of_another_sentence_cites_that_one() -> None:
    other = "Pain after surgery fell by 12 % in adults with aspirin."
    answer = choose("Aspirin lowered pain by 12 % in adults after surgery.", TRIAL, TRIAL, other)
    assert [citation.quotation for citation in answer.citations] == [other]


def test_claim_about_a_method_may_cite_a_method() -> None:
    method = "Adults were randomised to aspirin or placebo."
    answer = choose("Adults were randomised to placebo.", method, TRIAL)
    assert [citation.quotation for citation in answer.citations] == [method]


@pytest.mark.parametrize(
    ("question", "choice", "state"),
    [
        ("Which drug reduces pain?", "A", "abstained"),
        ("Which drug reduces pain?", "B", "answered"),
        ("Which drug does not reduce pain?", "A", "answered"),
        ("Which drug reduces pain?", "C", "answered"),
    ],
)
def test_chosen_drug_that_no_source_names_beside_another_option_is_withheld(
    question: str, choice: str, state: str
) -> None:
    options = {"A": "amiodarone", "B": "aspirin", "C": "the other one"}
    asked = Question(question, options=options, form="choice")
    answer = replace(
        answer_of("Pain was significantly lower than with placebo.", citations=[replace(CITATION, quotation=TRIAL)]),
        question=asked,
    )
    checked = asyncio.run(
        check_answer(replace(answer, choice=choice), "rules", "withhold", None, print, documents_of(TRIAL))
    )
    assert checked.state == state
    if checked.withheld is not None:
        assert checked.withheld.reason == "its sources name aspirin, and not amiodarone"
        assert checked.withheld.choice == "A"


def test_withhold_of_all_claims_abstains() -> None:
    answer = check(answer_of("Aspirin lowered the risk of stroke by 12 %."), unsupported="withhold")
    assert (answer.state, answer.text, answer.citations) == ("abstained", "", ())
    assert answer.withheld is not None
    assert answer.withheld.text == "Aspirin lowered the risk of stroke by 12 %. [1]"
    assert answer.withheld.reason == "its only claim is not supported: its sentences do not say 12 %"
    assert answer.withheld.citations == (CITATION,)


@pytest.mark.parametrize(
    ("score", "support", "reason"),
    [
        (SUPPORTS, "supported", ""),
        (SILENT, "not-checked", "its sentences do not say so"),
        (OPPOSES, "contradicted", "its sentences contradict it"),
        (FAILED, "not-checked", "the endpoint did not answer"),
    ],
)
def test_verifier_decides_what_rules_leave_open(score: SupportScore, support: SupportState, reason: str) -> None:
    claim = decide(Claim("Aspirin is cheap.", (1,)), score, "fixed")
    assert (claim.support, claim.reason) == (support, reason)
    assert claim.checked_by == ("" if score.failure else "fixed")


def test_verifier_is_not_asked_about_a_claim_that_the_rules_doubt() -> None:
    verifier = FixedVerifier()
    answer = check(answer_of("Aspirin lowered the risk of stroke by 12 %."), "nli", verifier=verifier)
    (claim,) = answer.claims
    assert (claim.support, claim.checked_by, claim.reason) == ("not-checked", "rules", "its sentences do not say 12 %")


def test_verifier_gets_no_copied_claims_and_scores_stay_in_order() -> None:
    verifier = FixedVerifier(OPPOSES, SUPPORTS)
    answer = check(answer_of("Aspirin is dear.", SENTENCE, "Aspirin is cheap."), "nli", verifier=verifier)
    assert [claim.support for claim in answer.claims] == ["contradicted", "supported", "supported"]
    assert [claim for _, claim in verifier.pairs] == ["Aspirin is dear.", "Aspirin is cheap."]


def test_answer_without_supported_claim_abstains() -> None:
    verifier = FixedVerifier(SILENT, OPPOSES)
    answer = check(answer_of("Aspirin is dear.", "Aspirin is cheap."), "model", "withhold", verifier)
    assert (answer.state, answer.text, answer.choice) == ("abstained", "", None)
    assert answer.withheld is not None
    assert answer.withheld.reason.startswith("none of its 2 claims is supported: its sentences do not say so")
    assert [claim.support for claim in answer.claims] == ["not-checked", "contradicted"]


@pytest.mark.parametrize("unsupported", ["mark", "withhold"])
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
    assert [claim.support for claim in answer.claims] == ["supported", "not-checked"]


@pytest.mark.slow
@given(st.text(min_size=1, max_size=200))
def test_claim_equal_to_its_sentence_is_never_doubted(text: str) -> None:
    citation = replace(CITATION, quotation=text)
    (claim,) = check(answer_of(text, citations=[citation])).claims
    assert claim.support in ("supported", "not-checked")


@pytest.mark.slow
@given(st.integers(1, 400), st.integers(2, 9))
def test_claim_with_another_number_is_always_doubtful(number: int, factor: int) -> None:
    sentence = f"Aspirin lowered the risk of stroke by {number} % in adults."
    citation = replace(CITATION, quotation=sentence)
    other = f"Aspirin lowered the risk of stroke by {number * factor} % in adults."
    assert check(answer_of(sentence, citations=[citation])).claims[0].support == "supported"
    assert check(answer_of(other, citations=[citation])).claims[0].is_doubtful
