"""Make a blind review of two runs: pair their answers, and take away what tells the runs apart.

    review = make_review(request, folders)

Taken away are strategy, model, run, costs and times, warnings and notices, checks of claims and confidence, because
only some strategies have them. Citations get new numbers, in the order in which the claims name them.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable, split_printable_lines
from epicrisis.evaluation.grading.blind_pairs import NOT_ASKED, BlindingKey, remove_citations
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.report.answer_content import describe_choice, describe_marks
from epicrisis.report.shown_citation import show_citation
from epicrisis.server.runs.reviews import (
    BlindReview,
    ReviewItem,
    ReviewPlan,
    ShownAnswer,
    ShownClaim,
    ShownSource,
    new_review_id,
)

MAX_QUESTIONS = 1_000
_MARKER = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """What an administrator chose for a new review."""

    creator: str
    criteria: tuple[str, ...] = ()
    reviewers: Mapping[str, str] = field(default_factory=dict)
    """Owner ids and names."""
    sample: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _RunAnswer:
    """An answer of a run, as far as a review needs it."""

    state: str
    question: str
    options: tuple[str, ...]
    shown: ShownAnswer
    patient: str | None
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _RunAnswers:
    """The answers of a run by question."""

    answers: dict[str, _RunAnswer] = field(default_factory=dict)
    writers: dict[str, None] = field(default_factory=dict)


def make_review(request: ReviewRequest, folders: Mapping[str, Path]) -> BlindReview:
    """Return a review of two runs, given by name. The first is the one whose answers may be better or worse.

    Answers that reviewers could not tell apart count as the same, and are not shown. Questions without an answer of
    both runs are left out and counted. Raises InputError if the runs have no question in common, or nothing to compare.
    """
    ours, rival = folders
    answers_by_run = {name: _read_answers(name, folder) for name, folder in folders.items()}
    run_answers = [answers_by_run[name].answers for name in (ours, rival)]
    common = sorted(run_answers[0].keys() & run_answers[1].keys())
    if not common:
        raise InputError(f"{ours} and {rival} have no question in common: choose two runs of the same questions")
    if request.sample is not None and request.sample < len(common):
        common = sorted(random.Random(request.seed).sample(common, request.sample))
    if len(common) > MAX_QUESTIONS:
        raise InputError(f"the runs have {len(common):,} questions in common: draw a sample of up to {MAX_QUESTIONS:,}")
    secret = secrets.token_hex(16)
    items: list[ReviewItem] = []
    first: dict[str, str] = {}
    questions: dict[str, str] = {}
    same: list[str] = []
    left_out = _list_unasked(run_answers, (ours, rival))
    places = random.Random(secret)
    for key in common:
        pair = {ours: run_answers[0][key], rival: run_answers[1][key]}
        if {answer.state for answer in pair.values()} != {"answered"}:
            left_out[key] = {name: answer.state for name, answer in pair.items()}
        elif is_same(pair[ours].shown, pair[rival].shown):
            same.append(key)
        else:
            names = places.sample((ours, rival), 2)
            item = _make_item([pair[name] for name in names])
            items.append(item)
            first[item.pair], questions[item.pair] = names[0], key
    if not items:
        raise InputError(
            "there is nothing to compare: every pair of answers is the same, or lacks an answer. Choose other runs"
        )
    key_of_pairs = BlindingKey(
        arms=(rival, ours),
        seed=request.seed,
        writers=tuple(answers_by_run[ours].writers | answers_by_run[rival].writers),
        patients=any(answer.patient is not None for answers in run_answers for answer in answers.values()),
        first=first,
        questions=questions,
        same=tuple(same),
        left_out=left_out,
    )
    plan = ReviewPlan(
        id=new_review_id(),
        at=time.time(),
        creator=request.creator,
        runs=(ours, rival),
        criteria=request.criteria,
        reviewers=request.reviewers,
        sample=request.sample,
        seed=request.seed,
        key=key_of_pairs,
        secret=secret,
    )
    return BlindReview(plan, tuple(items))


def _read_answers(name: str, folder: Path) -> _RunAnswers:
    """Return what a review needs of a run. Raises InputError if the run asked a question under several conditions."""
    run = _RunAnswers()
    for record in read_records(folder / RECORDS):
        answer, key = record.answer, record.question_key
        if key in run.answers:
            raise InputError(
                f"{printable(name)} answered a question several times, as experiments do: choose runs of `epicrisis "
                "evaluate`, which ask each question once"
            )
        run.answers[key] = _RunAnswer(
            state=answer.state,
            question=printable(answer.question.text),
            options=tuple(describe_choice(answer, letter) for letter in answer.question.options),
            shown=blind_answer(answer),
            patient=answer.patient or answer.question.patient,
            documents=tuple(dict.fromkeys(citation.document_id for citation in answer.citations)),
        )
        models: Mapping[str, Any] = record.recipe.get("models", {})
        run.writers.update(dict.fromkeys(map(itemgetter("name"), models.values())))
    return run


def _list_unasked(
    run_answers: Sequence[Mapping[str, _RunAnswer]], names: Sequence[str]
) -> dict[str, Mapping[str, str]]:
    """Return the questions that only one of the runs asked, with how each ended."""
    left_out: dict[str, Mapping[str, str]] = {}
    for key in sorted(run_answers[0].keys() ^ run_answers[1].keys()):
        states: dict[str, str] = {}
        for name, answers in zip(names, run_answers, strict=True):
            states[name] = answers[key].state if key in answers else NOT_ASKED
        left_out[key] = states
    return left_out


def _make_item(answers: Sequence[_RunAnswer]) -> ReviewItem:
    first, second = answers
    return ReviewItem(
        # It begins with a letter, as spreadsheets turn ids that look like numbers into numbers.
        pair=f"p{secrets.token_hex(6)}",
        question=first.question,
        options=first.options,
        first=first.shown,
        second=second.shown,
        patient=first.patient,
        documents=tuple(dict.fromkeys((*first.documents, *second.documents))),
    )


def blind_answer(answer: Answer) -> ShownAnswer:
    """Return an answer without what tells how it was made."""
    citations = {citation.number: citation for citation in answer.citations}
    numbers: dict[int, int] = {}
    claims: list[ShownClaim] = []
    for text, cited in _list_claims(answer):
        citation_numbers = [number for number in dict.fromkeys(cited) if number in citations]
        claim_numbers = [numbers.setdefault(number, len(numbers) + 1) for number in citation_numbers]
        claims.append(ShownClaim(text, tuple(sorted(claim_numbers))))
    for number in citations:
        numbers.setdefault(number, len(numbers) + 1)
    sources = [_show_source(numbers[number], citation) for number, citation in citations.items()]
    return ShownAnswer(
        choice=describe_choice(answer, answer.choice),
        claims=tuple(claims),
        sources=tuple(sorted(sources, key=lambda source: source.number)),
    )


def _list_claims(answer: Answer) -> list[tuple[str, Sequence[int]]]:
    """Return the claims of an answer, or else its lines, with the numbers of their citations."""
    if answer.claims:
        return [(printable(remove_citations(claim.text)), claim.citations) for claim in answer.claims]
    lines: list[tuple[str, Sequence[int]]] = []
    for line in split_printable_lines(answer.text):
        if text := remove_citations(line):
            lines.append((text, [int(number) for number in _MARKER.findall(line)]))
    return lines


def _show_source(number: int, citation: Citation) -> ShownSource:
    reference = citation.reference
    return ShownSource(
        number=number,
        quotation=printable(citation.quotation),
        reference=show_citation(citation).reference,
        design=printable(reference.note_type or (reference.study.label if reference.study else "")),
        marks=describe_marks(citation.marks),
        is_verified=citation.verified,
    )


def is_same(first: ShownAnswer, second: ShownAnswer) -> bool:
    """Return whether a reviewer sees the same words with the same sources. Case, spaces and numbers do not count."""
    return _content(first) == _content(second)


def _content(answer: ShownAnswer) -> object:
    words = " ".join(answer.words.split()).casefold()
    return words, sorted((source.quotation, source.reference) for source in answer.sources)
