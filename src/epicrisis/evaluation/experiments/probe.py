"""Does this model lose the middle of a long prompt, on these documents? Is map-reduce worth its cost for it?

The positions study in small, over questions of a set or over ones that the library's own documents answer
(`evaluation.cloze`), with the two plain answers at its end. No figure of a paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from epicrisis.evaluation.runs.records import Outcome
from epicrisis.evaluation.statistics import Difference
from epicrisis.evaluation.tables.table import Cell, Table
from epicrisis.types import Passage, Question, Ranking

from . import positions
from .cost import Spent, measured_table
from .evidence import Evidence

NAME = "probe"
K = 16
PLACES = (0, 50, 100)
ARMS = ("rag", "brief-context", "oracle", "closed-book")
N = 40
LEVEL = 0.05

_LOOKUP = (
    "Where no question set was named the questions are sentences of the library with a number left out: whoever finds "
    "the sentence knows the answer. A model that finds it may still lose the middle where evidence has to be weighed."
)


def within(evidence: Evidence, keys: Mapping[str, Passage]) -> Evidence:
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
    runs: Mapping[str, Sequence[Outcome]], spent: Mapping[str, Sequence[Spent]], remarks: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Those of `positions`, what each arm took, and the answers."""
    by_place, averages, middle = positions.tables(runs, remarks=remarks)
    costs = tuple(measured_table(cases, name) for name, cases in spent.items())
    return _answers(averages, middle, spent), by_place, averages, middle, *costs


def _answers(averages: Table, middle: Table, spent: Mapping[str, Sequence[Spent]]) -> Table:
    """The two questions of the probe, for each run and k."""
    rows: list[tuple[Cell, ...]] = []
    for row in middle.rows:
        model, k, arm, lost, p, *_ = row
        if arm != "rag":
            continue
        rows.append((model, k, "Does it lose the middle?", _lost(lost, p)))
        for gained in (each for each in averages.rows if each[:3] == (model, k, "brief-context")):
            rows.append(
                (model, k, "Is map-reduce worth it?", _worth(gained[-2], gained[-1], _times(spent[str(model)], k)))
            )
    notes = ("An effect is called shown where its corrected p is below 0.05.", _LOOKUP)
    return Table("Answers", ("model", "k", "question", "answer"), tuple(rows), notes)


def _lost(lost: Cell, p: Cell) -> str:
    if not isinstance(lost, Difference) or not isinstance(p, float):
        return "Not to be said: the ends and the middle were not both asked."
    told = f"{100 * lost.value:+.1f} points ({_points(lost)}; {_p(p)}, {lost.clusters} questions)"
    if p < LEVEL:
        return f"Yes: at the ends it is right more often than in the middle, {told}." if lost.value > 0 else (
            f"No, the other way round: it is right more often in the middle, ends less middle {told}."
        )  # fmt: skip
    return f"Not shown: ends less middle {told}. A loss within that interval may be there."


def _worth(gain: Cell, p: Cell, times: float | None) -> str:
    if not isinstance(gain, Difference) or not isinstance(p, float):
        return "Not to be said: RAG and BriefContext were not both asked."
    dear = "" if times is None else f" It takes {times:.2f} times the tokens."
    told = f"{100 * gain.value:+.1f} points against RAG ({_points(gain)}; {_p(p)}, {gain.clusters} questions)"
    if p < LEVEL:
        return f"{'Yes, it answers better' if gain.value > 0 else 'No, it answers worse'}: {told}.{dear}"
    return f"Not shown: {told}.{dear} Plain RAG is the cheaper choice until more questions say otherwise."


def _times(cases: Sequence[Spent], k: Cell) -> float | None:
    """Tokens in and out of BriefContext to those of RAG; `None` where one of them has no plain case."""
    total = {
        arm: [case.total.input + case.total.output for case in cases if (case.arm, case.k) == (arm, k) and case.plain]
        for arm in ("brief-context", "rag")
    }
    ours, rival = total["brief-context"], total["rag"]
    return (sum(ours) / len(ours)) / (sum(rival) / len(rival)) if ours and rival else None


def _points(each: Difference) -> str:
    return f"95 % interval {100 * each.interval.low:+.1f} to {100 * each.interval.high:+.1f}"


def _p(p: float) -> str:
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"
