"""Questions made from a library's own documents: a sentence with its number left out.

The answer is certain. Neither people nor models write the questions. They test only whether a reader finds one sentence
among many passages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.core.types import Passage, Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold

NAME = "cloze"
LETTERS = "ABCD"
GAP = "____"
SHORTEST, LONGEST = 60, 300
"""Characters of a sentence; a shorter one could be from anywhere."""

# Not part of a word or of a longer number (`CD4`, `2-3`, `p<0.05` with its 0), and no year, which documents share.
_NUMBER = re.compile(r"(?<![\w.,/<>=±-])(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?![\w/±'-]|[.,]\d)")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


@dataclass(frozen=True, slots=True)
class _Gap:
    """A sentence of a passage without its one number."""

    passage: Passage
    text: str
    number: str


def draw_questions(passages: Sequence[Passage], n: int) -> tuple[Dataset, Mapping[str, Passage]]:
    """Return `n` questions from the first usable passages, one per document, and the answering passage by question id.

    The four options are the number and three others of the same form and similar size; whether it is the smallest or
    the largest is drawn. Raises InputError where the passages yield fewer questions.
    """
    gaps = list(_find_gaps(passages))
    by_decimals: dict[int, list[str]] = {}
    for number in sorted({gap.number for gap in gaps}, key=float):
        by_decimals.setdefault(_count_decimals(number), []).append(number)
    questions: list[Question] = []
    answers: dict[str, Passage] = {}
    for gap in gaps:
        # Three other numbers with as many decimals, adjacent by size: the nearest ones would be on both sides, and a
        # reader who always takes a middle one would beat chance.
        ascending = by_decimals[_count_decimals(gap.number)]
        below = hashlib.sha256(gap.text.encode()).digest()[0] % len(LETTERS)
        start = max(0, min(ascending.index(gap.number) - below, len(ascending) - len(LETTERS)))
        numbers = ascending[start : start + len(LETTERS)]
        if len(questions) < n and len(numbers) == len(LETTERS):
            # The order of the options depends on the question, so that no letter is right more often.
            digests = {hashlib.sha256(f"{gap.text}:{number}".encode()).digest(): number for number in numbers}
            shuffled = [digests[digest] for digest in sorted(digests)]
            question = Question(
                text=f'One of the documents says: "{gap.text}" Which number stands in the gap?',
                options=dict(zip(LETTERS, shuffled, strict=True)),
                form="choice",
                id=gap.passage.id,
                gold=LETTERS[shuffled.index(gap.number)],
                gold_documents=(gap.passage.document_id,),
            )
            questions.append(question)
            answers[question.id] = gap.passage
    if len(questions) < n:
        raise InputError(
            f"the library's documents yield {count_noun(len(questions), 'question')} of their own, not {n}: ask for "
            "fewer with -n, "
            "or choose a question set with --set"
        )
    return Dataset(NAME, tuple(questions), classes_by_gold(questions)), answers


def _find_gaps(passages: Sequence[Passage]) -> Iterator[_Gap]:
    """Yield at most one gap per document: its first sentence with exactly one number, which occurs once."""
    documents: set[str] = set()
    for passage in passages:
        if passage.document_id in documents:
            continue
        for start, end in find_sentences(passage.text):
            sentence = " ".join(passage.text[start:end].split())
            numbers = list(_NUMBER.finditer(sentence))
            if not SHORTEST <= len(sentence) <= LONGEST or len(numbers) != 1:
                continue
            match = numbers[0]
            # As in `12 patients (n=12)`, where the rest of the sentence gives the answer away.
            if _YEAR.fullmatch(match[0]) or sentence.count(match[0]) > 1:
                continue
            documents.add(passage.document_id)
            yield _Gap(passage, f"{sentence[: match.start()]}{GAP}{sentence[match.end() :]}", match[0])
            break


def _count_decimals(number: str) -> int:
    return len(number.partition(".")[2])
