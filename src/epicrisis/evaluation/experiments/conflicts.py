"""What becomes of conflicts among the partial answers (BriefContext, Figure 4 and Supplementary Table 2).

A conflict is two different choices stated by the parts of one question. Parts that found nothing, that failed, or that
found something without choosing, state none; they are counted apart (errata C3, C4). Whether a conflict is resolved
rightly is told beside what plain RAG answers to the same cases (errata B12). From records to tables; asks nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.dates import last_day
from epicrisis.evaluation.analysis.grouping import (
    STATES,
    AccuracyMeasure,
    Group,
    chance,
    corrected_p,
    counts,
    difference,
    mean,
    notes,
    score,
)
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.case import canonical
from epicrisis.evaluation.runs.outcomes import Outcome, RunRecord, outcomes

OURS, RIVAL = "brief-context", "rag"
_ARM = "arm"


@dataclass(frozen=True, slots=True)
class PartialChoice:
    """One partition that stated a choice."""

    choice: str
    quotations: int
    newest: int | None
    """The last day that the latest date of a passage it quotes can mean, as yyyymmdd; `None` without a date."""
    key: bool
    """Whether a key document is among the passages it read."""


@dataclass(frozen=True, slots=True)
class PartitionedCase:
    """One case that was read in parts: what they stated, in partition order, and what came of it."""

    outcome: Outcome
    final: str | None
    gold: str
    stated: tuple[PartialChoice, ...]
    undecided: int
    """Parts that found something and chose nothing."""
    nothing: int
    failed: int

    @property
    def conflict(self) -> bool:
        return len({part.choice for part in self.stated}) > 1


def partitioned_cases(records: Iterable[RunRecord]) -> tuple[PartitionedCase, ...]:
    """Those of the records whose passages were read in parts; one whose preflight found one prompt enough is none.

    Raises InputError where a question has no options or no gold letter.
    """
    return tuple(_parted(record) for record in records if record["answer"]["partials"])


def _parted(record: RunRecord) -> PartitionedCase:
    answer = record["answer"]
    (outcome,) = outcomes([record])
    partials = sorted(answer["partials"], key=lambda partial: int(partial["partition"]))
    days = _days(answer["trace"])
    gold = set(answer["question"]["gold_documents"])
    relevant = [partial for partial in partials if partial["state"] == "relevant"]
    return PartitionedCase(
        outcome=outcome,
        final=answer["choice"] if outcome.state == "answered" else None,
        gold=answer["question"]["gold"],
        stated=tuple(
            PartialChoice(
                choice=partial["choice"],
                quotations=len(partial["quotations"]),
                newest=max(
                    (days[q["passage_id"]] for q in partial["quotations"] if q["passage_id"] in days), default=None
                ),
                key=any(passage.rpartition("#")[0] in gold for passage in partial["passages"]),
            )
            for partial in relevant
            if partial["choice"] is not None
        ),
        undecided=sum(partial["choice"] is None for partial in relevant),
        nothing=sum(partial["state"] == "nothing" for partial in partials),
        failed=sum(partial["state"] == "failed" for partial in partials),
    )


def _days(trace: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The last day that the date of each passage read can mean, of those that have one."""
    rankings = [event["ranking"] for event in trace if event["event"] == "retrieved"]
    passages = [hit["passage"] for ranking in rankings for hit in ranking["hits"]]
    return {passage["id"]: last_day(passage["date"]) for passage in passages if passage["date"] is not None}


# -- which rule decided -----------------------------------------------------------------------------------------------

Decide = Callable[[Sequence[PartialChoice]], str | None]


def _majority(parts: Sequence[PartialChoice]) -> str | None:
    ranked = Counter(part.choice for part in parts).most_common(2)
    return None if len(ranked) > 1 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def _most(value: Callable[[PartialChoice], int | None]) -> Decide:
    """The choice of the parts of the highest value; `None` where those differ, or where no part has a value."""

    def decide(parts: Sequence[PartialChoice]) -> str | None:
        values = [(found, part.choice) for part in parts if (found := value(part)) is not None]
        best = {choice for found, choice in values if found == max(values)[0]}
        return best.pop() if len(best) == 1 else None

    return decide


RULES: Mapping[str, Decide] = {
    "majority of the parts": _majority,
    "first part": lambda parts: parts[0].choice,
    "last part": lambda parts: parts[-1].choice,
    "newest quoted passage": _most(lambda part: part.newest),
    "most quotations": _most(lambda part: part.quotations),
    "part with the key document": _most(lambda part: 1 if part.key else None),
}
"""What a reader who combines the parts might go by. The last one is known to nobody who answers: it is a bound."""


def rules_table(
    cases: Sequence[PartitionedCase], measure: AccuracyMeasure = "right", seed: int = 0, source: str = ""
) -> Table:
    """How often the answer to a conflict is the one that each rule would give, and how right that rule would be."""
    conflicts = [case for case in cases if case.conflict]
    rows, differences = [], []
    for name, decide in RULES.items():
        said = [(case, decide(case.stated)) for case in conflicts]
        spoke = [(case, choice) for case, choice in said if choice is not None]
        ours = [case.outcome for case, _ in spoke]
        theirs = [_with(case, case.gold == choice) for case, choice in spoke]
        followed = [_with(case, case.final == choice) for case, choice in spoke if case.final is not None]
        differences.append(difference(Group((), ours, theirs, _pair(ours)), measure, seed))
        rows.append(
            (
                name,
                len(spoke),
                len(spoke) - len(followed),
                mean(followed, measure, seed),
                mean(theirs, measure, seed),
                mean(ours, measure, seed),
            )
        )
    compared = sum(each is not None for each in differences)
    corrected = corrected_p(differences)
    columns = (
        "rule",
        "speaks",
        "no answer",
        "followed",
        "rule right",
        "answer right",
        "difference to the rule",
        "p (Holm)",
    )
    unstated = sum(case.final is not None and case.final not in {p.choice for p in case.stated} for case in conflicts)
    remarks = (
        f"Of {len(conflicts)} conflicts. A rule speaks where it names one choice (no tie; a date, a quotation, a key "
        "document is there); no answer: of those, where none was given; followed: of the others.",
        *chance(case.outcome for case in conflicts),
        f"In {unstated} the answer is a choice that no part stated.",
        "Rules overlap: that one is followed does not show that the model goes by it.",
    )
    return Table(
        "Which rule decided",
        columns,
        tuple((*row, found, p) for row, found, p in zip(rows, differences, corrected, strict=True)),
        notes(measure, compared, remarks),
        source,
    )


def _with(case: PartitionedCase, right: bool) -> Outcome:
    return Outcome(case.outcome.question, case.outcome.condition, "answered", right, case.outcome.chance)


# -- against plain RAG ------------------------------------------------------------------------------------------------


def split_arms(records: Iterable[RunRecord]) -> tuple[tuple[PartitionedCase, ...], tuple[Outcome, ...]]:
    """BriefContext's cases and plain RAG's outcomes, by the condition `arm`, else by the strategy of the answer."""
    arms: dict[str, list[RunRecord]] = {OURS: [], RIVAL: []}
    for record in records:
        arm = record.get("condition", {}).get(_ARM, record["answer"]["strategy"])
        if arm in arms:
            arms[arm].append(record)
    return partitioned_cases(arms[OURS]), outcomes(arms[RIVAL])


def conflicts_table(
    cases: Sequence[PartitionedCase],
    rival: Sequence[Outcome],
    by: Sequence[str] = (),
    measure: AccuracyMeasure = "right",
    seed: int = 0,
    source: str = "",
) -> Table:
    """Supplementary Table 2: the conflicts at each condition in `by` (`("k", "place")`), and all of them together.

    Win: right where RAG is not; lose: the other way round; tie: both right or both not.
    """
    theirs = {_twin(each): each for each in rival}
    rows, differences = [], []
    for key, members in _groups(cases, by):
        ours = [case.outcome for case in members if case.conflict]
        against = [theirs[_twin(each)] for each in ours if _twin(each) in theirs]
        differences.append(difference(Group((), ours, against, _pair(ours)), measure, seed))
        rows.append(
            (
                *key,
                len(members),
                len(ours),
                mean(ours, measure, seed),
                *counts(ours),
                *_compared(ours, against, measure),
                mean(against, measure, seed),
            )
        )
    columns = (
        *by,
        "read in parts",
        "conflicts",
        "resolved",
        *STATES,
        "win",
        "tie",
        "lose",
        "not compared",
        "RAG right",
        "difference to RAG",
        "p (Holm)",
    )
    corrected = corrected_p(differences)
    remarks = (
        *chance(case.outcome for case in cases),
        "Resolved: share right among the conflicts. Not compared: RAG failed, or was not asked the same.",
        "The same questions at every condition: rows are not independent of each other.",
    )
    return Table(
        "Conflicts among the parts",
        columns,
        tuple((*row, found, p) for row, found, p in zip(rows, differences, corrected, strict=True)),
        notes(measure, sum(each is not None for each in differences), remarks),
        source,
    )


def _compared(
    ours: Sequence[Outcome], against: Sequence[Outcome], measure: AccuracyMeasure
) -> tuple[int, int, int, int]:
    """(win, tie, lose, not compared), counts of cases."""
    other = {_twin(each): score(each, measure) for each in against}
    ended: Counter[str] = Counter()
    for each in ours:
        mine, theirs = score(each, measure), other.get(_twin(each))
        if mine is None or theirs is None:
            ended["not compared"] += 1
        else:
            ended["win" if mine > theirs else "lose" if mine < theirs else "tie"] += 1
    return ended["win"], ended["tie"], ended["lose"], ended["not compared"]


def _twin(outcome: Outcome) -> tuple[str, str]:
    """The question and its condition but for the arm: alike in the two of a pair."""
    return outcome.question, canonical({name: value for name, value in outcome.condition.items() if name != _ARM})


def _pair(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    return tuple(sorted({name for outcome in outcomes for name in outcome.condition} - {_ARM}))


def parts_table(cases: Sequence[PartitionedCase], by: Sequence[str] = (), source: str = "") -> Table:
    """What the parts said: counts of parts, and of cases by how many of their parts stated a choice."""
    rows: list[tuple[Cell, ...]] = []
    for key, members in _groups(cases, by):
        stating = [len(case.stated) for case in members]
        parts = (sum(stating), *(sum(getattr(c, name) for c in members) for name in ("undecided", "nothing", "failed")))
        agree = sum(len(case.stated) > 1 and not case.conflict for case in members)
        rows.append(
            (*key, len(members), *parts, stating.count(0), stating.count(1), agree, sum(c.conflict for c in members))
        )
    columns = (
        *by,
        "cases",
        "parts that chose",
        "found, chose nothing",
        "found nothing",
        "failed",
        "no choice",
        "one part chose",
        "several agree",
        "conflict",
    )
    return Table(
        "What the parts said",
        columns,
        tuple(rows),
        ("Parts are counted in the columns from parts that chose to failed, cases in all others.",),
        source,
    )


def _groups(
    cases: Sequence[PartitionedCase], by: Sequence[str]
) -> list[tuple[tuple[Cell, ...], list[PartitionedCase]]]:
    """The cases at each condition, in order of appearance, and last all of them."""
    found: dict[tuple[Cell, ...], list[PartitionedCase]] = {}
    for case in cases if by else ():
        found.setdefault(tuple(case.outcome.condition.get(name) for name in by), []).append(case)
    return [*found.items(), (tuple("all" for _ in by), list(cases))]
