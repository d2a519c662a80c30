"""What happens to conflicts among the partial answers? (BriefContext, Figure 4 and Supplementary Table 2.)

A conflict is two different choices stated by the parts of one question. Parts that found nothing, could not be read, or
found something without choosing state none; they are counted separately (errata C3, C4). Plain RAG's answers to the
same cases show whether a conflict is resolved rightly (errata B12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from epicrisis.core.answers import Retrieved
from epicrisis.core.dates import last_day
from epicrisis.evaluation.analysis import grouping
from epicrisis.evaluation.analysis.statistics import Difference, Interval
from epicrisis.evaluation.analysis.table import Cell, Table, bars_plot, points_plot
from epicrisis.evaluation.experiments.arms import condition_order, pair_key
from epicrisis.evaluation.experiments.definition import Experiment, Grid, Runs
from epicrisis.evaluation.experiments.outcome_groups import add_notes, group_conditions
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.experiments.positions import KS, PUBMEDQA, build_cases
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Condition

OURS, RIVAL = "brief-context", "rag"
_ENDINGS = ("win", "tie", "lose", "not compared")


@dataclass(frozen=True, slots=True)
class PartialChoice:
    """A part that stated a choice."""

    choice: str
    quotations: int
    newest: int | None
    """Last possible day of the latest date among the passages it quotes, as yyyymmdd; None without a date."""
    key: bool
    """Whether it read a passage of a key document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedCase:
    """A case that was read in parts: the choices of the parts, in their order, and the final one."""

    outcome: Outcome
    final: str | None
    gold: str
    stated: tuple[PartialChoice, ...]
    undecided: int
    """Parts that found something and chose nothing."""
    nothing: int
    unparsed: int
    failed: int

    @property
    def condition(self) -> Condition:
        return self.outcome.condition

    @property
    def conflict(self) -> bool:
        """Whether the parts state different choices."""
        return len({item.choice for item in self.stated}) > 1


def partitioned_cases(records: Iterable[RunRecord]) -> tuple[PartitionedCase, ...]:
    """Return the cases with parts; a case with one prompt by preflight has none.

    Raises InputError where a question has no options or no gold letter.
    """
    return tuple(_read_case(record) for record in records if record.answer.partials)


def _read_case(record: RunRecord) -> PartitionedCase:
    answer = record.answer
    (outcome,) = score_records([record])
    partials = sorted(answer.partials, key=lambda partial: partial.partition)
    days: dict[str, int] = {}
    for event in answer.trace:
        for passage in event.ranking.passages if isinstance(event, Retrieved) else ():
            if passage.date is not None:
                days[passage.id] = last_day(passage.date)
    gold = set(answer.question.gold_documents)
    states = Counter(partial.state for partial in partials)
    stated: list[PartialChoice] = []
    for partial in partials:
        if partial.state == "relevant" and partial.choice is not None:
            quoted = [quotation.passage_id for quotation in partial.quotations]
            documents = {passage_id.rpartition("#")[0] for passage_id in partial.passages}
            newest = max((days[item] for item in quoted if item in days), default=None)
            stated.append(PartialChoice(partial.choice, len(quoted), newest, key=not gold.isdisjoint(documents)))
    return PartitionedCase(
        outcome=outcome,
        final=answer.choice if outcome.state == "answered" else None,
        gold=str(answer.question.gold),
        stated=tuple(stated),
        undecided=states["relevant"] - len(stated),
        nothing=states["nothing"],
        unparsed=states["unparsed"],
        failed=states["failed"],
    )


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
    "newest quoted passage": _highest(attrgetter("newest")),
    "most quotations": _highest(attrgetter("quotations")),
    "part with the key document": _highest(lambda part: 1 if part.key else None),
}
"""Rules by which a reader might combine the parts. The last one needs the key document: it is a bound."""


def rules_table(cases: Sequence[PartitionedCase], source: str = "") -> Table:
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
            theirs.append(replace(case.outcome, state="answered", right=choice == case.gold))
            if case.final is not None:
                followed.append(replace(case.outcome, state="answered", right=choice == case.final))
        differences.append(_compare(ours, theirs))
        rows.append((name, len(ours), len(ours) - len(followed), *map(grouping.mean_score, (followed, theirs, ours))))
    unstated = 0
    for case in conflicts:
        unstated += case.final is not None and case.final not in (item.choice for item in case.stated)
    remarks = (
        f"Of {len(conflicts)} conflicts. A rule applies if it names one choice (no tie; a date, a quotation or a key "
        "document exists); no answer: conflicts to which the rule applies, but no answer was given; followed: of the "
        "others.",
        *grouping.describe_chance(conflict.outcome for conflict in conflicts),
        f"In {unstated} the answer is a choice that no part stated.",
        "Rules overlap: a rule that is followed need not be the reason for the answer.",
    )
    figures = ("speaks", "no answer", "followed", "rule right", "answer right")
    columns = ("rule", *figures, "difference to the rule", grouping.P_COLUMN)
    return _difference_table("Which rule decided", columns, rows, differences, remarks, source)


def _compare(ours: Sequence[Outcome], against: Sequence[Outcome]) -> Difference | None:
    return grouping.compare_to_baseline(_pair_up(ours, against))


def _pair_up(ours: Sequence[Outcome], against: Sequence[Outcome]) -> grouping.Group:
    """Return the pairs that share all conditions but the arm."""
    names: set[str] = set().union(*(case.condition for case in ours))
    return grouping.Group((), ours, against, tuple(sorted(names - {"arm"})))


def _difference_table(
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[Cell, ...]],
    differences: Sequence[Difference | None],
    remarks: Sequence[str],
    source: str,
) -> Table:
    notes = grouping.make_notes(len(differences) - differences.count(None), remarks)
    return Table(title, columns, grouping.add_differences(rows, differences), notes, source)


def split_arms(records: Iterable[RunRecord]) -> tuple[tuple[PartitionedCase, ...], tuple[Outcome, ...]]:
    """Return BriefContext's cases and plain RAG's outcomes, by the condition `arm`, else by the answer's strategy."""
    arms: dict[str, list[RunRecord]] = {OURS: [], RIVAL: []}
    for record in records:
        if record.arm in arms:
            arms[record.arm].append(record)
    return partitioned_cases(arms[OURS]), score_records(arms[RIVAL])


def conflicts_table(
    cases: Sequence[PartitionedCase], rival: Sequence[Outcome], by: Sequence[str] = (), source: str = ""
) -> Table:
    """Build Supplementary Table 2: the conflicts at each condition in `by` (`("k", "place")`), and all together.

    Win: right where RAG is not; lose: the reverse; tie: both right or both not.
    """
    rival_of = {pair_key(outcome.question, outcome.condition): outcome for outcome in rival}
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    bounds: dict[str, list[Interval | None]] = {grouping.SHARE_BOUNDS: [], grouping.DIFFERENCE_BOUNDS: []}
    for key, members in _group_cases(cases, by):
        ours: list[Outcome] = []
        against: list[Outcome] = []
        endings: Counter[str] = Counter()
        for case in (member for member in members if member.conflict):
            outcome = case.outcome
            twin = rival_of.get(pair_key(outcome.question, outcome.condition))
            ours.append(outcome)
            against += [twin] if twin else []
            mine, theirs = grouping.score_outcome(outcome), grouping.score_outcome(twin) if twin else None
            if mine is None or theirs is None:
                endings["not compared"] += 1
            elif mine == theirs:
                endings["tie"] += 1
            else:
                endings["win" if mine > theirs else "lose"] += 1
        differences.append(_compare(ours, against))
        bounds[grouping.SHARE_BOUNDS].append(grouping.bound_share(ours))
        bounds[grouping.DIFFERENCE_BOUNDS].append(grouping.bound_difference(_pair_up(ours, against)))
        counts = (*grouping.count_endings(ours), *(endings[ending] for ending in _ENDINGS))
        rows.append((*key, len(members), len(ours), grouping.mean_score(ours), *counts, grouping.mean_score(against)))
    counted = ("read in parts", "conflicts", "resolved", *grouping.STATES, *_ENDINGS)
    headings, rows, note = grouping.add_bounds((*by, *counted, "RAG right"), rows, bounds)
    columns = (*headings, "difference to RAG", grouping.P_COLUMN)
    remarks = (
        *note,
        *grouping.describe_chance(case.outcome for case in cases),
        "Resolved: share right among the conflicts. Not compared: RAG was not asked the same.",
        "The same questions at every condition: rows are not independent of each other.",
    )
    return _difference_table("Conflicts among the parts", columns, rows, differences, remarks, source)


def parts_table(cases: Sequence[PartitionedCase], by: Sequence[str] = (), source: str = "") -> Table:
    """Build the table of what the parts said: counts of parts, and of cases by how many parts stated a choice."""
    rows: list[tuple[Cell, ...]] = []
    for key, members in _group_cases(cases, by):
        stating = [len(member.stated) for member in members]
        states = [sum(map(attrgetter(name), members)) for name in ("undecided", "nothing", "unparsed", "failed")]
        none, one, conflicts = stating.count(0), stating.count(1), sum(member.conflict for member in members)
        several = len(stating) - none - one - conflicts
        rows.append((*key, len(members), sum(stating), *states, none, one, several, conflicts))
    parts = ("parts that chose", "found, chose nothing", "found nothing", "unparsed", "failed")
    columns = (*by, "cases", *parts, "no choice", "one part chose", "several agree", "conflict")
    about = "The columns from parts that chose to failed count parts, all others count cases."
    return Table("What the parts said", columns, tuple(rows), (about,), source)


def _group_cases(
    cases: Sequence[PartitionedCase], by: Sequence[str]
) -> list[tuple[tuple[Cell, ...], list[PartitionedCase]]]:
    """Return the cases at each condition, in order of appearance, and last all of them."""
    groups = group_conditions(cases, *by) if by else {}
    return [*groups.items(), (("all",) * len(by), list(cases))]


def _tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    tables: list[Table] = []
    for run in runs:
        partitioned, rival = split_arms(run.records())
        cases = sorted(partitioned, key=lambda case: condition_order(case.condition))
        names: set[str] = set().union(*(case.condition for case in cases))
        by = [item for item in ("k", "place") if item in names]
        tables.append(conflicts_table(cases, rival, by, source=run.name))
        tables.append(parts_table(cases, by, source=run.name))
        tables.append(rules_table(cases, source=run.name))
    return add_notes(tables, remarks)


EXPERIMENT = Experiment(
    name="conflicts",
    question="What happens to a question whose parts state different choices? (BriefContext, Figure 4)",
    cases=build_cases,
    tables=_tables_of_runs,
    sets=(PUBMEDQA,),
    grid=Grid((RIVAL, OURS), KS, PLACES),
    published=("conflicts", "conflicts-totals"),
    plots=(
        (bars_plot("Conflict cases against RAG", "win", "tie", "lose", along=("place",)),),
        (points_plot("How often a rule is followed, and how right it is", "followed", "rule right", along=("rule",)),),
    ),
)
