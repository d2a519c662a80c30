"""Sentences with numbers in a prompt, and the sentences behind the numbers that a reply names.

The encoder, or words without one, select the sentences that carry a number, because small chat models choose evidence
badly. A reply that names the first numbers independently of the sentences is detected (`is_degenerate`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.reply_parsing import StatedClaim
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Notice, Quotation
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Hit, Passage, Question, Ranking, SentenceSelector

CANDIDATES = 12
"""The fewest sentences with a number in one prompt that has more."""
MAX_CANDIDATES = 60
CHARACTERS_PER_CANDIDATE = 1000
"""A long prompt has one candidate for so many characters of its passages: about one sentence in eight."""


@dataclass(frozen=True, slots=True)
class CitedText:
    """A claim, finding or answer of a reply, with the quotations that show it."""

    text: str
    quotations: tuple[Quotation, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberedSentences:
    """The sentences of a prompt that a reply may name. Sentence `n` is `quotations[n - 1]`."""

    quotations: tuple[Quotation, ...] = ()
    """In the order of the prompt, with their places in the documents."""
    ranks: tuple[int, ...] = ()
    """The rank of each sentence by the selection, from 0. Empty if nothing compared them."""
    selected_by: SentenceSelector | None = None
    """What selected the sentences. None for those of findings."""

    def is_degenerate(self, numbers: Collection[int]) -> bool:
        """Return whether a reply chose the first sentences regardless of what they say.

        It did if the `m` different numbers in the whole reply are exactly 1 to `m`, other sentences were offered, and
        these `m` sentences are not the best `m` of the selection. If the order of the text had nothing to do with the
        ranks, such a reply of `n` sentences would pass by chance in 1 of `comb(n, m)` cases. Without ranks nothing is
        detected. docs/design/answering.md has the rate of false alarms.
        """
        m = len(set(numbers))
        if not self.ranks or not 0 < m < len(self.ranks) or set(numbers) != set(range(1, m + 1)):
            return False
        return any(rank >= m for rank in self.ranks[:m])


def count_candidates(passages: Sequence[Passage]) -> int:
    """Return how many sentences of these passages have a number in a prompt, if there are as many."""
    characters = sum(len(passage.text) for passage in passages)
    return max(CANDIDATES, min(MAX_CANDIDATES, characters // CHARACTERS_PER_CANDIDATE))


async def select_numbered_sentences(
    question: Question, context: Context, passages: Sequence[Passage]
) -> NumberedSentences:
    """Return the best sentences of the passages, as many as `count_candidates` says, in the order of the text."""
    # The place in the prompt says nothing: it may be that of time, of a part, or of a rotation.
    unranked = len(context.ranks)
    hits = tuple(Hit(passage, 0.0, context.ranks.get(passage.id, unranked)) for passage in passages)
    selection = await context.select_sentences(question, count_candidates(passages), Ranking(hits, "given"))
    places: dict[str, int] = {}
    for place, passage in enumerate(passages):
        places.setdefault(passage.id, place)
    ranks: dict[Quotation, int] = {}
    for sentence in selection.sentences:
        quotation = Quotation(sentence.passage.id, sentence.text, sentence.start, sentence.end)
        ranks.setdefault(quotation, len(ranks))
    ordered = sorted(ranks, key=lambda quotation: (places[quotation.passage_id], quotation.start))
    selected_by: SentenceSelector = "words" if selection.parameters.get("encoder") is None else "encoder"
    if "ranker" in selection.parameters:
        selected_by = "ranker"
    return NumberedSentences(tuple(ordered), tuple(map(ranks.__getitem__, ordered)), selected_by)


async def number_quotations(question: Question, context: Context, quotations: Sequence[Quotation]) -> NumberedSentences:
    """Return the different quotations in their order, ranked by their similarity to the question."""
    offered = tuple(dict.fromkeys(quotations))
    if context.compare_texts is None or len(offered) < 2:
        return NumberedSentences(offered)
    texts = [quotation.text for quotation in offered]
    (similarities,) = await context.compare_texts([question.text], texts)
    order = sorted(range(len(offered)), key=lambda place: -similarities[place])
    return NumberedSentences(offered, tuple(map(order.index, range(len(offered)))))


async def cite_named_sentences(
    context: Context, stage: str, claims: Sequence[StatedClaim], sentences: NumberedSentences
) -> tuple[CitedText, ...]:
    """Return the claims of a reply with the sentences that they name.

    After a degenerate choice, each claim gets the sentence nearest to its text instead, as chosen by the program.
    Notices report both that and numbers that were not offered.
    """
    not_offered = sum(claim.not_offered for claim in claims)
    if not_offered:
        message = f"{stage}: the reply names {count_noun(not_offered, 'number')} without a sentence: ignored"
        context.emit(Notice("sentences", message))
    numbers: set[int] = set()
    for claim in claims:
        numbers.update(claim.sentences)
    is_replaced = sentences.is_degenerate(numbers) and context.compare_texts is not None
    if is_replaced:
        claims = await _name_nearest(context, stage, claims, sentences)
    cited: list[CitedText] = []
    for claim in claims:
        named = (sentences.quotations[number - 1] for number in claim.sentences)
        quotations = tuple(replace(quotation, chosen_by_program=is_replaced) for quotation in named)
        cited.append(CitedText(claim.text, quotations))
    return tuple(cited)


async def _name_nearest(
    context: Context, stage: str, claims: Sequence[StatedClaim], sentences: NumberedSentences
) -> list[StatedClaim]:
    """Return the claims that name sentences, each with the number of the sentence nearest to its text."""
    assert context.compare_texts is not None
    texts = [quotation.text for quotation in sentences.quotations]
    rows = await context.compare_texts([claim.text for claim in claims], texts)
    changed: list[StatedClaim] = []
    nearest: list[str] = []
    for claim, similarities in zip(claims, rows, strict=True):
        number = max(range(1, len(texts) + 1), key=lambda n: similarities[n - 1])
        # Words may have nothing in common with any sentence.
        if claim.sentences and similarities[number - 1] > 0:
            nearest.append(f"s{number}")
            claim = replace(claim, sentences=(number,))
        changed.append(claim)
    m = len({number for claim in claims for number in claim.sentences})
    message = (
        f"{stage}: the model named the first {agree(m, '', f'{m} ')}of {count_noun(len(texts), 'sentence')}, whatever "
        f"they say; the program chose the nearest instead ({', '.join(nearest)})"
    )
    context.emit(Notice("degenerate-choice", message))
    return changed
