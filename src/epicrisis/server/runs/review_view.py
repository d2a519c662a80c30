"""Blind reviews as pages: the list, a question of a reviewer, and the results for the administrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from epicrisis.core.printable import count_noun, printable
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import open_ended
from epicrisis.evaluation.experiments.open_ended import Judging
from epicrisis.evaluation.grading.human_verdicts import (
    CRITERIA,
    HumanVerdict,
    PreferredAnswer,
    choices_by_reviewer,
    majority_choices,
)
from epicrisis.report.table_cells import CellText, table_rows
from epicrisis.server.page.rendering import render
from epicrisis.server.runs.reviews import (
    BlindReview,
    ReviewState,
    ReviewTurn,
    ReviewVerdict,
    ShownAnswer,
    ShownSource,
)

PLACE_WORDS: Mapping[str, str] = {"1": "Answer 1 is better", "tie": "Same", "2": "Answer 2 is better"}
_STATE_WORDS = {"judged": "judged", "skipped": "skipped", "draft": "begun"}
_NAME = "This review"
"""Stands for the names of the models in the tables, which the runs may share."""


@dataclass(frozen=True, slots=True)
class ReviewerRow:
    """How far a reviewer is."""

    name: str
    judged: int
    skipped: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRow:
    """A review in the list. Names of runs are for administrators, and empty for others."""

    id: str
    title: str
    runs: str
    own: ReviewerRow | None
    """None for an administrator who is not a reviewer."""
    reviewers: tuple[ReviewerRow, ...]
    is_closed: bool
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlacedAnswer:
    """An answer at its place on a reviewer's page."""

    place: int
    answer: ShownAnswer

    def source(self, number: int) -> ShownSource:
        """Return a source by its number."""
        return self.answer.sources[number - 1]


@dataclass(frozen=True, slots=True)
class CriterionField:
    """A criterion in the form of a question."""

    name: str
    question: str
    place: str
    """The place that was chosen, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A question of a reviewer."""

    href: str
    """The address of the review."""
    number: int
    total: int
    judged: int
    question: str
    options: tuple[str, ...]
    answers: tuple[PlacedAnswer, ...]
    criteria: tuple[CriterionField, ...]
    place: str
    """The place that was chosen, `skip`, or empty."""
    remark: str
    previous: int | None
    next: int | None


def view_review(review: BlindReview, state: ReviewState, reviewer: str | None, *, is_administrator: bool) -> ReviewRow:
    """Return a review as a row. `reviewer`: the owner id of the caller, if the caller may judge."""
    plan = review.plan
    total = len(review.items)
    rows: list[ReviewerRow] = []
    if is_administrator:
        for owner, name in {**plan.reviewers, **state.reviewers}.items():
            rows.append(_count_reviewer(owner, name, state, total))
    return ReviewRow(
        id=plan.id,
        title=plan.title,
        runs=printable(f"{plan.runs[0]} against {plan.runs[1]}") if is_administrator else "",
        own=None if reviewer is None else _count_reviewer(reviewer, reviewer, state, total),
        reviewers=tuple(rows),
        is_closed=state.is_closed,
        facts=_describe_plan(review) if is_administrator else (),
    )


def _count_reviewer(owner: str, name: str, state: ReviewState, total: int) -> ReviewerRow:
    return ReviewerRow(printable(name), state.count(owner), state.count(owner, "skipped"), total)


def _describe_plan(review: BlindReview) -> tuple[tuple[str, str], ...]:
    plan, key = review.plan, review.plan.key
    counts = f"{len(review.items)} to judge, {len(key.same)} with the same answers, {len(key.left_out)} without a pair"
    sample = "all" if plan.sample is None else f"sample of {plan.sample:,}, seed {plan.seed}"
    facts = (
        ("Questions", f"{key.asked:,} ({sample}): {counts}"),
        ("Criteria", ", ".join(("overall", *plan.criteria))),
        ("Reviewers", ", ".join(plan.reviewers.values()) or "all who may read these runs"),
        ("Started by", plan.creator),
    )
    return tuple((name, printable(value)) for name, value in facts)


def list_turns(review: BlindReview, state: ReviewState, reviewer: str) -> list[tuple[int, str, str]]:
    """Return the number of each question of a reviewer, its state, and the verdict or else the state in words."""
    links: list[tuple[int, str, str]] = []
    for turn in review.turns(reviewer):
        verdict = state.find(reviewer, turn)
        word = "open" if verdict is None else _STATE_WORDS[verdict.state]
        links.append((turn.number, word, _describe_place(turn, verdict) or word))
    return links


def _describe_place(turn: ReviewTurn, verdict: ReviewVerdict | None) -> str:
    """Return the verdict by the places of the reviewer's page, or nothing without one."""
    if verdict is None or verdict.choice is None or verdict.state != "judged":
        return ""
    return PLACE_WORDS[turn.translate(verdict.choice)]


def view_turn(review: BlindReview, state: ReviewState, reviewer: str, turn: ReviewTurn) -> TurnView:
    """Return the page of a question. It holds nothing about runs, and nothing that depends on them."""
    total = len(review.items)
    verdict = state.find(reviewer, turn)
    place, remark = "", ""
    chosen: Mapping[str, PreferredAnswer] = {}
    if verdict is not None:
        chosen, remark = verdict.criteria, verdict.remark
        if verdict.state == "skipped":
            place = "skip"
        elif verdict.choice is not None:
            place = turn.translate(verdict.choice)
    criteria: list[CriterionField] = []
    for name in review.plan.criteria:
        choice = turn.translate(chosen[name]) if name in chosen else ""
        criteria.append(CriterionField(name, CRITERIA[name], choice))
    answers = tuple(PlacedAnswer(number, answer) for number, answer in enumerate(turn.answers, 1))
    return TurnView(
        href=f"/reviews/{review.plan.id}",
        number=turn.number,
        total=total,
        judged=state.count(reviewer),
        question=turn.item.question,
        options=turn.item.options,
        answers=answers,
        criteria=tuple(criteria),
        place=place,
        remark=remark,
        previous=turn.number - 1 if turn.number > 1 else None,
        next=turn.number + 1 if turn.number < total else None,
    )


def render_results(review: BlindReview, state: ReviewState) -> str:
    """Return the page of the results, from the view of the first run: counts, tests, agreement, places, remarks."""
    verdicts = state.list_judged()
    judgings = {_NAME: Judging(review.pairs, verdicts)}
    answers, *others = open_ended.tables(judgings)
    return render(
        "review_results",
        title=review.plan.title,
        id=review.plan.id,
        runs=review.plan.runs,
        facts=_describe_plan(review),
        bars=_count_preferences(review, verdicts),
        conclusions=open_ended.conclusions(judgings),
        tables=[(table, *_leave_out_empty(table)) for table in (*others, answers) if table.rows],
        remarks=_list_remarks(review, verdicts),
        page="reviews",
    )


def _count_preferences(review: BlindReview, verdicts: Sequence[HumanVerdict]) -> list[tuple[str, int, int, int]]:
    """Return each reviewer, and first their majority, with how often the first run is better, the same and worse."""
    key = review.plan.key
    by_reviewer = choices_by_reviewer(verdicts)
    raters = dict(by_reviewer)
    if len(raters) > 1:
        majority = f"majority of {count_noun(len(raters), 'reviewer')}"
        raters = {majority: majority_choices(by_reviewer.values()), **raters}
    counts: list[tuple[str, int, int, int]] = []
    for name, choices in raters.items():
        preferred = [key.preferred(pair, choice) for pair, choice in choices.items()]
        ties, better = preferred.count(None), preferred.count(review.plan.runs[0])
        counts.append((name, better, ties + len(key.same), len(preferred) - ties - better))
    return counts


def _leave_out_empty(table: Table) -> tuple[list[str], list[list[CellText]]]:
    """Return columns and rows of a table without the name of the review, and without columns that are always empty."""
    columns = list(zip(*table.rows, strict=True))
    shown = [index for index, cells in enumerate(columns) if set(cells) - {None, _NAME}]
    rows = [[row[index] for index in shown] for row in table_rows(table)]
    return [table.columns[index] for index in shown], rows


def _list_remarks(review: BlindReview, verdicts: Sequence[HumanVerdict]) -> list[tuple[str, str, str, str]]:
    """Return reviewer, question, verdict on the first run, and words of each remark."""
    questions = {item.pair: item.question for item in review.items}
    remarks: list[tuple[str, str, str, str]] = []
    for verdict in verdicts:
        if verdict.why:
            preferred = review.plan.key.preferred(verdict.pair, verdict.choice)
            word = "same" if preferred is None else "better" if preferred == review.plan.runs[0] else "worse"
            remarks.append((verdict.reviewer, questions[verdict.pair], word, verdict.why))
    return remarks
