"""Does it matter where the key document stands? (BriefContext, Figure 2 and Supplementary Table 1.)

The same questions with the key document at five places among k documents, read by RAG, by BriefContext and by the
cheap rivals, beside the key alone and no document at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, product

from epicrisis.counting import units
from epicrisis.evaluation.analysis.grouping import (
    AccuracyMeasure,
    Group,
    P,
    PairingKey,
    by_pair,
    chance,
    corrected_p,
    spread,
    table,
)
from epicrisis.evaluation.analysis.grouping import notes as notes_of
from epicrisis.evaluation.analysis.statistics import Difference, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import UNPLACED, Study
from epicrisis.evaluation.experiments.placement import PLACES, distinct_places
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.types import Question

NAME = "positions"
KS = (8, 16)
ARMS = ("rag", "brief-context", "ends", "fused", "oracle", "closed-book")
"""Without `reranked`, which needs a reranker."""
PUBLISHED = ("positions", "positions-averages", "positions-averages-preprint")
"""Tables of `published` to set beside these."""

PASSAGES = (
    "k counts documents, each with its passages that were found (in a run with count = passages, and in those made "
    "before documents were counted, passages); those of the key document stand together, at 0 before and at 100 behind "
    "all others."
)
_NOTES = (
    "SD over places, SD over repeats: of the means at each place and of each repeat. Both hold the chance of so many "
    "questions; a sample of its own for each repeat is not drawn.",
    "The preflight check takes no part: what is studied is map-reduce itself.",
    "What the bounds (the key alone, no document) differ by is shown, not tested.",
    PASSAGES,
)


def cases(
    questions: Sequence[Question],
    study: Study,
    *,
    ks: Sequence[int] = KS,
    places: Sequence[int] = PLACES,
    arms: Sequence[str] = ARMS,
    at_least_keys: bool = False,
) -> tuple[Case, ...]:
    """Conditions `arm`, `k`, `place` (percentile) and `repeat`; arms that read no ranking have neither k nor place.

    The cases of a question follow each other, so that a prompt's beginning is still known to the model. Raises
    InputError where a question or a document is missing, an arm lacks what it needs, or a key document has more
    passages than k documents may; `at_least_keys`: where the keys are more than k, they stand alone.
    """
    study.check(arms)
    placed_arms = [arm for arm in arms if arm not in UNPLACED]
    made: list[Case] = []
    for material in study.gather(questions, max(ks)):
        made += study.bounds(material, arms)
        keys = len(units(material.keys, study.evidence.count))
        for k in ks:
            read = max(k, keys) if at_least_keys else k
            rankings = {place: material.placed(read, place) for place in distinct_places(places, read, keys)}
            for arm, (place, ranking) in product(placed_arms, rankings.items()):
                made += study.cases(material, {"arm": arm, "k": k, "place": place}, ranking)
    return tuple(made)


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    baseline: str = "rag",
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: each place; the averages over places with both spreads; and what
    the middle loses against the ends. `remarks` (the protocol's notes) stand under each."""
    remarks = (*remarks, *_NOTES)
    return (
        table(
            "Accuracy by the place of the key document (percentile)",
            ("model", "k", "arm", "place"),
            [group for model, found in runs.items() for group in _by_place(model, found, baseline, measure)],
            baseline=baseline,
            measure=measure,
            more=("SD over repeats",),
            remarks=remarks,
            seed=seed,
        ),
        table(
            "Accuracy averaged over the places",
            ("model", "k", "arm"),
            [group for model, found in runs.items() for group in _averages(model, found, baseline, measure)],
            baseline=f"{baseline} at that k",
            measure=measure,
            more=("SD over places", "SD over repeats"),
            remarks=remarks,
            seed=seed,
        ),
        middle(runs, baseline=baseline, measure=measure, remarks=remarks, seed=seed),
    )


def _of(outcomes: Sequence[Outcome], **wanted: Cell) -> list[Outcome]:
    """Those of these conditions; `None`: without that condition."""
    return [each for each in outcomes if all(each.condition.get(name) == value for name, value in wanted.items())]


def _values(outcomes: Sequence[Outcome], name: str) -> list[Cell]:
    return list(dict.fromkeys(each.condition[name] for each in outcomes if name in each.condition))


def _grid(outcomes: Sequence[Outcome]) -> list[tuple[Cell, Cell]]:
    """(k, arm) of what read a placed ranking, by k."""
    pairs = dict.fromkeys((each.condition.get("k"), each.condition["arm"]) for each in outcomes)
    return sorted((pair for pair in pairs if pair[0] is not None), key=lambda pair: int(str(pair[0])))


def _by_place(model: str, outcomes: Sequence[Outcome], baseline: str, measure: AccuracyMeasure) -> list[Group]:
    groups = []
    for k, arm in _grid(outcomes):
        for place in _values(_of(outcomes, k=k, arm=arm), "place"):
            here = _of(outcomes, k=k, arm=arm, place=place)
            against = _of(outcomes, k=k, arm=baseline, place=place) if arm != baseline else ()
            spreads = (spread(here, "repeat", measure),)
            groups.append(Group((model, k, arm, place), here, against, ("repeat",), spreads))
    return groups


def _averages(model: str, outcomes: Sequence[Outcome], baseline: str, measure: AccuracyMeasure) -> list[Group]:
    """Over the places, by k; the bounds stand at each k, against the same baseline."""
    unplaced = [each for each in outcomes if "k" not in each.condition]
    groups = []
    by_k = {k: [arm for _, arm in pairs] for k, pairs in groupby(_grid(outcomes), key=lambda pair: pair[0])}
    for k, arms in (by_k or {None: []}).items():
        rival = _of(outcomes, k=k, arm=baseline)
        for arm in arms:
            here = _of(outcomes, k=k, arm=arm)
            spreads = spread(here, "place", measure), spread(here, "repeat", measure)
            against = rival if arm != baseline else ()
            groups.append(Group((model, k, arm), here, against, ("place", "repeat"), spreads))
        for arm in _values(unplaced, "arm"):
            here = _of(unplaced, arm=arm)
            spreads = None, spread(here, "repeat", measure)
            groups.append(Group((model, k, arm), here, rival, ("repeat",), spreads, tested=False))
    return groups


def middle(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    baseline: str = "rag",
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Table:
    """What each arm loses when the key document stands between the ends: the mean at the ends (percentiles 0 and 100)
    less the mean between them, by question; and how much less than the baseline it loses."""
    labels: list[tuple[Cell, ...]] = []
    losses: list[Difference | None] = []
    spared: list[Difference | None] = []
    scored: list[tuple[int, int]] = []
    for model, outcomes in runs.items():
        lost = {(k, arm): _lost(_of(outcomes, k=k, arm=arm), measure) for k, arm in _grid(outcomes)}
        for (k, arm), by_question in lost.items():
            labels.append((model, k, arm))
            asked = len({each.question for each in _of(outcomes, k=k, arm=arm)})
            scored.append((len(by_question), asked - len(by_question)))
            losses.append(_difference(by_question, dict.fromkeys(by_question, 0.0), seed))
            other = lost.get((k, baseline)) if arm != baseline else None
            spared.append(_difference(other, by_question, seed) if other else None)
    corrected = corrected_p([*losses, *spared])
    compared = sum(p is not None for p in corrected)
    rows = tuple(
        (*label, loss, corrected[i], less, corrected[len(labels) + i], *scored[i])
        for i, (label, loss, less) in enumerate(zip(labels, losses, spared, strict=True))
    )
    columns = (
        "model",
        "k",
        "arm",
        "lost in the middle",
        P,
        f"lost less than {baseline}",
        f"{P} of that",
        "questions",
        "not scored",
    )
    about = (
        "Lost in the middle: share right with the key at either end, less the share right with it between them, of the "
        "questions that are scored at both."
    )
    everyone = (each for outcomes in runs.values() for each in outcomes if "k" in each.condition)
    told = notes_of(measure, compared, (*chance(everyone), about, *remarks))
    return Table("What the middle loses", columns, rows, told)


def _lost(outcomes: Sequence[Outcome], measure: AccuracyMeasure) -> dict[PairingKey, float]:
    """By question: its mean at the ends less its mean between them, where it has both."""
    ends = [each for each in outcomes if each.condition["place"] in (0, 100)]
    between = [each for each in outcomes if each.condition["place"] not in (0, 100)]
    first, second = (by_pair(each, (), measure) for each in (ends, between))
    return {key: first[key] - second[key] for key in first if key in second}


def _difference(first: Mapping[PairingKey, float], second: Mapping[PairingKey, float], seed: int) -> Difference | None:
    return paired_difference(first, second, seed=seed) if first.keys() & second.keys() else None
