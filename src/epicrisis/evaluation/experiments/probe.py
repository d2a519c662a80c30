"""Does this model lose the middle of a long prompt, on these documents? Is map-reduce worth its cost for it?

The positions study in small, over questions of a set or over ones that the library's own documents answer
(`cloze`), with the two plain answers at its end. No figure of a paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from epicrisis.evaluation.analysis.grouping import corrected_p
from epicrisis.evaluation.analysis.sample_size import ALPHA
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import p_told
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.token_costs import CaseCost, measured_table, token_ratio
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.types import Passage, Question, Ranking

NAME = "probe"
K = 16
PLACES = (0, 50, 100)
ARMS = ("rag", "brief-context", "oracle", "closed-book")
N = 40

_LOOKUP = (
    "Where no question set was named the questions are sentences of the library with a number left out: whoever finds "
    "the sentence knows the answer. A model that finds it may still lose the middle where evidence has to be weighed."
)


def use_key_passages(evidence: PassageSource, keys: Mapping[str, Passage]) -> PassageSource:
    """The evidence with one key passage for each of these questions, by id, rather than the whole of its document."""

    def passages_of(question: Question) -> Mapping[str, tuple[Passage, ...]]:
        key = keys.get(question.id)
        return evidence.passages_of(question) if key is None else {key.document_id: (key,)}

    def retrieve(question: Question, k: int) -> Ranking:
        # The rest of the key's document is no distractor, so more must be found.
        more = sum(map(len, evidence.passages_of(question).values())) if question.id in keys else 0
        return evidence.retrieve(question, k + more)

    return replace(evidence, passages_of=passages_of, retrieve=retrieve)


def tables(
    runs: Mapping[str, Sequence[Outcome]], spent: Mapping[str, Sequence[CaseCost]], remarks: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Those of `positions`, what each arm took, and the answers."""
    by_place, averages, middle = positions.tables(runs, remarks=remarks)
    costs = tuple(measured_table(cases, name) for name, cases in spent.items())
    return _answers(averages, middle, spent), by_place, averages, middle, *costs


def _answers(averages: Table, middle: Table, spent: Mapping[str, Sequence[CaseCost]]) -> Table:
    """The two questions of the probe, for each run and k; their p values are a family of their own."""
    gains = {row[:2]: row[-2] for row in averages.rows if row[2] == "brief-context"}
    asked = [
        (row[:2], question, found if isinstance(found, Difference) else None)
        for row in middle.rows
        if row[2] == "rag"
        for question, found in ((_MIDDLE, row[3]), (_WORTH, gains.get(row[:2])))
    ]
    corrected = corrected_p([found for _, _, found in asked])
    rows = tuple(
        (
            model,
            k,
            question,
            _lost(found, p) if question == _MIDDLE else _worth(found, p, token_ratio(spent[str(model)], k)),
        )
        for ((model, k), question, found), p in zip(asked, corrected, strict=True)
    )
    n = sum(p is not None for p in corrected)
    notes = (
        *_bounds(averages),
        f"An effect is called shown where its p is at most {ALPHA:g}, corrected by Holm for the {n} tests of this "
        "table alone.",
        _LOOKUP,
    )
    return Table("Answers", ("model", "k", "question", "answer"), rows, notes)


def _bounds(averages: Table) -> Iterator[str]:
    """What is to be known first: whether the model answers from the passage at all."""
    shares = {row[:3]: row[3].value for row in averages.rows if isinstance(row[3], Mean)}
    for model, k in dict.fromkeys(row[:2] for row in averages.rows):
        alone, without = (shares.get((model, k, arm)) for arm in ("oracle", "closed-book"))
        if alone is not None and without is not None:
            yield (
                f"{model}: right in {100 * alone:.1f} % with that passage alone, in {100 * without:.1f} % without any. "
                "What is not answered from the passage alone, no place can lose."
            )


_MIDDLE, _WORTH = "Does it lose the middle?", "Is map-reduce worth it?"


def _lost(lost: Difference | None, p: float | None) -> str:
    if lost is None or p is None:
        return "Not to be said: the ends and the middle were not both asked."
    told = f"{100 * lost.value:+.1f} points ({_points(lost)}; {p_told(p)}, {lost.clusters} questions)"
    if p > ALPHA:
        return f"Not shown: ends less middle {told}. A loss within that interval may be there."
    if lost.value > 0:
        return f"Yes: at the ends it is right more often than in the middle, {told}."
    return f"No, the other way round: it is right more often in the middle, ends less middle {told}."


def _worth(gain: Difference | None, p: float | None, times: float | None) -> str:
    if gain is None or p is None:
        return "Not to be said: RAG and BriefContext were not both asked."
    dear = "" if token_ratio is None else f" It takes {token_ratio:.2f} times the tokens."
    told = f"{100 * gain.value:+.1f} points against RAG ({_points(gain)}; {p_told(p)}, {gain.clusters} questions)"
    if p > ALPHA:
        cheaper = (
            ""
            if token_ratio is None or token_ratio < 1
            else " Plain RAG is the cheaper choice until more questions say otherwise."
        )
        return f"Not shown: {told}.{dear}{cheaper}"
    return f"{'Yes, it answers better' if gain.value > 0 else 'No, it answers worse'}: {told}.{dear}"


def _points(each: Difference) -> str:
    return f"95 % interval {100 * each.interval.low:+.1f} to {100 * each.interval.high:+.1f}"
