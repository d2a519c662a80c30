"""Blind reviews as pages: the list, a question of a reviewer, and the results for the administrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

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
_BAR_WIDTH = 100.0
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


@dataclass(frozen=True, slots=True)
class TurnLink:
    """A question in the overview of a reviewer."""

    number: int
    state: str
    words: str


@dataclass(frozen=True, slots=True)
class PartOfBar:
    """A part of a bar: its class, its place and width in percent, and its count."""

    kind: str
    x: float
    width: float
    count: int


@dataclass(frozen=True, slots=True)
class RaterBar:
    """How often the answers of the first run are better, the same and worse, by one reviewer or their majority."""

    name: str
    better: int
    same: int
    worse: int

    @property
    def parts(self) -> tuple[PartOfBar, ...]:
        """The parts of the bar, from left to right. Empty ones are left out."""
        total = (self.better + self.same + self.worse) or 1
        parts: list[PartOfBar] = []
        x = 0.0
        for kind, count in (("better", self.better), ("same", self.same), ("worse", self.worse)):
            width = _BAR_WIDTH * count / total
            if count:
                parts.append(PartOfBar(kind, round(x, 2), round(width, 2), count))
            x += width
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of the results as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[CellText, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemarkRow:
    """A remark of a reviewer, with the verdict from the view of the first run."""

    reviewer: str
    question: str
    verdict: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResults:
    """The results of a closed review."""

    ours: str
    rival: str
    facts: tuple[tuple[str, str], ...]
    bars: tuple[RaterBar, ...]
    conclusions: tuple[str, ...]
    tables: tuple[FigureTable, ...]
    remarks: tuple[RemarkRow, ...]


def view_review(review: BlindReview, state: ReviewState, reviewer: str | None, *, is_administrator: bool) -> ReviewRow:
    """Return a review as a row. `reviewer`: the owner id of the caller, if the caller may judge."""
    plan = review.plan
    total = len(review.items)
    rows: list[ReviewerRow] = []
    if is_administrator:
        for owner, name in {**plan.reviewers, **state.reviewers}.items():
            rows.append(_count_reviewer(owner, name, state, total))
    day = datetime.fromtimestamp(plan.at, UTC)
    return ReviewRow(
        id=plan.id,
        title=f"Review of {day.day} {day:%B %Y, %H:%M} UTC",
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


def list_turns(review: BlindReview, state: ReviewState, reviewer: str) -> tuple[TurnLink, ...]:
    """Return the questions of a reviewer with their states."""
    links: list[TurnLink] = []
    for turn in review.turns(reviewer):
        verdict = state.find(reviewer, turn)
        word = "open" if verdict is None else _STATE_WORDS[verdict.state]
        links.append(TurnLink(turn.number, word, _describe_place(turn, verdict) or word))
    return tuple(links)


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


def view_results(review: BlindReview, state: ReviewState) -> ReviewResults:
    """Return the results: counts from the view of the first run, tests, agreement, the effect of the place, remarks."""
    verdicts = state.list_judged()
    judging = Judging(review.pairs, verdicts)
    judgings = {_NAME: judging}
    answers, *others = open_ended.tables(judgings)
    ours, rival = review.plan.runs
    return ReviewResults(
        ours=printable(ours),
        rival=printable(rival),
        facts=_describe_plan(review),
        bars=_make_bars(review, verdicts),
        conclusions=tuple(map(printable, open_ended.conclusions(judgings))),
        tables=tuple(_view_table(table) for table in (*others, answers) if table.rows),
        remarks=_list_remarks(review, verdicts),
    )


def _make_bars(review: BlindReview, verdicts: tuple[HumanVerdict, ...]) -> tuple[RaterBar, ...]:
    key = review.plan.key
    ours = review.plan.runs[0]
    by_reviewer = choices_by_reviewer(verdicts)
    raters = dict(by_reviewer)
    if len(raters) > 1:
        raters = {
            f"majority of {count_noun(len(raters), 'reviewer')}": majority_choices(by_reviewer.values()),
            **raters,
        }
    bars: list[RaterBar] = []
    for name, choices in raters.items():
        preferred = [key.preferred(pair, choice) for pair, choice in choices.items()]
        ties, better = preferred.count(None), preferred.count(ours)
        bars.append(RaterBar(printable(name), better, ties + len(key.same), len(preferred) - ties - better))
    return tuple(bars)


def _view_table(table: Table) -> FigureTable:
    """Return a table as text, without the name of the review and without columns that are empty in every row."""
    rows = table_rows(table)
    shown: list[int] = []
    for index, cells in enumerate(zip(*table.rows, strict=True)):
        if set(cells) - {None, _NAME}:
            shown.append(index)
    columns = tuple(table.columns[index] for index in shown)
    texts = tuple(tuple(row[index] for index in shown) for row in rows)
    return FigureTable(table.title, columns, texts, table.notes)


def _list_remarks(review: BlindReview, verdicts: tuple[HumanVerdict, ...]) -> tuple[RemarkRow, ...]:
    questions = {item.pair: item.question for item in review.items}
    ours = review.plan.runs[0]
    rows: list[RemarkRow] = []
    for verdict in verdicts:
        if verdict.why:
            preferred = review.plan.key.preferred(verdict.pair, verdict.choice)
            word = "same" if preferred is None else "better" if preferred == ours else "worse"
            rows.append(
                RemarkRow(
                    printable(verdict.reviewer), questions[verdict.pair], word, printable(verdict.why, lines=True)
                )
            )
    return tuple(rows)
