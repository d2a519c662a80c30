"""Check the claims of an answer against the sentences they cite, replace citations that show nothing, withhold claims.

    answer = await check_answer(answer, "rules", "withhold", None, emit, documents)

`epicrisis.reading.support` says what a sentence says of a claim; a `Verifier` decides the rest. What each is worth:
docs/design/support.md.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.citations import build_citation
from epicrisis.answering.document_answers import chose_unanswerable
from epicrisis.core.answers import Answer, Citation, Claim, Event, Notice, Quotation, WithheldAnswer
from epicrisis.core.computed_values import COMPUTATION
from epicrisis.core.printable import count_noun
from epicrisis.core.protocols import SupportScore, Verifier
from epicrisis.core.types import Passage, Sentence, SupportCheck, UnsupportedPolicy
from epicrisis.reading.articles import find_headings
from epicrisis.reading.claims import are_opposed, read_claim
from epicrisis.reading.direction_rules import list_stems
from epicrisis.reading.roles import ROLES, SHORT_DOCUMENT, STATES_RESULTS, classify_places
from epicrisis.reading.support import (
    CitedSentence,
    check_claim,
    find_missing_drugs,
    find_missing_numbers,
    find_missing_subject,
    shares_direction,
    states_result,
)
from epicrisis.system.telemetry import span

RULES, VERBATIM = "rules", "verbatim"
"""Values of `Claim.checked_by` without a verifier."""
CHOICES = 5
"""The best sentences of the documents among which one is chosen for a claim."""
NEAREST = 3
"""Results at most that are shown where no claim cites a sentence."""
SAME_SUBJECT = 0.5
"""Share of a claim's words below which no other sentence is read for it, and of the question's for "It does"."""
SAME_CLAIM = 0.8
"""Share of a claim's words that a sentence which does not by itself support it, or its title, has."""
RESULT = 0.5
"""The least probability that a sentence of an abstract that a claim cites is a result or a conclusion."""
NEAR_RESULT = 0.2
"""The least one of a sentence that is shown beside an answer without citations."""
ABSTRACT = range(4, SHORT_DOCUMENT)
"""The number of sentences of an abstract, whose place tells what they are. Guidelines and textbooks are longer."""
LONG_WORD = 4
"""Letters of a word that tells what a claim is about."""
_REFERENCE = re.compile(r"\b(?:doc|document|evidence|finding|part|sentence|source)s? \d{1,3}\b", re.IGNORECASE)
"""Words of a claim that name a place in its prompt."""
_EXCLUDES = re.compile(
    r"\b(?:not|except|least|avoid|contraindicated|other than|instead of|unlike)\b|n't\b", re.IGNORECASE
)
"""Words of a question whose right option may stand in no source."""
_OPTION = re.compile(r"\W*+(?:[A-Z]\b\W*+)?(?:yes|no|maybe)?\W*+", re.IGNORECASE)
"""A claim that only repeats an option: `B`, `A. yes`, `No.`"""
NO_SENTENCE = "it cites no sentence that stands in a document"
NO_PROOF = "no sentence was found that shows it"


@dataclass(frozen=True, slots=True)
class GivenDocuments:
    """The documents that a model read, and what finds sentences in them."""

    passages: Sequence[Passage]
    whole: Sequence[Passage]
    """Their documents, each as one passage of all that is at hand of it."""
    rank: Callable[[str, int], Awaitable[Sequence[Sentence]]]
    """Return the best sentences of the documents for a claim, at most so many."""
    analyze: Callable[[str], Sequence[str]]
    """Return the stems of the words of a text."""
    split: Callable[[str], Iterable[tuple[int, int]]]
    """Return the places of the sentences of a text."""

    def may_be_result(self, citation: Citation, least: float) -> bool:
        """Return whether a sentence may be a result or conclusion, by its words and its place in an abstract.

        In a text that is no abstract any sentence may be one.
        """
        texts = [passage for passage in self.whole if passage.document_id == citation.document_id]
        starts = [passage.start + start for passage in texts for start, _ in self.split(passage.text)]
        if len(starts) not in ABSTRACT:
            return True
        place = sum(start < citation.start for start in starts)
        (row,) = classify_places([(citation.quotation, min(place, len(starts) - 1), len(starts))])
        return float(sum(row[ROLES.index(role)] for role in STATES_RESULTS)) >= least

    def read(self, document_id: str) -> str:
        """Return what was read of a document."""
        return "\n".join(passage.text for passage in self.passages if passage.document_id == document_id)


@dataclass(slots=True)
class _Check:
    """The citations and claims of an answer while they are checked."""

    citations: dict[int, Citation]
    question: str
    context: str
    """The question and what was computed. They may supply a claim's numbers."""
    documents: GivenDocuments | None

    def list_evidence(self, claim: Claim) -> list[Citation]:
        """Return the citations whose quotation stands in its document. Others are no evidence."""
        cited = (self.citations.get(number) for number in claim.citations)
        return [citation for citation in cited if citation is not None and citation.verified]

    def find_objection(self, text: str, evidence: Sequence[Citation]) -> str:
        """Return which number, drug or subject of a claim its sentences lack, or an empty text."""
        text = _REFERENCE.sub("", text)
        sentences = "\n".join(citation.quotation for citation in evidence)
        titles = "\n".join(f"{citation.title}\n{citation.date or ''}" for citation in evidence)
        read = "\n".join((sentences, titles, *(self._read(citation) for citation in evidence)))
        missing = find_missing_numbers(text, sentences, f"{self.context}\n{titles}", read)
        if missing:
            return f"its sentences do not say {' and '.join(missing)}"
        names = find_missing_drugs(text, read)
        if not names and self.documents is not None:
            names = find_missing_subject(text, read, self.documents.analyze)
        return f"its source does not name {' and '.join(names)}" if names else ""

    def check(self, claim: Claim, evidence: Sequence[Citation]) -> Claim:
        """Return the claim with what these sentences say of it."""
        sentences: list[CitedSentence] = []
        for citation in evidence:
            sentences.append(CitedSentence(citation.quotation, citation.title, self._read(citation)))
        check = check_claim(claim.text, sentences)
        if check.is_verbatim:
            return replace(claim, support="supported", checked_by=VERBATIM)
        objection = "" if check.state == "contradicted" else self.find_objection(claim.text, evidence)
        if objection:
            return replace(claim, reason=objection, checked_by=RULES)
        checked_by = "" if check.state == "not-checked" else RULES
        return replace(claim, support=check.state, reason=check.reason, checked_by=checked_by)

    def find_unnamed_choice(self, answer: Answer) -> str:
        """Return why the choice is not trusted: its sources name another option, and not the drug of this one."""
        options = answer.question.options
        if answer.choice is None or _EXCLUDES.search(answer.question.text):
            return ""
        read = "\n".join(f"{each.title}\n{each.quotation}\n{self._read(each)}" for each in answer.citations)
        missing = find_missing_drugs(options[answer.choice], read)
        stems = list_stems(read)
        named = [text for text in options.values() if list_stems(text) and list_stems(text) <= stems]
        if not missing or not named:
            return ""
        return f"its sources name {named[0]}, and not {' and '.join(missing)}"

    def shares(self, claim: Claim, citation: Citation, share: float) -> bool:
        """Return whether a sentence or its title has this share of a claim's words."""
        stems = list_stems(claim.text)
        return len(stems & list_stems(f"{citation.quotation} {citation.title}")) >= share * len(stems)

    def proves(self, claim: Claim, citation: Citation) -> bool:
        """Return whether a sentence by itself supports a claim, or nearly says the same.

        A claim without a long word, such as "It does", says what the question asks: a result in half of the question's
        words suffices. A bare option says nothing that a sentence could show.
        """
        if _OPTION.fullmatch(claim.text):
            return False
        if not has_words(claim):
            return self.shares(replace(claim, text=self.question), citation, SAME_SUBJECT) and is_result(
                citation, self.documents
            )
        checked = self.check(claim, [citation])
        return checked.support == "supported" or (not checked.is_doubtful and self.says_nearly(claim, citation))

    def says_nearly(self, claim: Claim, citation: Citation) -> bool:
        """Return whether a sentence has most of a claim's words, or its direction for half of its outcome's words."""
        if self.shares(claim, citation, SAME_CLAIM):
            return True
        return shares_direction(claim.text, CitedSentence(citation.quotation, citation.title, self._read(citation)))

    async def choose(self, claim: Claim) -> Claim | None:
        """Return the claim with a result sentence that supports it or has most of its words, or None without one.

        It is the best-ranked that supports the claim; if none does, the best-ranked.
        """
        if self.documents is None or not has_words(claim):
            return None
        best: tuple[Citation, Claim] | None = None
        for sentence in await self.documents.rank(claim.text, CHOICES):
            citation = _cite_sentence(max(self.citations, default=0) + 1, sentence)
            if not self.shares(claim, citation, SAME_SUBJECT):
                continue
            checked = self.check(claim, [citation])
            is_about_it = not checked.is_doubtful and self.says_nearly(claim, citation)
            if (checked.support == "not-checked" and not is_about_it) or not is_result(citation, self.documents):
                continue
            if best is None or checked.support == "supported":
                best = citation, checked
            if checked.support == "supported":
                break
        if best is None:
            return None
        citation, checked = best
        same = (number for number, other in self.citations.items() if _is_same_place(other, citation))
        number = next(same, citation.number)
        self.citations.setdefault(number, citation)
        return replace(checked, citations=(number,))

    def _read(self, citation: Citation) -> str:
        return "" if self.documents is None else self.documents.read(citation.document_id)


def has_words(claim: Claim) -> bool:
    """Return whether a claim has a word that tells what it is about."""
    return any(len(stem) >= LONG_WORD for stem in list_stems(claim.text))


def _is_same_place(citation: Citation, other: Citation) -> bool:
    return (citation.document_id, citation.start, citation.end) == (other.document_id, other.start, other.end)


def is_result(citation: Citation, documents: GivenDocuments | None, least: float = RESULT) -> bool:
    """Return whether a cited sentence may state a result: it is no title, aim, method or funding."""
    (heading,) = find_headings([(citation.quotation, citation.reference.section)])
    if citation.in_title or not states_result(citation.quotation, heading):
        return False
    return documents is None or documents.may_be_result(citation, least)


async def check_answer(
    answer: Answer,
    check: SupportCheck,
    unsupported: UnsupportedPolicy,
    verifier: Verifier | None,
    emit: Callable[[Event], None],
    documents: GivenDocuments | None = None,
) -> Answer:
    """Return the answer with its claims checked.

    `verifier` decides where the check names one. `documents` are those that a sentence may be chosen from; None for a
    patient's notes. An answer whose claims are all withheld becomes an abstention, and holds the model's answer under
    `withheld`. An answer like "the record does not say" is not checked, as no words can show it.
    """
    if check == "off" or answer.state != "answered" or not answer.claims or chose_unanswerable(answer):
        return answer
    with span("verify", {"epicrisis.claims": len(answer.claims)}):
        checked = await _check_claims(answer, unsupported, verifier, emit, documents)
        if documents is not None and checked.state == "answered" and not checked.citations:
            checked = replace(checked, nearest=await _find_nearest(checked, documents))
    return checked


async def _find_nearest(answer: Answer, documents: GivenDocuments) -> tuple[Citation, ...]:
    """Return the best sentence on each claim, and those on the question, that may state a result.

    They are of documents that name the drugs of the claim or question, if there are any.
    """
    by_place: dict[tuple[str, int], Citation] = {}
    claims = [(claim.text, 1) for claim in answer.claims if has_words(claim)]
    for text, count in (*claims, (answer.question.text, NEAREST)):
        sentences = [_cite_sentence(0, sentence) for sentence in await documents.rank(text, CHOICES)]
        results = [citation for citation in sentences if is_result(citation, documents, NEAR_RESULT)]
        named: list[Citation] = []
        for citation in results:
            if not find_missing_drugs(text, f"{citation.title}\n{documents.read(citation.document_id)}"):
                named.append(citation)
        for citation in (named or results)[:count]:
            by_place.setdefault((citation.document_id, citation.start), citation)
    nearest = list(by_place.values())[:NEAREST]
    return tuple(replace(citation, number=number) for number, citation in enumerate(nearest, 1))


def _cite_sentence(number: int, sentence: Sentence) -> Citation:
    """Return the citation of a sentence that the program chose."""
    quotation = Quotation(sentence.passage.id, sentence.text, sentence.start, sentence.end, False, True)
    return build_citation(number, quotation, sentence.passage)


async def _check_claims(
    answer: Answer,
    unsupported: UnsupportedPolicy,
    verifier: Verifier | None,
    emit: Callable[[Event], None],
    documents: GivenDocuments | None,
) -> Answer:
    citations = {citation.number: citation for citation in answer.citations}
    computed = answer.computed.describe() if answer.computed is not None else ()
    question = answer.question.text
    tools = _Check(citations, question, "\n".join((question, *computed)), documents)
    claims = [await _check_claim(claim, tools) for claim in answer.claims]
    claims = _find_opposites(claims)
    if verifier is not None:
        claims = await _verify(claims, tools, verifier)
        failures = [claim.reason for claim in claims if not claim.checked_by and tools.list_evidence(claim)]
        if failures:
            message = f"{len(failures)} of {count_noun(len(claims), 'claim')} could not be checked: {failures[0]}"
            emit(Notice("support", message))
    checked = _rewrite(replace(answer, citations=tuple(citations.values())), claims, answer)
    if unsupported == "withhold" and (reason := tools.find_unnamed_choice(checked)):
        return _withhold_answer(answer, checked, reason)
    doubtful = [claim for claim in claims if claim.is_doubtful]
    if unsupported == "mark" or not doubtful:
        return checked
    if len(doubtful) == len(claims) and (verifier is not None or answer.choice is None):
        return _withhold_claims(answer, checked)
    kept = [claim for claim in claims if not claim.is_doubtful]
    # Their sources are no longer among the citations.
    withheld = tuple(replace(claim, citations=()) for claim in doubtful)
    remaining = _rewrite(replace(answer, citations=tuple(citations.values())), kept, answer)
    return replace(remaining, withheld_claims=withheld)


async def _check_claim(claim: Claim, tools: _Check) -> Claim:
    """Return a claim with its state, and with another citation if its own shows no result or lacks its words.

    A claim that has a state already, such as a quoted sentence, is unchanged.
    """
    if claim.support != "not-checked":
        return claim
    evidence = tools.list_evidence(claim)
    named = [citation for citation in evidence if not citation.chosen_by_program]
    if tools.documents is not None and states_result(claim.text):
        named = [citation for citation in named if is_result(citation, tools.documents)]
    checked = tools.check(claim, named) if named else replace(claim, reason=NO_SENTENCE)
    if evidence and checked.support != "supported":
        # A copy of a title or of an aim is what it says.
        copied = tools.check(claim, evidence)
        checked = copied if copied.checked_by == VERBATIM else checked
    if tools.documents is not None and checked.support != "contradicted" and not checked.is_doubtful:
        proving = [citation for citation in named if tools.proves(claim, citation)]
        # Sentences may support a claim together alone.
        named = proving if proving or checked.support != "supported" else named
    if checked.checked_by == VERBATIM:
        copies = [citation for citation in evidence if tools.check(claim, [citation]).checked_by == VERBATIM]
        named = copies if copies and tools.documents is not None else evidence
    if checked.support != "not-checked" or (named and not checked.is_doubtful):
        # A quotation that stands in no document remains and is shown as not found.
        refused = {citation.number for citation in evidence if citation not in named}
        return replace(checked, citations=tuple(number for number in claim.citations if number not in refused))
    chosen = await tools.choose(claim)
    if chosen is not None:
        return chosen
    if named or tools.documents is None:
        return checked
    # A quotation that stands in no document remains: `unverified = "keep"` shows it as not found.
    return replace(claim, citations=(), reason=NO_PROOF) if evidence else replace(claim, reason=NO_SENTENCE)


def _find_opposites(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims; of two that say the opposite of one sentence, those that it does not support are doubtful."""
    effects = [read_claim(claim.text) for claim in claims]
    opposed: dict[int, str] = {}
    for index, (claim, effect) in enumerate(zip(claims, effects, strict=True)):
        for other, rival in zip(claims, effects, strict=True):
            if effect is None or rival is None or not set(claim.citations) & set(other.citations):
                continue
            if claim.support == "not-checked" and are_opposed(effect, rival):
                opposed[index] = f"another claim says the opposite of one sentence: “{other.text}”"
    checked: list[Claim] = []
    for index, claim in enumerate(claims):
        is_opposed = index in opposed and not claim.is_doubtful
        checked.append(replace(claim, reason=opposed[index], checked_by=RULES) if is_opposed else claim)
    return checked


async def _verify(claims: Sequence[Claim], tools: _Check, verifier: Verifier) -> list[Claim]:
    """Return the claims as the verifier decides.

    Claims that are copied, lack a sentence, are doubtful already or contradict a computed answer need no model.
    """
    pairs: dict[int, tuple[str, str]] = {}
    for index, claim in enumerate(claims):
        evidence = tools.list_evidence(claim)
        if evidence and not claim.is_doubtful and claim.checked_by not in (VERBATIM, COMPUTATION):
            pairs[index] = "\n".join(citation.quotation for citation in evidence), claim.text
    scores = dict(zip(pairs, await verifier.verify(list(pairs.values())), strict=True))
    verified: list[Claim] = []
    for index, claim in enumerate(claims):
        if index in scores:
            verified.append(decide(claim, scores[index], verifier.name))
        elif not claim.checked_by:
            verified.append(replace(claim, checked_by=RULES))
        else:
            verified.append(claim)
    return verified


def decide(claim: Claim, score: SupportScore, name: str) -> Claim:
    """Return a claim with the most probable state of the verifier's score.

    If the verifier could not decide, the state of the rules remains.
    """
    if score.failure:
        return claim if claim.checked_by else replace(claim, reason=score.failure)
    rest = 1 - score.supported - score.contradicted
    if score.supported >= max(score.contradicted, rest):
        return replace(claim, support="supported", reason="", checked_by=name)
    if score.contradicted >= rest:
        return replace(claim, support="contradicted", reason="its sentences contradict it", checked_by=name)
    return replace(claim, support="not-checked", reason="its sentences do not say so", checked_by=name)


def _withhold_claims(answer: Answer, checked: Answer) -> Answer:
    """Return the answer as an abstention, since none of its claims is trusted."""
    n = len(checked.claims)
    reasons = "; ".join(dict.fromkeys(claim.reason for claim in checked.claims))
    head = "its only claim is not supported" if n == 1 else f"none of its {n} claims is supported"
    return _withhold_answer(answer, checked, f"{head}: {reasons}")


def _withhold_answer(answer: Answer, checked: Answer, reason: str) -> Answer:
    """Return the answer as an abstention, which keeps what the model wrote with the reason."""
    withheld = WithheldAnswer(checked.text, reason, answer.choice, checked.citations)
    return replace(checked, state="abstained", text="", choice=None, citations=(), withheld=withheld)


def _rewrite(answer: Answer, claims: Sequence[Claim], original: Answer) -> Answer:
    """Return the answer with these claims and the citations that they have, numbered without a gap."""
    if tuple(claims) == original.claims:
        return original
    cited = {number for claim in claims for number in claim.citations}
    unclaimed = {citation.number for citation in original.citations}.difference(
        *(claim.citations for claim in original.claims)
    )
    remaining = [citation for citation in answer.citations if citation.number in cited | unclaimed]
    numbers = {citation.number: number for number, citation in enumerate(remaining, 1)}
    citations = tuple(replace(citation, number=numbers[citation.number]) for citation in remaining)
    written = tuple(
        replace(claim, citations=tuple(numbers[number] for number in claim.citations if number in numbers))
        for claim in claims
    )
    text = original.text
    if [(claim.text, claim.citations) for claim in written] != [
        (claim.text, claim.citations) for claim in original.claims
    ]:
        text = " ".join(_write(claim) for claim in written)
    return replace(answer, text=text, claims=written, citations=citations)


def _write(claim: Claim) -> str:
    markers = "".join(f"[{number}]" for number in claim.citations)
    return f"{claim.text} {markers}" if markers else claim.text
