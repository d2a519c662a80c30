"""Questions that anybody's own documents answer for certain: a sentence of theirs with its number left out.

Nobody needs to write them and no model is asked; whether a reader finds one sentence among many passages is all they
test. Pure but for the passages it is handed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from epicrisis.corpus.sentence_chunking import sentences
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold
from epicrisis.types import Passage, Question

NAME = "cloze"
LETTERS = "ABCD"
GAP = "____"
SHORTEST, LONGEST = 60, 300
"""Characters of a sentence; a shorter one could stand anywhere."""

# Not a part of a word or of a longer number (`CD4`, `2-3`, `p<0.05` with its 0), and no year, which documents share.
_NUMBER = re.compile(r"(?<![\w.,/<>=±-])(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?![\w/±'-]|[.,]\d)")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


@dataclass(frozen=True, slots=True)
class _Gap:
    """One sentence of a passage, with the one number in it that was left out."""

    passage: Passage
    text: str
    number: str


def draw_questions(passages: Sequence[Passage], n: int) -> tuple[Dataset, Mapping[str, Passage]]:
    """`n` questions from the first passages that yield one, one a document; and the passage that answers each, by the
    question's id.

    Four options: the number, and three others that were left out elsewhere, of the same form and near in size; whether
    it is the least of them or the largest is drawn. Raises InputError where the passages do not yield so many.
    """
    gaps = list(_gaps(passages))
    made: list[tuple[Question, Passage]] = []
    for gap in gaps:
        others = _others(gap, gaps)
        if len(made) < n and len(others) == len(LETTERS) - 1:
            made.append((_question(gap, others), gap.passage))
    if len(made) < n:
        raise InputError(
            f"the library's documents yield {len(made)} questions of their own, not {n}: ask for fewer with -n, or "
            "name a question set with --set"
        )
    questions = tuple(question for question, _ in made)
    dataset = Dataset(NAME, questions, classes_by_gold(questions))
    return dataset, {question.id: passage for question, passage in made}


def _gaps(passages: Sequence[Passage]) -> Iterator[_Gap]:
    """At most one a document: its first sentence that holds just one number, and that number once."""
    seen: set[str] = set()
    for passage in passages:
        if passage.document_id in seen:
            continue
        for start, end in sentences(passage.text):
            sentence = " ".join(passage.text[start:end].split())
            numbers = list(_NUMBER.finditer(sentence))
            if not SHORTEST <= len(sentence) <= LONGEST or len(numbers) != 1:
                continue
            found = numbers[0]
            # As in `12 patients (n=12)`, where what is left would tell.
            if _YEAR.fullmatch(found[0]) or sentence.count(found[0]) > 1:
                continue
            seen.add(passage.document_id)
            yield _Gap(passage, f"{sentence[: found.start()]}{GAP}{sentence[found.end() :]}", found[0])
            break


def _others(gap: _Gap, gaps: Sequence[_Gap]) -> list[str]:
    """Three other numbers with as many decimals, next to it by size; fewer where there are not so many.

    The nearest would stand on both sides of it, and whoever takes a middle one would be right more often than chance.
    """
    decimals = _decimals(gap.number)
    alike = sorted({each.number for each in gaps if _decimals(each.number) == decimals}, key=float)
    at = alike.index(gap.number)
    below = hashlib.sha256(gap.text.encode()).digest()[0] % len(LETTERS)
    start = max(0, min(at - below, len(alike) - len(LETTERS)))
    return [number for number in alike[start : start + len(LETTERS)] if number != gap.number]


def _decimals(number: str) -> int:
    return len(number.partition(".")[2])


def _question(gap: _Gap, others: Sequence[str]) -> Question:
    """The options in an order of their own for each question, so that no letter is more often right."""
    shuffled = sorted(
        (gap.number, *others), key=lambda number: hashlib.sha256(f"{gap.text}:{number}".encode()).digest()
    )
    options = dict(zip(LETTERS, shuffled, strict=True))
    return Question(
        text=f'One of the documents says: "{gap.text}" Which number stands in the gap?',
        options=options,
        form="choice",
        id=gap.passage.id,
        gold=next(letter for letter, number in options.items() if number == gap.number),
        gold_documents=(gap.passage.document_id,),
    )
