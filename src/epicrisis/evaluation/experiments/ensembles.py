"""What do votes and shuffled options bring? (The context-retrieval study, section 4.1: Tables 1 to 3, Figure 2.)

Zero-shot by next token, one chain of thought, and self-consistency over a growing number of votes, with the options as
they are and shuffled; one number of votes at several temperatures. The votes of a smaller number are among those of a
larger one, so they come out of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from epicrisis.answering.voting import Voting
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.grouping import AccuracyMeasure, Group, table
from epicrisis.evaluation.analysis.statistics import mean_of
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.evaluation.runs.outcomes import Outcome, RunRecord, outcome_of_record
from epicrisis.overrides import RunOverrides
from epicrisis.types import Question, StrategyName

NAME = "ensembles"
VOTES = (1, 3, 5, 10, 15, 20, 25)
TEMPERATURES = (0.3, 0.5, 0.7, 1.0)
"""Ours: the study says that it varied them and prints none."""
N = 5
"""Votes at each temperature, and of the methods side by side; where nobody asks so many, the most there are."""
ZERO, COT, SC, SHUFFLED = "zero-shot", "chain-of-thought", "self-consistency", "self-consistency+shuffling"
ARMS = (ZERO, COT, SC, SHUFFLED)
PUBLISHED = ("ensembles-baseline", "ensembles-shuffling", "ensembles-votes", "study-energy")
"""Tables of `published` to set beside these."""

_STRATEGIES: Mapping[str, StrategyName] = {
    ZERO: "zero-shot",
    COT: "chain-of-thought",
    SC: "self-consistency",
    SHUFFLED: "self-consistency",
}
_NOTES = (
    "A tie of votes is no choice and counts as abstained, unless votes.tie says otherwise. N = 1 is one vote at the "
    "votes' temperature, a chain of thought is one reply at the model's own (errata P5: the study's N = 1 is its "
    "unshuffled chain of thought).",
    "Votes of a smaller number are the first of a larger one, so rows are not independent of each other.",
)


@dataclass(frozen=True, slots=True)
class VoteSampling:
    """How votes are drawn, the seed, and how often all is asked: repeat r asks all once more with the seed + r."""

    voting: Voting = Voting()  # noqa: RUF009  a frozen value
    seed: int = 0
    repeats: int = 1

    def cases(self, question: Question, condition: Condition, treatment: RunOverrides) -> list[Case]:
        """One a repeat."""
        return [
            Case(question, {**condition, "repeat": repeat}, replace(treatment, seed=self.seed + repeat))
            for repeat in range(self.repeats)
        ]

    def votes(self, n: int, *, shuffle: bool) -> Voting:
        """So many, shuffled or not."""
        return replace(self.voting, n=n, shuffle=shuffle)


def cases(
    questions: Sequence[Question],
    drawing: VoteSampling,
    *,
    votes: Sequence[int] = VOTES,
    temperatures: Sequence[float] = (),
    arms: Sequence[str] = ARMS,
) -> tuple[Case, ...]:
    """Conditions: `arm`, for self-consistency `votes` and, where it is not the drawing's own, `temperature`; `repeat`.
    The most votes come first, so that the rest is there.

    Raises InputError for an arm that is not known, or a question without a gold letter.
    """
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise InputError(f"no arm is called {unknown[0]}: known are {', '.join(ARMS)}")
    check_choices(questions)
    made: list[Case] = []
    for question in questions:
        for arm in arms:
            if arm in (ZERO, COT):
                made += drawing.cases(question, {"arm": arm}, RunOverrides(_STRATEGIES[arm]))
                continue
            for n in sorted(votes, reverse=True):
                voting = drawing.votes(n, shuffle=arm == SHUFFLED)
                treatment = RunOverrides(_STRATEGIES[arm], voting=voting)
                made += drawing.cases(question, {"arm": arm, "votes": n}, treatment)
            for temperature in sorted({*temperatures} - {drawing.voting.temperature}):
                n = preferred_size(N, votes)
                voting = replace(drawing.votes(n, shuffle=arm == SHUFFLED), temperature=temperature)
                condition: Condition = {"arm": arm, "votes": n, "temperature": temperature}
                made += drawing.cases(question, condition, RunOverrides(_STRATEGIES[arm], voting=voting))
    return tuple(made)


def preferred_size(n: int, asked: Sequence[int]) -> int:
    """This number where it was asked, else the largest that was."""
    return n if n in asked else max(asked)


def check_choices(questions: Iterable[Question]) -> None:
    """Raises InputError for a question without options or without a gold letter."""
    for question in questions:
        if question.gold is None or question.gold not in question.options:
            raise InputError(
                f"question {question.id!r} has no options or no gold letter: this experiment needs both, so take "
                "another question set"
            )


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: the methods at one number of votes (Table 1), what shuffling
    changes (Table 2), the number of votes (Table 3, Figure 2), and the temperature where it was varied."""
    made = partial(table, measure=measure, remarks=(*_NOTES, *remarks), seed=seed)
    warmed = [group for model, found in runs.items() for group in _by_temperature(model, found)]
    as_set = {model: of(found, temperature=None) for model, found in runs.items()}.items()
    votes = ("model", "arm", "votes")
    return (
        made(
            "Accuracy by method",
            votes,
            [group for model, found in as_set for group in _methods(model, found)],
            baseline=COT,
        ),
        made(
            "What shuffled options change",
            ("model", "votes"),
            [group for model, found in as_set for group in _shuffling(model, found)],
            baseline="options as they are",
        ),
        made(
            "Accuracy by the number of votes",
            votes,
            [group for model, found in as_set for group in _by_votes(model, found)],
            baseline="the same arm at its fewest votes",
        ),
        *([made("Accuracy by temperature", (*votes, "temperature"), warmed, baseline="as set")] if warmed else ()),
    )


def of(outcomes: Sequence[Outcome], **wanted: Cell) -> list[Outcome]:
    """Those of these conditions."""
    return [each for each in outcomes if all(each.condition.get(name) == value for name, value in wanted.items())]


def _votes(outcomes: Sequence[Outcome], arm: str) -> list[int]:
    return sorted({int(str(each.condition["votes"])) for each in of(outcomes, arm=arm) if "votes" in each.condition})


def _methods(model: str, outcomes: Sequence[Outcome]) -> list[Group]:
    """Five votes, as the study's Table 1, where they were asked; else the most there are."""
    groups = []
    against = of(outcomes, arm=COT)
    for arm in ARMS:
        asked = _votes(outcomes, arm)
        n = preferred_size(N, asked) if asked else None
        here = of(outcomes, arm=arm) if n is None else of(outcomes, arm=arm, votes=n)
        if here:
            groups.append(Group((model, arm, n), here, against if arm != COT else (), ("repeat",)))
    return groups


def _shuffling(model: str, outcomes: Sequence[Outcome]) -> list[Group]:
    return [
        Group((model, n), of(outcomes, arm=SHUFFLED, votes=n), of(outcomes, arm=SC, votes=n), ("repeat",))
        for n in _votes(outcomes, SHUFFLED)
    ]


def _by_votes(model: str, outcomes: Sequence[Outcome]) -> list[Group]:
    groups = []
    for arm in (SC, SHUFFLED):
        asked = _votes(outcomes, arm)
        for n in asked:
            against = of(outcomes, arm=arm, votes=asked[0]) if n != asked[0] else ()
            groups.append(Group((model, arm, n), of(outcomes, arm=arm, votes=n), against, ("repeat",)))
    return groups


def _by_temperature(model: str, outcomes: Sequence[Outcome]) -> list[Group]:
    groups = []
    for arm in (SC, SHUFFLED):
        varied = [each for each in of(outcomes, arm=arm) if "temperature" in each.condition]
        for n in sorted({int(str(each.condition["votes"])) for each in varied}):
            own = of(outcomes, arm=arm, votes=n, temperature=None)
            groups.append(Group((model, arm, n, "as set"), own, (), ("repeat",)))
            for temperature in sorted({float(str(each.condition["temperature"])) for each in varied}):
                here = of(varied, votes=n, temperature=temperature)
                groups.append(Group((model, arm, n, temperature), here, own, ("repeat",)))
    return groups


# -- what it took -----------------------------------------------------------------------------------------------------

_TOOK = (
    "Means a case with 95 % intervals. Replies that came out of the cache are counted with what they had cost: a vote "
    "that was drawn for more votes already is paid for once, and would be paid for by whoever asks for fewer.",
)


def usage_table(runs: Mapping[str, Iterable[RunRecord]], by: Sequence[str]) -> Table:
    """Calls and tokens a case, by these conditions; failed cases are left out and counted."""
    rows: list[tuple[Cell, ...]] = []
    for model, records in runs.items():
        groups: dict[tuple[Cell, ...], list[RunRecord]] = {}
        for record in records:
            groups.setdefault(tuple(record["condition"].get(name) for name in by), []).append(record)
        for labels, cases in sorted(groups.items(), key=lambda pair: tuple(map(_place, pair[0]))):
            whole = [each["answer"]["usage"] for each in cases if each["answer"]["state"] != "failed"]
            calls = [each["calls"] + each["replayed_calls"] for each in whole]
            tokens = [each["prompt_tokens"] + each["completion_tokens"] + each["replayed_tokens"] for each in whole]
            clusters = [outcome_of_record(each).question for each in cases if each["answer"]["state"] != "failed"]
            means = (mean_of(values, clusters, shares=False) if values else None for values in (calls, tokens))
            rows.append((model, *labels, len(cases), len(cases) - len(whole), *means))
    return Table("What it took", ("model", *by, "cases", "not counted", "calls", "tokens"), tuple(rows), _TOOK)


def _place(label: Cell) -> tuple[int, float, str]:
    """Numbers by size, before names."""
    return (0, float(label), "") if isinstance(label, int | float) else (1, 0.0, str(label or ""))
