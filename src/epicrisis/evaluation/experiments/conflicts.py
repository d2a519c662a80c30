"""What happens to conflicts among the partial answers? (BriefContext, Figure 4 and Supplementary Table 2.)

A conflict is two different choices stated by the parts of one question. Parts that found nothing, failed, or found
something without choosing state none; they are counted separately (errata C3, C4). Plain RAG's answers to the same
cases show whether a conflict is resolved rightly (errata B12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from epicrisis.answers import Retrieved, Trace
from epicrisis.dates import last_day
from epicrisis.evaluation.analysis.grouping import (
    P_COLUMN,
    STATES,
    AccuracyMeasure,
    Group,
    add_differences,
    compare_to_baseline,
    count_endings,
    describe_chance,
    group_by,
    make_notes,
    mean_score,
    score_outcome,
)
from epicrisis.evaluation.analysis.plot_spec import PlotSpec
from epicrisis.evaluation.analysis.statistics import Difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import condition_order
from epicrisis.evaluation.experiments.experiment import Experiment, Grid, Runs
from epicrisis.evaluation.experiments.outcome_groups import add_notes
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.experiments.positions import KS, PUBMEDQA, build_placed_cases
from epicrisis.evaluation.runs.case import canonical_condition
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.record import RunRecord

OURS, RIVAL = "brief-context", "rag"
_ARM = "arm"


@dataclass(frozen=True, slots=True)
class PartialChoice:
    """A part that stated a choice."""

    choice: str
    quotations: int
    newest: int | None
    """Last possible day of the latest date among the passages it quotes, as yyyymmdd; None without a date."""
    key: bool
    """Whether it read a passage of a key document."""


@dataclass(frozen=True, slots=True)
class PartitionedCase:
    """A case that was read in parts: the choices of the parts, in their order, and the final one."""

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
        """Whether the parts state different choices."""
        return len({part.choice for part in self.stated}) > 1


def partitioned_cases(records: Iterable[RunRecord]) -> tuple[PartitionedCase, ...]:
    """Return the cases that were read in parts; where preflight chose one prompt there are none.

    Raises InputError where a question has no options or no gold letter.
    """
    return tuple(_read_case(record) for record in records if record.answer.partials)


def _read_case(record: RunRecord) -> PartitionedCase:
    answer = record.answer
    (outcome,) = score_records([record])
    partials = sorted(answer.partials, key=attrgetter("partition"))
    days = _newest_days(answer.trace)
    gold = set(answer.question.gold_documents)
    states = Counter(partial.state for partial in partials)
    stated: list[PartialChoice] = []
    for partial in partials:
        if partial.state == "relevant" and partial.choice is not None:
            quoted = [quotation.passage_id for quotation in partial.quotations]
            documents = {passage_id.rpartition("#")[0] for passage_id in partial.passages}
            newest = max((days[passage_id] for passage_id in quoted if passage_id in days), default=None)
            stated.append(PartialChoice(partial.choice, len(quoted), newest, key=not gold.isdisjoint(documents)))
    return PartitionedCase(
        outcome=outcome,
        final=answer.choice if outcome.state == "answered" else None,
        gold=str(answer.question.gold),
        stated=tuple(stated),
        undecided=states["relevant"] - len(stated),
        nothing=states["nothing"],
        failed=states["failed"],
    )


def _newest_days(trace: Trace) -> dict[str, int]:
    """Return the last possible day of each passage with a date, by passage id."""
    days: dict[str, int] = {}
    for event in trace:
        for passage in event.ranking.passages if isinstance(event, Retrieved) else ():
            if passage.date is not None:
                days[passage.id] = last_day(passage.date)
    return days


DecisionRule: TypeAlias = Callable[[Sequence[PartialChoice]], str | None]
"""Returns the choice that a rule makes from the choices of the parts; None for a tie or without evidence."""


def _majority(parts: Sequence[PartialChoice]) -> str | None:
    ranked = Counter(part.choice for part in parts).most_common(2)
    return None if len(ranked) > 1 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def _highest(value_of: Callable[[PartialChoice], int | None]) -> DecisionRule:
    """Return the rule that takes the choice of the parts with the highest value, if they agree."""

    def decide(parts: Sequence[PartialChoice]) -> str | None:
        choices: dict[int, set[str]] = {}
        for part in parts:
            value = value_of(part)
            if value is not None:
                choices.setdefault(value, set()).add(part.choice)
        best = choices[max(choices)] if choices else set()
        return best.pop() if len(best) == 1 else None

    return decide


RULES: Mapping[str, DecisionRule] = {
    "majority of the parts": _majority,
    "first part": lambda parts: parts[0].choice,
    "last part": lambda parts: parts[-1].choice,
    "newest quoted passage": _highest(lambda part: part.newest),
    "most quotations": _highest(lambda part: part.quotations),
    "part with the key document": _highest(lambda part: 1 if part.key else None),
}
"""Rules by which a reader might combine the parts. The last one needs the key document: it is a bound."""


def rules_table(cases: Sequence[PartitionedCase], measure: AccuracyMeasure = "right", source: str = "") -> Table:
    """Build the table of how often the answer to a conflict follows each rule, and how right the rule would be."""
    conflicts = [case for case in cases if case.conflict]
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for name, decide in RULES.items():
        ours: list[Outcome] = []
        theirs: list[Outcome] = []
        followed: list[Outcome] = []
        for case in conflicts:
            choice = decide(case.stated)
            if choice is None:
                continue
            ours.append(case.outcome)
            theirs.append(_answered(case, choice == case.gold))
            if case.final is not None:
                followed.append(_answered(case, choice == case.final))
        differences.append(compare_to_baseline(Group((), ours, theirs, _pairing(ours)), measure))
        shares = [mean_score(outcomes, measure) for outcomes in (followed, theirs, ours)]
        rows.append((name, len(ours), len(ours) - len(followed), *shares))
    columns = (
        "rule",
        "speaks",
        "no answer",
        "followed",
        "rule right",
        "answer right",
        "difference to the rule",
        P_COLUMN,
    )
    unstated = 0
    for case in conflicts:
        unstated += case.final is not None and case.final not in {part.choice for part in case.stated}
    remarks = (
        f"Of {len(conflicts)} conflicts. A rule speaks where it names one choice (no tie; a date, a quotation, a key "
        "document is there); no answer: of those, where none was given; followed: of the others.",
        *describe_chance(case.outcome for case in conflicts),
        f"In {unstated} the answer is a choice that no part stated.",
        "Rules overlap: a rule that is followed need not be the reason for the answer.",
    )
    compared = len(differences) - differences.count(None)
    rows_with_p = add_differences(rows, differences)
    return Table("Which rule decided", columns, rows_with_p, make_notes(compared, remarks, measure), source)


def _answered(case: PartitionedCase, right: bool) -> Outcome:
    return Outcome(case.outcome.question, case.outcome.condition, "answered", right, case.outcome.chance)


def split_arms(records: Iterable[RunRecord]) -> tuple[tuple[PartitionedCase, ...], tuple[Outcome, ...]]:
    """Return BriefContext's cases and plain RAG's outcomes, by the condition `arm`, else by the answer's strategy."""
    arms: dict[str, list[RunRecord]] = {OURS: [], RIVAL: []}
    for record in records:
        if record.arm in arms:
            arms[record.arm].append(record)
    return partitioned_cases(arms[OURS]), score_records(arms[RIVAL])


def conflicts_table(
    cases: Sequence[PartitionedCase],
    rival: Sequence[Outcome],
    by: Sequence[str] = (),
    measure: AccuracyMeasure = "right",
    source: str = "",
) -> Table:
    """Build Supplementary Table 2: the conflicts at each condition in `by` (`("k", "place")`), and all together.

    Win: right where RAG is not; lose: the reverse; tie: both right or both not.
    """
    rival_of = {_twin(outcome): outcome for outcome in rival}
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for key, members in _group_cases(cases, by):
        ours = [case.outcome for case in members if case.conflict]
        against = [rival_of[twin] for twin in map(_twin, ours) if twin in rival_of]
        differences.append(compare_to_baseline(Group((), ours, against, _pairing(ours)), measure))
        row: list[Cell] = [*key, len(members), len(ours), mean_score(ours, measure), *count_endings(ours)]
        rows.append((*row, *_count_wins(ours, against, measure), mean_score(against, measure)))
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
        P_COLUMN,
    )
    remarks = (
        *describe_chance(case.outcome for case in cases),
        "Resolved: share right among the conflicts. Not compared: RAG failed, or was not asked the same.",
        "The same questions at every condition: rows are not independent of each other.",
    )
    tested = len(differences) - differences.count(None)
    rows_with_p = add_differences(rows, differences)
    return Table("Conflicts among the parts", columns, rows_with_p, make_notes(tested, remarks, measure), source)


def _count_wins(
    ours: Sequence[Outcome], against: Sequence[Outcome], measure: AccuracyMeasure
) -> tuple[int, int, int, int]:
    """Return the numbers of cases (won, tied, lost, not compared)."""
    rival_scores = {_twin(outcome): score_outcome(outcome, measure) for outcome in against}
    counts: Counter[str] = Counter()
    for outcome in ours:
        mine, theirs = score_outcome(outcome, measure), rival_scores.get(_twin(outcome))
        if mine is None or theirs is None:
            counts["not compared"] += 1
        elif mine == theirs:
            counts["tie"] += 1
        else:
            counts["win" if mine > theirs else "lose"] += 1
    return counts["win"], counts["tie"], counts["lose"], counts["not compared"]


def _twin(outcome: Outcome) -> tuple[str, str]:
    """Return the question and its condition without the arm: equal for the two outcomes of a pair."""
    condition = {name: value for name, value in outcome.condition.items() if name != _ARM}
    return outcome.question, canonical_condition(condition)


def _pairing(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the names of all conditions but the arm."""
    names: set[str] = set()
    for outcome in outcomes:
        names.update(outcome.condition)
    return tuple(sorted(names - {_ARM}))


def parts_table(cases: Sequence[PartitionedCase], by: Sequence[str] = (), source: str = "") -> Table:
    """Build the table of what the parts said: counts of parts, and of cases by how many parts stated a choice."""
    rows: list[tuple[Cell, ...]] = []
    for key, members in _group_cases(cases, by):
        stating = [len(case.stated) for case in members]
        states = [sum(map(attrgetter(name), members)) for name in ("undecided", "nothing", "failed")]
        conflicts = sum(case.conflict for case in members)
        several = sum(count > 1 for count in stating)
        choices = (stating.count(0), stating.count(1), several - conflicts, conflicts)
        rows.append((*key, len(members), sum(stating), *states, *choices))
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
    about = "The columns from parts that chose to failed count parts, all others count cases."
    return Table("What the parts said", columns, tuple(rows), (about,), source)


def _group_cases(
    cases: Sequence[PartitionedCase], by: Sequence[str]
) -> list[tuple[tuple[Cell, ...], list[PartitionedCase]]]:
    """Return the cases at each condition, in order of appearance, and last all of them."""

    def key(case: PartitionedCase) -> tuple[Cell, ...]:
        return tuple(map(case.outcome.condition.get, by))

    groups = group_by(cases, key) if by else {}
    return [*groups.items(), (("all",) * len(by), list(cases))]


def _tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    tables: list[Table] = []
    for run in runs:
        partitioned, rival = split_arms(run.records())
        cases = sorted(partitioned, key=lambda case: condition_order(case.outcome.condition))
        names = {name for case in cases for name in case.outcome.condition}
        by = [name for name in ("k", "place") if name in names]
        tables.append(conflicts_table(cases, rival, by, source=run.name))
        tables.append(parts_table(cases, by, source=run.name))
        tables.append(rules_table(cases, source=run.name))
    return add_notes(tables, remarks)


EXPERIMENT = Experiment(
    "conflicts",
    "What happens to a question whose parts state different choices? (BriefContext, Figure 4)",
    build_placed_cases,
    _tables_of_runs,
    sets=(PUBMEDQA,),
    grid=Grid((RIVAL, OURS), KS, PLACES),
    published=("conflicts", "conflicts-totals"),
    plots=(
        (PlotSpec("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),),
        (
            PlotSpec(
                "How often a rule is followed, and how right it is", "points", ("followed", "rule right"), ("rule",)
            ),
        ),
    ),
)
